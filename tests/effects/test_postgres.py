"""What only a server can do to steps: drop connections, lose replies, sweep beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import SessionManager
from holdfast.stores.postgres import PostgresStore
from tests.postgres_server import PostgresServer

END_ALL = (
    "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name = 'holdfast' AND pid <> pg_backend_pid()"
)


@pytest.fixture
def manager(postgres_url: str) -> Iterator[SessionManager]:
    with SessionManager.open(postgres_url, workspace=False) as manager:
        yield manager


def end_connections(server: PostgresServer) -> int:
    with psycopg.connect(server.url("holdfast"), autocommit=True) as connection:
        row = connection.execute(END_ALL).fetchone()
        assert row is not None
        return int(row[0])


def test_steps_go_on_when_every_connection_has_ended(
    manager: SessionManager, postgres_server: PostgresServer
) -> None:
    session = manager.create_session("payer")
    together = threading.Barrier(4)
    calls: list[int] = []

    def pay(number: int) -> int:
        calls.append(number)
        together.wait(30)
        return number

    # Four at a time keep as many connections busy, and leave them in the pool just used.
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda n: session.step("pay", pay, n), range(4))) == [0, 1, 2, 3]
        ended = end_connections(postgres_server)
        assert ended >= 1
        assert sorted(pool.map(lambda n: session.step("pay", pay, n), range(4, 8))) == [4, 5, 6, 7]
    assert sorted(calls) == list(range(8))
    assert {one.status for one in session.effects()} == {"done"}


@pytest.mark.parametrize("lost", ["begin", "finish", "done at once"])
def test_a_reply_that_was_lost_is_no_second_attempt(
    manager: SessionManager, postgres_server: PostgresServer, lost: str
) -> None:
    """The connection ends after the statement was committed and before its answer arrived."""
    store = manager.store
    assert isinstance(store, PostgresStore)
    link = store._link
    send = link.run
    dropped: list[str] = []

    def lossy(work: Any, *, again: bool = False) -> Any:
        def and_lose(connection: Any) -> Any:
            answer = work(connection)
            if not dropped:
                dropped.append(lost)
                connection.close()
                raise psycopg.OperationalError("the connection is lost")
            return answer

        return send(and_lose, again=again)

    session = manager.create_session("payer")
    calls: list[int] = []

    def body() -> str:
        calls.append(1)
        if lost == "finish":
            link.run = lossy  # type: ignore[method-assign]
        return "paid"

    if lost == "done at once":
        session.step("first", lambda: None, idempotent=True)  # from now on it knows the ledger
    if lost != "finish":
        link.run = lossy  # type: ignore[method-assign]
    assert session.step("pay", body, idempotent=lost == "done at once") == "paid"
    assert dropped == [lost]
    assert calls == [1]
    found = {one.name: (one.status, one.attempts) for one in session.effects()}
    assert found["pay"] == ("done", 1)


def test_a_sweep_beside_steps_takes_nothing_that_they_returned(manager: SessionManager) -> None:
    session = manager.create_session("payer")
    stop = threading.Event()
    swept: list[int] = []

    def sweep() -> None:
        while not stop.is_set():
            saved = session.save_checkpoint(state={"text": f"{len(swept)}" * 5000})
            manager.store.delete_checkpoints([saved.id])
            swept.append(manager.gc().chunks)

    with ThreadPoolExecutor(5) as pool:
        sweeping = pool.submit(sweep)
        try:
            texts = [f"{number % 7}" * 9000 for number in range(60)]
            results = list(
                pool.map(lambda n: session.step("make", lambda: texts[n], key=f"k{n}"), range(60))
            )
        finally:
            stop.set()
        sweeping.result(60)
    assert results == texts
    assert sum(swept) > 0
    again = manager.resume_session(session.id)
    assert [again.step("make", lambda: None, key=f"k{n}") for n in range(60)] == texts
    assert manager.verify().ok
