"""Many writers, a sweep beside them, and what is left when a backend or the server dies."""

import multiprocessing
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.errors import CheckpointExists, ChunksMissing, StoreBusy, StoreUnavailable
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewCheckpoint, NewWrite, Trim
from holdfast.state.refs import digest_of, digests_in
from holdfast.stores.chain import breaks
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_prepared import Prepared
from holdfast.stores.postgres_statements import (
    delete_statement,
    put_statement,
    session_document,
)
from tests.postgres_server import PostgresServer
from tests.stores.postgres_drafts import (
    checkpoint_draft,
    connect,
    one_value,
    schema_of,
    session_draft,
)

WRITERS = 8


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_url) as store:
        yield store


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[threading.Event]:
    """Run ``work`` again and again beside the block; its error is the test's."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            work()

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(loop)
        try:
            yield stop
        finally:
            stop.set()
            future.result()


def wait_for_blocked_put(connection: "psycopg.Connection[Any]", schema: str) -> int:
    """Return the process id of a backend that waits for a lock in the middle of a put."""
    return wait_for_blocked(connection, f'"{schema}".put(')


def wait_for_blocked(connection: "psycopg.Connection[Any]", words: str) -> int:
    """Return the process id of a backend that waits for a lock in a statement with these words."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        # Within a transaction the view would show the same for ever.
        connection.execute("SELECT pg_stat_clear_snapshot()")
        row = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
            [f"%{words}%"],
        ).fetchone()
        if row:
            return int(row[0])
        time.sleep(0.01)
    raise AssertionError("nobody is waiting")


def ids(store: PostgresStore) -> list[str]:
    return [record.id for record in store.list_checkpoints(CheckpointQuery(session_id="thread"))]


@pytest.mark.row("S3-15", "S3-18", "T8")
def test_eight_writers_and_nobody_ever_sees_more_than_the_cap(
    store: PostgresStore, postgres_url: str
) -> None:
    cap, puts = 5, 40
    seen: list[int] = []
    watcher = connect(postgres_url)

    def watch() -> None:
        seen.append(one_value(watcher, "SELECT count(*) FROM session_checkpoints"))

    def write(writer: int) -> list[tuple[int, int]]:
        results = []
        for number in range(puts):
            draft = checkpoint_draft(f"{writer} {number}".encode(), trim=Trim(keep=cap))
            result = store.put(replace(draft, retention_class="step", checkpoint_type="auto"))
            results.append((result.record.seq, len(result.removed)))
        return results

    with watcher, in_background(watch), ThreadPoolExecutor(WRITERS) as executor:
        done = [pair for results in executor.map(write, range(WRITERS)) for pair in results]
    assert max(seen) == cap
    sequence = sorted(done)
    assert len({seq for seq, _ in sequence}) == WRITERS * puts
    assert sum(removed for _, removed in sequence) == WRITERS * puts - cap
    newest = [record.seq for record in store.list_checkpoints(CheckpointQuery())]
    assert newest == [seq for seq, _ in reversed(sequence[-cap:])]


@pytest.mark.row("S3-15")
def test_a_cap_of_one_keeps_the_newest_even_when_the_clock_steps_back(store: PostgresStore) -> None:
    first = store.put(checkpoint_draft(b"1")).record
    earlier = first.created_at - timedelta(days=1)
    second = store.put(checkpoint_draft(b"2", created_at=earlier, trim=Trim(keep=1)))
    assert second.removed == (first.id,)
    assert ids(store) == [second.record.id]


def write_many(url: str, writer: int, puts: int) -> None:
    with PostgresStore(url) as store:
        for number in range(puts):
            store.put(checkpoint_draft(f"{writer} {number}".encode()))


@pytest.mark.slow
@pytest.mark.row("S3-04")
def test_eight_processes_write_one_thread_without_losing_anything(
    store: PostgresStore, postgres_url: str
) -> None:
    puts = 500
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=write_many, args=(postgres_url, writer, puts))
        for writer in range(WRITERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * WRITERS
    records = store.list_checkpoints(CheckpointQuery(session_id="thread"))
    assert len({record.id for record in records}) == WRITERS * puts
    assert len({record.seq for record in records}) == WRITERS * puts


def test_writers_with_common_chunks_do_not_wait_for_each_other_for_ever(
    store: PostgresStore,
) -> None:
    contents = [f"shared {n}".encode() * 50 for n in range(40)]

    def write(writer: int) -> None:
        order = random.Random(writer)
        for number in range(15):
            chosen = order.sample(contents, 30)
            chunks = {digest_of(data): data for data in chosen}
            draft = checkpoint_draft(f"{writer} {number}".encode(), session_id=f"s{writer}")
            store.put(replace(draft, chunks={**chunks, **draft.chunks}))

    with ThreadPoolExecutor(WRITERS) as executor:
        list(executor.map(write, range(WRITERS)))
    assert len(store.list_checkpoints(CheckpointQuery())) == WRITERS * 15


def test_writers_of_one_session_with_common_chunks_never_stand_in_each_others_way(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds the session would otherwise wait for a chunk of somebody who waits for the session."""
    repeated: list[float] = []
    monkeypatch.setattr("holdfast.stores.postgres_connection.time.sleep", repeated.append)
    store.put(checkpoint_draft())

    def write(writer: int) -> None:
        for number in range(40):
            draft = checkpoint_draft(f"common {number}".encode() * 50)
            if writer % 2:
                value = NewWrite(f"task {writer}", 0, "c", "{}", draft.refs, draft.chunks, ())
                store.put_writes(session_draft(), "", f"e{number}", [value])
            else:
                label = "checkpoint-20260101-000000" if writer % 4 else None
                store.put(replace(draft, label=label))

    with ThreadPoolExecutor(WRITERS) as executor:
        list(executor.map(write, range(WRITERS)))
    assert repeated == []


@pytest.mark.row("S3-15")
@pytest.mark.parametrize("on_newest", [True, False])
def test_a_put_that_waited_for_another_comes_after_it(
    store: PostgresStore, postgres_url: str, *, on_newest: bool
) -> None:
    """On whatever parent: the newest by then, or the one that it names."""
    first = store.put(checkpoint_draft(b"1")).record
    early = checkpoint_draft(b"early", parent_is_newest=True)
    late = checkpoint_draft(
        b"late", parent_is_newest=on_newest, parent_id=None if on_newest else first.id
    )
    statement = put_statement(early, store.tenant, schema_of(postgres_url))
    with connect(postgres_url) as connection, ThreadPoolExecutor(1) as executor:
        with connection.transaction():
            connection.execute("SELECT FROM sessions FOR NO KEY UPDATE")
            waiting = executor.submit(store.put, late)
            wait_for_blocked_put(connection, schema_of(postgres_url))
            connection.execute(statement.sql, statement.params)
        stored = waiting.result().record
    newest, before, oldest = store.list_checkpoints(CheckpointQuery(session_id="thread"))
    assert (newest, before.id, oldest) == (stored, early.id, first)
    assert newest.created_at > before.created_at > oldest.created_at
    assert newest.parent_id == (early.id if on_newest else first.id)
    chain = store.read_chain("thread")
    assert chain is not None
    assert list(breaks(chain)) == []


def test_a_removal_leaves_alone_what_was_put_while_it_waited(
    store: PostgresStore, postgres_url: str
) -> None:
    """It has not locked that session, whose newest checkpoint this is now."""
    there = store.put(checkpoint_draft(b"1", session_id="a")).record
    store.put(checkpoint_draft(b"2", session_id="b"))
    coming = checkpoint_draft(b"3", session_id="b")
    with connect(postgres_url) as connection, ThreadPoolExecutor(1) as executor:
        with connection.transaction():
            connection.execute("SELECT FROM sessions WHERE id = 'a' FOR NO KEY UPDATE")
            removal = executor.submit(store.delete_checkpoints, [there.id, coming.id])
            wait_for_blocked(connection, f'"{schema_of(postgres_url)}".remove_checkpoints(')
            store.put(coming)
        assert removal.result() == 1
    after = checkpoint_draft(b"4", session_id="b", parent_is_newest=True)
    assert store.put(after).record.parent_id == coming.id
    listed = store.list_checkpoints(CheckpointQuery(session_id="b", id=coming.id))
    assert [one.id for one in listed] == [coming.id]


def test_a_removal_by_a_plan_looks_at_what_was_deleted_while_it_waited(
    store: PostgresStore, postgres_url: str
) -> None:
    first, last = (
        store.put(checkpoint_draft(data, session_id="a")).record for data in (b"1", b"2")
    )
    schema = schema_of(postgres_url)
    deletion = delete_statement([last.id], store.tenant, schema)
    with connect(postgres_url) as connection, ThreadPoolExecutor(1) as executor:
        with connection.transaction():
            connection.execute(deletion.sql, deletion.params)
            removal = executor.submit(store.delete_checkpoints, [first.id], beside=[last.id])
            wait_for_blocked(connection, f'"{schema}".sessions AS s')
        assert removal.result() == 0
    assert list(store.iter_checkpoint_ids()) == [first.id]


@pytest.mark.parametrize("savepoint", [False, True])
def test_a_retry_in_the_callers_transaction_takes_back_nothing(
    store: PostgresStore, postgres_url: str, *, savepoint: bool
) -> None:
    draft = checkpoint_draft(b"in the caller's transaction" * 50)
    statement = put_statement(draft, store.tenant, schema_of(postgres_url))
    with connect(postgres_url) as connection, connection.transaction():
        connection.execute(statement.sql, statement.params)
        with connection.transaction() if savepoint else nullcontext():
            connection.execute(statement.sql, statement.params)
    assert store.read_chunks(list(draft.chunks)) == draft.chunks


def test_a_sweep_beside_running_puts_breaks_no_checkpoint(
    store: PostgresStore, postgres_url: str
) -> None:
    contents = [f"often dropped, often needed {n}".encode() for n in range(12)]
    removed: list[int] = []
    finished: list[int] = []

    def sweep() -> None:
        removed.append(store.gc().chunks)

    def relying(draft: NewCheckpoint) -> NewCheckpoint:
        return replace(draft, chunks={}, expects=tuple(draft.chunks))

    def write(writer: int) -> None:
        order = random.Random(writer)
        for _ in range(60):
            draft = checkpoint_draft(
                order.choice(contents), session_id=f"s{writer}", trim=Trim(keep=1)
            )
            try:
                store.put(relying(draft))
            except ChunksMissing:
                store.put(draft)
            finished.append(writer)

    with in_background(sweep), ThreadPoolExecutor(4) as executor:
        list(executor.map(write, range(4)))
    assert len(finished) == 240
    assert sum(removed) > 0
    for checkpoint_id in store.iter_checkpoint_ids():
        payload = store.read_payload(checkpoint_id)
        assert payload is not None
        wanted = [digest for digest, _ in digests_in(payload.refs)]
        assert set(store.read_chunks(wanted)) == set(wanted)


def test_a_sweep_waits_for_a_put_that_has_not_committed(
    store: PostgresStore, postgres_url: str
) -> None:
    """The chunk is garbage when the sweep looks and is needed when it wants to remove it."""
    old = store.put(checkpoint_draft(b"x")).record
    store.delete_checkpoints([old.id])
    with connect(postgres_url) as other, ThreadPoolExecutor(1) as executor:
        with other.transaction(), other.transaction():  # in a subtransaction, with its own id
            draft = checkpoint_draft(b"x")
            sql, params = put_statement(draft, store.tenant, store.schema)
            other.execute(sql.encode(), params)
            sweep = executor.submit(store.gc)
            time.sleep(0.2)
            assert not sweep.done()
        assert sweep.result(10).chunks == 0
    assert store.read_chunks([digest_of(b"x")]) == {digest_of(b"x"): b"x"}


@pytest.mark.row("S3-18")
def test_a_backend_that_is_killed_in_the_middle_of_a_put_leaves_all_or_nothing(
    store: PostgresStore, postgres_url: str
) -> None:
    cap = 3
    for number in range(cap):
        store.put(checkpoint_draft(f"{number}".encode(), trim=Trim(keep=cap)))
    before = ids(store)
    draft = checkpoint_draft(b"new", trim=Trim(keep=cap))
    schema = schema_of(postgres_url)
    with connect(postgres_url) as other, ThreadPoolExecutor(1) as executor, other.transaction():
        # The put has stored its row and waits to trim the oldest.
        other.execute("SELECT FROM session_checkpoints WHERE id = %s FOR UPDATE", [before[-1]])
        put = executor.submit(store.put, draft)
        for _ in range(2):  # the store tries a second time by itself
            pid = wait_for_blocked_put(other, schema)
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        with pytest.raises(StoreUnavailable):
            put.result(20)
        assert ids(store) == before
    assert store.put(draft).removed == (before[-1],)
    assert ids(store) == [draft.id, *before[:-1]]


def test_a_put_survives_the_loss_of_its_backend(store: PostgresStore, postgres_url: str) -> None:
    draft = checkpoint_draft(b"contended")
    with connect(postgres_url) as other, ThreadPoolExecutor(1) as executor:
        with other.transaction(force_rollback=True):
            other.execute(
                "INSERT INTO chunks (digest, codec, data) VALUES (%s, 0, 'x')",
                [digest_of(b"contended")],
            )
            put = executor.submit(store.put, draft)
            pid = wait_for_blocked_put(other, schema_of(postgres_url))
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            wait_for_blocked_put(other, schema_of(postgres_url))
        assert put.result(20).created
    assert ids(store) == [draft.id]


def test_a_put_whose_reply_was_lost_is_not_stored_twice(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Prepared.rows
    sent = []

    def lossy(put: Prepared, connection: Any, params: Any) -> Any:
        rows = send(put, connection, params)
        sent.append(params)
        if len(sent) == 1:
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    monkeypatch.setattr(Prepared, "rows", lossy)
    result = store.put(checkpoint_draft())
    assert len(sent) == 2
    assert not result.created
    assert ids(store) == [result.record.id]


def test_a_chunk_that_another_writer_brings_between_two_looks_is_no_reason_to_store_nothing(
    store: PostgresStore, postgres_url: str
) -> None:
    store.put(checkpoint_draft(b"shared"))
    with connect(postgres_url) as other:
        # The first look of every transaction comes too early.
        other.execute("ALTER FUNCTION missing_chunks(text, bytea[]) RENAME TO really_missing")
        other.execute(
            "CREATE FUNCTION missing_chunks(p_tenant text, p_digests bytea[]) RETURNS bigint "
            "LANGUAGE plpgsql AS $$ BEGIN "
            "IF coalesce(current_setting('test.looked', true), '') = '' THEN "
            "PERFORM set_config('test.looked', 'yes', true); RETURN 1; END IF; "
            "RETURN 0; END $$"
        )
    draft = checkpoint_draft(b"shared")
    expecting = replace(draft, chunks={}, expects=tuple(draft.chunks))
    assert store.put(expecting).created
    assert draft.id in ids(store)


def test_deadlocks_are_repeated_and_then_reported(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Prepared.rows
    failures = [psycopg.errors.DeadlockDetected("deadlock detected")] * 2

    def unlucky(put: Prepared, connection: Any, params: Any) -> Any:
        if failures:
            raise failures.pop()
        return send(put, connection, params)

    monkeypatch.setattr(Prepared, "rows", unlucky)
    assert store.put(checkpoint_draft()).created
    failures += [psycopg.errors.DeadlockDetected("deadlock detected")] * 20
    with pytest.raises(StoreBusy, match="retry is safe"):
        store.put(checkpoint_draft())


def test_what_was_acknowledged_survives_the_servers_death() -> None:
    with PostgresServer() as server:
        url = server.create_database()
        with PostgresStore(url) as store:
            records = [store.put(checkpoint_draft(b"%d" % n)).record for n in range(20)]
            server.kill()
            draft = checkpoint_draft(b"during")
            started = time.monotonic()
            with pytest.raises(StoreUnavailable, match="try again"):
                store.put(draft)
            assert time.monotonic() - started < 10
            server.start()
            assert store.put(draft).created
            found = store.list_checkpoints(CheckpointQuery())
            assert [record.id for record in found] == [draft.id, *(r.id for r in records[::-1])]
            server.restart()
            assert store.list_checkpoints(CheckpointQuery()) == found


def test_two_sessions_are_created_at_once_by_their_first_puts(store: PostgresStore) -> None:
    def write(number: int) -> bool:
        return store.put(checkpoint_draft(b"%d" % number, session_id=f"s{number % 2}")).created

    with ThreadPoolExecutor(WRITERS) as executor:
        assert all(executor.map(write, range(WRITERS * 2)))
    assert {session.id for session in store.list_sessions()} == {"s0", "s1"}


def test_one_of_many_equal_names_wins(store: PostgresStore) -> None:
    def write(number: int) -> bool:
        try:
            return store.put(checkpoint_draft(b"%d" % number, name="same")).created
        except CheckpointExists:
            return False

    with ThreadPoolExecutor(WRITERS) as executor:
        assert sum(executor.map(write, range(WRITERS))) == 1


def test_erasing_a_session_beside_puts_to_it_loses_no_other(store: PostgresStore) -> None:
    store.put(checkpoint_draft(b"kept", session_id="kept"))
    erased: list[bool] = []

    def erase() -> None:
        erased.append(store.delete_session("thread"))

    with in_background(erase):
        for number in range(60):
            # Content that both sessions have: the sweep must see that one still needs it.
            store.put(checkpoint_draft(b"kept" if number % 2 else b"own"))
    store.delete_session("thread")
    assert sum(erased) > 0
    assert store.read_chunks([digest_of(b"kept")]) == {digest_of(b"kept"): b"kept"}
    store.gc()
    assert store.read_chunks([digest_of(b"own")]) == {}
    assert store.find_session("thread") is None
    assert store.create_session(session_draft("thread")).id == "thread"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_gets_connections_of_its_own(store: PostgresStore) -> None:
    store.put(checkpoint_draft(b"parent"))
    with warnings.catch_warnings():
        # Python warns of forks beside threads; that users do it all the same is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            store.put(checkpoint_draft(b"child"))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    store.put(checkpoint_draft(b"parent again"))
    assert len(ids(store)) == 3


def test_a_thread_whose_id_somebody_else_takes_leaves_no_agent(
    store: PostgresStore, postgres_url: str
) -> None:
    taken = session_draft()
    other = replace(taken, agent_id=new_id())
    assert taken.agent is not None
    other = replace(other, agent=replace(taken.agent, id=other.agent_id))
    store.list_sessions()
    with ThreadPoolExecutor(1) as executor, connect(postgres_url) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT create_session('default', %s::jsonb)", [session_document(taken)])
        put = executor.submit(store.put, checkpoint_draft(session=other))
        wait_for_blocked_put(holder, schema_of(postgres_url))
        holder.execute("COMMIT")
        assert put.result().record.agent_id == taken.agent_id
    assert [one.id for one in store.list_agents()] == [taken.agent_id]
