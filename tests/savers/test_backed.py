"""What savers over a store add: shared content, bounded memory, sessions that others can see."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import (
    CheckpointableMixin,
    CheckpointConfig,
    MemoryCheckpointSaver,
    PostgresCheckpointSaver,
    SessionManager,
    SQLiteCheckpointSaver,
)
from holdfast.errors import (
    CheckpointExists,
    ChunksMissing,
    DigestMismatch,
    ForeignSession,
    InputError,
)
from holdfast.model import CheckpointQuery, NewCheckpoint, PutResult
from holdfast.savers import BaseCheckpointSaver, StoreCheckpointSaver
from holdfast.stores import open_store
from holdfast.stores.memory import MemoryStore
from holdfast.threads import ThreadRecorders
from holdfast.waiting import in_thread


def large(number: int) -> dict[str, Any]:
    return {"n": number, "messages": [f"{at} " + "m" * 800 for at in range(100 + number)]}


@pytest.fixture
def saver(tmp_path: Path) -> Any:
    with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
        yield saver


def test_a_thread_that_grows_stores_what_it_grew_by(saver: SQLiteCheckpointSaver) -> None:
    for number in range(100):
        saver.put(CheckpointConfig("t"), large(number))
    [thread] = saver.list_threads()
    assert thread.checkpoints == 100
    assert thread.size_bytes > 10_000_000
    assert thread.stored_bytes < 1_500_000


def test_another_object_goes_on_from_what_it_has_read(tmp_path: Path) -> None:
    with SQLiteCheckpointSaver(tmp_path / "c.db") as first:
        for number in range(10):
            first.put(CheckpointConfig("t"), large(number))
    with SQLiteCheckpointSaver(tmp_path / "c.db") as second:
        assert second.get(CheckpointConfig("t")) == large(9)
        config = second.put(CheckpointConfig("t"), large(10))
        [record] = second.store.list_checkpoints(CheckpointQuery(id=config.checkpoint_id))
        assert record.stored_bytes < 40_000
        assert second.get(config) == large(10)


def test_chunks_that_were_swept_are_stored_again(saver: SQLiteCheckpointSaver) -> None:
    config = saver.put(CheckpointConfig("t"), large(1))
    saver.store.delete_checkpoints([str(config.checkpoint_id)])
    saver.store.gc()
    again = saver.put(CheckpointConfig("t"), large(2))
    assert saver.get(again) == large(2)


def test_chunks_that_stay_missing_are_an_error() -> None:
    class Forgetful(MemoryStore):
        attempts = 0

        def put(self, draft: NewCheckpoint) -> PutResult:
            self.attempts += 1
            raise ChunksMissing("gone")

    store = Forgetful()
    saver = StoreCheckpointSaver(store)
    with pytest.raises(ChunksMissing):
        saver.put(CheckpointConfig("t"), large(1))
    assert store.attempts == 2


def test_a_failed_put_is_not_remembered() -> None:
    class Failing(MemoryStore):
        fails = False

        def put(self, draft: NewCheckpoint) -> PutResult:
            if self.fails:
                raise CheckpointExists("no")
            return super().put(draft)

    store = Failing()
    saver = StoreCheckpointSaver(store)
    store.fails = True
    with pytest.raises(CheckpointExists):
        saver.put(CheckpointConfig("t"), large(1))
    store.fails = False
    config = saver.put(CheckpointConfig("t"), large(1))
    assert saver.get(config) == large(1)


def test_a_checkpoint_trimmed_while_it_is_read_gives_way_to_a_newer_one() -> None:
    class Racing(MemoryStore):
        raced = False

        def read_chunks(self, digests: Any) -> dict[bytes, bytes]:
            if not self.raced:
                self.raced = True
                [old] = self.list_checkpoints(CheckpointQuery())
                racing.put(CheckpointConfig("t"), {"n": 2})
                self.delete_checkpoints([old.id])
                self.gc()
                self.cache.clear()
            return super().read_chunks(digests)

    racing = StoreCheckpointSaver(Racing())
    racing.put(CheckpointConfig("t"), large(1))
    assert racing.get(CheckpointConfig("t")) == {"n": 2}


def test_damaged_content_is_refused() -> None:
    class Damaged(MemoryStore):
        def read_chunks(self, digests: Any) -> dict[bytes, bytes]:
            return {
                digest: data[:-1] + b"?" for digest, data in super().read_chunks(digests).items()
            }

    saver = StoreCheckpointSaver(Damaged())
    saver.put(CheckpointConfig("t"), large(1))
    with pytest.raises(DigestMismatch):
        saver.get(CheckpointConfig("t"))


def test_what_is_remembered_is_bounded() -> None:
    recorders = ThreadRecorders(max_bytes=300_000)

    def put(key: tuple[str, str], state: dict[str, Any]) -> None:
        for attempt in recorders.attempts(key, state):
            with attempt:
                pass

    for number in range(40):
        put((f"t{number}", ""), large(0))
    known = recorders._known
    assert 0 < len(known.all_keys()) < 40
    assert ("t39", "") in known.all_keys()
    recorders.forget_thread("t39")
    assert ("t39", "") not in known.all_keys()
    put(("t38", ""), {"small": 1})
    assert ("t38", "") not in known.all_keys()


@pytest.mark.row("S2-20")
def test_the_session_manager_sees_the_same_threads(tmp_path: Path) -> None:
    class Agent(CheckpointableMixin):
        pass

    path = tmp_path / "sessions.db"
    with SQLiteCheckpointSaver(path) as saver:
        agent = Agent()
        agent.init_checkpointing(saver, "job-7")
        agent.save_checkpoint("plan", {"n": 1}, tags=("draft",))
        last = agent.save_checkpoint("act", {"n": 2})
    with SessionManager.open(str(path)) as manager:
        session = manager.hold_session("job-7")
        assert session.agent_type == "saver"
        latest = session.latest_checkpoint()
        assert latest is not None
        assert (latest.id, latest.state) == (last, {"n": 2})
        assert latest.checkpoint_type == "auto"
        assert latest.retention_class == "step"
        session.save_checkpoint("by-hand", state={"n": 3})
    with SQLiteCheckpointSaver(path) as saver:
        agent = Agent()
        agent.init_checkpointing(saver, "job-7")
        assert agent.restore_checkpoint() == {"n": 3}
        agent.save_checkpoint("act", {"n": 4})
        assert [found.metadata.step for found in agent.get_checkpoint_history()] == [3, None, 2, 1]


def test_a_session_that_is_no_thread_of_a_saver_is_not_erased(
    saver: SQLiteCheckpointSaver, tmp_path: Path
) -> None:
    with SessionManager.open(tmp_path / "c.db", workspace=False) as manager:
        with manager.create_session("me", session_id="mine") as session:
            session.save_checkpoint("kept", state={})
        with pytest.raises(ForeignSession, match=r"session mine .* type me"):
            saver.delete_thread("mine")
        assert [one.name for one in session.list_checkpoints()] == ["kept"]


@pytest.mark.parametrize("url", ["", "sqlite:///x.db", "localhost"])
def test_a_postgres_saver_needs_its_url(url: str) -> None:
    with pytest.raises(InputError):
        PostgresCheckpointSaver(url)


class TestSeparation:
    """Threads and namespaces never see each other, in whatever order they are used."""

    places = st.tuples(st.sampled_from(["a", "b", "c", "ab"]), st.sampled_from(["", "x", "a"]))

    def check(self, saver: BaseCheckpointSaver, steps: list[tuple[tuple[str, str], int]]) -> None:
        model: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for (thread_id, namespace), action in steps:
            config = CheckpointConfig(thread_id, namespace=namespace)
            if action == 0:
                saver.delete_thread(thread_id)
                model = {place: kept for place, kept in model.items() if place[0] != thread_id}
            else:
                state = {"place": [thread_id, namespace], "n": action}
                saver.put(config, state, {"thread": thread_id})
                model.setdefault((thread_id, namespace), []).append(state)
        for thread_id in ("a", "b", "c", "ab"):
            for namespace in ("", "x", "a"):
                config = CheckpointConfig(thread_id, namespace=namespace)
                expected = model.get((thread_id, namespace), [])
                assert [found.checkpoint for found in saver.list(config)] == expected[::-1]
                assert saver.get(config) == (expected[-1] if expected else None)
                for found in saver.list(config):
                    assert found.metadata == {"thread": thread_id}

    @pytest.mark.row("S2-08", "T12")
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(places, st.integers(0, 9)), max_size=25))
    def test_in_memory(self, steps: list[tuple[tuple[str, str], int]]) -> None:
        self.check(MemoryCheckpointSaver(), steps)

    @pytest.mark.row("S2-08", "T12")
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(places, st.integers(0, 9)), max_size=15))
    def test_over_a_store(self, steps: list[tuple[tuple[str, str], int]]) -> None:
        with StoreCheckpointSaver(open_store("memory:")) as saver:
            self.check(saver, steps)

    @pytest.mark.row("S2-08", "T12")
    def test_in_a_file_and_in_postgres(self, tmp_path: Path, postgres_url: str) -> None:
        steps = [((t, n), i % 5) for i, (t, n) in enumerate(
            (t, n) for t in ("a", "b", "ab") for n in ("", "x", "a") for _ in range(2)
        )]  # fmt: skip
        with SQLiteCheckpointSaver(tmp_path / "c.db") as saver:
            self.check(saver, steps)
        with PostgresCheckpointSaver(postgres_url) as saver:
            self.check(saver, steps)


class TestCancellation:
    def test_a_cancelled_put_is_over_when_the_cancellation_goes_on(self) -> None:
        started, finished = threading.Event(), threading.Event()

        def slow() -> None:
            started.set()
            time.sleep(0.2)
            finished.set()

        async def scenario() -> None:
            task = asyncio.create_task(in_thread(slow))
            await asyncio.to_thread(started.wait)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert finished.is_set()

        asyncio.run(scenario())

    def test_an_error_after_the_cancellation_is_not_complained_about(self) -> None:
        started = threading.Event()

        def failing() -> None:
            started.set()
            time.sleep(0.05)
            raise ValueError("nobody waits")

        async def scenario() -> None:
            task = asyncio.create_task(in_thread(failing))
            await asyncio.to_thread(started.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(scenario())
