"""The async twins: the same names and signatures, and no write left in doubt."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from holdfast.aio import AsyncSession, AsyncSessionManager, Threads
from holdfast.errors import SessionNotHeld, StoreClosed
from holdfast.model import NewCheckpoint, PutResult
from holdfast.sessions import Session, SessionManager
from holdfast.stores.memory import MemoryStore

PAIRS = [(Session, AsyncSession), (SessionManager, AsyncSessionManager)]
# What belongs to one side only: the inner seams of resuming and of steps.
ONE_SIDED = {"open_ledger", "rejoin", "resume_from", "settle"}


def public(cls: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(cls, name)
        for name in dir(cls)
        if not name.startswith("_") and name not in ONE_SIDED
    }


@pytest.mark.row("S2-23", "S1-37")
@pytest.mark.parametrize(("sync", "twin"), PAIRS)
def test_the_twins_have_the_same_names_and_parameters(sync: type, twin: type) -> None:
    ours, theirs = public(sync), public(twin)
    assert ours.keys() == theirs.keys()
    for name, member in ours.items():
        other = theirs[name]
        assert isinstance(member, property) == isinstance(other, property), name
        if isinstance(member, property):
            continue
        one = inspect.signature(inspect.unwrap(getattr(sync, name)))
        two = inspect.signature(inspect.unwrap(getattr(twin, name)))
        assert list(one.parameters.values()) == list(two.parameters.values()), name


@pytest.mark.row("S2-19", "S1-37")
@pytest.mark.parametrize("cls", [cls for pair in PAIRS for cls in pair])
def test_every_public_member_says_what_it_does(cls: type) -> None:
    undocumented = [name for name, member in public(cls).items() if not inspect.getdoc(member)]
    assert undocumented == []


def test_a_cancelled_call_is_finished_before_the_cancellation_goes_on() -> None:
    started, release = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        started.set()
        release.wait(10)
        done.append("written")

    async def scenario() -> None:
        threads = Threads()
        task = asyncio.create_task(threads.run(slow))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()  # a second one does not shake it off either
        assert not task.done()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["written"]
        threads.shut_down()

    asyncio.run(scenario())


def test_context_variables_reach_the_worker_thread() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def scenario() -> str:
        threads = Threads()
        variable.set("set by the caller")
        try:
            return await threads.run(variable.get)
        finally:
            threads.shut_down()

    assert asyncio.run(scenario()) == "set by the caller"


def test_a_session_works_inside_an_event_loop(tmp_path: Path) -> None:
    async def scenario() -> dict[str, Any]:
        async with await AsyncSessionManager.open(tmp_path / "s.db", workspace=False) as manager:
            session = await manager.create_session("implementer")
            await asyncio.gather(
                *(session.save_checkpoint(f"n{n}", state={"n": n}) for n in range(20))
            )
            assert len(await session.list_checkpoints()) == 20
            return await (await manager.resume_session(session.id, checkpoint="n7")).state

    assert asyncio.run(scenario()) == {"n": 7}


def test_after_close_everything_says_that_it_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        manager = await AsyncSessionManager.open(tmp_path / "s.db", workspace=False)
        async with manager:
            session = await manager.create_session("implementer")
            await session.save_checkpoint("one", state={"n": 1})
        await manager.close()
        await asyncio.gather(manager.close(), manager.close())
        for call in (
            manager.list_sessions,
            manager.usage,
            manager.verify,
            session.get_state,
            session.refresh,
        ):
            with pytest.raises(StoreClosed):
                await call()
        with pytest.raises(SessionNotHeld, match="was closed here"):
            await session.save_checkpoint()
        with pytest.raises(StoreClosed):
            await session.state
        async with manager:  # leaving the block closes once more
            pass

    asyncio.run(scenario())


def test_close_waits_for_calls_under_way_without_blocking_the_loop() -> None:
    started, release = threading.Event(), threading.Event()

    async def scenario() -> None:
        manager = AsyncSessionManager(MemoryStore(), workspace=False)

        def slow() -> str:
            started.set()
            release.wait(10)
            return "done"

        call = asyncio.create_task(manager._run(slow))
        await asyncio.to_thread(started.wait, 10)
        closing = asyncio.create_task(manager.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        release.set()
        await closing
        assert await call == "done"

    asyncio.run(scenario())


def test_an_error_of_the_call_itself_is_not_taken_for_the_end() -> None:
    def fail() -> None:
        raise RuntimeError("its own")

    async def scenario() -> None:
        threads = Threads()
        with pytest.raises(RuntimeError, match="its own"):
            await threads.run(fail)
        threads.shut_down()
        threads.shut_down()

    asyncio.run(scenario())


def test_a_guard_that_is_cancelled_while_it_saves_is_over() -> None:
    """Else its checkpoint would stay, as one that may still have to be restored."""
    started, release = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def put(self, draft: NewCheckpoint) -> PutResult:
            stored = super().put(draft)
            started.set()
            assert release.wait(30)
            return stored

    async def scenario() -> None:
        async with AsyncSessionManager(Slow(), workspace=False) as manager:
            session = await manager.create_session("implementer")

            async def work() -> None:
                async with session.guard("risky", state={"n": 1}):
                    raise AssertionError("the block was never to run")

            task = asyncio.create_task(work())
            await asyncio.to_thread(started.wait, 30)
            task.cancel()
            release.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            later = {
                (await session.save_checkpoint(state={"n": n}, retention_class="automatic")).id
                for n in range(7)
            }
            left = await session.list_checkpoints(retention_class="automatic")
            assert {one.id for one in left} < later

    asyncio.run(scenario())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own() -> None:
    threads = Threads()
    asyncio.run(threads.run(int))
    with warnings.catch_warnings():
        # Newer Pythons warn of what is the subject here: forking a process that has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        try:
            os._exit(asyncio.run(threads.run(lambda: 7)))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    threads.shut_down()
