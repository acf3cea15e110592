"""How the rows that PostgreSQL answers with are read: pure functions, a record for each.

What was stored is checked here before anybody sees it: a checkpoint's row against its link in the chain.
Whoever may change the tables may change the types of columns too, so no value is taken to be of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from holdfast.errors import HoldfastError, StateCorrupt
from holdfast.model import (
    AgentRecord,
    Chain,
    ChainLink,
    CheckpointRecord,
    EffectRecord,
    Lease,
    LogRecord,
    NewEffect,
    Payload,
    SessionRecord,
    Tombstone,
)
from holdfast.state.codec import dump_document, load_document
from holdfast.state.document import SEALED_START
from holdfast.stores.chain import (
    RowDigest,
    altered,
    in_quarantine,
    link_of,
    plain_digest,
    record_row,
)
from holdfast.stores.rules import key_required

Row = Sequence[Any]
P = ParamSpec("P")
T = TypeVar("T")

_RECORD_COLUMNS: Final = 26
# What a value of another type does to those who read it.
_NONSENSE: Final = (TypeError, ValueError, AttributeError, LookupError, OverflowError)


class StoredCheckpoint(NamedTuple):
    """A checkpoint with everything that its state is made of, read in one statement."""

    record: CheckpointRecord
    payload: Payload
    chunks: dict[bytes, bytes]


def understood(read: Callable[P, T]) -> Callable[P, T]:
    """Have a reader raise `StateCorrupt` for values that no row of ours has."""

    @wraps(read)
    def reader(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except HoldfastError:
            raise
        except _NONSENSE as error:
            raise StateCorrupt(f"a row of the database cannot be understood ({error})") from error

    return reader


def named(what: str) -> Callable[[Callable[[Row], T]], Callable[[Row], T]]:
    """Have a reader of whole rows name the row that it cannot understand, by what it is and its id."""

    def naming(read: Callable[[Row], T]) -> Callable[[Row], T]:
        reader = understood(read)

        @wraps(read)
        def name(row: Row) -> T:
            try:
                return reader(row)
            except StateCorrupt as error:
                which = what.format(*(f"{str(one)!r:.80}" for one in (*row[:2], None, None)))
                raise StateCorrupt(
                    f"{which} cannot be understood ({error}). Nothing was changed: put it back from a copy of the "
                    f"database; holdfast copy takes other sessions into a new one"
                ) from error

        return name

    return naming


@named("the row of agent {0}")
def parse_agent(row: Row) -> AgentRecord:
    """Read the columns of ``agents.*``."""
    agent_id, name, agent_type, status, parent_id, depth, metadata, *moments = row
    created_at, updated_at, completed_at = map(utc, moments)
    return AgentRecord(
        id=str(agent_id),
        name=name,
        agent_type=agent_type,
        status=status,
        parent_id=_text(parent_id),
        depth_level=depth,
        metadata=loaded(metadata),
        created_at=known(created_at),
        updated_at=known(updated_at),
        completed_at=completed_at,
    )


@named("the row of session {0}")
def parse_session(row: Row) -> SessionRecord:
    """Read the columns of ``sessions.*``."""
    return SessionRecord(
        id=row[0],
        agent_id=str(row[1]),
        agent_type=row[2],
        task_description=row[3],
        status=row[4],
        continues_id=row[5],
        forked_from=row[6],
        paused_at=utc(row[7]),
        paused_until=utc(row[8]),
        pause_reason=row[9],
        resumed_at=utc(row[10]),
        metadata=loaded(row[11]),
        created_at=known(utc(row[12])),
        updated_at=known(utc(row[13])),
        lease_owner=row[14],
        lease_token=row[15],
        lease_since=utc(row[16]),
        lease_expires_at=utc(row[17]),
        recoveries=row[18],
        project_dir=row[19],
    )


@understood
def parse_lease(row: Row) -> Lease:
    """Read the columns of ``leases.*``."""
    session_id, owner, token, since, expires_at, expired = row
    return Lease(session_id, owner, token, known(utc(since)), known(utc(expires_at)), expired)


@understood
def parse_checkpoint(row: Row) -> CheckpointRecord:
    """Read the first columns of ``checkpoints.*`` and of a read."""
    try:
        metadata, created_at = loaded(row[23]), known(utc(row[24]))
    except StateCorrupt as error:
        raise StateCorrupt(
            f"the row of checkpoint '{row[0]}' ({row[7]!r}) of session {row[1]!r} cannot be understood "
            f"({error}). Nothing was changed"
        ) from error
    return CheckpointRecord(
        id=str(row[0]),
        session_id=row[1],
        agent_id=str(row[2]),
        namespace=row[3],
        seq=row[4],
        external_id=row[5],
        parent_id=row[6],
        name=row[7],
        label=row[8],
        description=row[9],
        checkpoint_type=row[10],
        retention_class=row[11],
        run_id=row[12],
        version=row[13],
        size_bytes=row[14],
        stored_bytes=row[15],
        git_branch=row[16],
        git_commit=row[17],
        git_uncommitted=row[18],
        workspace_commit=row[19],
        resumable=row[20],
        pinned=row[21],
        expires_at=utc(row[22]),
        metadata=metadata,
        created_at=created_at,
        restored_at=utc(row[25]),
    )


@understood
def stored_record(columns: dict[str, Any]) -> CheckpointRecord:
    """Return a row that arrived as a document, its metadata as a text in it."""
    for name in ("expires_at", "created_at", "restored_at"):
        if columns[name] is not None:
            columns[name] = utc(datetime.fromisoformat(columns[name]))
    columns["metadata"] = loaded(columns["metadata"])
    return CheckpointRecord(**{one.name: columns[one.name] for one in fields(CheckpointRecord)})


@understood
def parse_read(row: Row, tenant: str, *, row_digest: RowDigest = plain_digest) -> StoredCheckpoint:
    """Read the row of `read_statement`. Raises `CheckpointAltered` as `verified` does."""
    record, payload = verified(row, tenant, row_digest=row_digest)
    digests, data = row[-2:]
    chunks = zip(map(_bytes, digests or ()), map(_bytes, data or ()), strict=True)
    return StoredCheckpoint(record, payload, dict(chunks))


@understood
def verified(
    row: Row, tenant: str, *, row_digest: RowDigest = plain_digest, quarantined: bool = False
) -> tuple[CheckpointRecord, Payload]:
    """Return a whole row. Raises `CheckpointAltered` unless it fits its link in the hash chain.

    Raises `CheckpointQuarantined` too, unless it may be ``quarantined``.
    """
    record = parse_checkpoint(row)
    number, previous, link, manifest, refs, since = row[_RECORD_COLUMNS : _RECORD_COLUMNS + 6]
    if since is not None and not quarantined:
        raise in_quarantine(record.id)
    if number is None or previous is None or link is None:
        raise altered(record.id)
    columns = record_row(record, row[23])
    derived = link_of(
        row_digest, tenant, columns, number, _bytes(previous), manifest.encode(), _bytes(refs)
    )
    if derived != _bytes(link):
        if row_digest is plain_digest and manifest.startswith(SEALED_START):
            raise key_required("the database")
        raise altered(record.id)
    return record, Payload(manifest, _bytes(refs), record.session_id)


@understood
def parse_chain(
    session_id: str, end: Row, links: Sequence[Row], tombstones: Sequence[Row]
) -> Chain:
    """Read the rows of ``chain.session``, ``chain.links`` and ``chain.tombstones``."""
    length, head = end
    return Chain(
        session_id,
        _number(length),
        _bytes(head),
        links=tuple(
            ChainLink(str(id_), _number(seq), _number(number), _bytes(previous), _bytes(link))
            for id_, seq, number, previous, link in links
            if None not in (number, previous, link)
        ),
        tombstones=tuple(
            Tombstone(_number(first), _number(last), _number(seq), _bytes(link))
            for first, last, seq, link in tombstones
        ),
        unlinked=tuple(str(row[0]) for row in links if None in row),
    )


@understood
def parse_begun(draft: NewEffect, row: Row) -> EffectRecord:
    """Return what ``effects.begin`` recorded of a draft; its row has what the server decided."""
    attempts, started_at, finished_at = row
    outcome = draft.outcome
    error = None if outcome.error is None else dump_document(outcome.error, "error")
    return EffectRecord(
        session_id=draft.session_id,
        key=draft.key,
        occurrence=draft.occurrence,
        name=draft.name,
        fingerprint=draft.fingerprint,
        status=outcome.status,
        attempt_id=draft.attempt_id,
        attempts=attempts,
        payload=None if outcome.manifest is None else Payload(outcome.manifest, outcome.refs),
        error=loaded(error),
        started_at=known(utc(started_at)),
        finished_at=utc(finished_at),
    )


@understood
def parse_effect(row: Row) -> EffectRecord:
    """Read the columns of ``effects.*``."""
    return EffectRecord(
        session_id=row[0],
        key=row[1],
        occurrence=row[2],
        name=row[3],
        fingerprint=_bytes(row[4]),
        status=row[5],
        attempt_id=str(row[6]),
        attempts=row[7],
        payload=None if row[8] is None else Payload(row[8], _bytes(row[9])),
        error=loaded(row[10]),
        started_at=known(utc(row[11])),
        finished_at=utc(row[12]),
    )


@named("line {0} of the log of session {1}")
def parse_log(row: Row) -> LogRecord:
    """Read the columns of ``logs.*``."""
    log_id, session_id, level, message, data, created_at = row
    return LogRecord(log_id, session_id, level, message, loaded(data), known(utc(created_at)))


def utc(moment: datetime | None) -> datetime | None:
    """Return a moment as records have it."""
    return None if moment is None else moment.astimezone(UTC)


def known(moment: datetime | None) -> datetime:
    """Return a moment of a column that is never empty."""
    if moment is None:
        raise StateCorrupt("a column that is never empty is empty")
    return moment


def _bytes(value: Any) -> bytes:
    """Return bytes as such; of a number `bytes` would make as many."""
    return memoryview(value).tobytes()


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.80} is no number")
    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def loaded(text: str | None) -> dict[str, Any] | None:
    """Return the document of a column that may be empty."""
    return None if text is None else load_document(text)
