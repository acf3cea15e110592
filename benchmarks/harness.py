"""What the figures share: a run with its scratch space, quiet timing, and rows to report."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.growth import PostgresGrowth, SqliteGrowth
    from tests.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """One line of the table. ``met`` is None where there is nothing to meet."""

    figure: str
    peer: str
    ours: str
    ratio: str = "–"
    target: str = "–"
    met: bool | None = None
    note: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Run:
    """One run of the benchmarks: how thorough it is, where it works, what figures share.

    What is expensive to build is built on first use and shared by the figures that look at it.
    """

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self._server: PostgresServer | None = None

    def size(self, thorough: int, quick: int) -> int:
        return quick if self.quick else thorough

    @property
    def steps(self) -> int:
        """How long the conversations are."""
        return self.size(1000, 150)

    @cached_property
    def sqlite_growth(self) -> SqliteGrowth:
        from benchmarks.growth import grow_sqlite

        return grow_sqlite(self)

    @cached_property
    def postgres_growth(self) -> PostgresGrowth:
        from benchmarks.growth import grow_postgres

        return grow_postgres(self)

    @property
    def server(self) -> PostgresServer:
        """The PostgreSQL server of this run, started if need be."""
        if self._server is None:
            from tests.postgres_server import PostgresServer

            self._server = PostgresServer(settings={"shared_buffers": "128MB"})
            self._server.start()
        return self._server

    def new_database(self) -> str:
        """Create an empty PostgreSQL database; return its URL."""
        return self.server.create_database()

    def close(self) -> None:
        for name in ("sqlite_growth", "postgres_growth"):
            if (growth := self.__dict__.pop(name, None)) is not None:
                growth.close()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds ``work`` takes, the garbage collector's share included.

    What a call leaves for the collector to look at belongs to what it costs the program around it.
    """
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def take_turns(rounds: int, *contestants: Callable[[], object]) -> list[list[float]]:
    """Time the contestants in turn, round after round; return the times of each."""
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for measured, contestant in zip(times, contestants, strict=True):
            measured.append(timed(contestant))
    return times


def median(times: Sequence[float]) -> float:
    return statistics.median(times)


def percentile(times: Sequence[float], percent: int) -> float:
    """Return the value that ``percent`` of the times do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def show_bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return (
                f"{count / size:.3g} {unit}"
                if count < 1000 * size
                else f"{count / size:,.0f} {unit}"
            )
    return f"{count:.0f} B"


def show_time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"


def show_times(factor: float) -> str:
    return f"{factor:,.0f} ×" if factor >= 100 else f"{factor:.3g} ×"


def python(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start another interpreter that sees the same packages as this one."""
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """Wait for a process and return what it wrote; raise when it failed."""
    output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{output}")
    return output


@contextmanager
def workers(*commands: Sequence[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one worker per command; none outlives the block."""
    started: list[subprocess.Popen[str]] = []
    try:
        started.extend(python("-m", "benchmarks.worker", *command) for command in commands)
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def race(commands: Sequence[Sequence[str]], gun: Path) -> list[dict[str, Any]]:
    """Start workers, let them begin together once all are ready, and return what they found."""
    gun.unlink(missing_ok=True)
    with workers(*commands) as started:
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{process.args!r} did not start")
        gun.touch()
        return [json.loads(output_of(process)) for process in started]
