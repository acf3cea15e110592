"""Workers that are processes of their own, and the databases that they share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import pytest

REPOSITORY = Path(__file__).parents[2]


class Worker:
    """A process that does what it is told, one line at a time; see `tests.leases.worker`."""

    def __init__(self, url: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.leases.worker", url, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        assert self.answer() == "ready"

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, *words: str) -> None:
        """Give an order without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for what it says next."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def do(self, *words: str) -> Any:
        """Give an order and wait for the answer."""
        self.tell(*words)
        return self.answer()

    def stop(self) -> None:
        """Pause it, wherever it is, and wait until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once; its parent, this process, does not ask how it ended yet."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> int:
        """Let it end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        with suppress(BrokenPipeError):
            self._process.__exit__(exc_type, exc, traceback)


Start = Callable[..., Worker]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that several processes can share."""
    if request.param == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    return str(tmp_path / "sessions.db")


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Starts a worker on the database."""
    workers: list[Worker] = []

    def started(*options: str) -> Worker:
        workers.append(Worker(url, *options))
        return workers[-1]

    yield started
    for worker in workers:
        worker.__exit__(None, None, None)
