"""A real agent in a scratch project, with our hooks installed by our own command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.hooks.installing.agents import AgentName
from tests.agents.dialects import Action
from tests.agents.model_server import ModelServer
from tests.agents.programs import PROGRAMS, REPOSITORY, Program, written

LONGEST_WAIT = 120.0
TOOLS = (
    Path(os.environ.get("HOLDFAST_AGENTS", REPOSITORY / ".agents-npm")) / "node_modules" / ".bin"
)


@dataclass
class Desk:
    """A program at work in a project, and what Holdfast knows about it."""

    program: Program
    model: ModelServer

    @property
    def project(self) -> Path:
        return self.program.project

    def holdfast(self, *arguments: str) -> Any:
        """Run a command of ours and return its answer."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments, "--json"],
            cwd=self.project,
            env=self.program.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def checkpoints(self) -> list[dict[str, Any]]:
        """Return all checkpoints of the newest session, oldest first."""
        found = self.holdfast("log")["checkpoints"]
        assert isinstance(found, list)
        return found[::-1]

    def work(self, script: Sequence[Action], *, go_on: bool = False) -> None:
        """Let the program follow a script to its end."""
        self.model.play(script)
        begin = self.program.go_on if go_on else self.program.start
        self.program.run(begin("Go on with it" if go_on else "Do the work"))

    def work_until_killed(self, script: Sequence[Action]) -> None:
        """Let the program follow a script until the model holds, and kill it there with all it started."""
        self.model.play(script)
        process = self.program.spawn(self.program.start("Do the work"))
        try:
            assert self.model.holding.wait(LONGEST_WAIT), "the program has not come so far"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def told(self) -> str:
        """Return everything that the program has sent to the model since the script began."""
        return "\n".join(request.text for request in self.model.requests)


@pytest.fixture(params=list(PROGRAMS))
def agent(request: pytest.FixtureRequest) -> AgentName:
    """The name of each agent in turn."""
    name: AgentName = request.param
    return name


@pytest.fixture
def program(agent: AgentName, tmp_path: Path) -> Program:
    """The agent's program, with a home and a git project of its own."""
    assert TOOLS.is_dir(), "the agents are not installed: make test-agents does that"
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / "notes.txt").write_text("one\ntwo\n")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "first"),
    ):
        subprocess.run(["git", *words], cwd=project, check=True)
    return PROGRAMS[agent](agent, TOOLS, home, project)


@pytest.fixture
def desk(agent: AgentName, program: Program) -> Iterator[Desk]:
    """The agent in its project, connected to the scripted model, with our hooks."""
    with ModelServer([]) as model:
        desk = Desk(program, model)
        program.connect(model.url)
        desk.holdfast("init")
        # How many checkpoints there are must not depend on how quick the program is.
        written(program.project / ".agents" / "holdfast.toml", "[hooks]\ndebounce_ms = 1\n")
        assert desk.holdfast("hooks", "install", agent)["hooks"]["done"] == "installed"
        program.accept_hooks()
        yield desk


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print which versions ran."""
    packages = json.loads((Path(__file__).parent / "package.json").read_text())["dependencies"]
    terminalreporter.section("agents")
    for name in packages:
        package = TOOLS.parent / name / "package.json"
        version = (
            json.loads(package.read_text())["version"] if package.exists() else "not installed"
        )
        terminalreporter.write_line(f"{name} {version}")
