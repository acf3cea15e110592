"""Sessions in memory: their life, their log, and copying or erasing one with all it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any

from holdfast.errors import (
    AgentNotFound,
    CheckpointNotFound,
    SessionExists,
    SessionNotFound,
)
from holdfast.ids import new_id
from holdfast.model import (
    LogRecord,
    NewSession,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    WriteRecord,
)
from holdfast.stores.checks import (
    as_utc,
    check_filter,
    check_level,
    check_limit,
    check_log,
    check_session,
    check_session_change,
    checkpoint_keys,
    document_text,
    merged_text,
)
from holdfast.stores.memory_agents import MemoryAgents
from holdfast.stores.memory_chunks import MemoryChunks
from holdfast.stores.memory_leases import MemoryLeases
from holdfast.stores.memory_packs import MemoryPacks
from holdfast.stores.memory_tables import (
    Checkpoint,
    PendingWrite,
    Session,
    by_age,
    by_seq,
    has_prefix,
    has_values,
    log_record,
    own_bytes,
    session_record,
    snapshots_of,
    visible,
    wanted_values,
)
from holdfast.stores.rules import (
    SEALED_MARK,
    foreign_session,
    key_required,
    new_session_record,
    refuse_change,
)


class MemorySessions(MemoryAgents, MemoryChunks, MemoryPacks, MemoryLeases):
    """Sessions and their logs."""

    def create_session(self, draft: NewSession) -> SessionRecord:
        draft = check_session(draft)
        with self._open():
            return session_record(self._insert_session(draft))

    def _insert_session(self, draft: NewSession) -> Session:
        if draft.id in self._sessions:
            raise SessionExists(f"a session with the id {draft.id!r} exists already")
        document = document_text(draft.metadata)
        if self._seal is not None and SEALED_MARK not in (draft.metadata or {}):
            raise key_required(self.url)
        if draft.agent_id not in self._agents:
            if draft.agent is None:
                raise AgentNotFound(f"no agent has the id {draft.agent_id}")
            self._insert_agent(draft.agent)
        # The metadata is kept as text, and opened when it is asked for.
        record = new_session_record(replace(draft, metadata=None), self._now())
        session = Session(record, document)
        if draft.lease_owner is not None:
            self._hold(session, draft.lease_owner, record.lease_token)
            self._prolong(session, draft.lease_ttl)
        self._sessions[draft.id] = session
        return session

    def _session(self, session_id: str) -> Session:
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return found

    def find_session(self, session_id: str) -> SessionRecord | None:
        check_filter(session_id, "session id", str)
        with self._open():
            found = self._sessions.get(session_id)
            return None if found is None else session_record(found)

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        for value in (
            query.status,
            query.agent_type,
            query.agent_id,
            query.agent_prefix,
            query.id_prefix,
        ):
            if value is not None:
                check_filter(value, "filter", str)
        if query.continued is not None:
            check_filter(query.continued, "continued", bool)
        wanted = wanted_values(query.metadata)
        limit = check_limit(query.limit)

        def fits(session: Session) -> bool:
            record = session.record
            return (
                (query.status is None or record.status == query.status)
                and (query.agent_type is None or record.agent_type == query.agent_type)
                and (query.agent_id is None or record.agent_id == query.agent_id.lower())
                and has_prefix(record.agent_id, query.agent_prefix)
                and (query.id_prefix is None or record.id.startswith(query.id_prefix))
                and (query.continued is None or (record.id in continued) == query.continued)
                and has_values(session.document, wanted)
            )

        with self._open():
            continued = {one.record.continues_id for one in self._sessions.values()}
            found = sorted(self._sessions.values(), key=by_age, reverse=True)
            return [session_record(session) for session in islice(filter(fits, found), limit)]

    def update_session(
        self,
        session_id: str,
        *,
        status: str | None = None,
        expected: Collection[str] | None = None,
        resumed_at: datetime | None = None,
        paused_until: datetime | None = None,
        pause_reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        merge_metadata: Mapping[str, Any] | None = None,
        task_description: str | None = None,
        fence: int | None = None,
    ) -> SessionRecord:
        check_session_change(session_id, status, pause_reason, task_description, fence)
        dumped, merged = document_text(metadata), document_text(merge_metadata)
        changes: dict[str, Any] = {}
        if status is not None:
            changes["status"] = status
        if resumed_at is not None:
            changes["resumed_at"] = as_utc(resumed_at, "resumed_at")
        if task_description is not None:
            changes["task_description"] = task_description
        until = None if paused_until is None else as_utc(paused_until, "paused_until")
        with self._open():
            session = self._session(session_id)
            present, token = session.record.status, session.record.lease_token
            refuse_change(session_id, present, token, status=status, expected=expected, fence=fence)
            if status is not None:
                paused = status == "paused"
                changes["paused_at"] = self._now() if paused else None
                changes["paused_until"] = until if paused else None
                changes["pause_reason"] = pause_reason if paused else None
            session.record = replace(session.record, updated_at=self._now(), **changes)
            if dumped is not None:
                session.document = dumped
            if merged is not None:
                session.document = merged_text(session.document, merged)
            return session_record(session)

    def delete_session(self, session_id: str, *, agent_prefix: str | None = None) -> bool:
        check_filter(session_id, "session id", str)
        check_filter("" if agent_prefix is None else agent_prefix, "agent prefix", str)
        with self._open(), self._forgetting():
            session = self._sessions.get(session_id)
            if session is None:
                return False
            if agent_prefix is not None:
                _refuse_foreign(session, agent_prefix)
            snapshots = snapshots_of(session)
            self._drop_sessions([session])
            self._remove_snapshots(snapshots)
            self._sweep()
            return True

    def _drop_sessions(self, erased: Collection[Session]) -> None:
        """Forget sessions, and that others go on from them.

        An agent whom nobody needs any more goes with them, and then perhaps the one above it.
        """
        gone = {session.record.id for session in erased}
        for session in erased:
            del self._sessions[session.record.id]
            for line in session.lines.values():
                for checkpoint in line.stored:
                    self._forget(checkpoint)
        for other in self._sessions.values():
            if other.record.continues_id in gone:
                other.record = replace(other.record, continues_id=None)
        needed = {one.record.agent_id for one in self._sessions.values()}
        idle = {session.record.agent_id for session in erased} - needed
        while idle:
            above = {one.record.parent_id for one in self._agents.values()}
            leaving = {one for one in idle - above if not self._agents[one].timeline}
            if not leaving:
                return
            for agent_id in leaving:
                del self._agents[agent_id]
            idle -= leaving

    def erase_tenant(self) -> int:
        with self._open(), self._forgetting():
            erased = len(self._sessions)
            for session in self._sessions.values():
                for line in list(session.lines.values()):
                    for checkpoint in list(line.stored):
                        self._forget(checkpoint)
            self._sessions.clear()
            self._agents.clear()
            self._packs.clear()
            self._sweep()
            return erased

    def erase_threads(
        self, session_ids: Collection[str], *, namespace: str, agent_prefix: str
    ) -> int:
        for session_id in session_ids:
            check_filter(session_id, "session id", str)
        check_filter(namespace, "namespace", str)
        check_filter(agent_prefix, "agent prefix", str)
        with self._open(), self._forgetting():
            erased = 0
            found = [
                self._sessions[one] for one in sorted(set(session_ids) & self._sessions.keys())
            ]
            for session in found if not namespace else ():
                _refuse_foreign(session, agent_prefix)
            snapshots: set[str] = set()
            emptied: list[Session] = []
            for session in found:
                snapshots |= snapshots_of(session)
                line = session.lines.get(namespace)
                for checkpoint in [] if line is None else list(line.stored):
                    self._forget(checkpoint)
                    erased += 1
                session.lines.pop(namespace, None)
                for key in [key for key in session.writes if key[0] == namespace]:
                    del session.writes[key]
                empty = not (
                    session.effects
                    or any(session.writes.values())
                    or any(line.stored for line in session.lines.values())
                )
                if empty and _is_of(session, agent_prefix):
                    emptied.append(session)
            self._drop_sessions(emptied)
            if found:
                self._remove_snapshots(snapshots)
                self._sweep()
            return erased

    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        check_filter(source_id, "session id", str)
        draft = check_session(draft)
        chosen = None if checkpoint_ids is None else set(checkpoint_keys(checkpoint_ids))
        with self._open():
            source = self._session(source_id)
            now = self._now()
            found = sorted(
                (
                    checkpoint
                    for line in source.lines.values()
                    for checkpoint in line.stored
                    if visible(checkpoint.record, now)
                    and (chosen is None or checkpoint.record.id in chosen)
                ),
                key=by_seq,
            )
            if chosen is not None and len(found) < len(chosen):
                missing = chosen - {checkpoint.record.id for checkpoint in found}
                raise CheckpointNotFound(
                    f"session {source_id!r} has no checkpoint {', '.join(sorted(missing))}"
                )
            for checkpoint in found:
                self._verified(checkpoint)
            kept = {
                (checkpoint.record.namespace, checkpoint.record.external_id) for checkpoint in found
            }
            taken = {
                place: writes
                for place, writes in source.writes.items()
                if chosen is None or place in kept
            }
            for (namespace, _), writes in taken.items():
                for write in writes.values():
                    self._checked_write(source_id, namespace, write)
            session = self._insert_session(draft)
            ids = {checkpoint.record.id: new_id() for checkpoint in found}
            for checkpoint in found:
                record = checkpoint.record
                parent = record.parent_id
                copy = replace(
                    record,
                    id=ids[record.id],
                    session_id=draft.id,
                    agent_id=draft.agent_id,
                    seq=self._next_seq(),
                    parent_id=ids.get(parent, parent) if parent is not None else None,
                    stored_bytes=own_bytes(checkpoint.payload),
                    restored_at=None,
                )
                made = Checkpoint(
                    copy, checkpoint.document, checkpoint.payload, checkpoint.consumed_at
                )
                self._remember(session, made)
            for place, writes in taken.items():
                session.writes[place] = {
                    at: replace(one, sum=self.sums.write(draft.id, *place, one.record))
                    for at, one in writes.items()
                }
            return session_record(session)

    def _checked_write(self, session_id: str, namespace: str, stored: PendingWrite) -> WriteRecord:
        """Return a stored write. Raises `WriteAltered` unless it is as it was stored."""
        one = stored.record
        place = (session_id, namespace, one.external_id, one.task_id, one.task_path, one.index)
        content = (one.channel, one.payload.manifest, one.payload.refs)
        return self.sums.check_write((*place, *content, stored.sum))

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        for session_id in session_ids or ():
            check_filter(session_id, "session id", str)
        with self._open():
            now = self._now()
            wanted = None if session_ids is None else set(session_ids)
            usages = []
            for session in sorted(self._sessions.values(), key=by_age, reverse=True):
                if wanted is not None and session.record.id not in wanted:
                    continue
                records = [
                    checkpoint.record
                    for line in session.lines.values()
                    for checkpoint in line.stored
                    if visible(checkpoint.record, now)
                ]
                latest = max(records, key=attrgetter("seq"), default=None)
                usages.append(
                    SessionUsage(
                        session_id=session.record.id,
                        checkpoints=len(records),
                        size_bytes=sum(record.size_bytes for record in records),
                        stored_bytes=sum(record.stored_bytes for record in records),
                        latest_id=None if latest is None else latest.id,
                    )
                )
            return usages

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_filter(session_id, "session id", str)
        check_log(level, message)
        document = document_text(data, "log data")
        with self._open():
            session = self._session(session_id)
            self._log_id += 1
            line: tuple[Any, ...] = (self._log_id, session_id, level, message, None, self._now())
            session.logs.append((LogRecord(*line), document))
            return log_record(*session.logs[-1])

    def list_logs(
        self,
        session_id: str,
        *,
        level: str | None = None,
        key: str | None = None,
        newest: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[LogRecord]:
        for value in (session_id, "" if key is None else key):
            check_filter(value, "filter", str)
        check_level(level)
        limit = check_limit(limit)
        start = check_limit(offset, "offset") or 0
        with self._open():
            session = self._sessions.get(session_id)
            lines = [
                line
                for line in (session.logs if session is not None else ())
                if level is None or line[0].level == level
            ]
        found = [log_record(*line) for line in (reversed(lines) if newest else lines)]
        if key is not None:
            found = [line for line in found if key in (line.data or {})]
        return found[start : None if limit is None else start + limit]


def _is_of(session: Session, agent_prefix: str) -> bool:
    """Tell whether the session's agent is one whose id begins so."""
    return agent_prefix != "" and has_prefix(session.record.agent_id, agent_prefix)


def _refuse_foreign(session: Session, agent_prefix: str) -> None:
    """Raise `ForeignSession` unless the id of the session's agent begins so."""
    if not _is_of(session, agent_prefix):
        raise foreign_session(session.record.id, session.record.agent_type)
