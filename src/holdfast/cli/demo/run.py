"""Start the agent, kill it, let another process finish, and count what happened from the evidence."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from holdfast.cli.demo.agent import STEPS, Orders, command_line, expected_state
from holdfast.config import AGENTS_DIR, DATABASE
from holdfast.errors import HoldfastError
from holdfast.ids import new_id
from holdfast.sessions import SessionManager

KILLED_IN_STEP: Final = 8
_PACE: Final = 0.08
_PATIENCE: Final = 60.0
_POLL: Final = 0.004


class DemoFailed(HoldfastError):
    """The demonstration could not be carried out."""

    code = "demo_failed"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the agent's journal. ``killed`` is the parent's own."""

    event: str
    pid: int
    step: int
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """One process: the steps it ran, in order, and those whose save was acknowledged to it."""

    pid: int
    ran: tuple[int, ...]
    saved: tuple[int, ...]
    exit_status: int


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What happened, as counted from the journal and the database."""

    session_id: str
    workers: tuple[Worker, Worker]
    resumed_at_step: int
    in_flight: tuple[int, ...]
    repeated: tuple[int, ...]
    checkpoints: int
    size_bytes: int
    stored_bytes: int
    file_bytes: int | None
    save_ms: float
    resume_ms: float
    checks: dict[str, bool]

    @property
    def ok(self) -> bool:
        """True when everything that the demonstration claims was so."""
        return all(self.checks.values())


def run_demo(
    directory: Path,
    watch: Callable[[Event], None],
    *,
    url: str | None = None,
    tenant: str | None = None,
    project_dir: str | None = None,
) -> DemoReport:
    """Carry the demonstration out in ``directory``, telling ``watch`` what happens as it happens."""
    database = directory / AGENTS_DIR / DATABASE
    orders = Orders(
        url=url or str(database),
        tenant=tenant,
        project_dir=project_dir or str(directory),
        session_id=f"demo-{new_id()}",
        journal=str(directory / "journal.jsonl"),
        pace=_PACE,
        resume=False,
    )
    events: list[Event] = []

    def seen(event: Event) -> None:
        events.append(event)
        watch(event)

    first = _run(orders, seen, kill_in_step=KILLED_IN_STEP)
    second = _run(replace(orders, resume=True), seen)
    return _report(orders, events, (first, second), None if url else database)


def _run(
    orders: Orders, seen: Callable[[Event], None], *, kill_in_step: int | None = None
) -> tuple[int, int]:
    """Run one agent process, to its end or to the middle of a step. Return its pid and status."""
    journal = Path(orders.journal)
    journal.touch()
    deadline = time.monotonic() + _PATIENCE
    with journal.open(encoding="utf-8") as lines, _started(orders) as process:
        lines.seek(0, 2)
        doomed = False
        while True:
            over = process.poll() is not None
            for event in _new_events(lines):
                seen(event)
                doomed = doomed or (event.event == "ran" and event.step == kill_in_step)
            if over:
                break
            if doomed:
                time.sleep(orders.pace / 2)
                process.kill()
                process.wait()
                for event in _new_events(lines):
                    seen(event)
                seen(Event("killed", process.pid, kill_in_step or 0))
                break
            if time.monotonic() > deadline:
                process.kill()
                raise DemoFailed(f"the agent did not finish within {_PATIENCE:.0f} seconds")
            time.sleep(_POLL)
        complaint = process.communicate()[1].decode(errors="replace").strip()
        if process.returncode and not doomed:
            reason = complaint.splitlines()[-1] if complaint else f"status {process.returncode}"
            raise DemoFailed(f"the agent's process failed: {reason}")
        return process.pid, process.returncode


@contextmanager
def _started(orders: Orders) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command_line(orders),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _new_events(lines: Any) -> Iterator[Event]:
    while True:
        place = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(place)
            return
        yield Event(**json.loads(line))


def _report(
    orders: Orders,
    events: Sequence[Event],
    processes: tuple[tuple[int, int], tuple[int, int]],
    database: Path | None,
) -> DemoReport:
    first, second = (
        Worker(pid, _steps(events, pid, "ran"), _steps(events, pid, "saved"), status)
        for pid, status in processes
    )
    began = next(one for one in events if one.event == "began" and one.pid == second.pid)
    with SessionManager.open(
        orders.url, tenant=orders.tenant, project_dir=orders.project_dir
    ) as manager:
        session = manager.get_session(orders.session_id)
        checkpoints = session.list_checkpoints()
        final = session.latest_checkpoint().state
        verified = manager.verify().ok
    # A step is finished once its save was acknowledged, or the next process found it stored.
    finished = set(first.saved) | set(range(1, began.step))
    repeated = tuple(step for step in second.ran if step in finished)
    everything = tuple(range(1, len(STEPS) + 1))
    return DemoReport(
        session_id=orders.session_id,
        workers=(first, second),
        resumed_at_step=began.step,
        in_flight=tuple(step for step in first.ran if step not in finished),
        repeated=repeated,
        checkpoints=len(checkpoints),
        size_bytes=sum(one.size_bytes for one in checkpoints),
        stored_bytes=sum(one.stored_bytes for one in checkpoints),
        file_bytes=_file_bytes(database) if database is not None else None,
        save_ms=median(one.ms for one in events if one.event == "saved"),
        resume_ms=began.ms,
        checks={
            "the first process was killed": first.exit_status != 0,
            "the second process finished": second.exit_status == 0,
            "it continued right after the last saved step": (
                bool(first.saved) and began.step in (first.saved[-1] + 1, first.saved[-1] + 2)
            ),
            "no finished step was repeated": not repeated,
            "every step was saved": (
                tuple(sorted(one.name for one in checkpoints))
                == tuple(f"step-{step:02}" for step in everything)
            ),
            "the final state equals that of an undisturbed run": final == expected_state(),
            "every checkpoint reads back exactly": verified,
        },
    )


def _steps(events: Sequence[Event], pid: int, kind: str) -> tuple[int, ...]:
    return tuple(one.step for one in events if one.pid == pid and one.event == kind)


def _file_bytes(database: Path) -> int:
    return sum(file.stat().st_size for file in database.parent.glob(f"{database.name}*"))


def as_document(report: DemoReport) -> dict[str, Any]:
    """Return the report for programs."""
    return {"ok": report.ok, **asdict(report)}
