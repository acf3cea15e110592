"""The same for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.aio import AsyncSessionManager
from holdfast.autosave import Autosave
from holdfast.autosave.twin import AsyncAutosave
from tests.autosave.conftest import FakeClock, RunAgent, events, reopened

# What the async twin itself calls, and no program.
INNER = {"begin_interruption", "finish_interruption", "leave", "restore_signals", "run_in_main"}


def test_the_twins_have_the_same_names_and_parameters() -> None:
    ours, theirs = (
        {
            name: inspect.getattr_static(cls, name)
            for name in dir(cls)
            if not name.startswith("_") and name not in INNER
        }
        for cls in (Autosave, AsyncAutosave)
    )
    assert ours.keys() == theirs.keys()
    for name, member in ours.items():
        assert inspect.getdoc(theirs[name]), name
        if isinstance(member, property):
            assert isinstance(theirs[name], property)
            continue
        one, two = inspect.signature(member), inspect.signature(theirs[name])
        assert list(one.parameters.values()) == list(two.parameters.values()), name


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_provider_answers_in_the_event_loop(project: Path, database: Path, kind: str) -> None:
    state = {"n": 0}
    threads: set[int] = set()

    def get_state() -> dict[str, Any]:
        threads.add(threading.get_ident())
        return dict(state)

    async def get_state_later() -> dict[str, Any]:
        await asyncio.sleep(0)
        return get_state()

    async def scenario() -> None:
        opening = AsyncSessionManager.open(database, project_dir=project, workspace=False)
        async with await opening as manager:
            session = await manager.create_session("tester", session_id="session-1")
            provider = get_state if kind == "sync" else get_state_later
            clock = FakeClock()
            async with session.autosave(
                provider, critical={"consensus_reached"}, clock=clock
            ) as saver:
                assert saver.is_running
                assert await saver.notify("consensus_reached", by="vote") == saver.last_checkpoint
                assert await saver.notify("nothing") is None
                assert await saver.flush() is None
                state["n"] = 1
                await asyncio.to_thread(clock.advance, 30)
                state["n"] = 2
            assert not saver.is_running

    asyncio.run(scenario())
    assert threads == {threading.get_ident()}
    with reopened(project, database) as session:
        assert events(session) == ["consensus_reached", "interval", "exit"]
        assert session.latest_checkpoint().state == {"n": 2}


def test_faults_do_not_disturb_the_loop(
    project: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken() -> dict[str, Any]:
        raise ZeroDivisionError

    async def scenario() -> None:
        opening = AsyncSessionManager.open(database, project_dir=project, workspace=False)
        async with await opening as manager:
            session = await manager.create_session("tester", session_id="session-1")
            async with session.autosave(broken) as saver:
                assert await saver.notify("task_completed") is None
                assert isinstance(saver.last_error, ZeroDivisionError)
            assert [one.level for one in await session.logs()] == ["error", "error"]

    asyncio.run(scenario())
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_completing_saves_first_and_handlers_are_restored(project: Path, database: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    state = {"n": 1}

    async def scenario() -> None:
        opening = AsyncSessionManager.open(database, project_dir=project, workspace=False)
        async with await opening as manager:
            session = await manager.create_session("tester", session_id="session-1")
            async with session.autosave(lambda: dict(state)):
                assert signal.getsignal(signal.SIGTERM) is not before
                await session.complete()

    asyncio.run(scenario())
    assert signal.getsignal(signal.SIGTERM) is before
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}


PROGRAM = """
import asyncio
from holdfast.aio import AsyncSessionManager

async def get_state():
    await asyncio.sleep(0)
    return dict(state)

async def main():
    manager = await AsyncSessionManager.open(sys.argv[1], project_dir=sys.argv[2], workspace=False)
    session = await manager.resume_session("session-1")
    {prepare}
    async with session.autosave(get_state):
        state["n"] = 1
        say("ready")
        try:
            while True:
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            say("cancelled")
            raise

{run}
"""


@pytest.mark.row("T6")
def test_ctrl_c_in_asyncio_saves_cancels_and_leaves_the_session_paused(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    run = "try:\n    asyncio.run(main())\nexcept KeyboardInterrupt:\n    sys.exit(5)\n"
    agent = run_agent(PROGRAM.replace("{prepare}", "pass").replace("{run}", run))
    agent.expect("ready")
    agent.signal(signal.SIGINT)
    assert agent.end() == (5, ["cancelled"], "")
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}
        assert session.status == "paused"


def test_sigterm_in_asyncio_saves_and_ends_the_process(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    program = PROGRAM.replace("{prepare}", "pass").replace("{run}", "asyncio.run(main())")
    agent = run_agent(program)
    agent.expect("ready")
    agent.signal(signal.SIGTERM)
    assert agent.end() == (-signal.SIGTERM, [], "")
    with reopened(project, database) as session:
        assert session.latest_checkpoint().metadata == {"event": "signal", "signal": "SIGTERM"}
        assert session.latest_checkpoint().state == {"n": 1}


def test_a_handler_of_the_loop_is_called_once(
    run_agent: RunAgent, project: Path, database: Path
) -> None:
    prepare = (
        "task = asyncio.current_task()\n"
        "    stop = lambda: (say('theirs'), task.cancel())\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)"
    )
    run = "try:\n    asyncio.run(main())\nexcept asyncio.CancelledError:\n    sys.exit(6)\n"
    agent = run_agent(PROGRAM.replace("{prepare}", prepare).replace("{run}", run))
    agent.expect("ready")
    agent.signal(signal.SIGTERM)
    assert agent.end() == (6, ["theirs", "cancelled"], "")
    with reopened(project, database) as session:
        assert session.latest_checkpoint().state == {"n": 1}
