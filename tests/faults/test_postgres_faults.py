"""PostgreSQL dies, restarts and answers into the void: nothing is lost, nothing is there twice."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.ids import new_id
from holdfast.model import CheckpointQuery, NewCheckpoint
from holdfast.state import StateEncoder
from holdfast.stores import open_store
from holdfast.stores.base import Store
from holdfast.testing.drafts import session
from holdfast.verification import verify_store
from tests.faults.proxy import LossyProxy
from tests.postgres_server import PostgresServer

WRITERS = 3


def checkpoint(session_id: str, content: bytes) -> NewCheckpoint:
    encoded = StateEncoder().encode({"content": content})
    id_ = new_id()
    return NewCheckpoint(
        id=id_,
        session_id=session_id,
        name=id_,
        manifest=encoded.manifest,
        refs=encoded.refs,
        chunks=encoded.chunks,
        expects=encoded.expects,
        size_bytes=encoded.size_bytes,
    )


def persistently(store: Store, draft: NewCheckpoint) -> None:
    """Repeat a put until it is acknowledged, as its error says one may."""
    deadline = time.monotonic() + 60
    while True:
        try:
            store.put(draft)
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def stored(store: Store, session_id: str) -> list[str]:
    return [one.id for one in store.list_checkpoints(CheckpointQuery(session_id=session_id))]


def test_the_first_put_succeeds_once_the_server_is_back() -> None:
    with PostgresServer() as server, open_store(server.create_database()) as store:
        owner = store.create_session(session()).id
        kept, repeated = checkpoint(owner, b"kept"), checkpoint(owner, b"repeated")
        store.put(kept)
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.put(repeated)
        server.start()
        assert store.put(repeated).created
        assert stored(store, owner) == [repeated.id, kept.id]


def lose_answers(server: PostgresServer, wanted: int) -> None:
    url = server.create_database()
    name = urlsplit(url).path[1:]
    sockets = f"{server.socket_directory}/.s.PGSQL.{server.port}"
    with (
        LossyProxy(sockets, share=0.5, seed=1) as proxy,
        open_store(f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}") as store,
    ):
        owner = store.create_session(session())
        ids: list[str] = []
        while proxy.swallowed < wanted:
            draft = checkpoint(owner.id, b"%d" % len(ids) * 400)
            persistently(store, draft)
            ids.append(draft.id)
            assert len(ids) < 20 * wanted, "the proxy knows no put"
    with open_store(url) as store:
        assert stored(store, owner.id) == ids[::-1]
        assert verify_store(store).ok


def test_a_put_whose_answer_was_lost_is_stored_once(postgres_server: PostgresServer) -> None:
    lose_answers(postgres_server, 40)


@pytest.mark.slow
def test_a_thousand_lost_answers_leave_no_duplicate(postgres_server: PostgresServer) -> None:
    lose_answers(postgres_server, 1000)


def kill_under_load(kills: int) -> None:
    coin = random.Random(kills)
    with PostgresServer() as server, open_store(server.create_database()) as store:
        owners = [store.create_session(session()).id for _ in range(WRITERS)]
        done = threading.Event()
        acknowledged: dict[str, list[str]] = {owner: [] for owner in owners}

        def write(owner: str) -> None:
            while not done.is_set():
                draft = checkpoint(owner, random.randbytes(2000))
                persistently(store, draft)
                acknowledged[owner].append(draft.id)

        with ThreadPoolExecutor(WRITERS) as pool:
            working = [pool.submit(write, owner) for owner in owners]
            try:
                for _ in range(kills):
                    before = sum(map(len, acknowledged.values()))
                    while sum(map(len, acknowledged.values())) < before + 5:
                        assert not any(one.done() for one in working)
                        time.sleep(0.005)
                    time.sleep(coin.random() * 0.05)
                    server.kill()
                    server.start()
            finally:
                done.set()
        for one in working:
            one.result()
        for owner, ids in acknowledged.items():
            assert stored(store, owner) == ids[::-1]
        assert verify_store(store).ok


def test_a_server_killed_under_load_loses_nothing_and_work_goes_on() -> None:
    kill_under_load(4)


@pytest.mark.slow
def test_a_server_killed_fifty_times_loses_nothing() -> None:
    kill_under_load(50)
