"""Which files an agent wrote, where others may be at work in the same project.

A tool that names files tells of them. A shell command does not: whatever is otherwise now than this session's
last checkpoint has it is taken to be the command's, less what may be somebody else's. That is what other
agents told of or have stored as theirs meanwhile, what was there already when a program without hooks saved,
and what the command of another agent, under way at the same time, may have written just as well. In doubt a
file is nobody's: a rollback of one's own work leaves it, and takes nothing from others.

An agent whose command is under way is told, by a line in its journal, what others stored in the meantime:
their checkpoints may be trimmed before its own comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.errors import HoldfastError, InvalidIdentifier
from holdfast.hooks.desk import Desk, paths_in
from holdfast.leases import AGENT_PROCESS, AGENT_SESSION, is_dead
from holdfast.model import CheckpointQuery, CheckpointRecord, SessionRecord
from holdfast.sessions import Session, SessionManager
from holdfast.sessions.checkpoint import Content
from holdfast.sessions.files import paths_written
from holdfast.sessions.rollback_request import is_of_rollback
from holdfast.stores.base import first
from holdfast.stores.readable import list_readable_checkpoints

# The session of `holdfast run` around the agent: what it saves is no other's work.
RUN_SESSION: Final = "run_session"
HOOK: Final = "hook"
_PAGE: Final = 50
_MOST_TOLD: Final = 10_000


class Written(NamedTuple):
    """The files that an agent wrote, and those that it or another one may have written."""

    mine: set[str]
    shared: set[str]


class Authorship:
    """Tells what the agent of a session wrote since the session's last checkpoint."""

    def __init__(self, manager: SessionManager, session: Session, desk: Desk) -> None:
        self._manager = manager
        self._session = session
        self._desk = desk
        self._at_work: list[tuple[Desk, SessionRecord | None]] | None = None

    def find(self, lines: list[dict[str, Any]], commit: str | None = None) -> Written:
        """Return the paths, by what the journal says. ``commit`` is a snapshot of the files as they are."""
        told = self._relative(path for line in lines for path in paths_in(line))
        if not _has_scan(lines):
            return Written(told, set())
        if commit is None:
            _, commit = self._session.look_at_files()
        query = CheckpointQuery(self._session.id, namespace="", quarantined=False, limit=1)
        base = first(list_readable_checkpoints(self._manager.store, query))
        if commit is None or base is None or base.workspace_commit is None:
            return Written(told, set())
        try:
            changed = self._changed(base.workspace_commit, commit)
            changed -= self._stored_by_others(base)
            written = self._less_pending(changed, commit)
        except HoldfastError:
            # A snapshot is gone, or a checkpoint unreadable: nobody can tell.
            return Written(told, set())
        return Written(told | written.mine, written.shared - told)

    def tell_others(self, written: Written) -> None:
        """Let agents whose commands are under way know what is not theirs, or not surely."""
        paths = sorted(written.mine | written.shared)
        if not paths:
            return
        for other, _ in self._others():
            if _has_scan(other.peek()):
                other.append({"others": paths if len(paths) <= _MOST_TOLD else True})

    def _changed(self, old: str, new: str) -> set[str]:
        return self._manager.workspace.differing(old, new) if old != new else set()

    def _less_pending(self, changed: set[str], commit: str) -> Written:
        """Take out what other agents wrote, or may have written, since their last checkpoints."""
        shared: set[str] = set()
        for other, record in self._others():
            lines = other.peek()
            changed -= self._relative(path for line in lines for path in paths_in(line))
            if changed and _has_scan(lines):
                latest = None if record is None else next(self._checkpoints(record.id), None)
                began = None if latest is None else latest.workspace_commit
                shared |= changed & self._changed(began, commit) if began else changed
        # Only now: whoever has stored something since we looked at its journal has told us before.
        for line in self._desk.peek():
            given = line.get("others")
            changed -= changed if given is True else self._relative(paths_in({"paths": given}))
        return Written(changed - shared, shared)

    def _stored_by_others(self, base: CheckpointRecord) -> set[str]:
        """Return what others stored as theirs, or may have, since a checkpoint of this session."""
        resumed = self._session.record.resumed_at
        # Nobody tells a session of anything that is not at work.
        was_away = resumed is not None and resumed > base.created_at
        found: set[str] = set()
        foreign: CheckpointRecord | None = None
        for record in self._manager.list_sessions():
            if (
                record.id == self._session.id
                or record.project_dir not in (None, self._manager.place)
                or record.updated_at < base.created_at
            ):
                continue
            around_us = record.id == self._session.metadata.get(RUN_SESSION)
            for one in self._checkpoints(record.id, after=base.seq):
                if HOOK in (one.metadata or {}) and not was_away:
                    paths, _ = paths_written(Content(self._manager.store, one.id).outline().context)
                    found |= paths
                elif around_us and not is_of_rollback(one):
                    break
                elif one.workspace_commit is not None:
                    # What it wrote nobody knows: it was there at its latest save.
                    foreign = one if foreign is None or one.seq > foreign.seq else foreign
        if foreign is not None and foreign.workspace_commit and base.workspace_commit:
            found |= self._changed(base.workspace_commit, foreign.workspace_commit)
        return found

    def _checkpoints(self, session_id: str, *, after: int = 0) -> Iterator[CheckpointRecord]:
        """Yield the checkpoints of a session after one, newest first."""
        before = None
        while True:
            query = CheckpointQuery(session_id, namespace="", before_seq=before, limit=_PAGE)
            page = self._manager.store.list_checkpoints(query)
            for one in page:
                if one.seq <= after:
                    return
                yield one
            if len(page) < _PAGE:
                return
            before = page[-1].seq

    def _others(self) -> list[tuple[Desk, SessionRecord | None]]:
        """Return the desks of other agents that have left something there and may be at work."""
        if self._at_work is None:
            desks = self._desk.others()
            known = _by_desk(self._desk.root, self._manager.list_sessions()) if desks else {}
            self._at_work = []
            for other in desks:
                # One of which this database knows nothing reports to another one.
                record, at_work = known.get(other.name, (None, True))
                if at_work:
                    self._at_work.append((other, record))
        return self._at_work

    def _relative(self, paths: Iterable[str]) -> set[str]:
        found = set()
        for path in paths:
            try:
                found.add(self._manager.workspace.relative(path))
            except InvalidIdentifier:
                continue  # a file outside of the project
            except HoldfastError:
                break
        return found


def _has_scan(lines: list[dict[str, Any]]) -> bool:
    return any(line.get("scan") for line in lines)


def _by_desk(root: str, records: list[SessionRecord]) -> dict[str, tuple[SessionRecord, bool]]:
    """Return the latest session for each desk, newest first, and whether its agent may be at work.

    An agent may, too, whose session was given up while a command of it took longer than the lease: as long
    as its process lives and has begun no other session.
    """
    found: dict[str, tuple[SessionRecord, bool]] = {}
    processes: set[str] = set()
    for record in records:
        about = record.metadata or {}
        agent, _, session_id = str(about.get(AGENT_SESSION, "")).partition(":")
        if not session_id:
            continue
        process = about.get(AGENT_PROCESS)
        alive = isinstance(process, str) and process not in processes and not is_dead(process)
        processes.add(str(process))
        at_work = record.status == "active" or (alive and record.status != "completed")
        found.setdefault(Desk(root, agent, session_id).name, (record, at_work))
    return found
