"""A session in a project of its own, a clock that only the test moves, and agents in processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import pytest

from holdfast import SessionManager
from holdfast.sessions import Session

T = TypeVar("T")
SOURCES = Path(__file__).parents[2] / "src"
PATIENCE = 60


class FakeClock:
    """`advance` lets time pass and returns when the saving thread has dealt with it."""

    def __init__(self) -> None:
        self._now = 5000.0
        self._moved = threading.Condition()
        self._inbox: SimpleQueue[None] | None = None

    def now(self) -> float:
        return self._now

    def wait(self, inbox: SimpleQueue[T | None], seconds: float | None) -> T | None:
        with self._moved:
            self._inbox = inbox  # type: ignore[assignment]
            self._moved.notify_all()
        item = inbox.get(timeout=PATIENCE)
        with self._moved:
            self._inbox = None
        return item

    def advance(self, seconds: float) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: self._inbox is not None, PATIENCE)
            inbox, self._inbox = self._inbox, None
            self._now += seconds
            assert inbox is not None
            inbox.put(None)
            assert self._moved.wait_for(lambda: self._inbox is not None, PATIENCE)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".agents").mkdir(parents=True)
    return folder


@pytest.fixture
def database(project: Path) -> Path:
    return project / ".agents" / "sessions.db"


@pytest.fixture
def manager(project: Path, database: Path) -> Iterator[SessionManager]:
    with SessionManager.open(database, project_dir=project, workspace=False) as opened:
        yield opened


@pytest.fixture
def session(manager: SessionManager) -> Session:
    return manager.create_session("tester", session_id="session-1")


def events(session: Session) -> list[str]:
    """What each checkpoint was saved for, oldest first."""
    return [(one.metadata or {}).get("event", "") for one in reversed(session.list_checkpoints())]


PRELUDE = """
import os, select, signal, subprocess, sys, threading, time
from holdfast import SessionManager

def say(*words):
    # One write, so that a signal cannot tear a line.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def wait():
    # In short waits: Python does not see a signal that arrives just before a call that blocks.
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        pass

state = {"n": 0}
manager = SessionManager.open(sys.argv[1], project_dir=sys.argv[2], workspace=False)
session = manager.create_session("worker", session_id="session-1")
"""


class Agent:
    """A program that uses autosave, in a process of its own; it ends with the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate(timeout=PATIENCE)[1])
        return line.strip()

    def expect(self, line: str) -> None:
        assert self.line() == line

    def signal(self, signum: int) -> None:
        os.kill(self.process.pid, signum)

    def end(self) -> tuple[int, list[str], str]:
        """Wait for the end: the status, the rest of what it said, and stderr."""
        # Not its stdin: it is still waiting there, unless it ends by itself.
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        rest = self.process.stdout.read().splitlines()
        errors = self.process.stderr.read()
        return self.process.wait(PATIENCE), rest, errors


RunAgent = Callable[[str], Agent]


@pytest.fixture
def run_agent(project: Path, database: Path) -> Iterator[RunAgent]:
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *, url: str | None = None) -> Agent:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program, url or str(database), str(project)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            # Whatever runs the tests may ignore signals; a program in a terminal does not.
            preexec_fn=_usual_signals,
        )
        started.append(process)
        return Agent(process)

    yield run
    for process in started:
        with process:
            process.kill()


def _usual_signals() -> None:
    import signal

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@contextmanager
def reopened(project: Path, database: Path) -> Iterator[Session]:
    """The session as another process finds it."""
    with SessionManager.open(database, project_dir=project, workspace=False) as manager:
        yield manager.get_session("session-1")
