"""Finding a session or checkpoint by what people type: a name, a label, an id or its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from holdfast.errors import AmbiguousReference, CheckpointNotFound, SessionNotFound
from holdfast.ids import MIN_PREFIX, NAME_BYTES, check_session_id, check_text, is_uuid
from holdfast.model import CheckpointQuery, CheckpointRecord, SessionQuery, SessionRecord
from holdfast.stores.base import Store

_SUGGEST_FROM = 500


def get_session_record(store: Store, reference: str) -> SessionRecord:
    """Return the session with this id, or the only one whose id begins with it."""
    check_session_id(reference)
    record = store.find_session(reference)
    if record is not None:
        return record
    if len(reference) >= MIN_PREFIX:
        found = store.list_sessions(SessionQuery(id_prefix=reference, limit=10))
        if len(found) > 1:
            raise AmbiguousReference(_several("sessions", reference, [one.id for one in found]))
        if found:
            return found[0]
    known = [one.id for one in store.list_sessions(SessionQuery(limit=_SUGGEST_FROM))]
    raise SessionNotFound(
        f"no session {reference!r}{_near(reference, known)}. `holdfast sessions` lists them all."
    )


def get_checkpoint_record(store: Store, session_id: str, reference: str) -> CheckpointRecord:
    """Return a checkpoint of the session by name, id, label, or the beginning of its id."""
    check_text(reference, "checkpoint", NAME_BYTES)
    queries = [CheckpointQuery(session_id, name=reference, limit=2)]
    if is_uuid(reference):
        queries.append(CheckpointQuery(session_id, id=reference, limit=2))
    queries.append(CheckpointQuery(session_id, label=reference, limit=2))
    if MIN_PREFIX <= len(reference) < 36 and not reference.strip("0123456789abcdef-"):
        queries.append(CheckpointQuery(session_id, id_prefix=reference, limit=10))
    for query in queries:
        found = store.list_checkpoints(query)
        if len(found) > 1:
            names = [f"{one.id} ({one.name})" for one in found]
            raise AmbiguousReference(_several("checkpoints", reference, names))
        if found:
            return found[0]
    listed = store.list_checkpoints(CheckpointQuery(session_id, limit=_SUGGEST_FROM))
    raise CheckpointNotFound(
        f"session {session_id} has no checkpoint {reference!r}"
        f"{_near(reference, [one.name for one in listed])}. "
        f"`holdfast log {session_id}` lists them all."
    )


def _several(what: str, reference: str, found: Sequence[str]) -> str:
    return f"{reference!r} fits several {what}: {', '.join(found)}. Give more of the id."


def _near(reference: str, known: Sequence[str]) -> str:
    near = get_close_matches(reference, known, n=3, cutoff=0.5)
    return f"; near matches: {', '.join(map(repr, near))}" if near else ""
