"""What is said to PostgreSQL and how its answers are read: pure functions, without a connection.

The store sends these statements through its pool; faces that are handed a connection of the user's,
synchronous or not, send the very same ones. Drafts are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from holdfast.errors import InvalidIdentifier, StateCorrupt
from holdfast.ids import check_external_id, check_namespace, is_uuid
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointQuery,
    CheckpointRecord,
    EffectOutcome,
    EffectRecord,
    Lease,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    Payload,
    PutResult,
    SessionQuery,
    SessionRecord,
    Trim,
    WriteRecord,
)
from holdfast.sql import DEFAULT_SCHEMA, queries
from holdfast.state.codec import dump_document, load_document
from holdfast.state.document import SEALED_START
from holdfast.stores.chain import (
    RowDigest,
    altered,
    content_digest,
    draft_row,
    in_quarantine,
    link_of,
    plain_digest,
    record_row,
)
from holdfast.stores.checks import (
    as_utc,
    check_agent,
    check_checkpoint,
    check_fence,
    check_filter,
    check_limit,
    check_session,
    check_write,
    metadata_filter,
)
from holdfast.stores.rules import key_required

Row = Sequence[Any]

_RECORD_COLUMNS: Final = 26
# Further back than any checkpoint, and still a date for PostgreSQL.
_LONGEST_AGE: Final = 1e11
_CHECKPOINT_FILTERS: Final[Mapping[str, type]] = {
    "session_id": str,
    "namespace": str,
    "agent_id": str,
    "id": str,
    "id_prefix": str,
    "name": str,
    "label": str,
    "external_id": str,
    "checkpoint_type": str,
    "retention_class": str,
    "run_id": str,
    "version": int,
    "resumable": bool,
    "quarantined": bool,
    "before_seq": int,
}
_SESSION_FILTERS: Final[Mapping[str, type]] = {
    "status": str,
    "agent_type": str,
    "agent_id": str,
    "id_prefix": str,
}
_UUID_FILTERS: Final = frozenset({"id", "agent_id", "parent_id"})


class Statement(NamedTuple):
    """One statement for psycopg, with its parameters."""

    sql: str
    params: dict[str, Any]


class StoredCheckpoint(NamedTuple):
    """A checkpoint with everything that its state is made of, read in one statement."""

    record: CheckpointRecord
    payload: Payload
    chunks: dict[bytes, bytes]


def put_statement(
    draft: NewCheckpoint,
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
    *,
    row_digest: RowDigest = plain_digest,
    purge_expired: bool = False,
) -> Statement:
    """Return the one statement that stores a checkpoint; `parse_put` reads its row.

    With ``purge_expired`` it removes what has expired in the session and namespace.
    """
    draft = check_checkpoint(draft)
    document = {
        "id": draft.id,
        "session_id": draft.session_id,
        "namespace": draft.namespace,
        "name": draft.name,
        "external_id": draft.external_id,
        "parent_id": draft.parent_id,
        "parent_is_newest": draft.parent_is_newest,
        "label": draft.label,
        "description": draft.description,
        "checkpoint_type": draft.checkpoint_type,
        "retention_class": draft.retention_class,
        "run_id": draft.run_id,
        "version": draft.version,
        "size_bytes": draft.size_bytes,
        "git_branch": draft.git_branch,
        "git_commit": draft.git_commit,
        "git_uncommitted": draft.git_uncommitted,
        "workspace_commit": draft.workspace_commit,
        "pack_required": draft.pack_required,
        "fence": draft.fence,
        "resumable": draft.resumable,
        "pinned": draft.pinned,
        "expires_at": _moment(draft.expires_at, "expires_at"),
        "created_at": _moment(draft.created_at, "created_at"),
        "metadata": _document(draft.metadata),
        "replace": draft.replace,
        "consumes": draft.consumes,
        "follows": draft.follows,
        "trim": _trim(draft.trim),
        "purge_expired": purge_expired,
        "session": None if draft.session is None else _session(draft.session),
    }
    digests, data = sorted_chunks([draft.chunks])
    params = {
        "tenant": tenant,
        "draft": _json(document),
        "manifest": draft.manifest,
        "refs": draft.refs,
        # An empty array takes longer to send than none.
        "digests": digests or None,
        "data": data or None,
        "expects": list(draft.expects) or None,
        "content": content_digest(
            row_digest, tenant, draft_row(draft), draft.manifest.encode(), draft.refs
        ),
    }
    return Statement(queries("postgres", schema)["postgres.put"], params)


def put_writes_statement(
    session: NewSession,
    namespace: str,
    external_id: str,
    writes: Sequence[NewWrite],
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
    *,
    fence: int | None = None,
) -> Statement:
    """Return the one statement that stores pending writes; its answer is empty."""
    check_namespace(namespace)
    check_external_id(external_id)
    check_fence(fence)
    for write in writes:
        check_write(write)
    digests, data = sorted_chunks([write.chunks for write in writes])
    expects = {digest for write in writes for digest in write.expects}.difference(digests)
    params = {
        "tenant": tenant,
        "session": _json(_session(session)),
        "namespace": namespace,
        "external_id": external_id,
        "writes": _json(
            [
                {
                    "task_id": write.task_id,
                    "idx": write.index,
                    "task_path": write.task_path,
                    "channel": write.channel,
                    "replace": write.replace,
                }
                for write in writes
            ]
        ),
        "manifests": [write.manifest for write in writes],
        "refs": [write.refs for write in writes],
        "digests": digests,
        "data": data,
        "expects": list(expects),
        "fence": fence,
    }
    return Statement(queries("postgres", schema)["postgres.put_writes"], params)


def read_statement(query: CheckpointQuery, tenant: str, schema: str = DEFAULT_SCHEMA) -> Statement:
    """Return the one statement that reads the newest checkpoint of a query, chunks and all.

    `parse_read` reads its row; no row means that there is no such checkpoint.
    """
    named = queries("postgres", schema)
    parts, params = _checkpoint_filters(query, named)
    text = "\n".join([named["postgres.read"], *parts, named["postgres.read.end"]])
    return Statement(text, {"tenant": tenant, **params})


def list_statement(query: CheckpointQuery, tenant: str, schema: str = DEFAULT_SCHEMA) -> Statement:
    """Return the statement that lists checkpoints; `parse_checkpoint` reads each row."""
    named = queries("postgres", schema)
    parts, params = _checkpoint_filters(query, named)
    text = "\n".join([named["checkpoints.list"], *parts, named["checkpoints.order"]])
    return Statement(text, {"tenant": tenant, "limit": check_limit(query.limit), **params})


def list_sessions_statement(
    query: SessionQuery, tenant: str, schema: str = DEFAULT_SCHEMA
) -> Statement:
    """Return the statement that lists sessions; `parse_session` reads each row."""
    named = queries("postgres", schema)
    wanted = {name: getattr(query, name) for name in _SESSION_FILTERS}
    parts, params = _filters("sessions", wanted, _SESSION_FILTERS, query.metadata, named)
    text = "\n".join([named["sessions.list"], *parts, named["sessions.order"]])
    return Statement(text, {"tenant": tenant, "limit": check_limit(query.limit), **params})


def list_agents_statement(
    status: str | None,
    parent_id: str | None,
    limit: int | None,
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
) -> Statement:
    """Return the statement that lists agents; `parse_agent` reads each row."""
    named = queries("postgres", schema)
    kinds = {"status": str, "parent_id": str}
    parts, params = _filters("agents", {"status": status, "parent_id": parent_id}, kinds, {}, named)
    text = "\n".join([named["agents.list"], *parts, named["agents.order"]])
    return Statement(text, {"tenant": tenant, "limit": check_limit(limit), **params})


def delete_statement(
    checkpoint_ids: Collection[str],
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
    *,
    fence: int | None = None,
    spare_restoring: bool = False,
) -> Statement:
    """Return the statement that removes checkpoints; its row says how many there were."""
    ids = [uuid_or_none(checkpoint_id, "checkpoint id") for checkpoint_id in checkpoint_ids]
    check_fence(fence)
    params = {"tenant": tenant, "ids": ids, "fence": fence, "spare_restoring": spare_restoring}
    return Statement(queries("postgres", schema)["checkpoints.delete"], params)


def agent_document(draft: NewAgent) -> str:
    """Return an agent as the document that the functions of the schema take."""
    return _json(_agent(draft))


def session_document(draft: NewSession) -> str:
    """Return a session as the document that the functions of the schema take."""
    return _json(_session(draft))


def parse_agent(row: Row) -> AgentRecord:
    """Read the columns of ``agents.*``."""
    agent_id, name, agent_type, status, parent_id, depth, metadata, *moments = row
    created_at, updated_at, completed_at = map(_utc, moments)
    return AgentRecord(
        id=str(agent_id),
        name=name,
        agent_type=agent_type,
        status=status,
        parent_id=_text(parent_id),
        depth_level=depth,
        metadata=_metadata(metadata),
        created_at=_known(created_at),
        updated_at=_known(updated_at),
        completed_at=completed_at,
    )


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
        paused_at=_utc(row[7]),
        paused_until=_utc(row[8]),
        pause_reason=row[9],
        resumed_at=_utc(row[10]),
        metadata=_metadata(row[11]),
        created_at=_known(_utc(row[12])),
        updated_at=_known(_utc(row[13])),
        lease_owner=row[14],
        lease_token=row[15],
        lease_since=_utc(row[16]),
        lease_expires_at=_utc(row[17]),
        recoveries=row[18],
        project_dir=row[19],
    )


def parse_lease(row: Row) -> Lease:
    """Read the columns of ``leases.*``."""
    session_id, owner, token, since, expires_at, expired = row
    return Lease(session_id, owner, token, _known(_utc(since)), _known(_utc(expires_at)), expired)


def parse_checkpoint(row: Row) -> CheckpointRecord:
    """Read the first columns of ``checkpoints.*`` and of a read."""
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
        expires_at=_utc(row[22]),
        metadata=_metadata(row[23]),
        created_at=_known(_utc(row[24])),
        restored_at=_utc(row[25]),
    )


def parse_put(row: Row, draft: NewCheckpoint) -> PutResult:
    """Read the row of `put_statement`: what was stored already, or what became of the draft."""
    stored, removed, id_, agent_id, seq, parent_id, label, size, metadata, created_at = row
    if stored is not None:
        return PutResult(_stored_record(orjson.loads(stored)), created=False)
    record = CheckpointRecord(
        id=str(id_),
        session_id=draft.session_id,
        agent_id=str(agent_id),
        namespace=draft.namespace,
        seq=seq,
        external_id=draft.external_id,
        parent_id=parent_id,
        name=draft.name,
        label=label,
        description=draft.description,
        checkpoint_type=draft.checkpoint_type,
        retention_class=draft.retention_class,
        run_id=draft.run_id,
        version=draft.version,
        size_bytes=draft.size_bytes,
        stored_bytes=size,
        git_branch=draft.git_branch,
        git_commit=draft.git_commit,
        git_uncommitted=draft.git_uncommitted,
        workspace_commit=draft.workspace_commit,
        resumable=draft.resumable,
        pinned=draft.pinned,
        expires_at=_utc(draft.expires_at),
        metadata=_metadata(metadata),
        created_at=_known(_utc(created_at)),
        restored_at=None,
    )
    return PutResult(record, created=True, removed=tuple(map(str, removed)))


def _stored_record(columns: dict[str, Any]) -> CheckpointRecord:
    """Return a row that arrived as a document, its metadata as a text in it."""
    for name in ("expires_at", "created_at", "restored_at"):
        if columns[name] is not None:
            columns[name] = _utc(datetime.fromisoformat(columns[name]))
    columns["metadata"] = _metadata(columns["metadata"])
    return CheckpointRecord(**{one.name: columns[one.name] for one in fields(CheckpointRecord)})


def parse_read(row: Row, tenant: str, *, row_digest: RowDigest = plain_digest) -> StoredCheckpoint:
    """Read the row of `read_statement`. Raises `CheckpointAltered` as `verified` does."""
    record, payload = verified(row, tenant, row_digest=row_digest)
    digests, data = row[-2:]
    chunks = zip(map(bytes, digests or ()), map(bytes, data or ()), strict=True)
    return StoredCheckpoint(record, payload, dict(chunks))


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
        row_digest, tenant, columns, number, bytes(previous), manifest.encode(), bytes(refs)
    )
    if derived != bytes(link):
        if row_digest is plain_digest and manifest.startswith(SEALED_START):
            raise key_required("the database")
        raise altered(record.id)
    return record, Payload(manifest, bytes(refs), record.session_id)


def parse_write(row: Row) -> WriteRecord:
    """Read the columns of ``writes.list``."""
    external_id, task_id, task_path, index, channel, manifest, refs = row
    payload = Payload(manifest, bytes(refs))
    return WriteRecord(external_id, task_id, task_path, index, channel, payload)


def outcome_params(outcome: EffectOutcome) -> dict[str, Any]:
    """Return what ``effects.begin`` and ``effects.finish`` are told of an outcome."""
    # Most effects bring no chunks, and an empty array takes longer to send than none.
    digests, data = sorted_chunks([outcome.chunks]) if outcome.chunks else (None, None)
    return {
        "status": outcome.status,
        "result": outcome.manifest,
        "refs": outcome.refs,
        "error": None if outcome.error is None else dump_document(outcome.error, "error"),
        "digests": digests,
        "data": data,
    }


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
        error=_metadata(error),
        started_at=_known(_utc(started_at)),
        finished_at=_utc(finished_at),
    )


def parse_effect(row: Row) -> EffectRecord:
    """Read the columns of ``effects.*``."""
    return EffectRecord(
        session_id=row[0],
        key=row[1],
        occurrence=row[2],
        name=row[3],
        fingerprint=bytes(row[4]),
        status=row[5],
        attempt_id=str(row[6]),
        attempts=row[7],
        payload=None if row[8] is None else Payload(row[8], bytes(row[9])),
        error=_metadata(row[10]),
        started_at=_known(_utc(row[11])),
        finished_at=_utc(row[12]),
    )


def parse_log(row: Row) -> LogRecord:
    """Read the columns of ``logs.*``."""
    log_id, session_id, level, message, data, created_at = row
    return LogRecord(log_id, session_id, level, message, _metadata(data), _known(_utc(created_at)))


def _checkpoint_filters(
    query: CheckpointQuery, named: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    wanted = {name: getattr(query, name) for name in _CHECKPOINT_FILTERS}
    return _filters("checkpoints", wanted, _CHECKPOINT_FILTERS, query.metadata, named)


def _filters(
    table: str,
    wanted: Mapping[str, Any],
    kinds: Mapping[str, type],
    metadata: Mapping[str, Any],
    named: Mapping[str, str],
) -> tuple[list[str], dict[str, Any]]:
    parts, params = [], {}
    for name, value in wanted.items():
        if value is None:
            continue
        check_filter(value, name, kinds[name])
        if kinds[name] is bool:
            # A condition without a parameter, so that an index on what fulfils it can be used.
            parts.append(named[f"{table}.where.{name}.{'yes' if value else 'no'}"])
            continue
        # NULL equals nothing, and neither does what is no UUID.
        params[name] = uuid_or_none(value, name) if name in _UUID_FILTERS else value
        parts.append(named[f"{table}.where.{name}"])
    if metadata:
        params["metadata"] = metadata_filter(metadata)
        parts.append(named[f"{table}.where.metadata"])
    return parts, params


def _agent(draft: NewAgent) -> dict[str, Any]:
    draft = check_agent(draft)
    return {
        "id": draft.id,
        "name": draft.name,
        "agent_type": draft.agent_type,
        "status": draft.status,
        "parent_id": draft.parent_id,
        "metadata": _document(draft.metadata),
    }


def _session(draft: NewSession) -> dict[str, Any]:
    draft = check_session(draft)
    return {
        "id": draft.id,
        "agent_id": draft.agent_id,
        "agent_type": draft.agent_type,
        "task_description": draft.task_description,
        "continues_id": draft.continues_id,
        "forked_from": draft.forked_from,
        "project_dir": draft.project_dir,
        "lease_owner": draft.lease_owner,
        "lease_ttl": draft.lease_ttl.total_seconds(),
        "metadata": _document(draft.metadata),
        "agent": None if draft.agent is None else _agent(draft.agent),
    }


def _trim(trim: Trim) -> dict[str, Any]:
    ages = {
        name: max(-_LONGEST_AGE, min(age.total_seconds(), _LONGEST_AGE))
        for name, age in trim.max_age.items()
    }
    return {"keep": trim.keep, "max_age": ages}


def sorted_chunks(sets: Sequence[Mapping[bytes, Buffer]]) -> tuple[list[bytes], list[bytes]]:
    """Return all chunks, each once, sorted by digest as two lists."""
    merged = {digest: data for chunks in sets for digest, data in chunks.items()}
    digests = sorted(merged)
    return digests, [bytes(merged[digest]) for digest in digests]


def _document(document: Mapping[str, Any] | None) -> orjson.Fragment | None:
    return None if document is None else orjson.Fragment(dump_document(document, "metadata"))


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidIdentifier(f"the draft has a field of the wrong type: {error}") from None


def _moment(moment: datetime | None, what: str) -> str | None:
    return None if moment is None else as_utc(moment, what).isoformat()


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def _known(moment: datetime | None) -> datetime:
    if moment is None:
        raise StateCorrupt("a column that is never empty is empty")
    return moment


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _metadata(text: str | None) -> dict[str, Any] | None:
    return None if text is None else load_document(text)


def uuid_or_none(value: str, what: str = "id") -> str | None:
    """Return an id in canonical form if it can be one; what is no UUID names nothing."""
    check_filter(value, what, str)
    return value.lower() if is_uuid(value.lower()) else None
