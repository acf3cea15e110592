"""The schema that a checkpointer needs: created once, by anybody, and readable with plain SQL."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import PostgresCheckpointer, ensure_checkpoints_schema
from holdfast.checkpointers import schema_sql
from holdfast.errors import HoldfastError, InvalidIdentifier, MigrationChanged, SchemaTooNew
from holdfast.stores import open_store
from holdfast.testing.checkpointers import run
from tests.postgres_server import PostgresServer

COLUMNS = [
    ("thread_id", "text"),
    ("checkpoint_id", "text"),
    ("snapshot", "jsonb"),
    ("version", "integer"),
    ("size_bytes", "integer"),
    ("created_at", "timestamp with time zone"),
]


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def columns(connection: psycopg.Connection[Any], schema: str, table: str) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        [schema, table],
    ).fetchall()


@pytest.mark.row("S3-10", "S3-11")
def test_it_may_be_ensured_again_and_again(connection: psycopg.Connection[Any]) -> None:
    for _ in range(3):
        run(ensure_checkpoints_schema(connection))
    assert columns(connection, "public", "ziro_checkpoints") == COLUMNS
    default = connection.execute(
        "SELECT column_default FROM information_schema.columns WHERE table_schema = 'holdfast' "
        "AND table_name = 'session_checkpoints' AND column_name = 'created_at'"
    ).fetchone()
    assert default == ("now()",)
    run(PostgresCheckpointer(connection).put("t", {"n": 1}))
    run(ensure_checkpoints_schema(connection))
    assert run(PostgresCheckpointer(connection).get("t")) == {"n": 1}


@pytest.mark.row("S3-10", "S3-11")
def test_a_missing_schema_is_created(connection: psycopg.Connection[Any]) -> None:
    run(ensure_checkpoints_schema(connection, schema="Agents", table="Saved"))
    assert columns(connection, "Agents", "Saved") == COLUMNS
    checkpointer = PostgresCheckpointer(connection, schema="Agents", table="Saved")
    made = run(checkpointer.put("t", {"version": 3, "mood": "😀", "long": ["x" * 700] * 20}))
    [row] = connection.execute('SELECT * FROM "Agents"."Saved"').fetchall()
    assert row[:2] == ("t", made)
    assert row[2] == {"version": 3, "mood": "😀", "long": ["x" * 700] * 20}
    assert row[3] == 3
    assert row[4] == run(checkpointer.list("t"))[0].size_bytes
    assert row[5] == run(checkpointer.list("t"))[0].created_at


def _ensure(url: str, table: str) -> None:
    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await ensure_checkpoints_schema(connection, schema="apart", table=table)

    asyncio.run(work())


@pytest.mark.row("S3-10")
def test_four_processes_may_ensure_it_at_once(
    url: str, connection: psycopg.Connection[Any]
) -> None:
    processes = [
        multiprocessing.get_context("spawn").Process(target=_ensure, args=(url, table))
        for table in ("same", "same", "same", "other")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert columns(connection, "apart", "same") == COLUMNS
    assert columns(connection, "apart", "other") == COLUMNS


@pytest.mark.row("S3-13")
def test_the_text_can_be_given_to_another_tool(
    url: str, connection: psycopg.Connection[Any]
) -> None:
    text = schema_sql("public", "ziro_checkpoints")
    assert 'VIEW "public"."ziro_checkpoints"' in text
    for _ in range(2):
        connection.execute(text)
    checkpointer = PostgresCheckpointer(connection)
    run(checkpointer.put("t", {"n": 1}))
    run(ensure_checkpoints_schema(connection))
    assert run(checkpointer.get("t")) == {"n": 1}
    # The store finds its own migrations applied, and the other way round.
    with open_store(url) as store:
        assert [one.session_id for one in store.session_usage()] == ["t"]


@pytest.mark.row("S3-13")
def test_a_constructor_runs_nothing() -> None:
    class Untouched:
        def query(self, sql: str, params: Any) -> Any:
            raise AssertionError(sql)

    PostgresCheckpointer(Untouched())


def test_a_store_may_come_first(url: str, connection: psycopg.Connection[Any]) -> None:
    with open_store(url):
        pass
    run(ensure_checkpoints_schema(connection))
    run(PostgresCheckpointer(connection).put("t", {"n": 1}))


def test_the_tables_may_live_in_another_schema(connection: psycopg.Connection[Any]) -> None:
    run(ensure_checkpoints_schema(connection, holdfast_schema="elsewhere"))
    checkpointer = PostgresCheckpointer(connection, holdfast_schema="elsewhere")
    run(checkpointer.put("t", {"n": 1}))
    assert run(checkpointer.get("t")) == {"n": 1}
    assert run(checkpointer.delete("t")) == 1
    assert connection.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


def test_a_database_of_a_newer_version_is_left_alone(connection: psycopg.Connection[Any]) -> None:
    run(ensure_checkpoints_schema(connection))
    connection.execute("INSERT INTO holdfast.schema_migrations VALUES (999, 'sha256:x')")
    with pytest.raises(SchemaTooNew, match="999"):
        run(ensure_checkpoints_schema(connection, table="another"))
    assert columns(connection, "public", "another") == []


def test_a_database_of_other_text_is_left_alone(connection: psycopg.Connection[Any]) -> None:
    run(ensure_checkpoints_schema(connection))
    connection.execute("UPDATE holdfast.schema_migrations SET checksum = 'sha256:other'")
    with pytest.raises(MigrationChanged):
        run(ensure_checkpoints_schema(connection, table="another"))
    assert columns(connection, "public", "another") == []


def test_a_table_that_is_in_the_way_is_left_alone(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TABLE public.ziro_checkpoints (thread_id text)")
    with pytest.raises(HoldfastError, match="not a view"):
        run(ensure_checkpoints_schema(connection))
    assert columns(connection, "public", "ziro_checkpoints") == [("thread_id", "text")]
    assert connection.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


def test_the_view_does_not_lend_its_owners_rights(connection: psycopg.Connection[Any]) -> None:
    run(ensure_checkpoints_schema(connection))
    run(PostgresCheckpointer(connection).put("t", {"n": 1}))
    connection.execute("CREATE ROLE stranger_of_the_view")
    connection.execute("GRANT SELECT ON ziro_checkpoints TO stranger_of_the_view")
    try:
        with connection.transaction():
            connection.execute("SET LOCAL ROLE stranger_of_the_view")
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute("SELECT * FROM ziro_checkpoints")
    finally:
        connection.execute("DROP OWNED BY stranger_of_the_view")
        connection.execute("DROP ROLE stranger_of_the_view")


def test_a_tenant_is_a_literal_whatever_it_says(connection: psycopg.Connection[Any]) -> None:
    tenant = "o'neil; DROP SCHEMA holdfast --"
    run(ensure_checkpoints_schema(connection, tenant=tenant))
    run(PostgresCheckpointer(connection, tenant=tenant).put("t", {"n": 1}))
    run(PostgresCheckpointer(connection).put("t", {"n": 2}))
    rows = connection.execute("SELECT snapshot FROM ziro_checkpoints").fetchall()
    assert rows == [({"n": 1},)]


def test_a_tenant_is_a_literal_where_backslashes_count_too(
    connection: psycopg.Connection[Any],
) -> None:
    run(ensure_checkpoints_schema(connection))
    connection.execute("SET standard_conforming_strings = off")
    tenant = "a\\' ; CREATE TABLE planted(); COMMIT; SELECT WHERE 1=1--"
    run(ensure_checkpoints_schema(connection, tenant=tenant))
    assert connection.execute("SELECT to_regclass('planted')").fetchone() == (None,)


@pytest.mark.row("S3-14")
@pytest.mark.parametrize("name", ["a;drop", 'a"b', "1a", ""])
def test_the_text_is_never_made_from_other_names(name: str) -> None:
    with pytest.raises(InvalidIdentifier):
        schema_sql(name)
    with pytest.raises(InvalidIdentifier):
        schema_sql("public", name)


def test_the_text_is_part_of_the_package() -> None:
    import holdfast.checkpointers

    assert (Path(holdfast.checkpointers.__file__).parent / "postgres.sql").exists()
