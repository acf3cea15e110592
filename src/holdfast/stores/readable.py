"""Sessions and checkpoints that can be read, beside some that cannot: one damaged row hides none of the others.

A store reads all rows of a listing or none. Only when that fails is each row asked for by itself. Whoever
chooses among the checkpoints of a session lists them here; who was told which one asks the store, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.errors import IntegrityError
from holdfast.model import CheckpointQuery, CheckpointRecord, SessionQuery, SessionRecord
from holdfast.state.codec import dump_document
from holdfast.stores.base import Store
from holdfast.stores.memory_tables import has_prefix, has_values, wanted_values


def read_sessions(
    store: Store, query: SessionQuery
) -> tuple[list[SessionRecord], dict[str, IntegrityError]]:
    """List sessions as `Store.list_sessions` does, and name those that cannot be read, with the reason."""
    try:
        return store.list_sessions(query), {}
    except IntegrityError:
        found: list[SessionRecord] = []
        unreadable: dict[str, IntegrityError] = {}
    for usage in store.session_usage():
        try:
            record = store.find_session(usage.session_id)
        except IntegrityError as error:
            unreadable[usage.session_id] = error
            continue
        if record is not None:
            found.append(record)
    continued = {record.continues_id for record in found}
    fitting = [record for record in found if _fits(record, query, continued)]
    return fitting[: query.limit], unreadable


def list_readable(store: Store, query: SessionQuery) -> list[SessionRecord]:
    """List sessions, less those that cannot be read."""
    return read_sessions(store, query)[0]


def find_unreadable(store: Store, *, limit: int | None = None) -> dict[str, IntegrityError]:
    """Return the sessions whose rows cannot be read, each with the reason.

    With ``limit`` only the newest are looked at; if one of those cannot be read, all are.
    """
    return read_sessions(store, SessionQuery(limit=limit))[1]


def read_checkpoints(
    store: Store, query: CheckpointQuery
) -> tuple[list[CheckpointRecord], dict[str, IntegrityError]]:
    """List checkpoints as `Store.list_checkpoints` does, and name those that cannot be read, with the reason."""
    try:
        return store.list_checkpoints(query), {}
    except IntegrityError:
        found: list[CheckpointRecord] = []
        unreadable: dict[str, IntegrityError] = {}
    for checkpoint_id in _ids(store, query):
        try:
            found += store.list_checkpoints(replace(query, id=checkpoint_id, limit=None))
        except IntegrityError as error:
            unreadable[checkpoint_id] = error
    if not unreadable:
        # What was removed meanwhile is no damage; what has lost its id is, and nobody can ask for it.
        try:
            return store.list_checkpoints(query), {}
        except IntegrityError as error:
            unreadable["without an id"] = error
    found.sort(key=lambda one: one.seq, reverse=True)
    return found[: query.limit], unreadable


def list_readable_checkpoints(store: Store, query: CheckpointQuery) -> list[CheckpointRecord]:
    """List checkpoints, less those that cannot be read."""
    return read_checkpoints(store, query)[0]


def _ids(store: Store, query: CheckpointQuery) -> Iterable[str]:
    """Name the checkpoints among which a query looks, without reading any of them."""
    if query.id is not None:
        return [query.id]
    if query.session_id is None:
        return store.iter_checkpoint_ids()
    chain = store.read_chain(query.session_id)
    return () if chain is None else [*(one.checkpoint_id for one in chain.links), *chain.unlinked]


def _fits(record: SessionRecord, query: SessionQuery, continued: set[str | None]) -> bool:
    document = None if record.metadata is None else dump_document(record.metadata, "metadata")
    return (
        (query.status is None or record.status == query.status)
        and (query.agent_type is None or record.agent_type == query.agent_type)
        and (query.agent_id is None or record.agent_id == query.agent_id.lower())
        and has_prefix(record.agent_id, query.agent_prefix)
        and (query.id_prefix is None or record.id.startswith(query.id_prefix))
        and (query.continued is None or (record.id in continued) == query.continued)
        and has_values(document, wanted_values(query.metadata))
    )
