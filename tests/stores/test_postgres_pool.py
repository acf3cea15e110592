"""The connections of a store: how many, in which order, and what becomes of those that fail."""

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg_pool import PoolClosed, PoolTimeout

from holdfast.errors import AccessDenied, StoreBusy, StoreUnavailable
from holdfast.stores import postgres_connection, postgres_pool
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres_pool import POOL_SIZE, AnyConnection, Connections
from tests.stores.postgres_drafts import checkpoint_draft, connect, own_connections

SHORT = 0.1


@pytest.fixture
def opened() -> list[AnyConnection]:
    return []


@pytest.fixture
def connections(postgres_url: str, opened: list[AnyConnection]) -> Iterator[Connections]:
    def open_one() -> AnyConnection:
        opened.append(connect(postgres_url))
        opened[-1].autocommit = True
        return opened[-1]

    connections = Connections(open_one)
    yield connections
    connections.close()
    for connection in opened:
        connection.close()


def process_of(connection: AnyConnection) -> int:
    return connection.info.backend_pid


def test_the_last_one_used_is_the_next(connections: Connections) -> None:
    first, second = connections.getconn(SHORT), connections.getconn(SHORT)
    connections.putconn(first)
    connections.putconn(second)
    assert connections.getconn(SHORT) is second
    assert connections.getconn(SHORT) is first
    assert connections.size == 2


def test_there_are_never_more_than_so_many(
    connections: Connections, opened: list[AnyConnection]
) -> None:
    taken = [connections.getconn(SHORT) for _ in range(POOL_SIZE)]
    with pytest.raises(PoolTimeout, match="in use"):
        connections.getconn(SHORT)
    connections.putconn(taken.pop())
    connections.getconn(SHORT)
    assert len(opened) == POOL_SIZE


def test_who_waits_gets_what_is_given_back(connections: Connections) -> None:
    taken = [connections.getconn(SHORT) for _ in range(POOL_SIZE)]
    got: list[AnyConnection] = []
    waiting = threading.Thread(target=lambda: got.append(connections.getconn(60)))
    waiting.start()
    connections.putconn(taken[3])
    waiting.join(60)
    assert got == [taken[3]]


def test_who_waits_may_open_one_in_the_place_of_one_that_died(connections: Connections) -> None:
    taken = [connections.getconn(SHORT) for _ in range(POOL_SIZE)]
    got: list[AnyConnection] = []
    waiting = threading.Thread(target=lambda: got.append(connections.getconn(60)))
    waiting.start()
    taken[3].close()
    connections.putconn(taken[3])
    waiting.join(60)
    assert got[0] not in taken
    assert connections.size == POOL_SIZE


def test_one_that_died_unnoticed_is_replaced(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = connections.getconn(SHORT), connections.getconn(SHORT)
    connections.putconn(first)
    dead = process_of(first)
    assert other.execute("SELECT pg_terminate_backend(%s, 60000)", (dead,)).fetchone() == (True,)
    # It answered a moment ago, so nobody asks.
    assert connections.getconn(SHORT) is first
    connections.putconn(first)
    connections.doubt()
    assert process_of(connections.getconn(SHORT)) != dead
    connections.putconn(other)
    monkeypatch.setattr(postgres_pool, "_FRESH_SECONDS", 0.0)
    assert connections.getconn(SHORT) is other
    assert connections.size == 2


def test_one_in_the_middle_of_something_is_closed(connections: Connections) -> None:
    connection = connections.getconn(SHORT)
    connection.execute("BEGIN")
    connections.putconn(connection)
    assert connection.closed
    assert connections.size == 0


def test_an_interrupt_while_one_is_asked_leaves_its_place(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connections.getconn(SHORT)
    connections.putconn(connection)
    connections.doubt()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connections.getconn(SHORT)
    assert connection.closed
    assert connections.size == 0


def test_what_is_not_used_for_long_is_closed(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = connections.getconn(SHORT), connections.getconn(SHORT)
    connections.putconn(first)
    monkeypatch.setattr(postgres_pool, "_UNUSED_SECONDS", 0.0)
    connections.putconn(second)
    assert (first.closed, second.closed) == (True, False)
    assert connections.size == 1


def test_closing_spares_what_is_in_use_until_it_is_given_back(connections: Connections) -> None:
    used, free = connections.getconn(SHORT), connections.getconn(SHORT)
    connections.putconn(free)
    connections.close()
    connections.close()
    assert (used.closed, free.closed) == (False, True)
    connections.putconn(used)
    assert used.closed
    with pytest.raises(PoolClosed):
        connections.getconn(SHORT)


def test_nobody_is_lent_what_is_being_closed(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [connections.getconn(SHORT), connections.getconn(SHORT)]
    for one in both:
        connections.putconn(one)
    close, refused = both[1].close, []

    def ask_and_close() -> None:
        with pytest.raises(PoolClosed) as caught:
            connections.getconn(SHORT)
        refused.append(caught.value)
        close()

    monkeypatch.setattr(both[1], "close", ask_and_close)
    connections.close()
    assert refused
    assert all(one.closed for one in both)


def test_who_gives_up_as_one_is_given_back_gets_it(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [connections.getconn(SHORT) for _ in range(POOL_SIZE)]

    def too_late(timeout: float) -> bool:
        connections._free.append((taken[0], time.monotonic()))
        return False

    monkeypatch.setattr(connections._changed, "wait", too_late)
    assert connections.getconn(SHORT) is taken[0]


def failing(times: int, error: Exception, then: Callable[[], Any]) -> Callable[[], Any]:
    left = [error] * times

    def open_one() -> Any:
        if left:
            raise left.pop()
        return then()

    return open_one


@pytest.mark.parametrize("error", [StoreUnavailable("starting up"), StoreBusy("too many clients")])
def test_a_server_that_is_back_soon_is_waited_for(
    postgres_url: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "_RESTART_SECONDS", 60.0)
    connections = Connections(failing(3, error, lambda: connect(postgres_url)))
    connection = connections.getconn(60)
    assert connection.execute("SELECT 1").fetchone() == (1,)
    assert connections.size == 1
    connections.putconn(connection)
    connections.close()


@pytest.mark.parametrize(
    "error", [StoreUnavailable("refused"), StoreBusy("too many clients"), AccessDenied("who?")]
)
def test_one_that_stays_away_is_reported_in_its_own_words(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "_RESTART_SECONDS", SHORT)
    connections = Connections(failing(1000, error, lambda: None))
    with pytest.raises(type(error), match=str(error).replace("?", ".")):
        connections.getconn(SHORT)
    assert connections.size == 0


def test_who_may_not_enter_is_told_at_once() -> None:
    tries: list[int] = []

    def refuse() -> AnyConnection:
        tries.append(1)
        raise AccessDenied("no")

    with pytest.raises(AccessDenied):
        Connections(refuse).getconn(60)
    assert tries == [1]


def test_a_store_with_no_connection_left_is_busy(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "WAIT_SECONDS", SHORT)
    with PostgresStore(postgres_url) as store:
        connections = own_connections(store)
        taken = [connections.getconn(SHORT) for _ in range(POOL_SIZE)]
        with pytest.raises(StoreBusy, match="a retry is safe"):
            store.put(checkpoint_draft())
        for connection in taken:
            connections.putconn(connection)
        assert store.put(checkpoint_draft()).created


_UNCLOSED = """
import sys, threading
from holdfast.savers import CheckpointConfig, open_saver
saver = open_saver(sys.argv[1])
saver.put(CheckpointConfig("thread"), {"n": 1})
print(threading.active_count())
"""


def test_a_program_that_closes_nothing_ends_without_a_word(postgres_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", _UNCLOSED, postgres_url],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


_FORKED = """
import os, sys
from holdfast.savers import CheckpointConfig, open_saver
saver = open_saver(sys.argv[1])
saver.put(CheckpointConfig("thread"), {"n": 1})
child = os.fork()
if child == 0:
    saver.put(CheckpointConfig("thread"), {"n": 2})
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
# Without asking: what answered a moment ago is not asked.
saver.put(CheckpointConfig("thread"), {"n": 3})
print(saver.store._link._own.size, len(list(saver.list(CheckpointConfig("thread")))))
saver.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_that_ends_leaves_the_parents_connection_alone(postgres_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKED, postgres_url], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 3\n", "")


def test_a_store_that_is_dropped_closes_its_connections(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    store.put(checkpoint_draft())
    connections = own_connections(store)
    connection = connections.getconn(SHORT)
    connections.putconn(connection)
    store._link._own = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del connections
    assert connection.closed
    store.close()
