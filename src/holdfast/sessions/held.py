"""A session as an object: what it is, whether it is held, its log."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast.errors import (
    HoldfastError,
    IllegalTransition,
    InvalidFilter,
    SessionNotFound,
    SessionNotHeld,
    SessionPaused,
)
from holdfast.ids import check_text
from holdfast.leases import Hold, Leases
from holdfast.model import (
    LOG_LEVELS,
    SESSION_TRANSITIONS,
    LogRecord,
    SessionRecord,
    SessionStatus,
)
from holdfast.redaction import Redaction
from holdfast.retention import Policy
from holdfast.sessions.files import ProjectFiles
from holdfast.stores.base import Store
from holdfast.stores.rules import refuse_change

TASK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a session needs besides its store: rules, leases, and the project it works in, if any."""

    policy: Policy
    project_dir: Path
    files: ProjectFiles | None
    leases: Leases
    redaction: Redaction = field(default_factory=Redaction)

    @property
    def place(self) -> str:
        """The project's directory, as sessions say where they were created."""
        return place_of(self.project_dir)


def place_of(project_dir: Path) -> str:
    """Return a project's directory as its sessions name it."""
    # A name need not be valid text, and only text can be stored.
    return os.fsencode(project_dir.resolve()).decode("utf-8", "backslashreplace")


class HeldSession:
    """A session's row, and the lease under which this object may write to it."""

    def __init__(
        self,
        store: Store,
        record: SessionRecord,
        around: Surroundings,
        hold: Hold | None = None,
    ) -> None:
        self._store = store
        self._around = around
        self._record = record
        self._hold = hold
        if hold is not None:
            # An object that nobody can reach any more cannot write, and must not keep others waiting.
            weakref.finalize(self, hold.abandon).atexit = False
        self._fence = functools.partial(_fence, hold, record.id)
        self._paused_for: timedelta | None = None
        self._paused_by: str | None = None
        self._notices: list[str] = []

    # What it is --------------------------------------------------------------------------

    @property
    def record(self) -> SessionRecord:
        """The session's row as this object last saw it; `refresh` reads it again."""
        return self._record

    @property
    def id(self) -> str:
        """The session's id, also called its thread id."""
        return self._record.id

    @property
    def agent_id(self) -> str:
        """The agent that works here."""
        return self._record.agent_id

    @property
    def agent_type(self) -> str:
        """What kind of agent works here."""
        return self._record.agent_type

    @property
    def task_description(self) -> str | None:
        """What the work is about."""
        return self._record.task_description

    @property
    def status(self) -> SessionStatus:
        """Where the session stands: active, paused, interrupted, completed, failed or stopped."""
        return self._record.status

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The session's own metadata."""
        return self._record.metadata or {}

    @property
    def created_at(self) -> datetime:
        """When the session was created."""
        return self._record.created_at

    @property
    def redaction(self) -> Redaction:
        """How secrets are taken out of what is saved here, and where they come back from."""
        return self._around.redaction

    @property
    def is_held(self) -> bool:
        """Whether this object holds the session's lease, as far as this process knows."""
        return self._hold is not None and self._hold.is_held

    @property
    def paused_for(self) -> timedelta | None:
        """How long the session was paused before it was resumed here; None if it was not."""
        return self._paused_for

    @property
    def notices(self) -> tuple[str, ...]:
        """What to know about how the session was resumed here: a damaged checkpoint was passed over."""
        return tuple(self._notices)

    def lineage(self) -> list[SessionRecord]:
        """Return this session and those that it continues, one after the other, this one first."""
        found = [self._record]
        seen = {self.id}
        while (before := found[-1].continues_id) is not None and before not in seen:
            record = self._store.find_session(before)
            if record is None:
                break
            seen.add(before)
            found.append(record)
        return found

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.agent_type} {self.status}>"

    # Holding it --------------------------------------------------------------------------

    def close(self, *, release: bool | None = None) -> None:
        """Give the session's lease back; nothing can be written through this object any more.

        Others can resume the session at once. Closing twice is fine. The lease of an owner
        ``agent:…`` is given back only with ``release=True``, since other processes may share it.
        """
        if self._hold is not None:
            self._hold.release(whole=release)

    def _give_up(self, before: int) -> None:
        """Close a session that turned out not to be resumable.

        ``before`` is its lease's token from before it was taken: with another one, nobody has worked under
        the lease yet.
        """
        if self._hold is not None:
            self._hold.release(unused=self._hold.token != before)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A lease that cannot be given back expires; what went wrong in the block matters more.
        with suppress(HoldfastError):
            self.close()

    def refresh(self) -> Self:
        """Read the session's row again."""
        record = self._store.find_session(self.id)
        if record is None:
            raise SessionNotFound(f"session {self.id} was erased")
        self._record = record
        return self

    def update_metadata(self, changes: Mapping[str, Any]) -> None:
        """Merge ``changes`` into the session's metadata."""
        self._record = self._store.update_session(
            self.id, merge_metadata=self._around.redaction.document(changes), fence=self._fence()
        )

    def describe_task(self, task_description: str) -> None:
        """Say what the work is about, where that was not known when the session was created."""
        check_text(task_description, "task_description", TASK_BYTES, empty=True)
        self._record = self._store.update_session(
            self.id,
            task_description=self._around.redaction.text(task_description),
            fence=self._fence(),
        )

    def _check_open(self) -> None:
        if self.status == "paused" and self._hold is not None and self._hold.released:
            raise SessionPaused(
                f"session {self.id} is paused. Nothing was written: resume it to go on"
            )
        if self.status == "completed":
            raise IllegalTransition(f"session {self.id} is completed; fork it to go on")

    def _move_to(
        self,
        status: SessionStatus,
        *,
        expected: Collection[str] | None = None,
        pause_reason: str | None = None,
        paused_until: datetime | None = None,
    ) -> None:
        self._record = self._store.update_session(
            self.id,
            status=status,
            expected=_leading_to(status) if expected is None else expected,
            pause_reason=pause_reason and self._around.redaction.text(pause_reason),
            paused_until=paused_until,
            fence=self._fence(),
        )
        self._paused_by = None

    def _check_move_to(self, status: SessionStatus) -> None:
        """Refuse a step that leads nowhere before anything is stored for it."""
        self._check_open()
        before = _leading_to(status)
        refuse_change(self.id, self.status, 0, status=status, expected=before, fence=None)

    def _pause_by(self, signal: str) -> None:
        """Mark an active session as paused by a signal. It stays held, for a program that survives it."""
        with suppress(IllegalTransition):
            self._move_to("paused", expected=["active"], pause_reason=signal)
            self._paused_by = signal
            self.log("info", f"paused by {signal}")

    def _work_on(self) -> None:
        """Make a session that a signal has paused active again: its program has survived."""
        if self._paused_by is None:
            return
        with suppress(IllegalTransition):
            self._move_to("active", expected=["paused"])
            self.log("info", "goes on after a pause")
        self._paused_by = None

    # Logs --------------------------------------------------------------------------------

    def log(self, level: str, message: str, *, data: Mapping[str, Any] | None = None) -> LogRecord:
        """Append a line to the session's log; levels are debug, info, warning and error."""
        if level not in LOG_LEVELS:
            raise InvalidFilter(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
        around = self._around.redaction
        return self._store.append_log(self.id, level, around.text(message), around.document(data))

    def decision(
        self, text: str, *, rationale: str | None = None, alternatives: Sequence[str] = ()
    ) -> LogRecord:
        """Record a decision, so that whoever comes next knows of it, and why.

        It is durable at once and independent of checkpoints: a rollback does not take it back. Briefs
        of this session and of those that continue it list it, and so does the handoff.
        """
        from holdfast.sessions.briefing import DECISION, note_data

        data = note_data(DECISION, text, rationale, alternatives)
        return self.log("info", f"decision: {text}", data=data)

    def logs(
        self, *, level: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[LogRecord]:
        """Return log lines in the order of the calls."""
        return self._store.list_logs(self.id, level=level, limit=limit, offset=offset)


def _leading_to(status: SessionStatus) -> list[str]:
    return [old for old, new in SESSION_TRANSITIONS.items() if status in new]


def _fence(hold: Hold | None, session_id: str) -> int:
    """Return the token that a write carries."""
    if hold is None:
        raise SessionNotHeld(
            f"session {session_id} was opened to look at it. Nothing was written: "
            f"manager.resume_session(…) goes on with it"
        )
    return hold.fence
