"""Checkpointers on real databases: one statement, exact caps, crashes, the columns that SQL sees."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from psycopg_pool import ConnectionPool

from holdfast import (
    MemoryCheckpointer,
    PostgresCheckpointer,
    SQLiteCheckpointer,
    ensure_checkpoints_schema,
)
from holdfast.checkpointers import BaseCheckpointer, PgQueryable
from holdfast.checkpointers import postgres as statements
from holdfast.errors import HoldfastError, NothingToResume, StoreError, StoreUnavailable
from tests.cli.conftest import run_process
from tests.postgres_server import PostgresServer

Make = Callable[..., BaseCheckpointer]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """An empty database of its own."""
    return postgres_server.create_database()


@pytest.fixture
def pool(url: str) -> Iterator[ConnectionPool]:
    with ConnectionPool(url, min_size=1, max_size=4, open=True) as pool:
        run(ensure_checkpoints_schema(pool))
        yield pool


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[Any] = []
    if request.param == "postgres":
        pool = request.getfixturevalue("pool")
        yield lambda **options: PostgresCheckpointer(pool, **options)
        return

    def make(**options: Any) -> BaseCheckpointer:
        made.append(
            MemoryCheckpointer(**options)
            if request.param == "memory"
            else SQLiteCheckpointer(tmp_path / "agent.db", **options)
        )
        return made[-1]  # type: ignore[no-any-return]

    yield make
    for checkpointer in made:
        run(checkpointer.close())


@pytest.mark.row("S3-16")
def test_a_thousand_puts_without_a_cap_keep_a_thousand(make: Make) -> None:
    async def scenario() -> None:
        checkpointer = make(max_checkpoints_per_thread=math.inf)
        ids = [await checkpointer.put("t", {"n": number}) for number in range(1000)]
        assert [one.id for one in await checkpointer.list("t")] == ids[::-1]
        assert await checkpointer.get("t", ids[0]) == {"n": 0}

    run(scenario())
    for wrong in (0, -1, -math.inf):
        with pytest.raises(ValueError, match="max_checkpoints_per_thread"):
            make(max_checkpoints_per_thread=wrong)


@pytest.mark.row("S3-02", "S3-03")
def test_ids_are_in_the_order_of_the_puts_that_were_stored(make: Make) -> None:
    async def scenario() -> None:
        back = iter(range(300))
        for thread, now in {
            "running": None,
            "standing": lambda: 1_700_000_000.0,
            "stepping back": lambda: 1_700_000_000.0 - 60 * next(back),
        }.items():
            checkpointer = make(max_checkpoints_per_thread=None, now=now)
            ids = [await checkpointer.put(thread, {"n": number}) for number in range(100)]
            assert ids == sorted(set(ids))
            for made in map(uuid.UUID, ids):
                assert (made.version, made.variant) == (7, uuid.RFC_4122)
            assert [one.id for one in await checkpointer.list(thread)] == ids[::-1]
            assert await checkpointer.get(thread) == {"n": 99}

    run(scenario())


@pytest.mark.slow
@pytest.mark.row("S3-03")
def test_ten_thousand_stored_puts_keep_their_order(pool: ConnectionPool) -> None:
    async def scenario() -> None:
        checkpointer = PostgresCheckpointer(pool, max_checkpoints_per_thread=None)
        ids = [await checkpointer.put("t", {"n": number}) for number in range(10_000)]
        assert ids == sorted(set(ids))
        assert [one.id for one in await checkpointer.list("t")] == ids[::-1]

    run(scenario())
    with pool.connection() as connection:
        by_id = connection.execute(
            "SELECT checkpoint_id FROM ziro_checkpoints ORDER BY 1"
        ).fetchall()
        by_seq = connection.execute(
            "SELECT id::text FROM holdfast.session_checkpoints ORDER BY seq"
        ).fetchall()
    assert by_id == by_seq
    assert len(by_id) == 10_000


@pytest.mark.row("S3-17")
def test_the_given_clock_rules_the_id_and_the_stored_time(pool: ConnectionPool) -> None:
    moment = datetime(2031, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    for now in (lambda: moment, moment.timestamp):
        made = run(PostgresCheckpointer(pool, now=now).put("t", {"n": 1}))
        assert uuid.UUID(made).int >> 80 == int(moment.timestamp() * 1000)
        with pool.connection() as connection:
            for query in (
                "SELECT created_at FROM ziro_checkpoints WHERE checkpoint_id = %s",
                "SELECT created_at FROM holdfast.session_checkpoints WHERE id::text = %s",
            ):
                assert connection.execute(query, [made]).fetchone() == (moment,)


@pytest.mark.row("S3-31", "S3-32", "S3-11")
def test_sql_sees_the_version_and_the_size_of_a_snapshot_and_filters_by_them(
    pool: ConnectionPool,
) -> None:
    checkpointer = PostgresCheckpointer(pool)
    snapshots: list[dict[str, Any]] = [
        {"version": 3, "mood": "😀🚀é"},
        {"version": 4, "messages": ["🙂" * 300] * 40},
        {"plain": True},
    ]
    ids = [run(checkpointer.put("t", snapshot)) for snapshot in snapshots]
    with pool.connection() as connection:
        rows = connection.execute(
            "SELECT checkpoint_id, snapshot, version, size_bytes FROM ziro_checkpoints "
            "WHERE thread_id = 't' ORDER BY checkpoint_id"
        ).fetchall()
        assert rows == [
            (made, snapshot, snapshot.get("version", 1), len(orjson.dumps(snapshot)))
            for made, snapshot in zip(ids, snapshots, strict=True)
        ]
        for query in (
            "SELECT checkpoint_id FROM ziro_checkpoints WHERE version = 4",
            "SELECT id::text FROM holdfast.session_checkpoints WHERE version = 4",
        ):
            assert connection.execute(query).fetchall() == [(ids[1],)]
    assert [one.id for one in run(checkpointer.list("t", version=3))] == [ids[0]]


class Counting:
    """Counts the statements that reach a pool."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.sent: list[str] = []

    def query(self, sql: str, params: Any) -> Any:
        self.sent.append(sql)
        with self.pool.connection() as connection:
            return connection.execute(sql, params).fetchall()


@pytest.mark.row("S3-18", "S3-19", "S3-20")
def test_every_call_is_one_statement_through_an_object_that_only_has_query(
    pool: ConnectionPool,
) -> None:
    counting = Counting(pool)
    assert isinstance(counting, PgQueryable)
    checkpointer = PostgresCheckpointer(counting, max_checkpoints_per_thread=2)
    state = {"messages": ["m" * 900] * 50}
    calls: tuple[Callable[[], Any], ...] = (
        *(partial(checkpointer.put, "t", {**state, "n": n}) for n in range(4)),
        lambda: checkpointer.get("t"),
        lambda: checkpointer.get("t", str(uuid.uuid4())),
        lambda: checkpointer.list("t"),
        lambda: checkpointer.list("t", 1),
        lambda: checkpointer.delete("t", str(uuid.uuid4())),
        lambda: checkpointer.delete("t"),
    )
    for call in calls:
        counting.sent.clear()
        run(call())
        assert len(counting.sent) == 1
        lines = [line for line in counting.sent[0].splitlines() if not line.startswith("--")]
        assert ";" not in "".join(lines)
    documentation = statements.__doc__ or ""
    for shape in ("put", "get", "list", "delete"):
        assert f"\n    {shape}  " in documentation


@pytest.mark.row("S3-18")
def test_kill_9_of_the_backend_in_the_middle_of_a_put_leaves_the_thread_as_it_was() -> None:
    cap = 3
    with PostgresServer() as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            run(ensure_checkpoints_schema(connection))
        with ConnectionPool(url, min_size=1, open=True) as pool:
            checkpointer = PostgresCheckpointer(pool, max_checkpoints_per_thread=cap)
            ids = [run(checkpointer.put("t", {"n": number})) for number in range(cap)]
        failed: list[BaseException] = []
        holder = psycopg.connect(url)
        # The put has stored its row by then, and waits to trim the oldest.
        holder.execute(
            "SELECT FROM holdfast.session_checkpoints WHERE id = %s FOR UPDATE", [ids[0]]
        )

        def put() -> None:
            with psycopg.connect(url, autocommit=True) as writer:
                checkpointer = PostgresCheckpointer(writer, max_checkpoints_per_thread=cap)
                try:
                    run(checkpointer.put("t", {"n": cap}))
                except HoldfastError as error:
                    failed.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        with psycopg.connect(url, autocommit=True) as watcher:
            found = None
            while found is None:
                found = watcher.execute(
                    "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                    "AND query LIKE '%holdfast\".put(%'"
                ).fetchone()
                time.sleep(0.01)
        os.kill(found[0], signal.SIGKILL)
        thread.join(30)
        assert [type(error) for error in failed] == [StoreUnavailable]
        # After the crash of a backend the server ends all others and starts anew by itself.
        deadline = time.monotonic() + 30
        while not holder.closed:
            assert time.monotonic() < deadline
            with suppress(psycopg.OperationalError):
                holder.execute("SELECT 1")
                time.sleep(0.01)
        holder.close()
        while True:
            try:
                after = psycopg.connect(url, autocommit=True)
                break
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        with after:
            checkpointer = PostgresCheckpointer(after, max_checkpoints_per_thread=cap)
            assert [one.id for one in run(checkpointer.list("t"))] == ids[::-1]
            new = run(checkpointer.put("t", {"n": cap}))
            assert [one.id for one in run(checkpointer.list("t"))] == [new, *ids[:0:-1]]


@pytest.mark.row("S3-34")
def test_a_put_shares_the_fate_of_the_callers_own_work(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        run(ensure_checkpoints_schema(connection))
        connection.execute("CREATE TABLE orders (id integer)")
    with psycopg.connect(url) as mine, psycopg.connect(url, autocommit=True) as outside:
        checkpointer = PostgresCheckpointer(mine)
        for commits in (False, True):
            mine.execute("INSERT INTO orders VALUES (1)")
            run(checkpointer.put("t", {"n": 1}))
            assert run(checkpointer.get("t")) == {"n": 1}
            assert mine.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            assert outside.execute("SELECT count(*) FROM orders").fetchone() == (0,)
            assert run(PostgresCheckpointer(outside).get("t")) is None
            if commits:
                mine.commit()
            else:
                mine.rollback()
        assert outside.execute("SELECT count(*) FROM orders").fetchone() == (1,)
        assert run(PostgresCheckpointer(outside).get("t")) == {"n": 1}


@pytest.mark.row("S3-36")
def test_erasing_many_threads_leaves_no_content_of_theirs(make: Make) -> None:
    async def scenario() -> None:
        checkpointer = make(max_checkpoints_per_thread=3)
        names = [f"thread {number}" for number in range(12)]
        for name in names:
            for number in range(5):
                await checkpointer.put(name, {"own": f"{name} {number} " * 800, "all": "x" * 9000})
        assert await checkpointer.delete_threads(names[:-1]) == 33
        assert await checkpointer.delete_threads(names[:-1]) == 0
        for name in names[:-1]:
            assert await checkpointer.get(name) is None
            assert await checkpointer.list(name) == []
        assert await checkpointer.get(names[-1]) == {
            "own": "thread 11 4 " * 800,
            "all": "x" * 9000,
        }
        assert await checkpointer.delete_threads(names) == 3
        if isinstance(checkpointer, PostgresCheckpointer):
            with checkpointer._connector._pool.connection() as connection:
                for table in ("chunks", "session_checkpoints", "sessions"):
                    left = connection.execute(f"SELECT count(*) FROM holdfast.{table}").fetchone()
                    assert left == (0,), table
        else:
            store = checkpointer.store  # type: ignore[attr-defined]
            assert store.total_bytes() == 0
            assert store.session_usage() == []

    run(scenario())


@pytest.mark.row("S3-35")
def test_nothing_to_resume_from_is_told_apart_from_a_database_that_does_not_answer(
    pool: ConnectionPool,
) -> None:
    with pytest.raises(NothingToResume, match="nothing to resume from") as nothing:
        run(PostgresCheckpointer(pool).load("t"))
    assert not isinstance(nothing.value, StoreError)
    with (
        PostgresServer() as server,
        psycopg.connect(server.create_database(), autocommit=True) as connection,
    ):
        run(ensure_checkpoints_schema(connection))
        server.kill()
        with pytest.raises(StoreUnavailable) as lost:
            run(PostgresCheckpointer(connection).load("t"))
    assert isinstance(lost.value, StoreError)
    assert lost.value.code != nothing.value.code


@pytest.mark.row("S3-13")
def test_the_printed_schema_is_all_that_a_database_needs(url: str, tmp_path: Path) -> None:
    printed = run_process("schema", "--dialect", "postgres", cwd=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, b"")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(printed.stdout)
        checkpointer = PostgresCheckpointer(connection)
        run(checkpointer.put("t", {"n": 1}))
        assert run(checkpointer.get("t")) == {"n": 1}
        assert len(run(checkpointer.list("t"))) == 1
    # The command line finds the schema complete, without creating anything.
    listed = run_process("sessions", "--json", "--url", url, cwd=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, b"")
