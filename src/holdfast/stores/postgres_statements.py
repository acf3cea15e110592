"""What is said to PostgreSQL to store and to remove: pure functions, without a connection.

The store sends these statements through its pool; faces that are handed a connection of the user's,
synchronous or not, send the very same ones. Drafts are checked here, before anything is sent.
`postgres_listing` has what is asked, `postgres_rows` how answers are read; that of a put only tells what its
draft could not know, and is read here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from holdfast.errors import InvalidIdentifier
from holdfast.ids import check_external_id, check_namespace, is_uuid
from holdfast.model import (
    Buffer,
    CheckpointRecord,
    EffectOutcome,
    NewAgent,
    NewCheckpoint,
    NewSession,
    NewWrite,
    PutResult,
    Trim,
    WriteCopy,
)
from holdfast.sql import DEFAULT_SCHEMA, queries
from holdfast.state.codec import dump_document, load_document
from holdfast.stores.chain import (
    RowDigest,
    content_digest,
    draft_row,
    plain_digest,
)
from holdfast.stores.checks import (
    as_utc,
    check_agent,
    check_checkpoint,
    check_fence,
    check_filter,
    check_session,
    check_write,
)
from holdfast.stores.postgres_rows import stored_record, understood, utc
from holdfast.stores.sums import Sums

# Further back than any checkpoint, and still a date for PostgreSQL.
_LONGEST_AGE: Final = 1e11
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Statement(NamedTuple):
    """One statement for psycopg, with its parameters."""

    sql: str
    params: dict[str, Any]


def put_statement(
    draft: NewCheckpoint,
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
    *,
    row_digest: RowDigest = plain_digest,
    purge_expired: bool = False,
) -> Statement:
    """Return the one statement that stores a checkpoint; `parse_put` reads its answer.

    With ``purge_expired`` it removes what has expired in the session and namespace.
    """
    draft = check_checkpoint(draft)
    created, expires = draft.created_at, draft.expires_at
    rest = {
        "label": draft.label,
        "description": draft.description,
        "run_id": draft.run_id,
        "git_branch": draft.git_branch,
        "git_commit": draft.git_commit,
        "git_uncommitted": draft.git_uncommitted,
        "workspace_commit": draft.workspace_commit,
        "pack_required": draft.pack_required,
        "not_resumable": not draft.resumable,
        "pinned": draft.pinned,
        "expires_at": None if expires is None else _moment(expires, "expires_at"),
        "created_at": None if created is None else _moment(created, "created_at"),
        "replace": draft.replace,
        "consumes": draft.consumes,
        "follows": draft.follows,
        "keep": draft.trim.keep,
        "max_age": _ages(draft.trim) if draft.trim.max_age else None,
        "purge_expired": purge_expired,
    }
    # What is not there costs the server nothing to read.
    said = {key: value for key, value in rest.items() if value is not None and value is not False}
    digests, data = sorted_chunks(draft.chunks)
    metadata, session = draft.metadata, draft.session
    params = {
        "tenant": tenant,
        "session_id": draft.session_id,
        "namespace": draft.namespace,
        "id": draft.id,
        "name": draft.name,
        "external_id": draft.external_id,
        "parent_id": draft.parent_id,
        "parent_is_newest": "true" if draft.parent_is_newest else None,
        "checkpoint_type": draft.checkpoint_type,
        "retention_class": draft.retention_class,
        "version": str(draft.version),
        "size_bytes": str(draft.size_bytes),
        "fence": None if draft.fence is None else str(draft.fence),
        "metadata": None if metadata is None else dump_document(metadata, "metadata"),
        "manifest": draft.manifest,
        "refs": draft.refs,
        "content": content_digest(
            row_digest, tenant, draft_row(draft), draft.manifest.encode(), draft.refs
        ),
        "digest": digests[0] if digests else None,
        "chunk": data[0] if data else None,
        # An empty array takes longer to send than none.
        "digests": digests[1:] or None,
        "data": data[1:] or None,
        "expects": list(draft.expects) or None,
        "draft": _json(said) if said else None,
        "session": None if session is None else _session_text(session),
    }
    return Statement(queries("postgres", schema)["postgres.put"], params)


def put_writes_statement(
    session: NewSession,
    namespace: str,
    external_id: str,
    writes: Sequence[NewWrite],
    sums: Sums,
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
    digests, data = sorted_chunks(
        {digest: data for write in writes for digest, data in write.chunks.items()}
    )
    expects = {digest for write in writes for digest in write.expects}.difference(digests)
    params = {
        "tenant": sums.tenant,
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
        "sums": [sums.write(session.id, namespace, external_id, write) for write in writes],
        "digests": digests,
        "data": data,
        "expects": list(expects),
        "fence": fence,
    }
    return Statement(queries("postgres", schema)["postgres.put_writes"], params)


def write_columns(copy: WriteCopy, session_id: str, sums: Sums) -> dict[str, Any]:
    """Return a pending write that another session or store had as its table has it."""
    record = copy.record
    return {
        "tenant": sums.tenant,
        "session_id": session_id,
        "namespace": copy.namespace,
        "external_id": record.external_id,
        "task_id": record.task_id,
        "idx": record.index,
        "task_path": record.task_path,
        "channel": record.channel,
        "manifest": record.payload.manifest,
        "refs": record.payload.refs,
        "created_at": as_utc(copy.created_at, "a time of the session"),
        "row_sum": sums.write(session_id, copy.namespace, record.external_id, record),
    }


def delete_statement(
    checkpoint_ids: Collection[str],
    tenant: str,
    schema: str = DEFAULT_SCHEMA,
    *,
    fence: int | None = None,
    planned: bool = False,
) -> Statement:
    """Return the statement that removes checkpoints; its row says how many there were."""
    ids = [uuid_or_none(checkpoint_id, "checkpoint id") for checkpoint_id in checkpoint_ids]
    check_fence(fence)
    params = {"tenant": tenant, "ids": ids, "fence": fence, "planned": planned}
    return Statement(queries("postgres", schema)["checkpoints.delete"], params)


def agent_document(draft: NewAgent) -> str:
    """Return an agent as the document that the functions of the schema take."""
    return _json(_agent(draft))


def session_document(draft: NewSession) -> str:
    """Return a session as the document that the functions of the schema take."""
    return _json(_session(draft))


def parse_put(answer: str, draft: NewCheckpoint) -> PutResult:
    """Read what `put_statement` answers: what was stored already, or what became of the draft."""
    if type(answer) is not str or answer.startswith("{"):
        stored = _stored(answer)
        return PutResult(lambda: stored, created=False)
    removed, _, decided = answer.partition("\n")
    made = partial(_created, decided, draft)
    return PutResult(made, created=True, removed=tuple(removed.split()))


@understood
def _stored(answer: str) -> CheckpointRecord:
    return stored_record(orjson.loads(answer))


@understood
def _created(decided: str, draft: NewCheckpoint) -> CheckpointRecord:
    agent_id, seq, size, moment, metadata, newest, label = decided.split("\n", 6)
    return CheckpointRecord(
        id=draft.id.lower(),
        session_id=draft.session_id,
        agent_id=agent_id,
        namespace=draft.namespace,
        seq=int(seq),
        external_id=draft.external_id,
        parent_id=(newest or None) if draft.parent_is_newest else draft.parent_id,
        name=draft.name,
        label=None if draft.label is None else label,
        description=draft.description,
        checkpoint_type=draft.checkpoint_type,
        retention_class=draft.retention_class,
        run_id=draft.run_id,
        version=draft.version,
        size_bytes=draft.size_bytes,
        stored_bytes=int(size),
        git_branch=draft.git_branch,
        git_commit=draft.git_commit,
        git_uncommitted=draft.git_uncommitted,
        workspace_commit=draft.workspace_commit,
        resumable=draft.resumable,
        pinned=draft.pinned,
        expires_at=utc(draft.expires_at),
        metadata=load_document(metadata) if metadata else None,
        # Seconds with exactly six digits behind the point.
        created_at=_EPOCH + timedelta(microseconds=int(moment.replace(".", ""))),
        restored_at=None,
    )


def outcome_params(outcome: EffectOutcome) -> dict[str, Any]:
    """Return what ``effects.begin`` and ``effects.finish`` are told of an outcome."""
    # Most effects bring no chunks, and an empty array takes longer to send than none.
    digests, data = sorted_chunks(outcome.chunks) if outcome.chunks else (None, None)
    return {
        "status": outcome.status,
        "result": outcome.manifest,
        "refs": outcome.refs,
        "error": None if outcome.error is None else dump_document(outcome.error, "error"),
        "digests": digests,
        "data": data,
    }


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


# Sessions and their texts, by the sessions' place in memory, where they stay while they stand here.
_said: Final[dict[int, tuple[NewSession, str]]] = {}
_MANY_SESSIONS: Final = 1024


def _session_text(draft: NewSession) -> str:
    """Return what every put of a thread says again, of the same object mostly."""
    said = _said.get(id(draft))
    if said is not None:
        return said[1]
    text = session_document(draft)
    if draft.metadata is None and (draft.agent is None or draft.agent.metadata is None):
        if len(_said) >= _MANY_SESSIONS:
            _said.clear()
        _said[id(draft)] = (draft, text)
    return text


def forget_sessions() -> None:
    """Forget what puts said of their sessions, tasks among it."""
    _said.clear()


def _ages(trim: Trim) -> dict[str, float]:
    return {
        name: max(-_LONGEST_AGE, min(age.total_seconds(), _LONGEST_AGE))
        for name, age in trim.max_age.items()
    }


def sorted_chunks(chunks: Mapping[bytes, Buffer]) -> tuple[list[bytes], list[bytes]]:
    """Return chunks sorted by digest, as two lists."""
    digests = sorted(chunks)
    return digests, [bytes(chunks[digest]) for digest in digests]


def _document(document: Mapping[str, Any] | None) -> orjson.Fragment | None:
    return None if document is None else orjson.Fragment(dump_document(document, "metadata"))


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidIdentifier(f"the draft has a field of the wrong type: {error}") from None


def _moment(moment: datetime, what: str) -> str:
    return as_utc(moment, what).isoformat()


def uuid_or_none(value: str, what: str = "id") -> str | None:
    """Return an id in canonical form if it can be one; what is no UUID names nothing."""
    check_filter(value, what, str)
    return value.lower() if is_uuid(value.lower()) else None
