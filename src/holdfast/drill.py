"""The recovery drill: kill a working agent at random moments, resume it, and count what came back.

A worker process saves states and files, runs steps, pauses and rolls back, and says on its standard output
what it is about to do and what was acknowledged. Somebody kills it with SIGKILL at some moment. Then the
session is resumed as a user would: what was acknowledged must be there, the state must be the last
acknowledged one or the one that was on its way, the files those of the checkpoint, and no step may have
happened twice. Everything happens in a directory of its own, and in a session of its own.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Final

from holdfast.errors import EffectUnknown, HoldfastError
from holdfast.ids import new_id
from holdfast.sessions import Session, SessionManager

_COUNTER: Final = "counter.txt"
_EFFECTS: Final = "effects.log"
_WORKER_SECONDS: Final = 60.0
# A kill comes after so many acknowledged actions at most, and so many seconds later.
_ACTIONS: Final = 12
_LATER: Final = 0.03


@dataclass(slots=True)
class DrillReport:
    """What a drill counted. ``rate`` is the share of kills after which the session went on exactly."""

    kills: int = 0
    recovered: int = 0
    acknowledged: int = 0
    lost: int = 0
    effects: int = 0
    repeated_effects: int = 0
    unknown_effects: int = 0
    damaged: int = 0
    context_seconds: list[float] = field(default_factory=list)
    checkpoint_bytes: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The share of kills that were recovered from."""
        return self.recovered / self.kills if self.kills else 0.0

    def to_document(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "kills": self.kills,
            "recovered": self.recovered,
            "recovery_rate": round(self.rate, 4),
            "acknowledged_saves": self.acknowledged,
            "lost_saves": self.lost,
            "effects": self.effects,
            "repeated_effects": self.repeated_effects,
            "unknown_effects": self.unknown_effects,
            "damaged_checkpoints": self.damaged,
            "seconds_to_context": (
                round(mean(self.context_seconds), 4) if self.context_seconds else None
            ),
            "mean_checkpoint_bytes": (
                round(mean(self.checkpoint_bytes)) if self.checkpoint_bytes else None
            ),
            "problems": self.problems[:20],
        }


def run_drill(
    url: str | None = None,
    *,
    kills: int = 200,
    seed: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> DrillReport:
    """Kill and resume a worker so many times, on an embedded store or the one named."""
    # Dice that can be thrown again, and no secret.
    chance = random.Random(seed)  # nosec B311
    report = DrillReport()
    with tempfile.TemporaryDirectory(prefix="holdfast-drill-") as aside:
        project = Path(aside, "project")
        project.mkdir()
        (project / _COUNTER).write_text("0\n")
        store = str(Path(aside, "sessions.db")) if url is None else url
        drill = _Drill(store, project, f"drill-{new_id()}", report)
        try:
            for number in range(kills):
                drill.round(chance)
                if progress is not None:
                    progress(number + 1)
            drill.conclude()
        finally:
            drill.erase()
    return report


class _Drill:
    def __init__(self, url: str, project: Path, session_id: str, report: DrillReport) -> None:
        self._url = url
        self._project = project
        self._session_id = session_id
        self._report = report
        self._saved: dict[str, int] = {}
        self._expected = 0
        with self._open() as manager:
            manager.create_session("drill", session_id=session_id).save_checkpoint(
                "start", state={"n": 0}
            )

    @contextmanager
    def _open(self) -> Iterator[SessionManager]:
        with SessionManager.open(self._url, project_dir=self._project) as manager:
            yield manager

    def round(self, chance: random.Random) -> None:
        """Let a worker work, kill it, and look at what is there."""
        report = self._report
        allowed, ended = self._work(chance)
        report.kills += 1
        began = time.perf_counter()
        try:
            with self._open() as manager:
                session = manager.resume_session(self._session_id)
                found = session.state["n"]
                report.context_seconds.append(time.perf_counter() - began)
                problem = ended or self._problem(manager, session, found, allowed)
        except HoldfastError as error:
            found, problem = self._expected, f"{type(error).__name__}: {error}"
        if problem is None:
            report.recovered += 1
        else:
            report.problems.append(f"kill {report.kills}: {problem}")
        self._expected = found

    def _work(self, chance: random.Random) -> tuple[set[int], str | None]:
        """Run a worker until its end and return the states that it may have left.

        One that was not there any more to be killed has failed: why, is returned too.
        """
        command = [sys.executable, "-m", "holdfast.drill", self._url, str(self._project)]
        command += [self._session_id, str(chance.getrandbits(32))]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = iter(worker.stdout or ())
        allowed = {self._expected}
        try:
            for _ in range(chance.randint(1, _ACTIONS)):
                allowed = self._take(next(lines, ""), allowed)
            time.sleep(chance.random() * _LATER)
        finally:
            worker.kill()
            for line in lines:
                allowed = self._take(line, allowed)
            worker.wait(_WORKER_SECONDS)
            if worker.stdout is not None:
                worker.stdout.close()
        ended = worker.returncode >= 0
        return allowed, f"the worker ended with {worker.returncode}" if ended else None

    def _take(self, line: str, allowed: set[int]) -> set[int]:
        """Take one line of the ledger into account; a torn one was not acknowledged."""
        if not line.endswith("\n"):
            return allowed
        word, _, rest = line.strip().partition(" ")
        value, _, name = rest.partition(" ")
        if word == "begins":
            return allowed | {int(value)}
        if word == "saved":
            self._saved[name] = int(value)
            self._report.acknowledged += 1
        elif word == "unknown":
            self._report.unknown_effects += 1
            return allowed
        return {int(value)}

    def _problem(
        self, manager: SessionManager, session: Session, found: int, allowed: set[int]
    ) -> str | None:
        if found not in allowed:
            return f"the state says {found}, and {sorted(allowed)} were possible"
        there = {one.id for one in session.list_checkpoints()}
        lost = self._saved.keys() - there
        self._report.lost += len(lost)
        for one in lost:
            del self._saved[one]
        if lost:
            return f"{len(lost)} acknowledged checkpoints are gone"
        latest = session.latest_checkpoint()
        held = manager.workspace.read(latest.workspace_commit or "", _COUNTER).decode().strip()
        if int(held) != latest.state["n"]:
            return f"the checkpoint of state {latest.state['n']} holds the files of {held}"
        return next(iter(manager.store.check_structure()), None)

    def conclude(self) -> None:
        """Read everything back at the end."""
        report = self._report
        with self._open() as manager:
            session = manager.get_session(self._session_id)
            report.damaged = len(manager.verify(deep=True).damaged)
            for checkpoint_id, n in self._saved.items():
                saved = session.get_checkpoint(checkpoint_id)
                held = manager.workspace.read(saved.workspace_commit or "", _COUNTER)
                if (saved.state, held) != (_state(n), _counter(n)):
                    report.damaged += 1
                    report.problems.append(f"checkpoint {n} is not what was saved")
            report.checkpoint_bytes = [one.stored_bytes for one in session.list_checkpoints()]
        done = (self._project.parent / _EFFECTS).read_text().split() if self._has_effects() else []
        report.effects = len(done)
        report.repeated_effects = len(done) - len(set(done))

    def _has_effects(self) -> bool:
        return (self._project.parent / _EFFECTS).exists()

    def erase(self) -> None:
        """Leave nothing behind in a store that others use."""
        with self._open() as manager:
            manager.delete_session(self._session_id)


# The worker ----------------------------------------------------------------------------------


def work(url: str, project: Path, session_id: str, seed: int) -> None:
    """Work on the drill's session for ever; somebody kills this process."""
    # Dice that can be thrown again, and no secret.
    chance = random.Random(seed)  # nosec B311
    with SessionManager.open(url, project_dir=project) as manager:
        worker = _Worker(manager, project, manager.resume_session(session_id))
        actions = [worker.save] * 12 + [worker.step] * 4 + [worker.roll_back] * 2 + [worker.pause]
        while True:
            chance.choice(actions)()


class _Worker:
    def __init__(self, manager: SessionManager, project: Path, session: Session) -> None:
        self._manager = manager
        self._project = project
        self._session = session
        # An earlier worker may have died between its file and its save.
        (project / _COUNTER).write_text(f"{session.state['n']}\n")

    @property
    def _next(self) -> int:
        return int(self._session.state["n"]) + 1

    def save(self) -> None:
        n = self._next
        (self._project / _COUNTER).write_bytes(_counter(n))
        _say("begins", n)
        saved = self._session.save_checkpoint(state=_state(n))
        _say("saved", n, saved.id)

    def step(self) -> None:
        n = self._next
        key = f"{n}-{len(self._session.effects())}"
        try:
            self._session.step("note", _note, str(self._project.parent / _EFFECTS), key)
        except EffectUnknown:
            _say("unknown", n, key)

    def roll_back(self) -> None:
        """Go back to an earlier checkpoint, and sometimes forward again."""
        now = int(self._session.state["n"])
        earlier = self._session.list_checkpoints(limit=6)[-1]
        target = int(earlier.state["n"])
        _say("begins", target)
        self._session.rollback(earlier.id)
        _say("back", target)
        if target % 2:
            _say("begins", now)
            self._session.undo()
            _say("back", now)

    def pause(self) -> None:
        n = int(self._session.state["n"])
        self._session.pause("drill")
        self._session = self._manager.resume_session(self._session.id)
        _say("back", n)


def _state(n: int) -> dict[str, Any]:
    return {"n": n, "text": ["word"] * (n % 50)}


def _counter(n: int) -> bytes:
    return f"{n}\n".encode()


def _note(path: str, key: str) -> str:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, f"{key}\n".encode())
    finally:
        os.close(handle)
    return key


def _say(word: str, value: int, name: str = "") -> None:
    sys.stdout.write(f"{word} {value} {name}\n")
    sys.stdout.flush()


def _main(arguments: Sequence[str]) -> None:
    url, project, session_id, seed = arguments
    work(url, Path(project), session_id, int(seed))


if __name__ == "__main__":
    _main(sys.argv[1:])
