"""What a memory store holds: plain objects, the indexes over them, and the one lock around both.

Metadata is kept as text, so that no caller can change what is stored; the functions at the end give
it out as records.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from operator import attrgetter
from threading import RLock
from typing import Any, Final

import orjson

from holdfast.errors import StoreClosed
from holdfast.ids import check_tenant
from holdfast.locks import new_lock
from holdfast.model import (
    AgentRecord,
    Chain,
    ChainLink,
    CheckpointRecord,
    EffectRecord,
    LogRecord,
    Payload,
    SessionRecord,
    Tombstone,
    WorkspacePack,
    WriteRecord,
    utc_now,
)
from holdfast.processes import Uptime, uptime
from holdfast.state.codec import load_document
from holdfast.stores.base import Store
from holdfast.stores.chain import GENESIS, altered, in_quarantine, link_of, record_row
from holdfast.stores.checks import check_filter, metadata_filter


@dataclass(slots=True, eq=False)
class Checkpoint:
    """A checkpoint; ``document`` is its metadata as text, so that no caller can change it."""

    record: CheckpointRecord
    document: str | None
    payload: Payload
    consumed_at: datetime | None = None
    restoring_until: datetime | None = None
    quarantined_at: datetime | None = None
    link: ChainLink | None = None


@dataclass(slots=True, eq=False)
class Line:
    """The checkpoints of one session and namespace, oldest first."""

    stored: list[Checkpoint] = field(default_factory=list)
    by_name: dict[str, Checkpoint] = field(default_factory=dict)
    by_external_id: dict[str, Checkpoint] = field(default_factory=dict)
    by_label: dict[str, Checkpoint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """A pending write with its time and its sum."""

    record: WriteRecord
    created_at: datetime
    sum: bytes


@dataclass(frozen=True, slots=True, eq=False)
class RecordedEffect:
    """An effect, its error as text, and its sums."""

    record: EffectRecord
    error: str | None
    sums: tuple[bytes, bytes]


@dataclass(slots=True, eq=False)
class Session:
    """A session with all that goes when it goes."""

    record: SessionRecord
    document: str | None
    lease_clock: str | None = None
    chain_length: int = 0
    chain_head: bytes = GENESIS
    # By their first numbers.
    tombstones: dict[int, Tombstone] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    logs: list[tuple[LogRecord, str | None]] = field(default_factory=list)
    # (namespace, external id) to (task, index) to the write.
    writes: dict[tuple[str, str], dict[tuple[str, int], PendingWrite]] = field(default_factory=dict)
    # By key and occurrence.
    effects: dict[tuple[str, int], RecordedEffect] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Agent:
    """An agent and the order of its checkpoints."""

    record: AgentRecord
    document: str | None
    # (created_at, id) of its checkpoints in order.
    timeline: list[tuple[datetime, str]] = field(default_factory=list)


_FIELDS: Final = tuple(one.name for one in fields(CheckpointRecord))
_METADATA: Final = _FIELDS.index("metadata")
_values = attrgetter(*_FIELDS)
by_seq = attrgetter("record.seq")
by_age = attrgetter("record.created_at", "record.id")


class MemoryTables(Store):
    """The tables, and the two ways in which a checkpoint enters and leaves them."""

    passing = True

    def __init__(
        self,
        tenant: str = "default",
        *,
        now: Callable[[], datetime] = utc_now,
        uptime: Callable[[], Uptime] = uptime,
    ) -> None:
        self.tenant = check_tenant(tenant)
        self.url = "memory:"
        self._now = now
        self._uptime = uptime
        self._lock = new_lock()
        self._closed = False
        self._agents: dict[str, Agent] = {}
        self._sessions: dict[str, Session] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._chunks: dict[bytes, bytes] = {}
        # By commit, with the time of the last put.
        self._packs: dict[str, tuple[WorkspacePack, datetime]] = {}
        self._seal: str | None = None
        self._seq = 0
        self._log_id = 0

    @property
    def identity(self) -> tuple[Any, ...]:
        return (id(self),)

    def _open(self) -> RLock:
        if self._closed:
            raise StoreClosed("this memory store was closed")
        return self._lock

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _remember(self, session: Session, checkpoint: Checkpoint) -> Line:
        record = checkpoint.record
        number, previous = session.chain_length + 1, session.chain_head
        session.chain_head = self._link(checkpoint, number, previous)
        session.chain_length = number
        checkpoint.link = ChainLink(record.id, record.seq, number, previous, session.chain_head)
        line = session.lines.get(record.namespace)
        if line is None:
            line = session.lines[record.namespace] = Line()
        if not line.stored or line.stored[-1].record.seq < record.seq:
            line.stored.append(checkpoint)
        else:
            insort(line.stored, checkpoint, key=by_seq)
        line.by_name[record.name] = checkpoint
        if record.external_id is not None:
            line.by_external_id[record.external_id] = checkpoint
        if record.label is not None:
            line.by_label[record.label] = checkpoint
        self._checkpoints[record.id] = checkpoint
        insort(self._agents[record.agent_id].timeline, (record.created_at, record.id))
        return line

    def _forget(self, checkpoint: Checkpoint) -> None:
        record = checkpoint.record
        del self._checkpoints[record.id]
        timeline = self._agents[record.agent_id].timeline
        del timeline[bisect_left(timeline, (record.created_at, record.id))]
        session = self._sessions.get(record.session_id)
        if session is None:
            return
        line = session.lines[record.namespace]
        del line.stored[bisect_left(line.stored, record.seq, key=by_seq)]
        del line.by_name[record.name]
        if record.external_id is not None:
            del line.by_external_id[record.external_id]
        if record.label is not None:
            del line.by_label[record.label]
        if checkpoint.link is not None:
            _bury(session.tombstones, checkpoint.link)

    def _link(self, checkpoint: Checkpoint, number: int, previous: bytes) -> bytes:
        row = record_row(checkpoint.record, checkpoint.document)
        manifest, refs = checkpoint.payload.manifest.encode(), checkpoint.payload.refs
        return link_of(self.row_digest, self.tenant, row, number, previous, manifest, refs)

    def _verified(self, checkpoint: Checkpoint, *, quarantined: bool = False) -> Payload:
        """Return the payload of a checkpoint, or raise unless all of it fits its link."""
        if checkpoint.quarantined_at is not None and not quarantined:
            raise in_quarantine(checkpoint.record.id)
        link = checkpoint.link
        if link is None or link.hash != self._link(checkpoint, link.number, link.previous):
            raise altered(checkpoint.record.id)
        return replace(checkpoint.payload, session_id=checkpoint.record.session_id)

    def read_chain(self, session_id: str) -> Chain | None:
        check_filter(session_id, "session id", str)
        with self._open():
            session = self._sessions.get(session_id)
            if session is None:
                return None
            stored = [one for line in session.lines.values() for one in line.stored]
            links = [one.link for one in stored if one.link is not None]
            return Chain(
                session_id,
                session.chain_length,
                session.chain_head,
                links=tuple(sorted(links, key=attrgetter("number"))),
                tombstones=tuple(session.tombstones[first] for first in sorted(session.tombstones)),
                unlinked=tuple(one.record.id for one in stored if one.link is None),
            )

    def close(self) -> None:
        self._closed = True


def _bury(tombstones: dict[int, Tombstone], link: ChainLink) -> None:
    """Leave a tombstone for a link, one with the runs that it touches."""
    first, last, seq, hash_ = link.number, link.number, link.seq, link.hash
    following = tombstones.pop(last + 1, None)
    if following is not None:
        last, seq, hash_ = following.last_number, following.seq, following.hash
    before = next((one for one in tombstones.values() if one.last_number == first - 1), None)
    if before is not None:
        first = before.first_number
    tombstones[first] = Tombstone(first, last, seq, hash_)


def visible(record: CheckpointRecord, now: datetime) -> bool:
    """Tell whether a checkpoint is there for those who ask; an expired one is not."""
    return record.expires_at is None or record.expires_at > now


def roots_of(session: Session, without: Collection[int] = ()) -> Iterator[bytes]:
    """Yield the packed references of a session, except of writes with these object ids."""
    for line in session.lines.values():
        for checkpoint in line.stored:
            yield checkpoint.payload.refs
    for stored in session.writes.values():
        for one in stored.values():
            if id(one.record) not in without:
                yield one.record.payload.refs
    for effect in session.effects.values():
        if effect.record.payload is not None:
            yield effect.record.payload.refs


def snapshots_of(session: Session) -> set[str]:
    """Return the commits that the checkpoints of a session name."""
    return {
        checkpoint.record.workspace_commit
        for line in session.lines.values()
        for checkpoint in line.stored
        if checkpoint.record.workspace_commit is not None
    }


def own_bytes(payload: Payload) -> int:
    """Return what a checkpoint takes besides its chunks."""
    return len(payload.manifest.encode()) + len(payload.refs)


def agent_record(agent: Agent) -> AgentRecord:
    """Return an agent with its metadata."""
    if agent.document is None:
        return agent.record
    return replace(agent.record, metadata=load_document(agent.document))


def session_record(session: Session) -> SessionRecord:
    """Return a session with its metadata."""
    if session.document is None:
        return session.record
    return replace(session.record, metadata=load_document(session.document))


def checkpoint_record(checkpoint: Checkpoint) -> CheckpointRecord:
    """Return a checkpoint with its metadata."""
    if checkpoint.document is None:
        return checkpoint.record
    # The same as dataclasses.replace, three times as fast.
    values = list(_values(checkpoint.record))
    values[_METADATA] = load_document(checkpoint.document)
    return CheckpointRecord(*values)


def log_record(record: LogRecord, document: str | None) -> LogRecord:
    """Return a log line with its data."""
    return record if document is None else replace(record, data=load_document(document))


def wanted_values(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a metadata filter as values that can be compared with stored ones."""
    return dict(orjson.loads(metadata_filter(metadata))) if metadata else None


def has_prefix(agent_id: str, prefix: str | None) -> bool:
    """Tell whether an agent's id begins as is wanted, in whatever case."""
    return prefix is None or agent_id.startswith(prefix.lower())


def has_values(document: str | None, wanted: Mapping[str, Any] | None) -> bool:
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
