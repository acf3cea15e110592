"""What puts and steps cost a server: rows that they read, connections that they take."""

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import Connection

from holdfast.effects import Call, Ledger
from holdfast.savers import CheckpointConfig, StoreCheckpointSaver
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_pool import AnyConnection
from holdfast.stores.postgres_statements import put_statement
from holdfast.testing.drafts import session
from tests.stores.postgres_drafts import checkpoint_draft, connect, own_connections, schema_of

_ROWS_READ = """
SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
FROM pg_stat_xact_user_tables WHERE schemaname = %s
"""
_ROWS_READ_SO_FAR = _ROWS_READ.replace("_xact", "")


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


def test_a_put_reads_as_many_rows_in_a_store_of_many_as_in_an_empty_one(
    store: PostgresStore, postgres_url: str
) -> None:
    """Also where the tables have no statistics yet, as those of a new store."""
    schema = schema_of(postgres_url)
    with connect(postgres_url) as connection, connection.transaction():

        def rows_read() -> dict[str, int]:
            return dict(connection.execute(_ROWS_READ, [schema]).fetchall())

        def read_by_put(session_id: str, name: str) -> dict[str, int]:
            before = rows_read()
            draft = checkpoint_draft(session_id=session_id, name=name, external_id=name)
            statement = put_statement(draft, store.tenant, schema)
            connection.execute(statement.sql, statement.params)
            return {table: count - before[table] for table, count in rows_read().items()}

        read_by_put("first", "a")
        alone = read_by_put("first", "b")
        for number in range(20):
            read_by_put(f"other {number}", "a")
            read_by_put("first", f"c{number}")
        assert read_by_put("first", "d") == alone
        assert alone["session_checkpoints"] == 0


def test_who_works_alone_has_one_connection(store: PostgresStore) -> None:
    """Those that are still being made count, too."""
    store.put(checkpoint_draft())
    assert own_connections(store).size == 1


def test_a_saver_puts_with_one_statement_whatever_the_parent_is(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = StoreCheckpointSaver(store)
    thread = CheckpointConfig("thread")
    configs = (thread, thread, saver.put(thread, {"step": 0}))
    connections = own_connections(store)
    taken: list[float] = []
    take = connections.getconn

    def getconn(timeout: float) -> AnyConnection:
        taken.append(timeout)
        return take(timeout)

    monkeypatch.setattr(connections, "getconn", getconn)
    for number, config in enumerate(configs, start=1):
        saver.put(config, {"step": 1})
        assert len(taken) == number


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "started and done"])
def test_a_step_reads_as_many_rows_after_many_others_as_after_a_few(
    store: PostgresStore, postgres_url: str, idempotent: bool
) -> None:
    """The server keeps the plan that it made while there were a few."""
    schema = schema_of(postgres_url)

    def rows_read() -> int:
        def ask(connection: Connection[Any]) -> int:
            connection.execute("SELECT pg_stat_force_next_flush()")
            return int(dict(connection.execute(_ROWS_READ_SO_FAR, [schema]).fetchall())["effects"])

        return store._link.run(ask)

    ledger = Ledger(store, store.create_session(session()).id)

    def read_by_steps(numbers: range) -> int:
        before = rows_read()
        for number in numbers:
            ledger.run(Call("step", lambda n: n, (number,), idempotent=idempotent))
        return rows_read() - before

    read_by_steps(range(10))
    few = read_by_steps(range(10, 20))
    read_by_steps(range(20, 60))
    assert read_by_steps(range(60, 70)) == few
    assert few <= 2 * 10
