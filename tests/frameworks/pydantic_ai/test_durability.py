"""A run that was killed goes on, and nothing that had finished is done again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.durable_exec import ToolsetCallToolId
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from holdfast import SessionManager
from holdfast.aio import AsyncSessionManager
from holdfast.errors import CheckpointBusy, EffectMismatch, EffectUnknown
from holdfast.integrations import pydantic_ai
from holdfast.integrations.pydantic_ai import (
    HoldfastDurability,
    conversations,
    durability,
    durable_run,
)
from tests.docstrings import undescribed
from tests.frameworks.programs import run_example, start
from tests.frameworks.pydantic_ai.shop import make_agent, run
from tests.pages import ROOT, run_page

PAGE = ROOT / "docs" / "how-to" / "pydantic-ai.md"
WHOLE = ["request 1", "pay 1", "request 2", "pay 2", "request 3", "pay 3", "request 4"]


def killed(url: str, ledger: Path, die: str) -> None:
    worker = start("tests.frameworks.pydantic_ai.shop", url, "r", str(ledger), die)
    said, _ = worker.communicate(timeout=120)
    assert (worker.returncode, said) == (-signal.SIGKILL, "")


def lines(ledger: Path) -> list[str]:
    return ledger.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "line", ["request 1", "request 2", "request 4"], ids=lambda line: str(line).replace(" ", "-")
)
def test_a_run_that_is_killed_while_the_model_answers_asks_it_again(
    shared_url: str, tmp_path: Path, line: str
) -> None:
    ledger = tmp_path / "ledger"
    killed(shared_url, ledger, f"after {line}")
    at = WHOLE.index(line)
    assert lines(ledger) == WHOLE[: at + 1]
    assert asyncio.run(run(shared_url, "r", make_agent(ledger))) == "paid 3 orders"
    assert lines(ledger) == [*WHOLE[: at + 1], *WHOLE[at:]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_that_nobody_saw_the_end_of_is_not_run_again(
    shared_url: str, tmp_path: Path, when: str
) -> None:
    ledger = tmp_path / "ledger"
    killed(shared_url, ledger, f"{when} pay 2")
    before = lines(ledger)
    for _ in range(2):
        with pytest.raises(EffectUnknown, match="call_tool:pay"):
            asyncio.run(run(shared_url, "r", make_agent(ledger)))
    assert lines(ledger) == before
    # Somebody has looked and says that it may run.
    again = make_agent(ledger, tool_policy="retry")
    assert asyncio.run(run(shared_url, "r", again)) == "paid 3 orders"
    assert lines(ledger) == [*before, *WHOLE[WHOLE.index("pay 2") :]]


def test_a_run_that_has_ended_is_read_from_its_record(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        for _ in range(3):
            async with durable_run(manager, "r"):
                result = await make_agent(ledger).run("Pay all orders")
            assert (result.output, result.usage.requests) == ("paid 3 orders", 4)
        async with durable_run(manager, "another"):
            await make_agent(ledger).run("Pay all orders")
        await manager.close()

    asyncio.run(work())
    assert lines(ledger) == [*WHOLE, *WHOLE]


def test_outside_of_a_durable_run_nothing_is_recorded(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    agent = make_agent(ledger)
    for _ in range(2):
        asyncio.run(agent.run("Pay all orders"))
    assert lines(ledger) == [*WHOLE, *WHOLE]


def test_runs_at_once_find_their_own_records(url: str) -> None:
    asked = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompt = messages[0].parts[-1].content
        asked.append(prompt)
        return ModelResponse(parts=[TextPart(f"about {prompt}")])

    agent = Agent(FunctionModel(reply), name="a", capabilities=[HoldfastDurability()])

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        for _ in range(2):
            async with durable_run(manager, "r"):
                results = await asyncio.gather(*(agent.run(f"topic {n}") for n in range(4)))
            assert [one.output for one in results] == [f"about topic {n}" for n in range(4)]
        await manager.close()

    asyncio.run(work())
    assert sorted(asked) == [f"topic {n}" for n in range(4)]


def test_agents_that_tools_ask_leave_the_names_of_what_follows_as_they_are(url: str) -> None:
    done: list[str] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done.append("request")
        prompt, last = messages[0].parts[-1].content, messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(f"{prompt}: {last.content}")])
        return ModelResponse(parts=[ToolCallPart("ask" if prompt == "both" else "pay", {})])

    inner = Agent(FunctionModel(reply), name="a", capabilities=[HoldfastDurability()])
    outer = Agent(FunctionModel(reply), name="a", capabilities=[HoldfastDurability()])

    @inner.tool_plain
    @outer.tool_plain
    def pay() -> str:
        done.append("pay")
        return f"receipt {done.count('pay')}"

    @outer.tool_plain
    async def ask() -> str:
        return " and ".join([(await inner.run(f"in {n}")).output for n in range(2)])

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        for _ in range(2):
            async with durable_run(manager, "r"):
                said = [(await outer.run(prompt)).output for prompt in ("both", "after")]
                said.append((await inner.run("last")).output)
            assert said == [
                "both: in 0: receipt 1 and in 1: receipt 2",
                "after: receipt 3",
                "last: receipt 4",
            ]
        await manager.close()

    asyncio.run(work())
    assert (done.count("pay"), done.count("request")) == (4, 10)


def test_a_tool_that_asks_for_another_try_is_replayed_as_it_was(url: str) -> None:
    tries: list[int] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart) and last.content == "found":
            return ModelResponse(parts=[TextPart("found")])
        return ModelResponse(parts=[ToolCallPart("look", {"n": len(messages)})])

    agent = Agent(FunctionModel(reply), name="a", capabilities=[HoldfastDurability()])

    @agent.tool_plain(retries=2)
    def look(n: int) -> str:
        tries.append(n)
        if len(tries) == 1:
            raise ModelRetry("not there")
        return "found"

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        for _ in range(2):
            async with durable_run(manager, "r"):
                assert (await agent.run("look")).output == "found"
        await manager.close()

    asyncio.run(work())
    assert len(tries) == 2


def test_a_tool_may_say_that_it_can_run_again(url: str) -> None:
    tries = []
    agent = Agent(TestModel(), name="a", capabilities=[HoldfastDurability()])

    @agent.tool_plain(metadata={"holdfast": {"idempotent": True}})
    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError
        return "there"

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        async with durable_run(manager, "r"):
            with pytest.raises(TimeoutError):
                await agent.run("go")
        async with durable_run(manager, "r"):
            assert "there" in (await agent.run("go")).output
        await manager.close()

    asyncio.run(work())


def test_a_call_with_other_arguments_than_recorded_is_noticed(url: str) -> None:
    backend = HoldfastDurability(name="a").get_durable_operation_backend()
    ran = []

    async def call(order: int) -> object:
        async def body() -> object:
            ran.append(order)
            return order

        return await backend.execute(
            operation_id=ToolsetCallToolId("function", toolset_id="t"),
            name="pay",
            body=body,
            cache_key=("pay", {"order": order}),
            config={"policy": "fail"},
        )

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        async with durable_run(manager, "r"):
            assert (await call(1), await call(2)) == (1, 2)
        async with durable_run(manager, "r"):
            assert await call(1) == 1
            with pytest.raises(EffectMismatch):
                await call(3)
        await manager.close()

    asyncio.run(work())
    assert ran == [1, 2]


def test_one_process_at_a_time_works_on_a_run(shared_url: str, tmp_path: Path) -> None:
    async def work() -> None:
        with SessionManager.open(shared_url, workspace=False, owner="somebody else") as other:
            held = other.create_session("pydantic-ai", session_id="r")
            with pytest.raises(CheckpointBusy):
                async with durable_run(shared_url, "r"):
                    pass
            held.close()
        async with durable_run(shared_url, "r"):
            await make_agent(tmp_path / "ledger").run("Pay all orders")

    asyncio.run(work())


def test_one_task_at_a_time_works_on_a_run(shared_url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    async def work() -> None:
        async with durable_run(shared_url, "r"):
            second = asyncio.create_task(run(shared_url, "r", make_agent(ledger)))
            with pytest.raises(CheckpointBusy, match="under way already"):
                await second
            await make_agent(ledger).run("Pay all orders")
        assert lines(ledger) == WHOLE
        # The one that was refused has only to come again.
        assert await run(shared_url, "r", make_agent(ledger)) == "paid 3 orders"
        assert lines(ledger) == WHOLE

    asyncio.run(work())


def test_a_run_is_not_entered_within_itself_and_another_one_is(url: str) -> None:
    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        async with durable_run(manager, "r"):
            with pytest.raises(CheckpointBusy, match="an id of its own"):
                async with durable_run(manager, "r"):
                    pass
            async with durable_run(manager, "another"):
                pass
        async with durable_run(manager, "r"):
            pass
        await manager.close()

    asyncio.run(work())


def test_tools_that_nobody_could_record_are_refused(url: str) -> None:
    agent = Agent(TestModel(), name="a", capabilities=[HoldfastDurability()])
    toolset: FunctionToolset[None] = FunctionToolset(id="late")

    @toolset.tool_plain
    def late() -> str:
        return "x"

    async def work() -> None:
        manager = await AsyncSessionManager.open(url, workspace=False)
        async with durable_run(manager, "r"):
            with pytest.raises(UserError):
                await agent.run("go", toolsets=[toolset])
        await manager.close()

    asyncio.run(work())


def test_every_public_name_is_described() -> None:
    for module in (pydantic_ai, conversations, durability):
        assert undescribed(module) == []


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)


def test_the_example_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    first = run_example("pydantic-ai.py", tmp_path, "--die", status=-signal.SIGKILL)
    assert first == "… paying order 1"
    assert run_example("pydantic-ai.py", tmp_path) == "… paying order 2\nAll paid"
    assert run_example("pydantic-ai.py", tmp_path) == "All paid"
