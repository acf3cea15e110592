"""A small project in a git repository, with a session that has saved it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, SessionManager

NOTES = b"what we know\n"


def git(*arguments: str, cwd: Path | None = None) -> str:
    """Run git as the user would, with nobody's settings."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
        cwd=cwd,
        env={**clean, **nobody},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def state() -> dict[str, Any]:
    """A state that names a file, a memory and tools."""
    return {
        "task_state": [
            {"id": "read", "title": "Read the code", "status": "completed"},
            {"id": "write", "title": "Write the client", "status": "in_progress"},
            {"id": "docs", "title": "Describe it", "status": "pending"},
            {"id": "keys", "title": "Get keys", "status": "blocked"},
        ],
        "open_files": [{"path": "a.py", "line": 3, "column": 7, "active": True}],
        "memory_refs": [
            {"key": "notes", "path": "notes.md", "hash": hashlib.sha256(NOTES).hexdigest()}
        ],
        "execution_context": {"tools": [{"name": "bash", "version": "5.2"}, "edit"]},
        "decisions": [{"text": "Use OAuth 2.1", "rationale": "the provider requires it"}],
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "a.py").write_text("one\n")
    (folder / "b.py").write_text("two\n")
    (folder / "notes.md").write_bytes(NOTES)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def manager(project: Path) -> Iterator[SessionManager]:
    with SessionManager.open(project_dir=project) as opened:
        yield opened


@pytest.fixture
def saved(manager: SessionManager) -> Session:
    session = manager.create_session(
        "implementer", task_description="Move auth to OAuth", session_id="session-1"
    )
    session.save_checkpoint("before-refactor", state=state())
    return session


@pytest.fixture
def other(project: Path) -> Iterator[Callable[[], SessionManager]]:
    """Opens the same store as another worker would."""
    opened: list[SessionManager] = []

    def again() -> SessionManager:
        opened.append(SessionManager.open(project_dir=project, owner="agent:test:other"))
        return opened[-1]

    yield again
    for one in opened:
        one.close()
