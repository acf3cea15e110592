"""Checkpoints in the memory of this process: for tests, and for agents that need no tomorrow.

It keeps the same contract as the databases, and the property tests hold those against it: where a
statement and this plain Python disagree, one of them is wrong. One lock guards everything, since
nothing here takes longer than a few microseconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any, Final, cast

import orjson

from holdfast.errors import (
    AgentExists,
    AgentNotFound,
    CheckpointExists,
    CheckpointNotFound,
    ChunksMissing,
    IllegalTransition,
    SessionExists,
    SessionNotFound,
    StateCorrupt,
    StoreClosed,
)
from holdfast.ids import check_external_id, check_namespace, check_tenant, new_id
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointQuery,
    CheckpointRecord,
    GcReport,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewSession,
    NewWrite,
    Payload,
    PutResult,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    Trim,
    WriteRecord,
    utc_now,
)
from holdfast.state.codec import dump_document, load_document
from holdfast.stores.base import Store
from holdfast.stores.checks import (
    as_utc,
    check_agent,
    check_agent_status,
    check_checkpoint,
    check_filter,
    check_limit,
    check_log,
    check_session,
    check_session_status,
    check_write,
    metadata_filter,
)
from holdfast.stores.rules import FINAL_AGENT_STATUSES, ORPHAN_AGE, reachable


@dataclass(slots=True, eq=False)
class _Checkpoint:
    """A checkpoint; ``document`` is its metadata as text, so that no caller can change it."""

    record: CheckpointRecord
    document: str | None
    payload: Payload


@dataclass(slots=True, eq=False)
class _Line:
    """The checkpoints of one session and namespace, oldest first."""

    stored: list[_Checkpoint] = field(default_factory=list)
    by_name: dict[str, _Checkpoint] = field(default_factory=dict)
    by_external_id: dict[str, _Checkpoint] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Session:
    record: SessionRecord
    document: str | None
    lines: dict[str, _Line] = field(default_factory=dict)
    logs: list[tuple[LogRecord, str | None]] = field(default_factory=list)
    # (namespace, external id) to (task, index) to the write and its time.
    writes: dict[tuple[str, str], dict[tuple[str, int], tuple[WriteRecord, datetime]]] = field(
        default_factory=dict
    )


@dataclass(slots=True, eq=False)
class _Agent:
    record: AgentRecord
    document: str | None
    # (created_at, id) of its checkpoints in order.
    timeline: list[tuple[datetime, str]] = field(default_factory=list)


_EQUAL: Final = (
    "session_id",
    "namespace",
    "name",
    "label",
    "external_id",
    "checkpoint_type",
    "retention_class",
    "run_id",
    "version",
    "resumable",
)
_KINDS: Final[Mapping[str, type]] = {"version": int, "resumable": bool, "before_seq": int}
_FILTERS: Final = (*_EQUAL, "agent_id", "id", "id_prefix", "before_seq")
_FIELDS: Final = tuple(one.name for one in fields(CheckpointRecord))
_METADATA: Final = _FIELDS.index("metadata")
_values = attrgetter(*_FIELDS)
_by_seq = attrgetter("record.seq")
_by_age = attrgetter("record.created_at", "record.id")


class MemoryStore(Store):
    """A store that lives and dies with its process."""

    def __init__(self, tenant: str = "default", *, now: Callable[[], datetime] = utc_now) -> None:
        self.tenant = check_tenant(tenant)
        self.url = "memory:"
        self._now = now
        self._lock = threading.RLock()
        self._closed = False
        self._agents: dict[str, _Agent] = {}
        self._sessions: dict[str, _Session] = {}
        self._checkpoints: dict[str, _Checkpoint] = {}
        self._chunks: dict[bytes, bytes] = {}
        self._seq = 0
        self._log_id = 0

    def _open(self) -> threading.RLock:
        if self._closed:
            raise StoreClosed("this memory store was closed")
        return self._lock

    # Agents ----------------------------------------------------------------------------------

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        draft = check_agent(draft)
        with self._open():
            return _agent(self._insert_agent(draft))

    def _insert_agent(self, draft: NewAgent) -> _Agent:
        depth = 0
        if draft.parent_id is not None:
            parent = self._agents.get(draft.parent_id)
            if parent is None:
                raise AgentNotFound(f"no agent has the id {draft.parent_id}, given as parent")
            depth = parent.record.depth_level + 1
        if draft.id in self._agents:
            raise AgentExists(f"an agent with the id {draft.id} exists already")
        now = self._now()
        record = AgentRecord(
            id=draft.id,
            name=draft.name,
            agent_type=draft.agent_type,
            status=draft.status,
            parent_id=draft.parent_id,
            depth_level=depth,
            metadata=None,
            created_at=now,
            updated_at=now,
            completed_at=now if draft.status in FINAL_AGENT_STATUSES else None,
        )
        agent = _Agent(record, _dumped(draft.metadata))
        self._agents[draft.id] = agent
        return agent

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        check_filter(agent_id, "agent id", str)
        with self._open():
            found = self._agents.get(agent_id.lower())
            return None if found is None else _agent(found)

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        for value in (status, parent_id):
            if value is not None:
                check_filter(value, "filter", str)
        limit = check_limit(limit)
        with self._open():
            found = sorted(self._agents.values(), key=_by_age, reverse=True)
            chosen = (
                _agent(agent)
                for agent in found
                if (status is None or agent.record.status == status)
                and (parent_id is None or agent.record.parent_id == parent_id.lower())
            )
            return list(islice(chosen, limit))

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        check_filter(agent_id, "agent id", str)
        check_agent_status(status)
        dumped = _dumped(metadata)
        with self._open():
            agent = self._agents.get(agent_id.lower())
            if agent is None:
                raise AgentNotFound(f"no agent has the id {agent_id}")
            now = self._now()
            changes: dict[str, Any] = {"updated_at": now}
            if status is not None:
                changes["status"] = status
                changes["completed_at"] = now if status in FINAL_AGENT_STATUSES else None
            agent.record = replace(agent.record, **changes)
            if dumped is not None:
                agent.document = dumped
            return _agent(agent)

    # Sessions --------------------------------------------------------------------------------

    def create_session(self, draft: NewSession) -> SessionRecord:
        draft = check_session(draft)
        with self._open():
            return _session(self._insert_session(draft))

    def _insert_session(self, draft: NewSession) -> _Session:
        if draft.id in self._sessions:
            raise SessionExists(f"a session with the id {draft.id!r} exists already")
        document = _dumped(draft.metadata)
        if draft.agent_id not in self._agents:
            if draft.agent is None:
                raise AgentNotFound(f"no agent has the id {draft.agent_id}")
            self._insert_agent(draft.agent)
        now = self._now()
        record = SessionRecord(
            id=draft.id,
            agent_id=draft.agent_id,
            agent_type=draft.agent_type,
            task_description=draft.task_description,
            status="active",
            continues_id=draft.continues_id,
            forked_from=draft.forked_from,
            paused_at=None,
            paused_until=None,
            pause_reason=None,
            resumed_at=None,
            metadata=None,
            created_at=now,
            updated_at=now,
        )
        session = _Session(record, document)
        self._sessions[draft.id] = session
        return session

    def _session(self, session_id: str) -> _Session:
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return found

    def find_session(self, session_id: str) -> SessionRecord | None:
        check_filter(session_id, "session id", str)
        with self._open():
            found = self._sessions.get(session_id)
            return None if found is None else _session(found)

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        for value in (query.status, query.agent_type, query.agent_id, query.id_prefix):
            if value is not None:
                check_filter(value, "filter", str)
        wanted = _wanted(query.metadata)
        limit = check_limit(query.limit)

        def fits(session: _Session) -> bool:
            record = session.record
            return (
                (query.status is None or record.status == query.status)
                and (query.agent_type is None or record.agent_type == query.agent_type)
                and (query.agent_id is None or record.agent_id == query.agent_id.lower())
                and (query.id_prefix is None or record.id.startswith(query.id_prefix))
                and _has(session.document, wanted)
            )

        with self._open():
            found = sorted(self._sessions.values(), key=_by_age, reverse=True)
            return [_session(session) for session in islice(filter(fits, found), limit)]

    def update_session(
        self,
        session_id: str,
        *,
        status: str | None = None,
        expected: Collection[str] | None = None,
        resumed_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        check_filter(session_id, "session id", str)
        check_session_status(status)
        changes: dict[str, Any] = {}
        if status is not None:
            changes["status"] = status
        if resumed_at is not None:
            changes["resumed_at"] = as_utc(resumed_at, "resumed_at")
        dumped = _dumped(metadata)
        with self._open():
            session = self._session(session_id)
            present = session.record.status
            if expected is not None and present not in expected:
                raise IllegalTransition(
                    f"session {session_id!r} is {present}; this needs {', '.join(sorted(expected))}"
                )
            session.record = replace(session.record, updated_at=self._now(), **changes)
            if dumped is not None:
                session.document = dumped
            return _session(session)

    def delete_session(self, session_id: str) -> bool:
        check_filter(session_id, "session id", str)
        with self._open():
            session = self._sessions.pop(session_id, None)
            if session is None:
                return False
            own, _ = reachable(_roots(session), self._read)
            for line in list(session.lines.values()):
                for checkpoint in line.stored:
                    self._forget(checkpoint)
            others, whole = reachable(self._all_roots(), self._read)
            # Below an unreadable index anything may be shared; gc says so and removes nothing.
            if whole:
                for digest in own - others:
                    self._chunks.pop(digest, None)
            return True

    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        check_filter(source_id, "session id", str)
        draft = check_session(draft)
        chosen = None if checkpoint_ids is None else {found.lower() for found in checkpoint_ids}
        with self._open():
            source = self._session(source_id)
            now = self._now()
            found = sorted(
                (
                    checkpoint
                    for line in source.lines.values()
                    for checkpoint in line.stored
                    if _visible(checkpoint.record, now)
                    and (chosen is None or checkpoint.record.id in chosen)
                ),
                key=_by_seq,
            )
            if chosen is not None and len(found) < len(chosen):
                missing = chosen - {checkpoint.record.id for checkpoint in found}
                raise CheckpointNotFound(
                    f"session {source_id!r} has no checkpoint {', '.join(sorted(missing))}"
                )
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
                    stored_bytes=_own_bytes(checkpoint.payload),
                )
                self._remember(session, _Checkpoint(copy, checkpoint.document, checkpoint.payload))
            kept = {
                (checkpoint.record.namespace, checkpoint.record.external_id) for checkpoint in found
            }
            for key, writes in source.writes.items():
                if chosen is None or key in kept:
                    session.writes[key] = dict(writes)
            return _session(session)

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        for session_id in session_ids or ():
            check_filter(session_id, "session id", str)
        with self._open():
            now = self._now()
            wanted = None if session_ids is None else set(session_ids)
            usages = []
            for session in sorted(self._sessions.values(), key=_by_age, reverse=True):
                if wanted is not None and session.record.id not in wanted:
                    continue
                records = [
                    checkpoint.record
                    for line in session.lines.values()
                    for checkpoint in line.stored
                    if _visible(checkpoint.record, now)
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

    # Checkpoints -----------------------------------------------------------------------------

    def put(self, draft: NewCheckpoint) -> PutResult:
        draft = check_checkpoint(draft)
        brings = None if draft.session is None else check_session(draft.session)
        document = _dumped(draft.metadata)
        created = None if draft.created_at is None else as_utc(draft.created_at, "created_at")
        expires = None if draft.expires_at is None else as_utc(draft.expires_at, "expires_at")
        with self._open():
            now = self._now()
            session = self._sessions.get(draft.session_id)
            if session is None and brings is None:
                raise SessionNotFound(f"no session has the id {draft.session_id!r}")
            stored = self._checkpoints.get(draft.id)
            if stored is not None:
                if stored.record.session_id != draft.session_id:
                    raise CheckpointExists(f"the id {draft.id} belongs to another session")
                return PutResult(_checkpoint(stored), created=False)
            line = None if session is None else session.lines.get(draft.namespace)
            replaced, seq = ([], None) if line is None else _standing(line, draft, now)
            self._require_chunks(draft.expects, draft.chunks)
            if session is None:
                session = self._insert_session(cast("NewSession", brings))
            for checkpoint in replaced:
                self._forget(checkpoint)
            payload = Payload(draft.manifest, draft.refs)
            record = CheckpointRecord(
                id=draft.id,
                session_id=draft.session_id,
                agent_id=session.record.agent_id,
                namespace=draft.namespace,
                seq=self._next_seq() if seq is None else seq,
                external_id=draft.external_id,
                parent_id=draft.parent_id,
                name=draft.name,
                label=draft.label,
                description=draft.description,
                checkpoint_type=draft.checkpoint_type,
                retention_class=draft.retention_class,
                run_id=draft.run_id,
                version=draft.version,
                size_bytes=draft.size_bytes,
                stored_bytes=_own_bytes(payload) + self._add_chunks(draft.chunks),
                git_branch=draft.git_branch,
                git_commit=draft.git_commit,
                git_uncommitted=draft.git_uncommitted,
                resumable=draft.resumable,
                pinned=draft.pinned,
                expires_at=expires,
                metadata=None,
                created_at=created or now,
                restored_at=None,
            )
            checkpoint = _Checkpoint(record, document, payload)
            session.record = replace(session.record, updated_at=now)
            line = self._remember(session, checkpoint)
            removed = _trimmed(line, record, draft.trim, now)
            for old in removed:
                self._forget(old)
            gone = tuple(old.record.id for old in (*replaced, *removed))
            return PutResult(_checkpoint(checkpoint), created=True, removed=gone)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _add_chunks(self, chunks: Mapping[bytes, Buffer]) -> int:
        added = 0
        for digest, data in chunks.items():
            if digest not in self._chunks:
                self._chunks[digest] = plain = bytes(data)
                added += len(plain)
        return added

    def _require_chunks(self, expects: Sequence[bytes], brought: Collection[bytes]) -> None:
        stored = self._chunks
        missing = [digest for digest in expects if digest not in stored and digest not in brought]
        if missing:
            raise ChunksMissing(
                f"{len(missing)} of {len(expects)} chunks that the draft relies on are no longer "
                f"stored. Nothing was stored: repeat it with all chunks"
            )

    def _remember(self, session: _Session, checkpoint: _Checkpoint) -> _Line:
        record = checkpoint.record
        line = session.lines.get(record.namespace)
        if line is None:
            line = session.lines[record.namespace] = _Line()
        if not line.stored or line.stored[-1].record.seq < record.seq:
            line.stored.append(checkpoint)
        else:
            insort(line.stored, checkpoint, key=_by_seq)
        line.by_name[record.name] = checkpoint
        if record.external_id is not None:
            line.by_external_id[record.external_id] = checkpoint
        self._checkpoints[record.id] = checkpoint
        insort(self._agents[record.agent_id].timeline, (record.created_at, record.id))
        return line

    def _forget(self, checkpoint: _Checkpoint) -> None:
        record = checkpoint.record
        del self._checkpoints[record.id]
        timeline = self._agents[record.agent_id].timeline
        del timeline[bisect_left(timeline, (record.created_at, record.id))]
        session = self._sessions.get(record.session_id)
        if session is None:
            return
        line = session.lines[record.namespace]
        del line.stored[bisect_left(line.stored, record.seq, key=_by_seq)]
        del line.by_name[record.name]
        if record.external_id is not None:
            del line.by_external_id[record.external_id]

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        given = []
        for name in _FILTERS:
            value = getattr(query, name)
            if value is not None:
                check_filter(value, name, _KINDS.get(name, str))
                given.append((name, value))
        equal = [(name, value) for name, value in given if name in _EQUAL]
        wanted = _wanted(query.metadata)
        limit = check_limit(query.limit)

        def fits(checkpoint: _Checkpoint) -> bool:
            record = checkpoint.record
            return (
                all(getattr(record, name) == value for name, value in equal)
                and (query.agent_id is None or record.agent_id == query.agent_id.lower())
                and (query.id is None or record.id == query.id.lower())
                and (query.id_prefix is None or record.id.startswith(query.id_prefix))
                and (query.before_seq is None or record.seq < query.before_seq)
                and _visible(record, now)
                and _has(checkpoint.document, wanted)
            )

        with self._open():
            now = self._now()
            found = filter(fits, self._candidates(query))
            return [_checkpoint(checkpoint) for checkpoint in islice(found, limit)]

    def _candidates(self, query: CheckpointQuery) -> Iterator[_Checkpoint]:
        """Return what may fit, newest first, found as directly as the query allows."""
        if query.id is not None:
            one = self._checkpoints.get(query.id.lower())
            return iter(() if one is None else (one,))
        if query.session_id is None:
            return iter(sorted(self._checkpoints.values(), key=_by_seq, reverse=True))
        session = self._sessions.get(query.session_id)
        if session is None:
            return iter(())
        lines = (
            session.lines.values()
            if query.namespace is None
            else filter(None, (session.lines.get(query.namespace),))
        )
        several = [line.stored for line in lines]
        if len(several) == 1:
            return reversed(several[0])
        return iter(sorted((one for line in several for one in line), key=_by_seq, reverse=True))

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        check_filter(agent_id, "agent id", str)
        with self._open():
            agent = self._agents.get(agent_id.lower())
            now = self._now()
            for _, id_ in reversed(agent.timeline) if agent is not None else ():
                checkpoint = self._checkpoints[id_]
                if _visible(checkpoint.record, now):
                    return _checkpoint(checkpoint)
            return None

    def _visible_checkpoint(self, checkpoint_id: str) -> _Checkpoint | None:
        check_filter(checkpoint_id, "checkpoint id", str)
        found = self._checkpoints.get(checkpoint_id.lower())
        return found if found is not None and _visible(found.record, self._now()) else None

    def read_payload(self, checkpoint_id: str) -> Payload | None:
        with self._open():
            found = self._visible_checkpoint(checkpoint_id)
            return None if found is None else found.payload

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        with self._open():
            return self._read(digests)

    def _read(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        stored = self._chunks
        return {digest: stored[digest] for digest in digests if digest in stored}

    def mark_restored(self, checkpoint_id: str) -> CheckpointRecord:
        with self._open():
            found = self._visible_checkpoint(checkpoint_id)
            if found is None:
                raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")
            found.record = replace(found.record, restored_at=self._now())
            return _checkpoint(found)

    def delete_checkpoints(self, checkpoint_ids: Sequence[str]) -> int:
        for checkpoint_id in checkpoint_ids:
            check_filter(checkpoint_id, "checkpoint id", str)
        with self._open():
            found = {id_.lower() for id_ in checkpoint_ids} & self._checkpoints.keys()
            for checkpoint_id in found:
                self._forget(self._checkpoints[checkpoint_id])
            return len(found)

    # Pending writes --------------------------------------------------------------------------

    def put_writes(
        self,
        session: NewSession,
        namespace: str,
        external_id: str,
        writes: Sequence[NewWrite],
    ) -> None:
        session = check_session(session)
        check_namespace(namespace)
        check_external_id(external_id)
        for write in writes:
            check_write(write)
        with self._open():
            brought = {digest for write in writes for digest in write.chunks}
            for write in writes:
                self._require_chunks(write.expects, brought)
            owner = self._sessions.get(session.id) or self._insert_session(session)
            now = self._now()
            stored = owner.writes.setdefault((namespace, external_id), {})
            for write in writes:
                self._add_chunks(write.chunks)
                key = (write.task_id, write.index)
                if write.replace or key not in stored:
                    payload = Payload(write.manifest, write.refs)
                    record = WriteRecord(
                        external_id,
                        write.task_id,
                        write.task_path,
                        write.index,
                        write.channel,
                        payload,
                    )
                    stored[key] = (record, now)

    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        for value in (session_id, namespace, *external_ids):
            check_filter(value, "filter", str)
        with self._open():
            session = self._sessions.get(session_id)
            writes = {} if session is None else session.writes
            found = [
                record
                for external_id in set(external_ids)
                for record, _ in writes.get((namespace, external_id), {}).values()
            ]
        return sorted(found, key=attrgetter("task_path", "task_id", "index", "external_id"))

    # Logs ------------------------------------------------------------------------------------

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_filter(session_id, "session id", str)
        check_log(level, message)
        document = None if data is None else dump_document(data, "log data")
        with self._open():
            session = self._session(session_id)
            self._log_id += 1
            line: tuple[Any, ...] = (self._log_id, session_id, level, message, None, self._now())
            session.logs.append((LogRecord(*line), document))
            return _log(*session.logs[-1])

    def list_logs(
        self,
        session_id: str,
        *,
        level: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[LogRecord]:
        for value in (session_id, level or ""):
            check_filter(value, "filter", str)
        limit = check_limit(limit)
        start = check_limit(offset, "offset") or 0
        with self._open():
            session = self._sessions.get(session_id)
            lines = [
                line
                for line in (session.logs if session is not None else ())
                if level is None or line[0].level == level
            ]
        end = None if limit is None else start + limit
        return [_log(*line) for line in lines[start:end]]

    # Upkeep ----------------------------------------------------------------------------------

    def purge_expired(self) -> int:
        with self._open():
            now = self._now()
            expired = [
                checkpoint
                for checkpoint in self._checkpoints.values()
                if not _visible(checkpoint.record, now)
            ]
            for checkpoint in expired:
                self._forget(checkpoint)
            return len(expired)

    def gc(self, *, dry_run: bool = False) -> GcReport:
        with self._open():
            orphans = self._orphaned_writes(self._now() - ORPHAN_AGE)
            gone = {id(record) for _, _, record in orphans}
            live, whole = reachable(self._all_roots(gone), self._read)
            if not whole:
                raise StateCorrupt(
                    f"{self.url} has an index chunk that cannot be read, so what lies below it is "
                    f"unknown. Nothing was removed: delete the checkpoints that verify names"
                )
            dead = [digest for digest in self._chunks if digest not in live]
            report = GcReport(
                chunks=len(dead),
                bytes=sum(len(self._chunks[digest]) for digest in dead),
                writes=len(orphans),
                dry_run=dry_run,
            )
            if not dry_run:
                for digest in dead:
                    del self._chunks[digest]
                for stored, key, _ in orphans:
                    del stored[key]
            return report

    def _orphaned_writes(
        self, before: datetime
    ) -> list[tuple[dict[tuple[str, int], Any], tuple[str, int], WriteRecord]]:
        return [
            (stored, key, record)
            for session in self._sessions.values()
            for (namespace, external_id), stored in session.writes.items()
            if namespace not in session.lines
            or external_id not in session.lines[namespace].by_external_id
            for key, (record, created_at) in stored.items()
            if created_at <= before
        ]

    def _all_roots(self, without: Collection[int] = ()) -> Iterator[bytes]:
        for session in self._sessions.values():
            yield from _roots(session, without)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        with self._open():
            now = self._now()
            found = sorted(self._checkpoints.values(), key=_by_seq)
            return iter([one.record.id for one in found if _visible(one.record, now)])

    def total_bytes(self) -> int:
        with self._open():
            return sum(map(len, self._chunks.values()))

    def close(self) -> None:
        self._closed = True


def _standing(
    line: _Line, draft: NewCheckpoint, now: datetime
) -> tuple[list[_Checkpoint], int | None]:
    """Return what the draft replaces and the seq that is handed on."""
    replaced: list[_Checkpoint] = []
    seq = None
    for column, found in (
        ("name", line.by_name.get(draft.name)),
        (
            "external_id",
            None if draft.external_id is None else line.by_external_id.get(draft.external_id),
        ),
    ):
        if found is None:
            continue
        # What has expired is gone for everybody who asks, so it stands in nobody's way.
        if _visible(found.record, now):
            if not draft.replace:
                raise CheckpointExists(
                    f"session {draft.session_id!r} has a checkpoint with the {column} "
                    f"{getattr(draft, column)!r} already. Nothing was stored: choose another, "
                    f"or replace it"
                )
            seq = found.record.seq if column == "external_id" else seq
        if found not in replaced:
            replaced.append(found)
    return replaced, seq


def _trimmed(line: _Line, newest: CheckpointRecord, trim: Trim, now: datetime) -> list[_Checkpoint]:
    """Return what a put removes, oldest first; see `Trim`."""
    if trim.keep is None and not trim.max_age:
        return []
    seen = 0
    resumable_seen = False
    going = []
    for checkpoint in reversed(line.stored):
        record = checkpoint.record
        if not _visible(record, now):
            continue
        newest_resumable = record.resumable and not resumable_seen
        resumable_seen = resumable_seen or record.resumable
        if record.pinned:
            continue
        above_cap = False
        if trim.keep is not None and record.retention_class == newest.retention_class:
            seen += 1
            above_cap = seen > trim.keep
        age = trim.max_age.get(record.retention_class)
        past_age = age is not None and record.created_at < now - age
        if (above_cap or past_age) and not newest_resumable:
            going.append(checkpoint)
    return going[::-1]


def _visible(record: CheckpointRecord, now: datetime) -> bool:
    return record.expires_at is None or record.expires_at > now


def _roots(session: _Session, without: Collection[int] = ()) -> Iterator[bytes]:
    for line in session.lines.values():
        for checkpoint in line.stored:
            yield checkpoint.payload.refs
    for stored in session.writes.values():
        for record, _ in stored.values():
            if id(record) not in without:
                yield record.payload.refs


def _own_bytes(payload: Payload) -> int:
    return len(payload.manifest.encode()) + len(payload.refs)


def _dumped(metadata: Mapping[str, Any] | None) -> str | None:
    return None if metadata is None else dump_document(metadata, "metadata")


def _agent(agent: _Agent) -> AgentRecord:
    if agent.document is None:
        return agent.record
    return replace(agent.record, metadata=load_document(agent.document))


def _session(session: _Session) -> SessionRecord:
    if session.document is None:
        return session.record
    return replace(session.record, metadata=load_document(session.document))


def _checkpoint(checkpoint: _Checkpoint) -> CheckpointRecord:
    if checkpoint.document is None:
        return checkpoint.record
    # The same as dataclasses.replace, three times as fast.
    values = list(_values(checkpoint.record))
    values[_METADATA] = load_document(checkpoint.document)
    return CheckpointRecord(*values)


def _log(record: LogRecord, document: str | None) -> LogRecord:
    return record if document is None else replace(record, data=load_document(document))


def _wanted(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    return dict(orjson.loads(metadata_filter(metadata))) if metadata else None


def _has(document: str | None, wanted: Mapping[str, Any] | None) -> bool:
    """Tell whether a stored document has the wanted values, as a database compares them."""
    if wanted is None:
        return True
    if document is None:
        return False
    stored = orjson.loads(document)
    return all(
        key in stored
        and stored[key] == value
        and (type(stored[key]) is bool) is (type(value) is bool)
        for key, value in wanted.items()
    )
