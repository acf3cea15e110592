"""Finding a session or checkpoint by what people type: a name, a label, an id or its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from holdfast.errors import (
    AmbiguousReference,
    CheckpointNotFound,
    IntegrityError,
    SessionNotFound,
)
from holdfast.ids import (
    MIN_PREFIX,
    NAME_BYTES,
    check_session_id,
    check_text,
    check_uuid,
    is_label,
    is_uuid,
)
from holdfast.model import CheckpointQuery, CheckpointRecord, SessionQuery, SessionRecord
from holdfast.stores.base import Store
from holdfast.stores.readable import list_readable, list_readable_checkpoints, read_checkpoints

_SUGGEST_FROM = 500


def get_session_record(store: Store, reference: str) -> SessionRecord:
    """Return the session with this id; the beginning of a UUID will do if it fits only one.

    Ids that users choose are never abbreviated: ``customer-1`` must not come to mean
    ``customer-12`` once it is gone.
    """
    record = store.find_session(check_session_id(reference))
    if record is not None:
        return record
    if _begins_uuid(reference):
        query = SessionQuery(id_prefix=reference, limit=10)
        found = [one for one in list_readable(store, query) if is_uuid(one.id)]
        if len(found) > 1:
            raise AmbiguousReference(_several("sessions", reference, [one.id for one in found]))
        if found:
            return found[0]
    raise SessionNotFound(no_session(store, reference))


def no_session(store: Store, reference: str) -> str:
    """Say that there is no such session, and which one may have been meant."""
    known = [one.id for one in list_readable(store, SessionQuery(limit=_SUGGEST_FROM))]
    return f"no session {reference!r}{_near(reference, known)}. `holdfast sessions` lists them all."


def get_checkpoint_record(store: Store, session_id: str, reference: str) -> CheckpointRecord:
    """Return a checkpoint of the session by name, id, label, or the beginning of its id."""
    for query in _queries(session_id, reference):
        found = store.list_checkpoints(query)
        if len(found) > 1:
            names = [f"{one.id} ({one.name})" for one in found]
            raise AmbiguousReference(_several("checkpoints", reference, names))
        if found:
            return found[0]
    query = CheckpointQuery(session_id, namespace="", limit=_SUGGEST_FROM)
    listed = list_readable_checkpoints(store, query)
    raise CheckpointNotFound(
        f"session {session_id} has no checkpoint {reference!r}"
        f"{_near(reference, [one.name for one in listed])}. "
        f"`holdfast log {session_id}` lists them all."
    )


def find_unreadable_checkpoints(
    store: Store, session_id: str, reference: str | None = None, *, limit: int | None = None
) -> dict[str, IntegrityError]:
    """Return the ids of a session's checkpoints whose rows cannot be read, each with the reason.

    With a ``reference``, as for `get_checkpoint_record`, of those that it means. With ``limit`` only the
    newest are looked at; if one of those cannot be read, all are.
    """
    queries = [CheckpointQuery(session_id, namespace="", limit=limit)]
    if reference is not None:
        queries = _queries(session_id, reference)
    found = (read_checkpoints(store, query)[1] for query in queries)
    return next(filter(None, found), {})


def _queries(session_id: str, reference: str) -> list[CheckpointQuery]:
    """Return what a reference may mean, the likeliest first."""
    check_text(reference, "checkpoint", NAME_BYTES)
    ours = CheckpointQuery(session_id, namespace="", limit=10)
    queries = [replace(ours, name=reference)]
    if is_uuid(reference):
        queries.append(replace(ours, id=reference))
    queries.append(replace(ours, label=reference))
    if _begins_uuid(reference):
        queries.append(replace(ours, id_prefix=reference))
    return queries


def get_record_anywhere(store: Store, checkpoint_id: str) -> CheckpointRecord:
    """Return a checkpoint of whatever session by its id or label."""
    check_text(checkpoint_id, "checkpoint", NAME_BYTES)
    if is_label(checkpoint_id):
        query = CheckpointQuery(label=checkpoint_id, namespace="")
    else:
        query = CheckpointQuery(id=check_uuid(checkpoint_id, "checkpoint id"))
    found = store.list_checkpoints(query)
    if not found:
        raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")
    if len(found) > 1:
        listed = ", ".join(f"{one.id} of session {one.session_id}" for one in found)
        raise AmbiguousReference(f"several checkpoints have the label {checkpoint_id}: {listed}")
    return found[0]


def _begins_uuid(reference: str) -> bool:
    return MIN_PREFIX <= len(reference) < 36 and not reference.strip("0123456789abcdef-")


def _several(what: str, reference: str, found: Sequence[str]) -> str:
    return f"{reference!r} fits several {what}: {', '.join(found)}. Give more of the id."


def _near(reference: str, known: Sequence[str]) -> str:
    near = get_close_matches(reference, known, n=3, cutoff=0.5)
    return f"; near matches: {', '.join(map(repr, near))}" if near else ""
