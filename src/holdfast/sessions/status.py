"""How the sessions of a project are: when each was last saved, which saves failed, what is damaged.

A failed save is settled by a later checkpoint of the session, by hand or by itself, and by the session's
completion. Checkpoints are counted, not timed: no clock decides what is later. A checkpoint that lacks the files
it should have is half a save: settled by one that has them, by completion, or by asking for no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.autosave.reports import MARK
from holdfast.config import find_project_root
from holdfast.errors import HoldfastError, IntegrityError, StoreError
from holdfast.ids import is_thread_agent
from holdfast.leases import AGENT_SESSION
from holdfast.model import CheckpointQuery, CheckpointRecord, LogRecord, SessionQuery, SessionRecord
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.manager import SessionManager
from holdfast.stores.base import first
from holdfast.stores.checks import check_limit
from holdfast.stores.readable import list_readable_checkpoints, read_sessions


@dataclass(frozen=True, slots=True)
class SessionHealth:
    """A session with its latest checkpoint and the last error in its log, of whatever kind.

    ``quarantined`` is how many of its checkpoints are not used since they failed verification.
    """

    record: SessionRecord
    latest: CheckpointRecord | None
    last_error: LogRecord | None
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The checkpoints in one namespace of a session that failed verification, newest first.

    ``good`` is the last good one there, None where nothing is left. Resuming a session goes on from it. A
    ``thread`` is one that savers, checkpointers or a framework write: those use ``good`` while it is the
    newest of all, and else do not go back to it by themselves.
    """

    session_id: str
    namespace: str
    checkpoints: tuple[CheckpointRecord, ...]
    good: CheckpointRecord | None
    thread: bool

    @property
    def resumes_from(self) -> CheckpointRecord | None:
        """What work goes on from without anybody's doing; None where it is refused."""
        if self.good is None or (self.thread and self.good.seq < self.checkpoints[0].seq):
            return None
        return self.good


@dataclass(frozen=True, slots=True)
class FailedSave:
    """The latest failure to save a session, from its log or from the fallback log.

    ``session_id`` is None for a line of the fallback log that cannot be read.
    """

    session_id: str | None
    at: str
    event: str | None
    code: str | None
    message: str
    source: Literal["log", "file"]
    resolved: bool


@dataclass(frozen=True, slots=True)
class WithoutFiles:
    """A session whose latest checkpoint should have files, and why it has none."""

    session_id: str
    checkpoint: CheckpointRecord
    problem: str


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What `read_status` found. ``problem`` is why the database could not be opened or read.

    ``unreadable`` are sessions whose rows are damaged, each with what is wrong with it.
    """

    project_dir: Path
    fallback_log: Path
    url: str | None
    sessions: list[SessionHealth]
    failures: list[FailedSave]
    problem: HoldfastError | None = None
    quarantines: tuple[Quarantine, ...] = ()
    unreadable: Mapping[str, IntegrityError] = field(default_factory=dict)
    without_files: tuple[WithoutFiles, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all can be read, every failure has been settled, and no files are missing."""
        settled = all(one.resolved for one in self.failures)
        readable = self.problem is None and not self.unreadable
        return readable and settled and not self.without_files


def read_status(
    open_manager: Callable[[], SessionManager],
    *,
    project_dir: str | Path | None = None,
    limit: int | None = None,
) -> StatusReport:
    """Look at a project: its ``limit`` newest sessions; failed saves, files and quarantine of all of them.

    Changes nothing. A database that cannot be opened, or read, is part of the answer.
    """
    limit = check_limit(limit)
    root = find_project_root(project_dir)
    log = FallbackLog(root)
    noted = _latest(log.entries())
    url = None
    try:
        with open_manager() as manager:
            url = manager.store.url
            records, unreadable = read_sessions(manager.store, SessionQuery())
            known = _Known(manager, records)
            failures = [_from_file(entry, resolved=known.settles_entry(entry)) for entry in noted]
            # Whether one that cannot be read is completed nobody knows.
            unfinished = [one.id for one in records if one.status != "completed"]
            for session_id in (*unfinished, *unreadable):
                row = known.last_failure(session_id)
                if row is not None:
                    failures.append(_from_row(row, resolved=known.settles_row(row)))
            shown = [known.health(record) for record in records[:limit]]
            return StatusReport(
                root,
                log.path,
                url,
                shown,
                failures,
                quarantines=known.quarantines(),
                unreadable=unreadable,
                without_files=known.without_files(),
            )
    except (StoreError, IntegrityError) as error:
        failures = [_from_file(entry, resolved=False) for entry in noted]
        return StatusReport(root, log.path, url, [], failures, error)


class _Known:
    """What is asked of sessions, looked up when it is needed and once."""

    def __init__(self, manager: SessionManager, records: list[SessionRecord]) -> None:
        self._store = manager.store
        self._wants_files = manager._around.files is not None
        self._records = {record.id: record for record in records}
        self._quarantined: dict[tuple[str, str], list[CheckpointRecord]] = {}
        for one in manager.list_quarantined():
            place = (one.session_id, one.record.namespace)
            self._quarantined.setdefault(place, []).append(one.record)
        self.latest = cache(self._latest)

    def _latest(self, session_id: str) -> CheckpointRecord | None:
        query = CheckpointQuery(session_id, "", limit=1)
        return first(list_readable_checkpoints(self._store, query))

    def _last_error(self, session_id: str, key: str | None = None) -> LogRecord | None:
        found = self._store.list_logs(session_id, level="error", key=key, newest=True, limit=1)
        return found[0] if found else None

    def health(self, record: SessionRecord) -> SessionHealth:
        return SessionHealth(
            record,
            self.latest(record.id),
            self._last_error(record.id),
            sum(len(bad) for (id_, _), bad in self._quarantined.items() if id_ == record.id),
        )

    def without_files(self) -> tuple[WithoutFiles, ...]:
        """Return the unfinished sessions whose latest checkpoint could not have the files it should."""
        if not self._wants_files:
            return ()
        found = (self._without_files(id_) for id_ in self._records)
        return tuple(one for one in found if one is not None)

    def _without_files(self, session_id: str) -> WithoutFiles | None:
        if self._records[session_id].status == "completed" or self._is_thread(session_id):
            return None
        latest = self.latest(session_id)
        if latest is None:
            return None
        problem = Checkpoint.of(latest, self._store).files_problem
        return None if problem is None else WithoutFiles(session_id, latest, problem)

    def quarantines(self) -> tuple[Quarantine, ...]:
        return tuple(self._quarantine(place, bad) for place, bad in self._quarantined.items())

    def _quarantine(self, place: tuple[str, str], bad: list[CheckpointRecord]) -> Quarantine:
        session_id, namespace = place
        # A session of ours has one namespace, and resuming passes over what was saved to look at only.
        thread = bool(namespace) or self._is_thread(session_id)
        query = CheckpointQuery(
            session_id, namespace, resumable=None if thread else True, quarantined=False, limit=1
        )
        good = first(list_readable_checkpoints(self._store, query))
        return Quarantine(session_id, namespace, tuple(bad), good, thread)

    def _is_thread(self, session_id: str) -> bool:
        record = self._records.get(session_id)
        if record is None:
            return False
        return is_thread_agent(record.agent_id, record.agent_type)

    def last_failure(self, session_id: str) -> LogRecord | None:
        return self._last_error(session_id, MARK)

    def settles_row(self, row: LogRecord) -> bool:
        after = (row.data or {}).get("after_seq")
        latest = self.latest(row.session_id)
        return latest is not None and isinstance(after, int) and latest.seq > after

    def settles_entry(self, entry: Entry) -> bool:
        """What is noted of another store, or of a session that is gone, cannot be found settled."""
        record = self._noted(entry)
        if record is None:
            return False
        latest = self.latest(record.id)
        # Nobody knew what came before: then all that is certain is a session without a checkpoint.
        after = entry.after_seq or 0
        return record.status == "completed" or (latest is not None and latest.seq > after)

    def _noted(self, entry: Entry) -> SessionRecord | None:
        """Return the session that an entry is about, where it is one of this store."""
        ours = (entry.url, entry.tenant) == (self._store.url, self._store.tenant)
        if entry.agent_session is None or not (ours or entry.url is None):
            return self._records.get(entry.session_id or "") if ours else None
        # An agent's session may be several of ours, each of which continues the one before.
        for record in self._records.values():
            if (record.metadata or {}).get(AGENT_SESSION) == entry.agent_session:
                return record
        return None


def _latest(entries: list[Entry]) -> list[Entry]:
    """Return the last entry of each session, which stands for those before, and unreadable lines."""
    last = {
        (one.url, one.tenant, one.session_id or one.agent_session or str(at)): one
        for at, one in enumerate(entries)
    }
    return list(last.values())


def _from_row(row: LogRecord, *, resolved: bool) -> FailedSave:
    data = row.data or {}
    at = row.created_at.isoformat()
    return FailedSave(
        row.session_id, at, data[MARK], data.get("code"), row.message, "log", resolved
    )


def _from_file(entry: Entry, *, resolved: bool) -> FailedSave:
    return FailedSave(
        entry.session_id, entry.at, entry.event, entry.code, entry.message, "file", resolved
    )
