"""Carry the demonstration out, and note what is seen on the way.

The evidence comes from outside of the agent: its journal, the files that stand for the bank and the
world, the project's files compared byte by byte, and the database as a reader finds it. What follows from
it is the report's business.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TextIO

from holdfast.cli.demo.agent import Orders, Role, as_line, command_line, milliseconds
from holdfast.cli.demo.project import (
    Contents,
    DemoFailed,
    make_project,
    read_files,
    read_repository,
    run_tests,
)
from holdfast.cli.demo.script import GOOD
from holdfast.cli.demo.timeline import Entry, read_timeline
from holdfast.config import AGENTS_DIR, DATABASE, refuse_empty
from holdfast.errors import IntegrityError
from holdfast.ids import new_id
from holdfast.sessions import Session, SessionManager
from holdfast.sessions.rollback import RollbackReport

_PATIENCE: Final = 120.0
_POLL: Final = 0.004


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: a line of the journal, or something that the parent did itself.

    ``count`` is how many payments the bank had when the parent heard of one.
    """

    event: str
    pid: int = 0
    step: int = 0
    tool: str = ""
    about: str = ""
    note: str = ""
    count: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Process:
    """One process that was started, and how it ended."""

    role: Role
    pid: int
    exit_status: int


@dataclass(frozen=True, slots=True)
class Went:
    """A rollback, undo or redo: what it changed, how long it took, and the files afterwards."""

    kind: str
    changes: tuple[tuple[str, str], ...]
    ms: float
    files: Contents = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a reader finds in the database in the end."""

    status: str
    names: tuple[str, ...]
    final_state: dict[str, Any] = field(repr=False)
    size_bytes: int
    stored_bytes: int
    snapshot_bytes: int
    effects: tuple[tuple[str, str, int], ...]
    problems: tuple[str, ...]
    timeline: tuple[Entry, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was seen.

    ``charged`` and ``published`` are the pids in the files of the bank and the world. ``good`` are the
    project's files when the agent waited for approval, ``wrecked`` when it had tidied up.
    """

    session_id: str
    events: tuple[Event, ...]
    killed: Process
    resumed: Process
    approver: Process
    approved: Process
    finisher: Process
    charged_at_kill: tuple[int, ...]
    charged: tuple[int, ...]
    published_unapproved: tuple[int, ...]
    published: tuple[int, ...]
    status_waiting: str
    good: Contents
    wrecked: Contents
    tests_wrecked: str
    went: tuple[Went, ...]
    files: Contents
    tests: str
    repository_before: Contents
    repository: Contents
    stored: Stored
    database_bytes: int | None
    seconds: float


def run_demo(
    directory: Path,
    watch: Callable[[Event], None],
    *,
    url: str | None = None,
    tenant: str | None = None,
    pace: float = 0.0,
) -> Evidence:
    """Carry the demonstration out in ``directory``, telling ``watch`` what happens as it happens."""
    refuse_empty(url, tenant)
    since = time.monotonic()
    project = make_project(directory / "project")
    database = project / AGENTS_DIR / DATABASE
    stage = _Stage(
        Orders(
            role="start",
            url=str(database) if url is None else url,
            tenant=tenant,
            project=str(project),
            # In a store of its own a short name will do.
            session_id="demo" if url is None else f"demo-{new_id()}",
            journal=str(directory / "journal.jsonl"),
            bank=str(directory / "bank.jsonl"),
            outbox=str(directory / "outbox.jsonl"),
            pace=pace,
        ),
        watch,
    )
    repository = read_repository(project)
    killed = stage.run("start", kill_at="paid")
    charged_at_kill = stage.pids_in("bank")
    resumed = stage.run("resume")
    status_waiting = stage.status()
    good = read_files(project)
    approver = stage.run("decide")
    published_unapproved = stage.pids_in("outbox")
    approved = stage.run("resume")
    wrecked, tests_wrecked = read_files(project), stage.look(project)
    went = stage.go_back_and_forth()
    finisher = stage.run("finish")
    return Evidence(
        session_id=stage.orders.session_id,
        events=tuple(stage.events),
        killed=killed,
        resumed=resumed,
        approver=approver,
        approved=approved,
        finisher=finisher,
        charged_at_kill=charged_at_kill,
        charged=stage.pids_in("bank"),
        published_unapproved=published_unapproved,
        published=stage.pids_in("outbox"),
        status_waiting=status_waiting,
        good=good,
        wrecked=wrecked,
        tests_wrecked=tests_wrecked,
        went=went,
        files=read_files(project),
        tests=run_tests(project),
        repository_before=repository,
        repository=read_repository(project),
        stored=stage.read_back(killed),
        database_bytes=_size_of(database) if url is None else None,
        seconds=time.monotonic() - since,
    )


class _Stage:
    """Where processes are started and watched."""

    def __init__(self, orders: Orders, watch: Callable[[Event], None]) -> None:
        self.orders = orders
        self.events: list[Event] = []
        self._watch = watch
        Path(orders.journal).touch()

    def _see(self, event: Event) -> Event:
        if event.event == "paid":
            event = replace(event, count=len(self.pids_in("bank")))
        self.events.append(event)
        self._watch(event)
        return event

    # Processes -------------------------------------------------------------------------------

    def run(self, role: Role, *, kill_at: str | None = None) -> Process:
        """Run one process, to its end or until it says that it has come so far."""
        orders = replace(self.orders, role=role, hold=kill_at is not None)
        with Path(orders.journal).open(encoding="utf-8") as lines, _started(orders) as process:
            lines.seek(0, 2)
            reached = self._follow(process, lines, kill_at)
            if reached is not None:
                process.kill()
            complaint = process.communicate()[1].decode(errors="replace").strip()
            if reached is not None:
                self._see(replace(reached, event="killed"))
            elif process.returncode or kill_at is not None:
                reason = complaint.splitlines()[-1] if complaint else f"status {process.returncode}"
                raise DemoFailed(f"the agent's process failed: {reason}")
            return Process(role, process.pid, process.returncode)

    def _follow(
        self, process: subprocess.Popen[bytes], lines: TextIO, until: str | None
    ) -> Event | None:
        """Read the journal until the process has ended or come to that event; return the event."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            over = process.poll() is not None
            for event in map(self._see, _new_events(lines)):
                if event.event == until:
                    return event
            if over:
                return None
            if time.monotonic() > deadline:
                raise DemoFailed(f"the agent did not finish within {_PATIENCE:.0f} seconds")
            time.sleep(_POLL)

    # Looking from outside --------------------------------------------------------------------

    def pids_in(self, what: str) -> tuple[int, ...]:
        """Return who wrote to the bank's file or to the world's, in order."""
        path = Path(getattr(self.orders, what))
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return tuple(json.loads(line)["pid"] for line in lines)

    def look(self, project: Path) -> str:
        """Run the project's tests and return how they went."""
        return self._see(Event("looked", note=run_tests(project))).note

    def status(self) -> str:
        """Return the session's status as the database has it."""
        with self.orders.open() as manager:
            return manager.get_session(self.orders.session_id).status

    def read_back(self, killed: Process) -> Stored:
        """Read all that is stored of the session, every digest checked."""
        with self.orders.open() as manager:
            session = manager.get_session(self.orders.session_id)
            checkpoints = session.list_checkpoints()
            return Stored(
                status=session.status,
                names=tuple(one.name for one in reversed(checkpoints)),
                final_state=session.latest_checkpoint().state,
                size_bytes=sum(one.size_bytes for one in checkpoints),
                stored_bytes=sum(one.stored_bytes for one in checkpoints),
                snapshot_bytes=manager.file_usage().bytes,
                effects=tuple((one.name, one.status, one.attempts) for one in session.effects()),
                problems=tuple(_problems(manager, session)),
                timeline=tuple(read_timeline(manager, session, killed=killed.pid)),
            )

    # Going back ------------------------------------------------------------------------------

    def go_back_and_forth(self) -> tuple[Went, ...]:
        """Roll the bad idea back, take that back, and take that back too."""
        with (
            self.orders.open() as manager,
            manager.hold_session(self.orders.session_id) as session,
        ):
            return (
                self._go("rollback", lambda: session.rollback(GOOD)),
                self._go("undo", session.undo),
                self._go("redo", session.redo),
            )

    def _go(self, kind: str, move: Callable[[], RollbackReport]) -> Went:
        since = time.perf_counter()
        report = move()
        took = milliseconds(since)
        changes = report.files.changes if report.files is not None else ()
        went = Went(
            kind,
            tuple((one.kind, one.path) for one in changes),
            took,
            read_files(Path(self.orders.project)),
        )
        note = ", ".join(f"{SIGNS[how]} {path}" for how, path in went.changes)
        self._see(Event(kind, about=GOOD, note=note, ms=took))
        return went


SIGNS: Final = {"added": "+", "modified": "~", "deleted": "-"}


@contextmanager
def _started(orders: Orders) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command_line(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            if process.stdin is not None:
                # A URL may hold a password: not among the arguments, where everybody could read it.
                process.stdin.write(as_line(orders))
                process.stdin.flush()
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _new_events(lines: TextIO) -> Iterator[Event]:
    while True:
        place = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(place)
            return
        yield Event(**json.loads(line))


def _problems(manager: SessionManager, session: Session) -> Iterator[str]:
    """Yield what cannot be read back exactly, of states and of files."""
    checkpoints = session.list_checkpoints()
    for checkpoint in checkpoints:
        try:
            checkpoint.content.read()
        except IntegrityError as error:
            yield f"{checkpoint.name}: {error}"
    commits = {one.workspace_commit for one in checkpoints}
    if None in commits:
        yield "a checkpoint has no files"
    for problem in manager.workspace.verify([one for one in commits if one is not None]):
        yield f"files {problem.commit}: {problem.problem}"


def _size_of(database: Path) -> int:
    return sum(file.stat().st_size for file in database.parent.glob(f"{database.name}*"))
