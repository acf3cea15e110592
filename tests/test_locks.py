"""A forked child finds every lock usable, whatever other threads were doing."""

from __future__ import annotations

import gc
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast import Session, SessionManager
from holdfast.errors import LeaseLost
from holdfast.locks import new_lock
from holdfast.savers import MemoryCheckpointSaver
from holdfast.savers.values import CheckpointConfig
from holdfast.state.cache import ChunkCache
from holdfast.threads import ThreadRecorders

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def exit_code(work: Callable[[], object], seconds: int = 20) -> int:
    """Run ``work`` in a forked child and return its exit code, or minus the signal that ended it."""
    with warnings.catch_warnings():
        # Newer Pythons warn of what is the subject here: forking a process that has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Holder:
    """Another thread that holds a lock until the block ends."""

    def __init__(self, lock: threading.RLock) -> None:
        self.lock = lock
        self.held, self.enough = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.hold)

    def hold(self) -> None:
        with self.lock:
            self.held.set()
            self.enough.wait()

    def __enter__(self) -> None:
        self.thread.start()
        self.held.wait()

    def __exit__(self, *exc_info: object) -> None:
        self.enough.set()
        self.thread.join()


def take(lock: threading.RLock) -> None:
    with lock:
        pass


def test_a_child_can_take_what_another_thread_held() -> None:
    lock = new_lock()
    with Holder(lock):
        assert exit_code(lambda: take(lock)) == 0
    take(lock)


def test_a_fork_inside_the_block_ends_it_in_both_processes() -> None:
    lock = new_lock()

    def end_the_block() -> None:
        lock.release()
        take(lock)

    with lock:
        assert exit_code(end_the_block) == 0
    take(lock)


def test_who_holds_a_lock_can_take_it_again() -> None:
    lock = new_lock()
    with lock:
        take(lock)
        assert exit_code(lambda: take(lock)) == 0
    with Holder(lock):
        pass


def test_a_lock_keeps_nothing_alive_and_resets_what_it_guards() -> None:
    class Guarded:
        def __init__(self) -> None:
            self.lock = new_lock(reset=self.reset)
            self.resets = 0

        def reset(self) -> None:
            self.resets += 1

    def exit_with_resets(guarded: Guarded) -> None:
        os._exit(guarded.resets)

    guarded = Guarded()
    with Holder(guarded.lock):
        assert exit_code(partial(exit_with_resets, guarded)) == 1
    assert guarded.resets == 0
    seen = weakref.ref(guarded)
    del guarded
    gc.collect()
    assert seen() is None


def test_caches_start_empty_in_a_child() -> None:
    cache, recorders = ChunkCache(), ThreadRecorders()
    cache.add(b"digest", b"data")

    def use() -> None:
        assert cache.get(b"digest") is None
        cache.add(b"digest", b"data")
        assert cache.get(b"digest") == b"data"
        for attempt in recorders.attempts(("thread", ""), {"text": "x" * 5000}):
            with attempt:
                pass

    with Holder(cache._lock), Holder(recorders._known._lock):
        assert exit_code(use) == 0
    assert cache.get(b"digest") == b"data"


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_children_save_while_another_thread_of_the_parent_saves(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = tmp_path / "x.db" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    with SessionManager.open(url, workspace=False) as manager:
        session = manager.create_session("agent")
        saver = MemoryCheckpointSaver()
        stop = threading.Event()

        def save(text: str, to: Session = session) -> None:
            to.save_checkpoint(state={"text": text}, retention_class="automatic")
            saver.put(CheckpointConfig("thread"), {"text": text})

        def save_in_child() -> None:
            # The parent holds its session; a child is another process and has one of its own.
            with pytest.raises(LeaseLost):
                save("child")
            save("child", manager.create_session("child"))

        def save_on() -> None:
            rounds = 0
            while not stop.is_set():
                rounds += 1
                save(f"{rounds} " + "x" * 200_000)

        thread = threading.Thread(target=save_on)
        thread.start()
        try:
            ends = [exit_code(save_in_child) for _ in range(12)]
        finally:
            stop.set()
            thread.join()
        assert ends == [0] * 12
        assert manager.verify().ok
