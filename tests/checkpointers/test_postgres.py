"""What only a PostgreSQL checkpointer has: one statement a call, many writers, a server that dies."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast import PostgresCheckpointer, ensure_checkpoints_schema
from holdfast.errors import (
    ChunksMissing,
    HoldfastError,
    InvalidConfiguration,
    InvalidIdentifier,
    SchemaMissing,
    StoreUnavailable,
)
from holdfast.testing.checkpointers import run
from tests.postgres_server import PostgresServer


class Counting:
    """Counts statements on their way to a pool."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.sent: list[str] = []

    async def query(self, text: str, params: Mapping[str, Any] | None) -> Any:
        self.sent.append(text)
        with self.pool.connection() as connection:
            return connection.execute(text, params).fetchall()


def large(number: int, size: int = 60) -> dict[str, Any]:
    return {"n": number, "messages": [f"{at} " + "m" * 800 for at in range(size + number)]}


@pytest.mark.row("S3-18", "S3-19")
def test_each_call_is_one_statement(pool: ConnectionPool, table: str) -> None:
    counting = Counting(pool)
    checkpointer = PostgresCheckpointer(counting, table=table, max_checkpoints_per_thread=2)

    async def scenario() -> None:
        for number in range(5):
            counting.sent.clear()
            made = await checkpointer.put("t", large(number))
            assert len(counting.sent) == 1
        for call in (
            lambda: checkpointer.get("t"),
            lambda: checkpointer.get("t", made),
            lambda: checkpointer.get("unknown"),
            lambda: checkpointer.list("t"),
            lambda: checkpointer.list("t", 1),
            lambda: checkpointer.delete("t", made),
            lambda: checkpointer.delete("t"),
            lambda: checkpointer.delete_threads(["t", "u"]),
        ):
            counting.sent.clear()
            await call()
            assert len(counting.sent) == 1

    run(scenario())


@pytest.mark.row("S3-07")
def test_a_listing_does_not_select_snapshots(pool: ConnectionPool, table: str) -> None:
    counting = Counting(pool)
    checkpointer = PostgresCheckpointer(counting, table=table)
    run(checkpointer.put("t", large(1)))
    run(checkpointer.list("t"))
    for column in ("manifest", "state_snapshot", "refs", "chunks", "*"):
        assert column not in counting.sent[-1]


def test_a_put_sends_only_what_changed(pool: ConnectionPool, table: str) -> None:
    sizes: list[int] = []

    class Weighing(Counting):
        async def query(self, text: str, params: Mapping[str, Any] | None) -> Any:
            assert params is not None
            sizes.append(sum(map(len, [params.get("chunk") or b"", *(params.get("data") or ())])))
            return await super().query(text, params)

    async def scenario() -> None:
        checkpointer = PostgresCheckpointer(Weighing(pool), table=table)
        await checkpointer.put("t", large(0, 400))
        await checkpointer.put("t", large(1, 400))
        other = PostgresCheckpointer(Weighing(pool), table=table)
        assert await other.get("t") == large(1, 400)
        await other.put("t", large(2, 400))
        assert await other.get("t") == large(2, 400)

    run(scenario())
    assert sizes[0] > 100_000
    assert sizes[1] < 30_000
    assert sizes[3] < 60_000


def test_chunks_that_were_swept_are_sent_again(pool: ConnectionPool, table: str) -> None:
    counting = Counting(pool)
    checkpointer = PostgresCheckpointer(counting, table=table)

    async def scenario() -> None:
        made = await checkpointer.put("t", large(0))
        # Somebody else removes the checkpoint and what it was made of.
        with pool.connection() as connection:
            connection.execute("DELETE FROM holdfast.session_checkpoints WHERE id = %s", [made])
            connection.execute("SELECT holdfast.sweep('default', NULL, false)")
        counting.sent.clear()
        await checkpointer.put("t", large(1))
        assert len(counting.sent) == 2
        assert await checkpointer.get("t") == large(1)

    run(scenario())


@pytest.mark.row("S3-34")
class TestInTheCallersTransaction:
    def test_a_connection_is_not_committed(self, checkpoints_url: str, table: str) -> None:
        with (
            psycopg.connect(checkpoints_url) as mine,
            ConnectionPool(checkpoints_url, min_size=1, open=True) as pool,
        ):
            inside = PostgresCheckpointer(mine, table=table)
            outside = PostgresCheckpointer(pool, table=table)
            for number in range(3):
                run(inside.put("t", large(number)))
            assert run(inside.get("t")) == large(2)
            assert len(run(inside.list("t"))) == 3
            assert run(outside.get("t")) is None
            mine.rollback()
            assert run(inside.get("t")) is None
            run(inside.put("t", large(3)))
            mine.commit()
            assert run(outside.get("t")) == large(3)

    def test_an_async_connection_is_not_committed(self, checkpoints_url: str, table: str) -> None:
        async def scenario() -> None:
            connection = await psycopg.AsyncConnection.connect(checkpoints_url)
            async with connection:
                checkpointer = PostgresCheckpointer(connection, table=table)
                await checkpointer.put("t", large(1))
                await connection.rollback()
                assert await checkpointer.get("t") is None
                async with connection.transaction():
                    await checkpointer.put("t", large(2))
                    await checkpointer.put("t", large(3))
                assert await checkpointer.get("t") == large(3)
                assert await checkpointer.delete("t") == 2

        run(scenario())

    def test_a_connection_that_commits_by_itself_sends_only_what_changed(
        self, checkpoints_url: str, table: str
    ) -> None:
        with psycopg.connect(checkpoints_url, autocommit=True) as connection:
            checkpointer = PostgresCheckpointer(connection, table=table)
            run(checkpointer.put("t", large(1)))
            assert checkpointer._memory() is checkpointer._recorders
            with connection.transaction():
                assert checkpointer._memory() is not checkpointer._recorders
            run(checkpointer.put("t", large(2)))
            assert run(checkpointer.get("t")) == large(2)

    def test_a_wrong_isolation_level_is_refused(self, checkpoints_url: str, table: str) -> None:
        with psycopg.connect(checkpoints_url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            with pytest.raises(InvalidConfiguration, match="READ COMMITTED"):
                run(PostgresCheckpointer(connection, table=table).put("t", {"n": 1}))

    def test_an_async_pool_works_as_well(self, checkpoints_url: str, table: str) -> None:
        async def scenario() -> None:
            async with AsyncConnectionPool(checkpoints_url, min_size=1, open=False) as pool:
                await ensure_checkpoints_schema(pool, table=table)
                checkpointer = PostgresCheckpointer(pool, table=table)
                for number in range(3):
                    await checkpointer.put("t", large(number))
                assert await checkpointer.get("t") == large(2)
                assert len(await checkpointer.list("t")) == 3
                assert await checkpointer.delete("t") == 3

        run(scenario())


@pytest.mark.row("S3-14")
@pytest.mark.parametrize("name", ["a;drop", 'a"b', "1a", "", "a b", "a.b", "é", "x" * 64, None])
def test_a_name_that_is_no_identifier_is_refused_at_construction(name: Any) -> None:
    for options in ({"schema": name}, {"table": name}, {"holdfast_schema": name}):
        with pytest.raises(InvalidIdentifier):
            PostgresCheckpointer(Counting(None), **options)  # type: ignore[arg-type]
        with pytest.raises(InvalidIdentifier):
            run(ensure_checkpoints_schema(Counting(None), **options))  # type: ignore[arg-type]


@pytest.mark.row("S3-14")
def test_differently_named_tables_are_apart(pool: ConnectionPool) -> None:
    names = [f"Mixed_{uuid.uuid4().hex[:8]}", f"order_{uuid.uuid4().hex[:8]}"]
    for number, name in enumerate(names):
        run(ensure_checkpoints_schema(pool, table=name))
        run(PostgresCheckpointer(pool, table=name).put("t", {"n": number}))
    first, second = (PostgresCheckpointer(pool, table=name) for name in names)
    assert run(first.get("t")) == {"n": 0}
    assert run(second.get("t")) == {"n": 1}
    with pool.connection() as connection:
        query = sql.SQL("SELECT thread_id, snapshot FROM {}").format(sql.Identifier(names[0]))
        assert connection.execute(query).fetchall() == [("t", {"n": 0})]
    assert run(first.delete("t")) == 1
    assert run(second.get("t")) == {"n": 1}
    assert run(second.delete("t")) == 1


@pytest.mark.row("S3-36")
def test_erased_threads_leave_nothing_behind(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    with ConnectionPool(url, min_size=1, open=True) as pool:
        run(ensure_checkpoints_schema(pool))
        checkpointer = PostgresCheckpointer(pool, max_checkpoints_per_thread=2)

        async def scenario() -> None:
            for number in range(4):  # some are trimmed on the way
                for thread_id in ("a", "b", "kept"):
                    await checkpointer.put(thread_id, {"own": f"{thread_id}{number}" * 5000})
            assert await checkpointer.delete_threads(["a", "b"]) == 4
            assert await checkpointer.get("kept") == {"own": "kept3" * 5000}

        run(scenario())
        with pool.connection() as connection:
            for table in ("session_checkpoints", "checkpoint_writes", "sessions"):
                query = f"SELECT count(*) FROM holdfast.{table}"
                column = "id" if table == "sessions" else "session_id"
                left = connection.execute(f"{query} WHERE {column} <> 'kept'").fetchone()
                assert left == (0,)
            residue = "SELECT count(*) FROM holdfast.chunks WHERE position(%s::bytea IN data) > 0"
            for text in (b"a0a0", b"a3a3", b"b2b2", b"b3b3"):
                assert connection.execute(residue, [text]).fetchone() == (0,)
            assert connection.execute(residue, [b"kept3kept3"]).fetchone() != (0,)
        run(checkpointer.delete("kept"))
        with pool.connection() as connection:
            left = connection.execute("SELECT count(*) FROM holdfast.chunks").fetchone()
            assert left == (0,)


@pytest.mark.row("S3-37")
def test_what_has_expired_is_purged_by_the_next_put(pool: ConnectionPool, table: str) -> None:
    checkpointer = PostgresCheckpointer(pool, table=table, ttl_seconds=0.2)
    run(checkpointer.put("t", {"n": 1}))
    time.sleep(0.3)
    last = run(checkpointer.put("t", {"n": 2}))
    with pool.connection() as connection:
        query = "SELECT id::text FROM holdfast.session_checkpoints WHERE namespace = %s"
        assert connection.execute(query, [f"public.{table}"]).fetchall() == [(last,)]


def test_erasing_beside_writers_breaks_nothing(pool: ConnectionPool, table: str) -> None:
    checkpointer = PostgresCheckpointer(pool, table=table)

    async def scenario() -> None:
        async def writer(name: str) -> None:
            for number in range(25):
                await checkpointer.put(name, large(number))
                assert await checkpointer.get(name) == large(number)

        async def eraser() -> None:
            for number in range(25):
                await checkpointer.put("victim", large(number))
                await checkpointer.delete("victim")
                assert await checkpointer.get("victim") is None

        await asyncio.gather(writer("one"), writer("two"), eraser())

    run(scenario())


@pytest.mark.row("S3-18", "S3-15", "T8")
def test_eight_writers_and_a_watcher_never_see_more_than_the_cap(
    checkpoints_url: str, table: str
) -> None:
    cap, most, stop = 5, 0, threading.Event()

    def watch() -> None:
        nonlocal most
        query = sql.SQL("SELECT count(*) FROM {} WHERE thread_id = 't'").format(
            sql.Identifier(table)
        )
        with psycopg.connect(checkpoints_url, autocommit=True) as connection:
            while not stop.is_set():
                found = connection.execute(query).fetchone()
                assert found is not None
                most = max(most, found[0])

    def write(name: int) -> None:
        with ConnectionPool(checkpoints_url, min_size=1, max_size=1, open=True) as pool:
            checkpointer = PostgresCheckpointer(pool, table=table, max_checkpoints_per_thread=cap)
            for number in range(20):
                run(checkpointer.put("t", {"writer": name, "n": number}))

    watcher = threading.Thread(target=watch)
    watcher.start()
    writers = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    watcher.join()
    assert 0 < most <= cap
    with ConnectionPool(checkpoints_url, min_size=1, open=True) as pool:
        assert len(run(PostgresCheckpointer(pool, table=table).list("t"))) == cap


def _put_many(url: str, table: str, name: int, count: int) -> None:
    async def work() -> None:
        async with AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
            checkpointer = PostgresCheckpointer(pool, table=table, max_checkpoints_per_thread=None)
            for number in range(count):
                await checkpointer.put("t", {"writer": name, "n": number})

    asyncio.run(work())


def _assert_all_there(url: str, table: str, writers: int, count: int) -> None:
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=_put_many, args=(url, table, name, count)
        )
        for name in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * writers
    query = sql.SQL("SELECT checkpoint_id, snapshot FROM {}").format(sql.Identifier(table))
    with psycopg.connect(url) as connection:
        rows = connection.execute(query).fetchall()
    assert len({row[0] for row in rows}) == writers * count
    found = {(row[1]["writer"], row[1]["n"]) for row in rows}
    assert found == {(name, number) for name in range(writers) for number in range(count)}


def test_processes_that_write_to_one_thread_never_collide(checkpoints_url: str, table: str) -> None:
    _assert_all_there(checkpoints_url, table, writers=3, count=40)


@pytest.mark.slow
@pytest.mark.row("S3-04")
def test_eight_processes_with_five_hundred_puts_each(checkpoints_url: str, table: str) -> None:
    _assert_all_there(checkpoints_url, table, writers=8, count=500)


@pytest.mark.row("S3-03")
def test_ten_thousand_ids_are_in_the_order_of_their_puts() -> None:
    class Stub:
        async def query(self, text: str, params: Any) -> Any:
            return []

    async def scenario() -> None:
        stepping = iter(range(10_000))
        for now in (None, lambda: 1e9, lambda: 1e9 - next(stepping)):
            checkpointer = PostgresCheckpointer(Stub(), now=now)
            ids = [await checkpointer.put("t", {}) for _ in range(10_000)]
            assert ids == sorted(set(ids))
            assert {uuid.UUID(made).version for made in ids} == {7}

    run(scenario())


@pytest.mark.row("S3-01")
def test_snapshots_survive_a_restart_of_the_server() -> None:
    with PostgresServer() as server:
        url = server.create_database()
        with ConnectionPool(
            url, min_size=1, open=True, check=ConnectionPool.check_connection
        ) as pool:
            run(ensure_checkpoints_schema(pool))
            checkpointer = PostgresCheckpointer(pool)
            run(checkpointer.put("t", large(1)))
            server.kill()
            server.start()
            assert run(checkpointer.get("t")) == large(1)
            run(checkpointer.put("t", large(2)))
            assert run(checkpointer.get("t")) == large(2)


@pytest.mark.row("S3-18")
def test_a_server_killed_in_the_middle_of_puts_leaves_whole_ones() -> None:
    cap = 4
    with PostgresServer() as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            run(ensure_checkpoints_schema(connection))
        acknowledged: list[str] = []

        def write() -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                checkpointer = PostgresCheckpointer(connection, max_checkpoints_per_thread=cap)
                number = 0
                while True:
                    try:
                        acknowledged.append(run(checkpointer.put("t", large(number))))
                    except HoldfastError as error:
                        assert isinstance(error, StoreUnavailable)  # noqa: PT017
                        return
                    number += 1

        for _ in range(2):
            writer = threading.Thread(target=write)
            writer.start()
            before = len(acknowledged)
            while len(acknowledged) < before + cap + 3:
                time.sleep(0.005)
            server.kill()
            writer.join()
            server.start()
            with psycopg.connect(url) as connection:
                checkpointer = PostgresCheckpointer(connection)
                found = [one.id for one in run(checkpointer.list("t"))]
                assert len(found) == cap
                # The last put may have been stored without its reply having arrived.
                kept = found if found[0] == acknowledged[-1] else found[1:]
                assert kept == acknowledged[::-1][: len(kept)]
                for made in found:
                    assert run(checkpointer.get("t", made)) is not None


@pytest.mark.row("S3-12")
def test_the_latest_of_a_thread_is_found_by_an_index(pool: ConnectionPool, table: str) -> None:
    counting = Counting(pool)
    checkpointer = PostgresCheckpointer(counting, table=table, max_checkpoints_per_thread=None)

    async def scenario() -> None:
        for number in range(300):
            await checkpointer.put(f"t{number % 30}", {"n": number})

    run(scenario())
    with pool.connection() as connection:
        definition = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'holdfast' "
            "AND indexname = 'checkpoints_by_seq'"
        ).fetchone()
        assert definition is not None
        assert definition[0].endswith("(tenant, session_id, namespace, seq)")
        connection.execute("ANALYZE holdfast.session_checkpoints")
    sent: list[tuple[str, Any]] = []

    class Recording(Counting):
        async def query(self, text: str, params: Mapping[str, Any] | None) -> Any:
            sent.append((text, params))
            return await super().query(text, params)

    assert run(PostgresCheckpointer(Recording(pool), table=table).get("t7")) == {"n": 277}
    with pool.connection() as connection:
        plan = connection.execute("EXPLAIN " + sent[0][0], sent[0][1]).fetchall()
    assert any("checkpoints_by_seq" in row[0] for row in plan), plan


def test_a_database_without_the_schema_says_so(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.create_database()) as connection:
        with pytest.raises(SchemaMissing):
            run(PostgresCheckpointer(connection).put("t", {"n": 1}))
        connection.rollback()
        left = connection.execute("SELECT to_regnamespace('holdfast')").fetchone()
        assert left == (None,)


def test_errors_without_a_driver_pass_as_they_are() -> None:
    class Broken:
        def query(self, text: str, params: Any) -> Any:
            raise ConnectionError("no route")

    with pytest.raises(ConnectionError, match="no route"):
        run(PostgresCheckpointer(Broken()).get("t"))


def test_a_missing_chunk_is_recognised_by_its_state_alone() -> None:
    class Other(Exception):
        sqlstate = "HF001"

    class Broken:
        def query(self, text: str, params: Any) -> Any:
            raise Other("1 of 2 expected chunks are not stored")

    with pytest.raises(ChunksMissing):
        run(PostgresCheckpointer(Broken()).put("t", large(1)))
