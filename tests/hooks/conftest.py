"""Agents that report what they do, in this process or through the real command."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdfast import Checkpoint, SessionManager
from holdfast.hooks.command import handle
from holdfast.model import SessionRecord

REPOSITORY = Path(__file__).parents[2]


class Agent:
    """An agent in a project: ``agent("PreToolUse", tool_name="Edit", …)`` is an event of it."""

    def __init__(
        self, project: Path, session_id: str = "a1b2", *, kind: str | None = None, **always: Any
    ) -> None:
        self.project = project
        self.session_id = session_id
        self.kind = kind
        self.always = always
        self.err = ""

    def payload(self, event: str, **fields: Any) -> bytes:
        given = {
            "session_id": self.session_id,
            "cwd": str(self.project),
            "hook_event_name": event,
            **self.always,
            **fields,
        }
        return json.dumps(given).encode()

    def __call__(self, event: str, **fields: Any) -> str:
        return self.send(self.payload(event, **fields))

    def send(self, data: bytes, *, name: str | None = None) -> str:
        """Hand over whatever bytes; the exit code is 0 in any case."""
        out, err = io.StringIO(), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(data))
        with patch.object(sys, "stdin", stdin), redirect_stdout(out), redirect_stderr(err):
            code = handle(agent=self.kind, name=name)
        self.err = err.getvalue()
        assert code == 0
        return out.getvalue()

    # What agents do ------------------------------------------------------------------------

    def start(self, source: str = "startup", **fields: Any) -> str:
        """Start, and return what the agent was told."""
        out = self("SessionStart", source=source, **fields)
        if not out:
            return ""
        told = json.loads(out)["hookSpecificOutput"]
        assert told.keys() == {"hookEventName", "additionalContext"}
        assert told["hookEventName"] == "SessionStart"
        text = told["additionalContext"]
        assert isinstance(text, str)
        return text

    def before_edit(self, path: str) -> None:
        target = {"file_path": str(self.project / path)}
        assert self("PreToolUse", tool_name="Edit", tool_input=target) == ""

    def edit(self, path: str, content: str) -> None:
        """Change a file with the agent's own tool."""
        self.before_edit(path)
        (self.project / path).write_text(content)
        target = {"file_path": str(self.project / path)}
        assert self("PostToolUse", tool_name="Edit", tool_input=target) == ""

    def shell(self, command: str) -> None:
        """Run a command in the agent's shell."""
        tool = {"tool_name": "Bash", "tool_input": {"command": command}}
        assert self("PreToolUse", **tool) == ""
        subprocess.run(command, shell=True, cwd=self.project, check=True)
        assert self("PostToolUse", **tool) == ""


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_URL", "HOLDFAST_TENANT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "src"))


def git(project: Path, *arguments: str) -> str:
    """Run git in a project, as its user."""
    who = ("-c", "user.name=someone", "-c", "user.email=someone@example.com")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=project, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a committed file."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "app.py").write_text("first\n")
    git(folder, "add", "app.py")
    git(folder, "commit", "-qm", "begin")
    return folder


@pytest.fixture
def agent(project: Path) -> Agent:
    return Agent(project)


@pytest.fixture
def manager(project: Path) -> Iterator[SessionManager]:
    """The library on the database that the hooks write to."""
    with SessionManager.open(project_dir=project) as manager:
        yield manager


def only_session(manager: SessionManager) -> SessionRecord:
    """Return the one session that there is."""
    (record,) = manager.list_sessions()
    return record


def checkpoints(manager: SessionManager, session_id: str | None = None) -> list[Checkpoint]:
    """Return the checkpoints of a session, oldest first."""
    chosen = session_id or only_session(manager).id
    return manager.get_session(chosen).list_checkpoints()[::-1]


def descriptions(manager: SessionManager) -> list[str | None]:
    return [one.description for one in checkpoints(manager)]


def run_hook(
    *arguments: str, cwd: Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as agents do."""
    import os

    return subprocess.run(
        [sys.executable, "-m", "holdfast", "hook", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )
