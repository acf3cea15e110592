"""What follows from the evidence: figures, and whether each claim of the demonstration was so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from holdfast.cli.demo.run import Event, Evidence, Process
from holdfast.cli.demo.script import (
    APPROVED_STEP,
    KILLED_IN_STEP,
    PASSED,
    expected_names,
    expected_state,
)
from holdfast.cli.demo.timeline import Entry


@dataclass(frozen=True, slots=True)
class Worker:
    """One process: the steps it ran, in order, and those whose save was acknowledged to it."""

    role: str
    pid: int
    ran: tuple[int, ...]
    saved: tuple[int, ...]
    exit_status: int


@dataclass(frozen=True, slots=True)
class Move:
    """A rollback, undo or redo: the files it changed, and how long it took."""

    kind: str
    changes: tuple[tuple[str, str], ...]
    ms: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What happened, as counted from the evidence.

    ``in_flight`` are the steps that the kill cut off, ``repeated`` those that ran again although they had
    been finished. ``charged`` and ``published`` are the processes that paid and published.
    """

    session_id: str
    workers: tuple[Worker, ...]
    resumed_at_step: int
    in_flight: tuple[int, ...]
    repeated: tuple[int, ...]
    charged: tuple[int, ...]
    published: tuple[int, ...]
    moves: tuple[Move, ...]
    checkpoints: int
    size_bytes: int
    stored_bytes: int
    snapshot_bytes: int
    file_bytes: int | None
    save_ms: float
    resume_ms: float
    seconds: float
    checks: dict[str, bool]
    timeline: tuple[Entry, ...]

    @property
    def ok(self) -> bool:
        """True when everything that the demonstration claims was so."""
        return all(self.checks.values())


def report_on(seen: Evidence) -> DemoReport:
    """Return what follows from the evidence."""
    in_flight, repeated = _overlaps(seen.events)
    began = _first(seen.events, "began", seen.resumed)
    return DemoReport(
        session_id=seen.session_id,
        workers=tuple(
            Worker(
                one.role,
                one.pid,
                _steps(seen.events, one, "ran"),
                _steps(seen.events, one, "saved"),
                one.exit_status,
            )
            for one in _processes(seen)
        ),
        resumed_at_step=began.step if began else 0,
        in_flight=in_flight,
        repeated=repeated,
        charged=seen.charged,
        published=seen.published,
        moves=tuple(Move(one.kind, one.changes, one.ms) for one in seen.went),
        checkpoints=len(seen.stored.names),
        size_bytes=seen.stored.size_bytes,
        stored_bytes=seen.stored.stored_bytes,
        snapshot_bytes=seen.stored.snapshot_bytes,
        file_bytes=seen.database_bytes,
        save_ms=median(one.ms for one in seen.events if one.event == "saved"),
        resume_ms=began.ms if began else 0.0,
        seconds=round(seen.seconds, 1),
        checks=_checks(seen, began, repeated),
        timeline=seen.stored.timeline,
    )


def as_document(report: DemoReport) -> dict[str, Any]:
    """Return the report for programs."""
    return {"ok": report.ok, **asdict(report)}


def _checks(seen: Evidence, began: Event | None, repeated: Sequence[int]) -> dict[str, bool]:
    others = (seen.resumed, seen.approver, seen.approved, seen.finisher)
    rollback, undo, redo = (one.files for one in seen.went)
    saved_by_first = _steps(seen.events, seen.killed, "saved")
    agreed = _first(seen.events, "approved", seen.approver)
    named = [name for name in seen.stored.names if name in set(expected_names())]
    return {
        "the first process was killed": seen.killed.exit_status != 0,
        "every other process ended well, and the session is completed": (
            all(one.exit_status == 0 for one in others) and seen.stored.status == "completed"
        ),
        "a new process continued right after the last saved step": (
            began is not None
            and began.step == KILLED_IN_STEP
            and saved_by_first == tuple(range(KILLED_IN_STEP))
        ),
        "no finished step was repeated": not repeated,
        "it was paid once: by the first process, before it was killed": (
            seen.charged == seen.charged_at_kill == (seen.killed.pid,)
        ),
        "nothing was published before somebody agreed; the session was paused": (
            seen.published_unapproved == () and seen.status_waiting == "paused"
        ),
        "another process agreed, and it was published once": (
            agreed is not None
            and seen.approver.pid not in (seen.resumed.pid, seen.approved.pid)
            and seen.published == (seen.approved.pid,)
            and APPROVED_STEP in _steps(seen.events, seen.approved, "ran")
        ),
        "the bad edit wrecked files, and the tests failed": (
            seen.wrecked != seen.good and seen.tests_wrecked.endswith("failed")
        ),
        "rollback put every file back, byte for byte": rollback == seen.good,
        "undo brought the bad edit back, byte for byte": undo == seen.wrecked,
        "redo took it away again, and the tests pass": (
            redo == seen.good == seen.files and seen.tests == PASSED
        ),
        "the project's own git repository was not touched": (
            seen.repository == seen.repository_before
        ),
        "every turn was saved": named == expected_names(),
        "the final state equals that of an undisturbed run": (
            seen.stored.final_state == expected_state()
        ),
        "every checkpoint reads back exactly, with its files": not seen.stored.problems,
    }


def _overlaps(events: Iterable[Event]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the steps that the kill cut off, and those that ran again after they were finished.

    A step is finished once its save was acknowledged, or the next process found it stored.
    """
    begun: set[tuple[int, str, str]] = set()
    finished: set[tuple[int, str, str]] = set()
    cut_off: set[int] = set()
    repeated: list[int] = []
    for one in events:
        if one.event == "ran":
            call = (one.step, one.tool, one.about)
            if call in finished:
                repeated.append(one.step)
            begun.add(call)
        elif one.event in ("saved", "began"):
            last = one.step if one.event == "saved" else one.step - 1
            finished |= {call for call in begun if call[0] <= last}
        elif one.event == "killed":
            cut_off = {step for step, _, _ in begun - finished}
    return tuple(sorted(cut_off)), tuple(repeated)


def _processes(seen: Evidence) -> tuple[Process, ...]:
    return seen.killed, seen.resumed, seen.approver, seen.approved, seen.finisher


def _first(events: Iterable[Event], kind: str, process: Process) -> Event | None:
    return next((one for one in events if (one.event, one.pid) == (kind, process.pid)), None)


def _steps(events: Iterable[Event], process: Process, kind: str) -> tuple[int, ...]:
    steps = (one.step for one in events if (one.event, one.pid) == (kind, process.pid))
    return tuple(dict.fromkeys(steps))
