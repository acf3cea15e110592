"""What checkpointers over a store add: files, shared threads, upkeep."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    CheckpointConfig,
    MemoryCheckpointer,
    SessionManager,
    SQLiteCheckpointer,
    SQLiteCheckpointSaver,
)
from holdfast.checkpointers import StoreCheckpointer
from holdfast.errors import DigestMismatch, InvalidUrl
from holdfast.model import CheckpointQuery
from holdfast.stores.memory import MemoryStore
from holdfast.testing.checkpointers import run


def large(number: int) -> dict[str, Any]:
    return {"n": number, "messages": [f"{at} " + "m" * 800 for at in range(50 + number)]}


def test_a_checkpointer_shares_the_store_of_a_session_manager(tmp_path: Path) -> None:
    with SessionManager.open(tmp_path / "agent.db", tenant="team", workspace=False) as manager:
        session = manager.create_session("worker")
        run(StoreCheckpointer.of(manager).put("thread", {"n": 1}))
        assert {one.id for one in manager.list_sessions()} == {session.id, "thread"}
    found = run(SQLiteCheckpointer(tmp_path / "agent.db", tenant="team").get("thread"))
    assert found == {"n": 1}


def test_another_process_reads_what_was_put(tmp_path: Path) -> None:
    program = """
        import asyncio, os, sys
        from holdfast import SQLiteCheckpointer

        print(asyncio.run(SQLiteCheckpointer(sys.argv[1]).put("t", {"n": 1})), flush=True)
        os._exit(9)
    """
    path = tmp_path / "agent.db"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 9, done.stderr
    checkpointer = SQLiteCheckpointer(path)
    assert run(checkpointer.get("t", done.stdout.strip())) == {"n": 1}
    run(checkpointer.close())


def test_a_name_for_memory_is_refused() -> None:
    with pytest.raises(InvalidUrl):
        SQLiteCheckpointer(":memory:")


@pytest.mark.row("S3-37")
def test_what_has_expired_is_purged() -> None:
    checkpointer = MemoryCheckpointer(ttl_seconds=0.05)
    run(checkpointer.put("t", {"n": 1}))
    time.sleep(0.06)
    assert checkpointer.store.purge_expired() == 1
    assert run(checkpointer.get("t")) is None


@pytest.mark.row("S3-36")
def test_erased_threads_leave_no_content(tmp_path: Path) -> None:
    for checkpointer in (
        MemoryCheckpointer(max_checkpoints_per_thread=2),
        SQLiteCheckpointer(tmp_path / "agent.db", max_checkpoints_per_thread=2),
    ):
        for number in range(4):
            for thread_id in ("a", "b"):
                run(checkpointer.put(thread_id, large(number)))
        assert run(checkpointer.delete_threads(["a", "b"])) == 4
        assert checkpointer.store.total_bytes() == 0
        assert checkpointer.store.session_usage() == []
        run(checkpointer.close())


def test_a_thread_that_others_use_too_is_left_to_them(tmp_path: Path) -> None:
    with SQLiteCheckpointSaver(tmp_path / "shared.db") as saver:
        checkpointer = SQLiteCheckpointer(tmp_path / "shared.db")
        run(checkpointer.put("mine-first", {"of": "checkpointer"}))
        saver.put(CheckpointConfig("mine-first"), {"of": "saver"})
        saver.put(CheckpointConfig("theirs-first"), {"of": "saver"})
        run(checkpointer.put("theirs-first", {"of": "checkpointer"}))
        for thread_id in ("mine-first", "theirs-first"):
            assert run(checkpointer.get(thread_id)) == {"of": "checkpointer"}
            assert run(checkpointer.delete(thread_id)) == 1
            assert run(checkpointer.get(thread_id)) is None
            assert saver.get(CheckpointConfig(thread_id)) == {"of": "saver"}
        run(checkpointer.close())


def test_a_checkpoint_trimmed_while_it_is_read_gives_way_to_a_newer_one() -> None:
    class Racing(MemoryStore):
        raced = False

        def read_chunks(self, digests: Any) -> dict[bytes, bytes]:
            if not self.raced:
                self.raced = True
                [old] = self.list_checkpoints(CheckpointQuery())
                run(checkpointer.put("t", {"n": 2}))
                self.delete_checkpoints([old.id])
                self.gc()
                self.cache.clear()
            return super().read_chunks(digests)

    store = Racing()
    checkpointer = StoreCheckpointer(store)
    run(checkpointer.put("t", large(1)))
    assert run(checkpointer.get("t")) == {"n": 2}


def test_damaged_content_is_refused() -> None:
    class Damaged(MemoryStore):
        def read_chunks(self, digests: Any) -> dict[bytes, bytes]:
            return {
                digest: data[:-1] + b"?" for digest, data in super().read_chunks(digests).items()
            }

    checkpointer = StoreCheckpointer(Damaged())
    run(checkpointer.put("t", large(1)))
    with pytest.raises(DigestMismatch):
        run(checkpointer.get("t"))
