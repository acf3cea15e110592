"""The real programs: how each is pointed at the scripted model, started, and told to go on.

Every program gets a home of its own, a key that opens nothing, and its documented switches for updates and
telemetry turned off. What it sends anywhere but to the scripted model ends at a closed port.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.hooks.installing.agents import AgentName

REPOSITORY: Final = Path(__file__).parents[2]
NOWHERE: Final = "http://127.0.0.1:9"
LONGEST_RUN: Final = 180


@dataclass
class Program:
    """One agent, installed under ``tools``, with a home and a project of its own."""

    agent: AgentName
    tools: Path
    home: Path
    project: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY / "src"),
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def connect(self, url: str) -> None:
        """Make the scripted model at ``url`` the only one that the program knows."""
        raise NotImplementedError

    def accept_hooks(self) -> None:
        """Do what a person does when the program asks whether it may run the hooks."""

    def forget_trust(self) -> None:
        """Undo `accept_hooks`, where a program has something to accept."""

    def start(self, prompt: str) -> list[str]:
        """Return the command line of a new conversation."""
        raise NotImplementedError

    def go_on(self, prompt: str) -> list[str]:
        """Return the command line that goes on with the last conversation."""
        raise NotImplementedError

    def version(self) -> str:
        """Return what the program says about itself."""
        said = self._run([self.executable, "--version"])
        return said.stdout.strip().splitlines()[-1]

    @property
    def executable(self) -> str:
        """The program's file."""
        return str(self.tools / self.agent)

    def run(self, command: list[str]) -> None:
        """Run the program to its end, which has to be a good one."""
        done = self._run(command)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start the program in a process group of its own, to be killed."""
        return subprocess.Popen(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_RUN,
            check=False,
        )


class ClaudeCode(Program):
    """Claude Code, in print mode."""

    @property
    def executable(self) -> str:
        return str(self.tools / "claude")

    def connect(self, url: str) -> None:
        self.environment.update(
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_API_KEY="scripted",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
            DISABLE_ERROR_REPORTING="1",
            DISABLE_TELEMETRY="1",
        )

    def start(self, prompt: str) -> list[str]:
        return [*self._words(), "-p", prompt]

    def go_on(self, prompt: str) -> list[str]:
        return [*self._words(), "--continue", "-p", prompt]

    def _words(self) -> list[str]:
        allowed = "Bash,Edit,Write,Read"
        return [self.executable, "--model", "claude-sonnet-4-5", "--allowedTools", allowed]


class Codex(Program):
    """Codex, as ``codex exec``."""

    def connect(self, url: str) -> None:
        written(
            self.home / ".codex" / "config.toml",
            'model = "gpt-5.5"\n'
            'model_provider = "scripted"\n'
            "check_for_update_on_startup = false\n"
            "[analytics]\n"
            "enabled = false\n"
            f"[projects.{json.dumps(str(self.project))}]\n"
            'trust_level = "trusted"\n'
            "[model_providers.scripted]\n"
            'name = "Scripted"\n'
            f'base_url = "{url}/v1"\n'
            'wire_api = "responses"\n',
        )

    def accept_hooks(self) -> None:
        """Trust every hook that Codex lists, by the hash that it shows: what /hooks does."""
        self.forget_trust()
        lines = [
            f"[hooks.state.{json.dumps(hook['key'])}]\ntrusted_hash = {json.dumps(hook['currentHash'])}\n"
            for hook in self.listed_hooks()
        ]
        with (self.home / ".codex" / "config.toml").open("a") as settings:
            settings.write("".join(lines))

    def forget_trust(self) -> None:
        settings = self.home / ".codex" / "config.toml"
        settings.write_text(settings.read_text().partition("[hooks.state.")[0])

    def listed_hooks(self) -> list[dict[str, Any]]:
        """Return the hooks that Codex has found, with its opinion of each."""
        ask = [
            {
                "id": 1,
                "method": "initialize",
                "params": {"clientInfo": {"name": "t", "version": "1"}},
            },
            {"method": "initialized"},
            {"id": 2, "method": "hooks/list", "params": {"cwds": [str(self.project)]}},
        ]
        with subprocess.Popen(
            [self.executable, "app-server"],
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write("".join(json.dumps(line) + "\n" for line in ask))
            server.stdin.flush()
            try:
                for line in server.stdout:
                    answer = json.loads(line)
                    if answer.get("id") == 2:
                        hooks = answer["result"]["data"][0]["hooks"]
                        assert isinstance(hooks, list)
                        return hooks
            finally:
                server.kill()
        raise AssertionError("Codex has not listed its hooks")

    def start(self, prompt: str) -> list[str]:
        return [*self._words(), prompt]

    def go_on(self, prompt: str) -> list[str]:
        return [*self._words(), "resume", "--last", prompt]

    def _words(self) -> list[str]:
        # Its sandbox needs rights that a container often lacks; the project is a scratch one.
        return [self.executable, "exec", "--dangerously-bypass-approvals-and-sandbox"]


class Gemini(Program):
    """Gemini CLI, headless."""

    skipping: tuple[str, ...] = ()

    def connect(self, url: str) -> None:
        self.environment.update(
            GEMINI_API_KEY="scripted",
            GOOGLE_GEMINI_BASE_URL=url,
            GEMINI_CLI_NO_RELAUNCH="true",
        )
        settings = {
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
        }
        written(self.home / ".gemini" / "settings.json", json.dumps(settings))

    def accept_hooks(self) -> None:
        self.environment["GEMINI_CLI_TRUST_WORKSPACE"] = "true"

    def forget_trust(self) -> None:
        # Without a person Gemini CLI refuses to start in a folder that is not trusted, unless asked to.
        self.environment.pop("GEMINI_CLI_TRUST_WORKSPACE")
        self.skipping = ("--skip-trust",)

    def start(self, prompt: str) -> list[str]:
        return [*self._words(), "-p", prompt]

    def go_on(self, prompt: str) -> list[str]:
        return [*self._words(), "--resume", "latest", "-p", prompt]

    def _words(self) -> list[str]:
        words = ["--model", "gemini-2.5-flash", "--approval-mode", "yolo"]
        return [self.executable, *words, *self.skipping]


class OpenCode(Program):
    """opencode, as ``opencode run``."""

    def connect(self, url: str) -> None:
        # It looks for packages before its first answer; the model's server has none to offer.
        self.environment.update(
            OPENCODE_DISABLE_AUTOUPDATE="1",
            OPENCODE_DISABLE_DEFAULT_PLUGINS="1",
            OPENCODE_DISABLE_LSP_DOWNLOAD="1",
            OPENCODE_DISABLE_MODELS_FETCH="1",
            npm_config_fetch_retries="0",
            npm_config_registry=f"{url}/",
        )
        model = {"name": "Model", "tool_call": True, "limit": {"context": 100_000, "output": 4_000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": f"{url}/v1", "apiKey": "scripted"},
            "models": {"model": model},
        }
        settings = {
            "autoupdate": False,
            "model": "scripted/model",
            "permission": {"bash": "allow", "edit": "allow"},
            "provider": {"scripted": provider},
            "share": "disabled",
            "small_model": "scripted/model",
        }
        written(self.home / ".config" / "opencode" / "opencode.json", json.dumps(settings))

    def start(self, prompt: str) -> list[str]:
        return [self.executable, "run", prompt]

    def go_on(self, prompt: str) -> list[str]:
        return [self.executable, "run", "--continue", prompt]


PROGRAMS: Final[dict[AgentName, type[Program]]] = {
    "claude-code": ClaudeCode,
    "codex": Codex,
    "gemini": Gemini,
    "opencode": OpenCode,
}


def written(path: Path, text: str) -> Path:
    """Write a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
