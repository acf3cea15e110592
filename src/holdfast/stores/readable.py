"""Sessions and checkpoints that can be read, beside some that cannot: one damaged row hides none of the others.

A store reads all rows of a listing or none. Only when that fails is each row asked for by itself. Whoever
chooses among the checkpoints of a session lists them here; who was told which one asks the store, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from holdfast.errors import IntegrityError
from holdfast.model import (
    AgentRecord,
    CheckpointQuery,
    CheckpointRecord,
    DamagedRow,
    EffectQuery,
    EffectRecord,
    LogRecord,
    SessionCopy,
    SessionQuery,
    SessionRecord,
    WriteRecord,
)
from holdfast.state.codec import dump_document
from holdfast.stores.base import Store
from holdfast.stores.memory_tables import has_prefix, has_values, wanted_values

# So many lines of a log are asked for at once.
_PAGE: Final = 512


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


@dataclass(frozen=True, slots=True)
class SessionRows:
    """The rows of a session that can be read, for whoever looks at them. ``damaged`` names the others.

    Pending writes come with their namespaces, and hide those at the same checkpoint.
    """

    session_id: str
    session: SessionRecord | None
    agents: Sequence[AgentRecord]
    checkpoints: Sequence[CheckpointRecord]
    writes: Sequence[tuple[str, WriteRecord]]
    effects: Sequence[EffectRecord]
    logs: Sequence[LogRecord]
    damaged: Sequence[DamagedRow] = ()


def rows_of(copy: SessionCopy) -> SessionRows:
    """Return the rows of a session of which all can be read."""
    return SessionRows(
        copy.session.id,
        copy.session,
        copy.agents,
        copy.checkpoints,
        [(one.namespace, one.record) for one in copy.writes],
        copy.effects,
        copy.logs,
    )


def read_rows(store: Store, session_id: str) -> SessionRows | None:
    """Read a session as `Store.read_session` does, less the rows that cannot be read, which are named."""
    try:
        copy = store.read_session(session_id)
        return None if copy is None else rows_of(copy)
    except IntegrityError:
        return _Rows(store, session_id).read()


class _Rows:
    """The rows of one session, each asked for by itself."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._damaged: list[DamagedRow] = []

    def read(self) -> SessionRows:
        store, session_id = self._store, self._session_id
        session = None
        with self._noting("sessions", id=session_id):
            session = store.find_session(session_id)
        checkpoints, unreadable = read_checkpoints(store, CheckpointQuery(session_id))
        for id_, error in unreadable.items():
            self._note("session_checkpoints", error, id=id_)
        effects: list[EffectRecord] = []
        places: list[tuple[str, str, int]] = []
        with self._noting("effects"):
            # In a sealed store one key that does not open hides where all are.
            places = store.effect_places()
        for of, key, occurrence in places:
            if of == session_id:
                with self._noting("effects", key=key, occurrence=occurrence):
                    effects += store.list_effects(EffectQuery(of, key, occurrence))
        writes: list[tuple[str, WriteRecord]] = []
        for place in store.write_places():
            if place[0] == session_id:
                _, namespace, external_id = place
                with self._noting(
                    "checkpoint_writes", namespace=namespace, external_id=external_id
                ):
                    found = store.read_writes([place]).get(place, ())
                    writes += [(namespace, one) for one in found]
        return SessionRows(
            session_id,
            session,
            self._agents(None if session is None else session.agent_id),
            checkpoints[::-1],
            writes,
            effects,
            self._logs(),
            self._damaged,
        )

    def _agents(self, agent_id: str | None) -> list[AgentRecord]:
        found: list[AgentRecord] = []
        while agent_id is not None:
            agent = None
            with self._noting("agents", id=agent_id):
                agent = self._store.find_agent(agent_id)
            agent_id = None if agent is None else agent.parent_id
            found += [] if agent is None else [agent]
        return found[::-1]

    def _logs(self) -> list[LogRecord]:
        found: list[LogRecord] = []
        at = 0
        # Where none of a page can be read, neither can what would tell that the log has ended.
        while page := self._lines(at, _PAGE):
            found += page
            at += _PAGE
        return found

    def _lines(self, at: int, count: int) -> list[LogRecord]:
        """Return those of some lines of the log that can be read."""
        try:
            return self._store.list_logs(self._session_id, offset=at, limit=count)
        except IntegrityError as error:
            if count == 1:
                self._note("session_logs", error, line=at + 1)
                return []
        half = count // 2
        return [*self._lines(at, half), *self._lines(at + half, count - half)]

    @contextmanager
    def _noting(self, table: str, **row: str | int) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            self._note(table, error, **row)

    def _note(self, table: str, error: IntegrityError, **row: str | int) -> None:
        self._damaged.append(DamagedRow(table, row, error.code, str(error)))


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
