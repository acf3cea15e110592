"""The async twins: the same names and signatures, and no write left in doubt."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.aio import AsyncSession, AsyncSessionManager, Threads
from holdfast.sessions import Session, SessionManager

PAIRS = [(Session, AsyncSession), (SessionManager, AsyncSessionManager)]
# What belongs to one side only: the inner seam of resuming, and Python's two context protocols.
ONE_SIDED = {"resume_from"}


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
