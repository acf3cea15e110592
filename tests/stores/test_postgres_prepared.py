"""The way that puts and steps take past the driver: it says and reads the same, and is prepared anew when it has to be."""

import weakref
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.errors import CheckpointExists
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_prepared import Prepared
from tests.stores.postgres_drafts import checkpoint_draft, connect, own_connections

_EVERYTHING = """
SELECT %(text)s::text, NULL::text, -7::bigint, -8::integer, length(%(text)s)::bigint,
    encode(%(raw)b::bytea, 'hex'), encode((%(many)b::bytea[])[2], 'hex'),
    cardinality(%(many)b::bytea[])::bigint, %(nothing)b::bytea[]::text,
    timestamptz '1969-12-31 23:59:59.999999Z', timestamptz '2026-02-03 04:05:06.789Z'
"""
_PARAMS = {"text": "ü\N{SNOWMAN}", "raw": b"\0\xff", "many": [b"", b"\1\2"], "nothing": None}


@pytest.fixture
def connection(postgres_url: str) -> Iterator["psycopg.Connection[Any]"]:
    PostgresStore(postgres_url).close()
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


def test_it_says_and_reads_what_the_driver_does(
    connection: "psycopg.Connection[Any]",
) -> None:
    expected = connection.execute(_EVERYTHING, _PARAMS).fetchall()
    prepared = Prepared(_EVERYTHING)
    for _ in range(3):
        assert prepared.rows(connection, _PARAMS) == expected


def test_a_text_that_would_be_cut_off_is_refused(connection: "psycopg.Connection[Any]") -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        Prepared(_EVERYTHING).rows(connection, _PARAMS | {"text": "before\0after"})


def test_it_is_prepared_anew_after_everything_was_deallocated(store: PostgresStore) -> None:
    assert store.put(checkpoint_draft(name="before")).created
    store._link.run(lambda connection: connection.execute("DEALLOCATE ALL"))
    assert store.put(checkpoint_draft(name="after")).created


def test_to_prepare_it_anew_leaves_nothing_behind(connection: "psycopg.Connection[Any]") -> None:
    prepared = Prepared("SELECT 1::bigint")
    prepared.rows(connection, {})
    watching = weakref.getweakrefcount(connection)
    for _ in range(3):
        connection.execute("DEALLOCATE ALL")
        prepared.rows(connection, {})
    assert weakref.getweakrefcount(connection) == watching


def test_it_may_have_been_prepared_by_another(
    connection: "psycopg.Connection[Any]",
) -> None:
    """As behind a pooler, where many share a connection."""
    assert Prepared("SELECT 1::bigint").rows(connection, {}) == [(1,)]
    assert Prepared("SELECT 1::bigint").rows(connection, {}) == [(1,)]


def test_a_connection_stays_usable_after_a_refusal(store: PostgresStore) -> None:
    store.put(checkpoint_draft(name="one"))
    with pytest.raises(CheckpointExists):
        store.put(checkpoint_draft(name="one"))
    assert store.put(checkpoint_draft(name="two")).created
    assert own_connections(store).size == 1


def test_what_is_no_statement_is_refused_when_it_is_prepared(
    connection: "psycopg.Connection[Any]",
) -> None:
    with pytest.raises(psycopg.errors.SyntaxError):
        Prepared("SELEC %(a)s").rows(connection, {"a": "x"})
