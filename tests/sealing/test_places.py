"""A sealed value opens in the place that it was sealed for, and in no other.

A store is filled with one row of every kind, and its sealed values are kept. It is erased and filled again with one
part of all places changed: the tenant, the session, the id of a row. Each value is put where the new row has
its own, past the key. With nothing changed all of them open, so a refusal is about the place and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

import pytest

from holdfast.crypto import KeyRing
from holdfast.crypto.envelope import Envelopes, as_text, from_text
from holdfast.crypto.keys import keys_from
from holdfast.errors import IntegrityError, SealBroken
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, EffectOutcome, EffectQuery, NewEffect
from holdfast.state.codec import dump_document, load_document
from holdfast.state.document import SEALED_START
from holdfast.state.refs import digest_of
from holdfast.stores import open_store
from holdfast.stores.rules import SEALED_MARK
from holdfast.stores.sealed import SealedStore
from holdfast.stores.sealed_rows import MANIFEST_END
from holdfast.stores.sealed_tables import (
    AGENTS,
    CHECKPOINTS,
    CHUNKS,
    EFFECTS,
    LOGS,
    PACKS,
    SESSIONS,
    TABLES,
    WRITES,
    Row,
    Table,
)
from holdfast.testing.drafts import agent, checkpoint, session, write


@dataclass(frozen=True)
class Place:
    """Everything that the places of values are made of."""

    tenant: str = "ours"
    session: str = "one"
    agent: str = "01a1e31c-9af3-70fb-9b06-cd78001d2ff0"
    checkpoint: str = "01a1e31c-9af3-70fb-9b06-cd78001d2ff1"
    namespace: str = "namespace"
    external_id: str = "external"
    task_id: str = "task"
    index: int = 0
    channel: str = "channel"
    key: str = "charge"
    occurrence: int = 0
    attempt: str = "01a1e31c-9af3-70fb-9b06-cd78001d2ff2"
    level: str = "info"
    content: bytes = b"content " * 300
    commit: str = "a" * 40
    entry: str = "note"


HOME: Final = Place()
AWAY: Final = Place(
    tenant="theirs",
    session="two",
    agent="01a1e31c-9af3-70fb-9b06-cd78001d2ffa",
    checkpoint="01a1e31c-9af3-70fb-9b06-cd78001d2ffb",
    namespace="other namespace",
    external_id="other external",
    task_id="other task",
    index=1,
    channel="other channel",
    key="refund",
    occurrence=1,
    attempt="01a1e31c-9af3-70fb-9b06-cd78001d2ffc",
    level="error",
    content=b"other content " * 300,
    commit="b" * 40,
    entry="remark",
)
PARTS: Final = [part.name for part in fields(Place)]

SESSION: Final = {"tenant", "session"}
CHECKPOINT: Final = SESSION | {"checkpoint"}
EFFECT: Final = SESSION | {"key", "occurrence", "attempt"}
LINE: Final = SESSION | {"level"}
BOUND: Final[dict[Table, dict[str, set[str]]]] = {
    AGENTS: {"metadata": {"tenant", "agent", "entry"}},
    SESSIONS: {
        "task_description": SESSION,
        "pause_reason": SESSION,
        "metadata": SESSION | {"entry"},
    },
    CHECKPOINTS: {
        "description": CHECKPOINT,
        "metadata": CHECKPOINT | {"entry"},
        "manifest": CHECKPOINT,
    },
    WRITES: {
        "manifest": SESSION
        | {"namespace", "external_id", "task_id", "index", "channel"},
    },
    EFFECTS: {"result": EFFECT, "error": EFFECT | {"entry"}},
    # A line has no id before it is stored: two lines of one level may change places.
    LOGS: {"message": LINE, "data": LINE | {"entry"}},
    CHUNKS: {"data": {"tenant", "content"}},
    PACKS: {"data": {"tenant", "commit"}},
}  # fmt: skip

MARK: Final = "mark"
"""What every session has among its metadata; it belongs to the session alone."""

Field: TypeAlias = tuple[str, str | None]
"""A column, and the entry of it where it holds a document."""

Values: TypeAlias = dict[Field, str | None]
"""Sealed values for some fields of a row."""


def fill(store: SealedStore, at: Place) -> None:
    """Store one row of every kind, with something in all of its sealed columns."""
    document = {at.entry: "v", "second": "w"}
    store.create_agent(agent(id=at.agent, metadata=document))
    owner = session(
        id=at.session, agent_id=at.agent, task_description="task", metadata={"second": "w"}
    )
    store.create_session(owner)
    store.update_session(
        at.session, status="paused", pause_reason="reason", merge_metadata={at.entry: "v"}
    )
    content = [at.content]
    described: dict[str, Any] = {"description": "described", "metadata": document}
    store.put(checkpoint(at.session, id=at.checkpoint, contents=content, **described))
    pending = write(at.task_id, at.index, channel=at.channel)
    store.put_writes(owner, at.namespace, at.external_id, [pending])
    outcome = EffectOutcome("done", "{}", error=document)
    store.begin_effect(
        NewEffect(at.session, at.key, at.occurrence, "step", b"", at.attempt, outcome)
    )
    store.append_log(at.session, at.level, "message", document)
    store.put_pack(at.commit, needs=[], data=b"PACK")


READ: Final[dict[Table, Callable[[SealedStore, Place], Any]]] = {
    AGENTS: lambda store, at: store.find_agent(at.agent),
    SESSIONS: lambda store, at: store.find_session(at.session),
    CHECKPOINTS: lambda store, at: (
        store.list_checkpoints(CheckpointQuery(id=at.checkpoint)),
        store.read_payload(at.checkpoint),
    ),
    WRITES: lambda store, at: store.list_writes(at.session, at.namespace, [at.external_id]),
    EFFECTS: lambda store, at: store.list_effects(EffectQuery(at.session)),
    LOGS: lambda store, at: store.list_logs(at.session),
    CHUNKS: lambda store, at: store.read_chunks([digest_of(at.content)]),
    PACKS: lambda store, at: list(store.read_packs(at.commit)),
}


def stored(store: SealedStore, table: Table, at: Place) -> Row:
    """Return the sealed columns of the only row that a table has."""
    found: list[Row] = []
    rewrite(store, table, at, lambda row: found.append(table.parts(row)[2]))
    [row] = found
    return row


def rewrite(
    store: SealedStore, table: Table, at: Place, change: Callable[[Row], Row | None]
) -> None:
    """Change sealed columns past the key, and chain and sums with them, which would tell before the seal does."""

    def changed(row: Row, altered: IntegrityError | None = None) -> Row | None:
        assert altered is None
        fresh = change(row)
        return None if fresh is None else with_sums(store, table, row, fresh)

    if table is CHECKPOINTS:
        store.inner.reseal_checkpoints(at.session, changed)
    else:
        store.inner.reseal(table, changed, after=(), limit=9)


def with_sums(store: SealedStore, table: Table, row: Row, fresh: Row) -> Row:
    """Return sealed columns with the sums that they have in their row."""
    key, beside, _ = table.parts(row)
    sums = store.inner.sums
    if table is WRITES:
        session_id, namespace, external_id, task, index = key
        task_path, channel, refs = beside
        place = (session_id, namespace, external_id, task, task_path, index)
        return fresh[0], sums.stored_write(*place, channel, fresh[0], refs)
    if table is EFFECTS:
        session_id, step, occurrence = key
        attempt, status, refs = beside
        result, error = fresh[:2]
        effect = (session_id, step, occurrence, str(attempt))
        return result, error, sums.outcome(*effect, status, result, refs, error)
    return fresh


def sealed_columns(table: Table) -> tuple[str, ...]:
    """Return the columns with values that are sealed, without sums, which are only made with a key."""
    return tuple(column for column in table.sealed if not column.endswith("_sum"))


def envelopes(table: Table, row: Row) -> dict[Field, str]:
    """Return all sealed values of a row as texts."""
    found: dict[Field, str] = {}
    for column, value in zip(table.sealed, row, strict=True):
        if column not in sealed_columns(table):
            continue
        if column in table.documents:
            found |= {(column, entry): sealed for entry, sealed in load_document(value).items()}
        elif isinstance(value, bytes):
            found[column, None] = as_text(value)
        elif value.startswith(SEALED_START):
            found[column, None] = value[len(SEALED_START) : -len(MANIFEST_END)]
        else:
            found[column, None] = value
    return found


def with_envelopes(table: Table, row: Row, changes: Values) -> Row:
    """Return a row with other sealed values, each in the form of its column."""
    values = dict(zip(table.sealed, row, strict=True))
    for (column, entry), sealed in changes.items():
        value = values[column]
        if sealed is None:
            values[column] = None
        elif entry is not None:
            values[column] = dump_document({**load_document(value), entry: sealed}, column)
        elif isinstance(value, bytes):
            values[column] = from_text(sealed)
        elif value.startswith(SEALED_START):
            values[column] = SEALED_START + sealed + MANIFEST_END
        else:
            values[column] = sealed
    return tuple(values.values())


@contextmanager
def changed(store: SealedStore, table: Table, at: Place, changes: Values) -> Iterator[None]:
    """Put other values into a row for a while."""
    row = stored(store, table, at)
    rewrite(store, table, at, lambda _: with_envelopes(table, row, changes))
    yield
    rewrite(store, table, at, lambda _: row)


def opens(store: SealedStore, table: Table, at: Place) -> bool:
    """Tell whether a row is read, or refused for what it is."""
    try:
        assert READ[table](store, at)
    except SealBroken:
        return False
    return True


@contextmanager
def filled(url: str, ring: KeyRing, at: Place) -> Iterator[SealedStore]:
    """A store with rows, which are gone afterwards."""
    with open_store(url, tenant=at.tenant, keys=ring) as store:
        assert isinstance(store, SealedStore)
        fill(store, at)
        yield store
        store.erase_tenant()


def moves(table: Table, home: dict[Field, str], at: Place) -> dict[str, Values]:
    """Return, by column, what a value from home replaces in a row of another place."""
    found: dict[str, Values] = {
        column: {(column, at.entry): home[column, HOME.entry]}
        if column in table.documents
        else {(column, None): home[column, None]}
        for column in sealed_columns(table)
    }
    if table is SESSIONS:
        found[MARK] = {("metadata", SEALED_MARK): home["metadata", SEALED_MARK]}
    if table is LOGS:
        # Data belong to their very message: they come with it, and it goes without others.
        second: Values = {("data", "second"): home["data", "second"]}
        found["data"] = found["message"] | found["data"] | second
        found["message"] = {**found["message"], ("data", None): None}
    return found


def opened_elsewhere(url: str, ring: KeyRing, at: Place) -> dict[Table, set[str]]:
    """Return the columns whose values from home open in rows of another place."""
    with filled(url, ring, HOME) as store:
        home = {table: envelopes(table, stored(store, table, HOME)) for table in BOUND}
    found: dict[Table, set[str]] = {table: set() for table in BOUND}
    with filled(url, ring, at) as store:
        for table in BOUND:
            assert opens(store, table, at)
            for column, moved in moves(table, home[table], at).items():
                with changed(store, table, at, moved):
                    if opens(store, table, at):
                        found[table].add(column)
    return found


def test_every_sealed_column_is_looked_at() -> None:
    assert set(BOUND) == {*TABLES, CHECKPOINTS}
    for table, columns in BOUND.items():
        assert tuple(columns) == sealed_columns(table)
    assert all(getattr(HOME, part) != getattr(AWAY, part) for part in PARTS)
    bound = [parts for columns in BOUND.values() for parts in columns.values()]
    assert set().union(*bound) == set(PARTS)


def test_a_value_opens_in_a_place_that_is_the_same(url: str, ring: KeyRing) -> None:
    found = opened_elsewhere(url, ring, HOME)
    expected = {table: set(sealed_columns(table)) for table in BOUND}
    assert found == expected | {SESSIONS: {*SESSIONS.sealed, MARK}}


@pytest.mark.parametrize("part", PARTS)
def test_a_value_does_not_open_where_any_part_of_its_place_is_another(
    url: str, ring: KeyRing, part: str
) -> None:
    at = replace(HOME, **{part: getattr(AWAY, part)})
    found = opened_elsewhere(url, ring, at)
    expected = {
        table: {column for column, bound in columns.items() if part not in bound}
        for table, columns in BOUND.items()
    }
    if part not in SESSION:
        expected[SESSIONS].add(MARK)
    assert found == expected


def test_a_value_does_not_open_in_another_field_of_its_row(url: str, ring: KeyRing) -> None:
    opened = []
    with filled(url, ring, HOME) as store:
        for table in BOUND:
            values = envelopes(table, stored(store, table, HOME))
            for source, sealed in values.items():
                for target in values:
                    if target == source:
                        continue
                    with changed(store, table, HOME, {target: sealed}):
                        if opens(store, table, HOME):
                            opened.append((table.name, source, target))
    assert opened == []


def test_data_of_a_log_do_not_open_beside_another_message(url: str, ring: KeyRing) -> None:
    with filled(url, ring, HOME) as store:
        row = envelopes(LOGS, stored(store, LOGS, HOME))
    with filled(url, ring, HOME) as store:
        for field in (("data", HOME.entry), ("message", None)):
            with changed(store, LOGS, HOME, {field: row[field]}):
                assert not opens(store, LOGS, HOME)


def test_an_envelope_cannot_be_made_to_name_another_key() -> None:
    # Even where two ids stand for one key: what names the key is proven with the rest.
    ring = KeyRing.new()
    key = ring.keys[ring.current]
    sealing = Envelopes(keys_from(KeyRing({"a": key, "b": key}, ring.names)))
    sealed = sealing.seal(b"a secret", "state", "tenant")
    assert sealed[2:3] == b"a"
    assert sealing.open(sealed, "state", "tenant") == b"a secret"
    with pytest.raises(SealBroken):
        sealing.open(sealed[:2] + b"b" + sealed[3:], "state", "tenant")


def test_no_two_places_are_alike() -> None:
    sealing = Envelopes(keys_from(KeyRing.new()))
    sealed = sealing.seal(b"a secret", "state", "ab", "c")
    for place in (("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("ab", "c", "")):
        with pytest.raises(SealBroken):
            sealing.open(sealed, "state", *place)


def test_the_digest_of_arguments_is_hidden_with_and_without_the_mark_of_a_key(
    sealed: SealedStore,
) -> None:
    owner = sealed.create_session(session())
    digest = digest_of(b"arguments")
    for key, mark in (("plain", b""), ("marked", b"12345678")):
        draft = NewEffect(owner.id, key, 0, "charge", digest + mark, new_id())
        assert sealed.begin_effect(draft).fingerprint == digest + mark
        [stored] = (
            one
            for one in sealed.inner.list_effects(EffectQuery(owner.id))
            if one.attempt_id == draft.attempt_id
        )
        assert digest[1:] not in stored.fingerprint
        assert stored.fingerprint.endswith(mark)
