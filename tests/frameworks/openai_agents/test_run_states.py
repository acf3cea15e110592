"""An approved run is taken once, so its tools run once."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import Runner, UserError

from holdfast.errors import AlreadyResumed, CheckpointExists, NothingToResume
from holdfast.integrations.openai_agents import HoldfastRunStates, HoldfastSession
from holdfast.stores import Store
from tests.frameworks.openai_agents.worker import asks, make_agent, says
from tests.frameworks.programs import race, start


async def interrupted(agent: Any) -> Any:
    result = await Runner.run(agent, "refund it")
    assert result.interruptions
    return result.to_state()


def approve(state: Any) -> None:
    for item in state.get_interruptions():
        state.approve(item)


def test_the_second_who_takes_a_run_gets_an_error_and_the_tool_ran_once(
    store: Store, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), says("done"), says("done"), ledger=ledger)
        await runs.save("r", await interrupted(agent))
        run = await runs.take("r", agent)
        with pytest.raises(AlreadyResumed, match="fork=True"):
            await runs.take("r", agent)
        approve(run.state)
        assert (await Runner.run(agent, run.state)).final_output == "done"
        with pytest.raises(AlreadyResumed):
            await runs.take("r", agent)
        assert ledger.read_text() == "7\n"
        again = await runs.take("r", agent, fork=True)
        approve(again.state)
        await Runner.run(agent, again.state)
        assert ledger.read_text() == "7\n7\n"

    asyncio.run(work())


def test_a_decision_is_recorded_apart_from_the_worker(store: Store, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), says("done"), ledger=ledger)
        await runs.save("r", await interrupted(agent))
        waiting = await runs.load("r", agent)
        [item] = waiting.state.get_interruptions()
        assert (item.tool_name, item.arguments) == ("refund", '{"order":"7"}')
        approve(waiting.state)
        await runs.save("r", waiting.state, after=waiting)
        # Who looked before that decision cannot overwrite it.
        with pytest.raises(AlreadyResumed):
            await runs.save("r", waiting.state, after=waiting)
        run = await runs.take("r", agent)
        # Nor can a decision that comes late put a run back that somebody is working on.
        decided = await runs.load("r", agent)
        with pytest.raises(AlreadyResumed):
            await runs.save("r", decided.state, after=waiting)
        assert (await Runner.run(agent, run.state)).final_output == "done"
        assert ledger.read_text() == "7\n"

    asyncio.run(work())


def test_a_decision_on_a_run_that_was_taken_before_it_was_read_is_refused(
    store: Store, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    async def decide(runs: HoldfastRunStates, agent: Any) -> None:
        waiting = await runs.load("r", agent)
        approve(waiting.state)
        await runs.save("r", waiting.state, after=waiting)

    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), asks("8"), says("done"), ledger=ledger)
        await runs.save("r", await interrupted(agent))
        assert not (await runs.load("r", agent)).taken
        await decide(runs, agent)
        run = await runs.take("r", agent)
        assert (await runs.load("r", agent)).taken
        with pytest.raises(AlreadyResumed, match=r"comes too late.*fork=True"):
            await decide(runs, agent)
        result = await Runner.run(agent, run.state)
        with pytest.raises(AlreadyResumed):
            await decide(runs, agent)
        with pytest.raises(AlreadyResumed):
            await runs.take("r", agent)
        assert ledger.read_text() == "7\n"
        # Once its worker saves the next interruption, that one can be decided on, once.
        await runs.save("r", result.to_state(), after=run)
        await decide(runs, agent)
        second = await runs.take("r", agent)
        with pytest.raises(AlreadyResumed):
            await decide(runs, agent)
        assert (await Runner.run(agent, second.state)).final_output == "done"
        assert ledger.read_text() == "7\n8\n"

    asyncio.run(work())


def test_a_worker_may_put_back_what_it_took(store: Store, tmp_path: Path) -> None:
    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), ledger=tmp_path / "ledger")
        await runs.save("r", await interrupted(agent))
        lost = await runs.take("r", agent)
        forked = await runs.take("r", agent, fork=True)
        with pytest.raises(AlreadyResumed):
            await runs.save("r", lost.state, after=lost)
        await runs.save("r", forked.state, after=forked)
        assert not (await runs.load("r", agent)).taken
        await runs.take("r", agent)

    asyncio.run(work())


def test_a_run_that_is_interrupted_again_goes_on_under_its_name(
    store: Store, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), asks("8"), says("done"), ledger=ledger)
        await runs.save("r", await interrupted(agent))
        run = await runs.take("r", agent)
        approve(run.state)
        result = await Runner.run(agent, run.state)
        await runs.save("r", result.to_state(), after=run)
        second = await runs.take("r", agent)
        assert [item.arguments for item in second.state.get_interruptions()] == ['{"order":"8"}']
        approve(second.state)
        assert (await Runner.run(agent, second.state)).final_output == "done"
        assert ledger.read_text() == "7\n8\n"

    asyncio.run(work())


def test_a_name_is_used_once_until_it_is_forgotten(store: Store, tmp_path: Path) -> None:
    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), asks("8"), ledger=tmp_path / "ledger")
        with pytest.raises(NothingToResume):
            await runs.take("r", agent)
        first = await interrupted(agent)
        await runs.save("r", first)
        with pytest.raises(CheckpointExists, match="forget"):
            await runs.save("r", first)
        await runs.take("r", agent)
        with pytest.raises(CheckpointExists):
            await runs.save("r", first)
        await runs.forget("r")
        await runs.save("r", await interrupted(agent))
        assert len((await runs.take("r", agent)).state.get_interruptions()) == 1

    asyncio.run(work())


def test_a_run_and_the_conversation_of_the_same_name_are_apart(
    store: Store, tmp_path: Path
) -> None:
    async def work() -> None:
        runs, session = HoldfastRunStates(store), HoldfastSession("r", store)
        agent = make_agent(asks("7"), ledger=tmp_path / "ledger")
        result = await Runner.run(agent, "refund it", session=session)
        await runs.save("r", result.to_state())
        await session.clear_session()
        assert await session.get_items() == []
        await runs.take("r", agent)
        await session.add_items([{"role": "user", "content": "hello"}])
        await runs.forget("r")
        assert len(await session.get_items()) == 1

    asyncio.run(work())


def test_a_context_of_a_class_of_its_own_is_kept_as_it_is_said(
    store: Store, tmp_path: Path
) -> None:
    @dataclass
    class Customer:
        name: str

    async def work() -> None:
        runs = HoldfastRunStates(store)
        agent = make_agent(asks("7"), asks("8"), ledger=tmp_path / "ledger")
        result = await Runner.run(agent, "refund it", context=Customer("Ann"))
        with pytest.raises(UserError, match="context"):
            await runs.save("r", result.to_state(), strict_context=True)
        await runs.save("r", result.to_state(), context_serializer=asdict)
        taken = await runs.take("r", agent, context_deserializer=lambda form: Customer(**form))
        approve(taken.state)
        result = await Runner.run(agent, taken.state)
        assert result.context_wrapper.context == Customer("Ann")
        await runs.save("r", result.to_state(), after=taken, context_serializer=asdict)

    asyncio.run(work())


def test_of_processes_that_take_a_run_at_once_one_runs_the_tool(
    shared_url: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    async def prepare() -> None:
        runs, session = HoldfastRunStates(shared_url), HoldfastSession("r", shared_url)
        agent = make_agent(asks("7"), ledger=ledger)
        result = await Runner.run(agent, "refund it", session=session)
        state = result.to_state()
        approve(state)
        await runs.save("r", state)
        await runs.close()
        await session.close()

    asyncio.run(prepare())
    worker = "tests.frameworks.openai_agents.worker"
    said = race([start(worker, shared_url, "r", str(ledger)) for _ in range(2)])
    assert sorted(said) == ["already", "done"]
    assert ledger.read_text() == "7\n"
