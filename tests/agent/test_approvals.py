"""Tools that need approval suspend a run; people decide; nothing runs twice."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Coroutine, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import pytest

from holdfast import Agent, AgentSuspended, MemoryCheckpointer
from holdfast.agent import (
    Budget,
    Decision,
    PendingCall,
    Reply,
    Tool,
    ToolCall,
    Usage,
    decide,
    pending_calls,
    tool,
)
from holdfast.checkpointers import BaseCheckpointer
from holdfast.errors import (
    AlreadyResumed,
    BudgetExceeded,
    InvalidArguments,
    InvalidConfiguration,
    InvalidDecision,
    InvalidState,
    NothingToResume,
    NotResumable,
    SnapshotNotSaved,
    StoreUnavailable,
    ThreadOccupied,
)
from tests.agent.conftest import Connect
from tests.agent.scripts import ScriptedModel, Traces, call, results, shop

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def shop_agent(checkpointer: Any, traces: Traces, *replies: Any, **options: Any) -> Agent:
    script = replies or ([call("refund", order="7", amount=20)], "done")
    given: dict[str, Any] = {
        "model": ScriptedModel(*script),
        "default_thread_id": "support-42",
        "tools": shop(traces),
    }
    return Agent(checkpointer=checkpointer, **given | options)


async def suspended(agent: Agent, **options: Any) -> AgentSuspended:
    with pytest.raises(AgentSuspended) as raised:
        await agent.run("Please", **options)
    return raised.value


async def yes(pending: PendingCall) -> Decision:
    return Decision.approve()


@pytest.mark.row("S3-23", "T10")
def test_the_documented_example_works_as_it_is_written(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    asked: list[PendingCall] = []

    def approver(pending: PendingCall) -> bool:
        asked.append(pending)
        return True

    async def example() -> None:
        agent = Agent(
            model=ScriptedModel([call("refund", order="7", amount=20)], "refunded"),
            tools=shop(traces),
            checkpointer=checkpointer,
            default_thread_id="support-conversation-42",
        )
        try:
            await agent.run(prompt="Please refund order 7")
        except Exception:
            assert traces() == []
            result = await agent.resume_from_checkpoint(
                "support-conversation-42", approver=approver
            )
        assert result.text == "refunded"

    run(example())
    assert traces() == ["refund 7 20"]
    assert [(one.name, one.arguments, one.reason) for one in asked] == [
        ("refund", {"order": "7", "amount": 20}, "approval")
    ]


@pytest.mark.row("S3-21", "T11")
def test_a_threads_id_is_the_agents_or_the_calls_own(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    two = [call("refund", "a", order="1", amount=1), call("refund", "b", order="2", amount=2)]

    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces, two, "done")
        assert (await suspended(agent)).thread_id == "support-42"
        ours = await checkpointer.list("support-42")
        error = await suspended(agent, thread_id="of this call")
        assert error.thread_id == "of this call"
        with pytest.raises(AgentSuspended) as again:
            await agent.resume_from_checkpoint("of this call", decisions={"a": True})
        assert again.value.thread_id == "of this call"
        found = await checkpointer.find("of this call")
        assert found is not None
        assert found[0].id == again.value.checkpoint_id != error.checkpoint_id
        assert [one["state"] for one in found[1]["calls"]] == ["done", "pending"]
        assert await checkpointer.list("support-42") == ours
        result = await agent.resume_from_checkpoint("of this call", decisions={"b": True})
        assert (result.thread_id, traces()) == ("of this call", ["refund 1 1", "refund 2 2"])

        nameless = shop_agent(checkpointer, traces, "hello", default_thread_id=None)
        first, second = await nameless.run("Hi"), await nameless.run("Hi")
        assert first.thread_id != second.thread_id
        with pytest.raises(ValueError, match="name the thread"):
            await nameless.resume_from_checkpoint()

    run(scenario())


@pytest.mark.row("S3-22")
def test_the_snapshot_is_stored_when_the_suspension_is_raised(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    async def scenario() -> None:
        caught = None
        try:
            await shop_agent(checkpointer, traces).run("Please")
        except AgentSuspended as error:
            caught, found = error, await checkpointer.find("support-42")
        assert caught is not None
        assert found is not None
        assert (found[0].id, found[1]) == (caught.checkpoint_id, caught.snapshot)
        assert found[1]["status"] == "suspended"
        assert caught.persist_error is None
        assert [one.id for one in caught.pending] == ["refund"]

    run(scenario())


class Failing(MemoryCheckpointer):
    """Cannot store what it is told to fail at."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    async def put(
        self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
    ) -> str:
        if snapshot["status"] == self.at:
            raise StoreUnavailable("the disk is gone")
        return await super().put(thread_id, snapshot, consumes=consumes)


@pytest.mark.row("S3-22")
def test_a_suspension_that_cannot_be_stored_says_so_on_the_exception_and_in_the_log(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        checkpointer = Failing(at="suspended")
        agent = shop_agent(checkpointer, traces)
        error = await suspended(agent)
        assert isinstance(error.persist_error, StoreUnavailable)
        assert error.checkpoint_id is None
        assert "could NOT be stored (the disk is gone)" in str(error)
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert "support-42" in caplog.text
        # What was stored before is enough to go on, and so is the snapshot on the exception.
        checkpointer.at = ""
        assert (await agent.resume_from_checkpoint(approver=yes)).text == "done"
        await checkpointer.put("saved by hand", error.snapshot)
        result = await agent.resume_from_checkpoint("saved by hand", approver=yes)
        assert result.text == "done"

    run(scenario())


@pytest.mark.row("S3-26")
@pytest.mark.parametrize(
    ("decision", "ran", "result"),
    [
        (Decision.approve(), ["refund 7 20"], {"refunded": 20}),
        ("approve", ["refund 7 20"], {"refunded": 20}),
        (Decision.modify({"order": "7", "amount": 5}), ["refund 7 5"], {"refunded": 5}),
        ({"action": "modify", "arguments": {"order": "8", "amount": 6}}, ["refund 8 6"],
         {"refunded": 6}),
        (Decision.reject("too much"), [], "The call was rejected and not run: too much"),
        (False, [], "The call was rejected and not run"),
        (Decision.answer({"refunded": 1}), [], {"refunded": 1}),
    ],
    ids=["approve", "word", "modify", "json", "reject", "false", "answer"],
)  # fmt: skip
@pytest.mark.parametrize("way", ["approver", "decisions", "stored"])
def test_a_decision_is_carried_out(
    connect: Connect, traces: Traces, way: str, decision: Any, ran: list[str], result: Any
) -> None:
    async def scenario() -> None:
        await suspended(shop_agent(connect(), traces))
        agent = shop_agent(connect(), traces)
        if way == "approver":
            done = await agent.resume_from_checkpoint(approver=lambda pending: decision)
        elif way == "decisions":
            done = await agent.resume_from_checkpoint(decisions={"refund": decision})
        else:
            await decide(connect(), "support-42", {"refund": decision})
            assert traces() == []
            assert await pending_calls(connect(), "support-42") == ()
            done = await agent.resume_from_checkpoint()
        assert done.text == "done"
        assert results(done.messages) == {"refund": result}
        [message] = [one for one in done.messages if one["role"] == "tool"]
        changed = decision not in (Decision.approve(), "approve") and len(ran) == 1
        assert ("arguments" in message) is changed

    run(scenario())
    assert traces() == ran


@pytest.mark.row("S3-26")
def test_what_stays_undecided_stays_suspended(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces)
        first = await suspended(agent)
        for options in (
            {},
            {"approver": lambda pending: Decision.suspend()},
            {"decisions": {"refund": "suspend"}},
        ):
            with pytest.raises(AgentSuspended) as again:
                await agent.resume_from_checkpoint(**options)
            assert again.value.pending == first.pending
            assert again.value.checkpoint_id == first.checkpoint_id
        found = await checkpointer.find("support-42")
        assert found is not None
        assert found[0].id == first.checkpoint_id
        assert [one.id for one in await pending_calls(checkpointer, "support-42")] == ["refund"]
        assert (await agent.resume_from_checkpoint(approver=yes)).text == "done"

    run(scenario())
    assert traces() == ["refund 7 20"]


@pytest.mark.row("S3-26")
@pytest.mark.parametrize(
    "arguments", [{"order": 7, "amount": 5}, {"order": "7"}, {"order": "7", "amount": 5, "x": 1}]
)
def test_modified_arguments_are_checked_again(
    connect: Connect, traces: Traces, arguments: dict[str, Any]
) -> None:
    async def scenario() -> None:
        agent = shop_agent(connect(), traces)
        await suspended(agent)
        before = await connect().list("support-42")
        bad = Decision.modify(arguments)
        with pytest.raises(InvalidArguments, match="refund"):
            await agent.resume_from_checkpoint(decisions={"refund": bad})
        with pytest.raises(InvalidArguments, match="refund"):
            await agent.resume_from_checkpoint(approver=lambda pending: bad)
        with pytest.raises(InvalidArguments, match="refund"):
            await decide(connect(), "support-42", {"refund": bad})
        assert await connect().list("support-42") == before
        assert traces() == []
        assert (await agent.resume_from_checkpoint(approver=yes)).text == "done"

    run(scenario())


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$defs": {"a": {"$ref": "#/$defs/a"}}, "allOf": [{"$ref": "#/$defs/a"}]},
        {"type": "object", "allOf": [{"$ref": "#/$defs/lost"}]},
        {"type": "object", "properties": {"amount": {"pattern": "("}}},
        {"type": "object", "required": 1},
    ],
)
def test_a_stored_schema_that_is_none_is_named_and_changes_nothing(
    checkpointer: BaseCheckpointer, traces: Traces, schema: dict[str, Any]
) -> None:
    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces)
        await suspended(agent)
        found = await checkpointer.find("support-42")
        assert found is not None
        snapshot: Any = found[1]
        (waiting,) = snapshot["calls"]
        damaged = snapshot | {"calls": [waiting | {"parameters": schema}]}
        await checkpointer.put("support-42", damaged)
        before = await checkpointer.list("support-42")
        with pytest.raises(InvalidConfiguration, match="'refund' are no schema"):
            await decide(
                checkpointer,
                "support-42",
                {"refund": Decision.modify({"order": "7", "amount": "5"})},
            )
        assert await checkpointer.list("support-42") == before

    run(scenario())


def test_decisions_that_make_no_sense_change_nothing(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces)
        await suspended(agent)
        bad: Any
        for bad in (
            {"nobody": True},
            {"refund": "perhaps"},
            {"refund": {"action": "modify"}},
            {"refund": {"action": "modify", "arguments": 1}},
            {"refund": {"action": "approve", "arguments": {}}},
            {"refund": {"action": ["approve"]}},
            {"refund": {}},
            {"refund": None},
            ["refund"],
            "refund",
            [("refund", True)],
        ):
            with pytest.raises(InvalidDecision):
                await agent.resume_from_checkpoint(decisions=bad)
            with pytest.raises(InvalidDecision):
                await decide(checkpointer, "support-42", bad)
        with pytest.raises(InvalidDecision, match="these do: refund"):
            await decide(checkpointer, "support-42", {"nobody": True})
        assert (await agent.resume_from_checkpoint(approver=yes)).text == "done"
        with pytest.raises(AlreadyResumed):
            await decide(checkpointer, "support-42", {"refund": True})
        with pytest.raises(NothingToResume):
            await pending_calls(checkpointer, "unknown")

    run(scenario())


@pytest.mark.parametrize(
    "made",
    [
        lambda: Decision("deny"),  # type: ignore[arg-type]
        lambda: Decision("approved"),  # type: ignore[arg-type]
        lambda: Decision(["approve"]),  # type: ignore[arg-type]
        lambda: Decision(None),  # type: ignore[arg-type]
        lambda: Decision("modify"),
        lambda: Decision("approve", arguments={"amount": 5}),
        lambda: Decision.modify(None),  # type: ignore[arg-type]
        lambda: Decision.modify("amount=5"),  # type: ignore[arg-type]
    ],
)
def test_a_decision_that_is_not_understood_cannot_be_made(
    traces: Traces, made: Callable[[], Decision]
) -> None:
    async def scenario() -> None:
        agent = shop_agent(MemoryCheckpointer(), traces)
        await suspended(agent)
        with pytest.raises(InvalidDecision, match="is no decision: use Decision"):
            await agent.resume_from_checkpoint(approver=lambda pending: made())

    run(scenario())
    assert traces() == []


BATCH = [
    call("refund", "pay", order="7", amount=20),
    call("send_mail", "mail", to="ann"),
    call("look_up", "find", order="7"),
]


@pytest.mark.row("S3-27", "S3-28")
def test_calls_of_a_batch_run_once_over_two_suspensions(connect: Connect, traces: Traces) -> None:
    batch = [*BATCH, call("refund", "more", order="8", amount=1)]

    async def scenario() -> None:
        error = await suspended(shop_agent(connect(), traces, batch, "done"))
        assert [one.id for one in error.pending] == ["pay", "more"]
        assert traces() == ["send_mail ann", "look_up 7"]

        with pytest.raises(AgentSuspended) as raised:
            await shop_agent(connect(), traces, batch, "done").resume_from_checkpoint(
                decisions={"pay": True}
            )
        again = raised.value
        assert [one.id for one in again.pending] == ["more"]
        found = await connect().find("support-42")
        assert found is not None
        assert found[0].id == again.checkpoint_id
        merged = {one["id"]: (one["state"], one["result"]) for one in found[1]["calls"]}
        assert merged == {
            "pay": ("done", {"refunded": 20}),
            "mail": ("done", "sent to ann"),
            "find": ("done", "order 7"),
            "more": ("pending", None),
        }

        result = await shop_agent(connect(), traces, batch, "done").resume_from_checkpoint(
            approver=yes
        )
        assert list(results(result.messages)) == ["pay", "mail", "find", "more"]

    run(scenario())
    assert traces() == ["send_mail ann", "look_up 7", "refund 7 20", "refund 8 1"]


@pytest.mark.row("S3-29")
def test_a_checkpoint_is_resumed_once_unless_it_is_forked(connect: Connect, traces: Traces) -> None:
    async def scenario() -> None:
        error = await suspended(shop_agent(connect(), traces))
        agent = shop_agent(connect(), traces)
        assert (await agent.resume_from_checkpoint(approver=yes)).text == "done"
        for checkpoint_id in (None, error.checkpoint_id):
            with pytest.raises(AlreadyResumed):
                await agent.resume_from_checkpoint(approver=yes, checkpoint_id=checkpoint_id)
        assert traces() == ["refund 7 20"]
        for checkpoint_id in (None, error.checkpoint_id):
            forked = await agent.resume_from_checkpoint(
                decisions={"refund": False}, fork=True, checkpoint_id=checkpoint_id
            )
            assert forked.text == "done"
            assert "rejected" in results(forked.messages)["refund"]
        assert traces() == ["refund 7 20"]
        assert (await agent.resume_from_checkpoint(approver=yes, fork=True)).text == "done"
        assert traces() == ["refund 7 20"] * 2

    run(scenario())


def test_a_fork_leaves_what_waits_for_people_to_be_resumed(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces)
        error = await suspended(agent)
        await agent.resume_from_checkpoint(decisions={"refund": False}, fork=True)
        result = await agent.resume_from_checkpoint(approver=yes, checkpoint_id=error.checkpoint_id)
        assert results(result.messages) == {"refund": {"refunded": 20}}
        with pytest.raises(AlreadyResumed):
            await agent.resume_from_checkpoint(approver=yes, checkpoint_id=error.checkpoint_id)

    run(scenario())


def test_a_new_run_does_not_bury_one_that_waits_for_people(
    connect: Connect, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(connect(), traces)
        error = await suspended(agent)
        chat = shop_agent(connect(), traces, "hello")
        with pytest.raises(ThreadOccupied, match=f"'support-42'.*{error.checkpoint_id}"):
            await chat.run("How long will it take?")
        await chat.run("Hi", thread_id="another")
        assert [one.id for one in await pending_calls(connect(), "support-42")] == ["refund"]
        await decide(connect(), "support-42", {"refund": True})
        with pytest.raises(ThreadOccupied):  # decided, and nobody has gone on yet
            await chat.run("How long will it take?")
        assert (await agent.resume_from_checkpoint()).text == "done"
        assert (await chat.run("Thanks")).text == "hello"

    run(scenario())
    assert traces() == ["refund 7 20"]


@pytest.mark.parametrize("save_on", ["message", "invocation"])
def test_a_run_at_work_does_not_bury_one_that_began_to_wait_meanwhile(
    connect: Connect, traces: Traces, save_on: Any
) -> None:
    async def scenario() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def model(messages: Any, tools: Any) -> Reply:
            asked.set()
            await go_on.wait()
            return Reply("it is sunny")

        slow = shop_agent(connect(), traces, model=model, save_on=save_on)
        work = asyncio.create_task(slow.run("Weather?"))
        await asked.wait()
        agent = shop_agent(connect(), traces)
        await suspended(agent)
        go_on.set()
        with pytest.raises(SnapshotNotSaved, match="a run waits for people") as raised:
            await work
        assert isinstance(raised.value.__cause__, ThreadOccupied)
        assert raised.value.snapshot["messages"][-1]["content"] == "it is sunny"
        assert [one.id for one in await pending_calls(connect(), "support-42")] == ["refund"]
        await decide(connect(), "support-42", {"refund": True})
        assert (await agent.resume_from_checkpoint()).text == "done"

    run(scenario())
    assert traces() == ["refund 7 20"]


def test_of_two_runs_that_begin_to_wait_in_a_thread_the_second_is_told(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    async def scenario() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def model(messages: Any, tools: Any) -> Reply:
            asked.set()
            await go_on.wait()
            return Reply(tool_calls=[call("refund", "late", order="8", amount=1)])

        slow = shop_agent(checkpointer, traces, model=model, save_on="invocation")
        work = asyncio.create_task(slow.run("Please"))
        await asked.wait()
        await suspended(shop_agent(checkpointer, traces))
        go_on.set()
        with pytest.raises(AgentSuspended) as second:
            await work
        assert isinstance(second.value.persist_error, ThreadOccupied)
        assert [one.id for one in await pending_calls(checkpointer, "support-42")] == ["refund"]

    run(scenario())


def test_going_on_with_another_run_of_a_thread_does_not_bury_what_waits_there(
    connect: Connect, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(connect(), traces)
        old = await suspended(agent)
        await suspended(agent, abandon=True)
        for fork in (False, True):
            with pytest.raises(ThreadOccupied):
                await agent.resume_from_checkpoint(
                    approver=yes, checkpoint_id=old.checkpoint_id, fork=fork
                )
        with pytest.raises(ThreadOccupied):
            await decide(connect(), "support-42", {"refund": True}, checkpoint_id=old.checkpoint_id)
        assert (await agent.resume_from_checkpoint(decisions={"refund": False})).text == "done"
        await agent.resume_from_checkpoint(approver=yes, checkpoint_id=old.checkpoint_id)

    run(scenario())
    assert traces() == ["refund 7 20"]


def test_calls_of_an_interrupted_run_that_wait_for_people_still_do(
    connect: Connect, traces: Traces
) -> None:
    both = [call("refund", order="7", amount=20), call("look_up", order="7")]

    async def scenario() -> None:
        agent = shop_agent(connect(), traces, both, "done", budget=Budget(tool_calls=0))
        with pytest.raises(BudgetExceeded):
            await agent.run("Please")
        assert [one.id for one in await pending_calls(connect(), "support-42")] == ["refund"]
        with pytest.raises(ThreadOccupied):
            await shop_agent(connect(), traces, "hello").run("How long will it take?")
        await decide(connect(), "support-42", {"refund": True})
        with pytest.raises(ThreadOccupied):
            await shop_agent(connect(), traces, "hello").run("How long will it take?")
        agent = shop_agent(connect(), traces, both, "done", budget=Budget(tool_calls=2))
        assert (await agent.resume_from_checkpoint()).text == "done"

    run(scenario())
    assert traces() == ["refund 7 20", "look_up 7"]


def test_a_suspended_run_that_was_abandoned_is_found_by_its_checkpoint(
    connect: Connect, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(connect(), traces)
        error = await suspended(agent)
        await shop_agent(connect(), traces, "hello").run("Never mind", abandon=True)
        with pytest.raises(AlreadyResumed, match=r"never suspended; .* name its checkpoint_id"):
            await agent.resume_from_checkpoint(approver=yes)
        await agent.resume_from_checkpoint(approver=yes, checkpoint_id=error.checkpoint_id)
        with pytest.raises(AlreadyResumed, match="fork=True repeats it from its last suspension"):
            await agent.resume_from_checkpoint(approver=yes)

    run(scenario())
    assert traces() == ["refund 7 20"]


def test_a_run_that_was_never_suspended_has_nothing_to_repeat(
    checkpointer: BaseCheckpointer, traces: Traces
) -> None:
    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces, "hello")
        with pytest.raises(NothingToResume):
            await agent.resume_from_checkpoint()
        await agent.run("Hi")
        with pytest.raises(AlreadyResumed, match="has ended"):
            await agent.resume_from_checkpoint()
        with pytest.raises(NothingToResume, match="never suspended"):
            await agent.resume_from_checkpoint(fork=True)
        await checkpointer.put("foreign", {"messages": []})
        with pytest.raises(NotResumable, match="no snapshot of an Agent"):
            await agent.resume_from_checkpoint("foreign")

    run(scenario())


@pytest.mark.row("S3-29")
def test_of_several_who_resume_at_once_exactly_one_goes_on(
    connect: Connect, traces: Traces
) -> None:
    async def scenario() -> None:
        await suspended(shop_agent(connect(), traces))
        outcomes = await asyncio.gather(
            *(shop_agent(connect(), traces).resume_from_checkpoint(approver=yes) for _ in range(5)),
            return_exceptions=True,
        )
        assert sum(isinstance(one, AlreadyResumed) for one in outcomes) == 4

    run(scenario())
    assert traces() == ["refund 7 20"]


@pytest.mark.row("S3-30")
def test_usage_goes_on_over_a_pause_and_its_cap_holds(connect: Connect, traces: Traces) -> None:
    script = ([call("refund", order="7", amount=20)], [call("look_up", order="7")], "done")

    async def scenario() -> None:
        agent = shop_agent(connect(), traces, *script, budget=Budget(tokens=30))
        error = await suspended(agent)
        assert error.snapshot["usage"]["input_tokens"] == 10
        # The cap travels with the run: whoever resumes it need not know it.
        later = shop_agent(connect(), traces, *script)
        with pytest.raises(BudgetExceeded, match="30 of 30 tokens"):
            await later.resume_from_checkpoint(approver=yes)
        with pytest.raises(BudgetExceeded):
            await later.resume_from_checkpoint()
        assert traces() == ["refund 7 20", "look_up 7"]
        richer = shop_agent(connect(), traces, *script, budget=Budget(tokens=1000))
        result = await richer.resume_from_checkpoint()
        assert result.usage == Usage(30, 15, 1.5, model_calls=3, tool_calls=2)

    run(scenario())
    assert traces() == ["refund 7 20", "look_up 7"]


@pytest.mark.row("S3-30")
@pytest.mark.parametrize(
    ("budget", "ran"),
    [
        (Budget(model_calls=1), ["send_mail a", "send_mail b"]),
        (Budget(cost=0.5), ["send_mail a", "send_mail b"]),
        (Budget(tool_calls=1), ["send_mail a"]),
        (Budget(tokens=0), []),
    ],
)
def test_each_cap_stops_a_run(traces: Traces, budget: Budget, ran: list[str]) -> None:
    calls = [call("send_mail", "1", to="a"), call("send_mail", "2", to="b")]
    agent = shop_agent(MemoryCheckpointer(), traces, calls, "done", budget=budget)
    with pytest.raises(BudgetExceeded):
        run(agent.run("Please"))
    assert traces() == ran


@pytest.mark.row("S3-25")
def test_a_tool_that_is_missing_after_a_deploy_gives_an_explicit_result(
    connect: Connect, traces: Traces
) -> None:
    async def scenario() -> None:
        await suspended(shop_agent(connect(), traces))
        bare = shop_agent(connect(), traces, tools=[])
        result = await bare.resume_from_checkpoint()
        assert results(result.messages) == {
            "refund": "The tool 'refund' is not available (any more); the call was not run"
        }
        assert result.messages[-2]["is_error"] is True

        await suspended(shop_agent(connect(), traces), thread_id="decided")
        result = await bare.resume_from_checkpoint("decided", decisions={"refund": True})
        assert "not available" in results(result.messages)["refund"]

    run(scenario())
    assert traces() == []


class Stopped(BaseException):
    """The process is gone, and what it has stored is left."""


@tool
async def stops() -> str:
    raise Stopped


def refund_of(traces: Traces, amount_type: str, *, needs_approval: bool = True) -> Tool:
    def refund(order: str, amount: float) -> str:
        traces.leave("refund", order, amount)
        return "paid"

    parameters = {
        "type": "object",
        "properties": {"order": {"type": "string"}, "amount": {"type": amount_type}},
    }
    return Tool(refund, parameters=parameters, needs_approval=needs_approval)


@pytest.mark.parametrize("before", ["no tool", "another schema", "no need of approval"])
def test_what_another_worker_let_pass_does_not_run_unless_a_person_agreed(
    connect: Connect, traces: Traces, before: str
) -> None:
    script = ([call("stops"), call("refund", order="7", amount=499.5)], "done")
    earlier = {
        "no tool": [],
        "another schema": [refund_of(traces, "integer")],
        "no need of approval": [refund_of(traces, "number", needs_approval=False)],
    }[before]

    async def scenario() -> None:
        old = shop_agent(connect(), traces, *script, tools=[stops, *earlier])
        with pytest.raises(Stopped):
            await old.run("Please")
        new = shop_agent(connect(), traces, *script, tools=[stops, refund_of(traces, "number")])
        answer = {"stops": Decision.answer("stopped")}
        with pytest.raises(AgentSuspended) as raised:
            await new.resume_from_checkpoint()
        asked = {one.id for one in raised.value.pending} - {"stops"}
        if before == "no need of approval":
            assert asked == {"refund"}
        else:  # the model was told by the worker that could not run it
            assert asked == set()
        denied = answer | dict.fromkeys(asked, Decision.reject())
        result = await new.resume_from_checkpoint(decisions=denied)
        assert "not run" in results(result.messages)["refund"]

    run(scenario())
    assert traces() == []


def test_a_worker_without_the_tool_approves_nothing(connect: Connect, traces: Traces) -> None:
    two = [call("send_mail", to="ann"), call("refund", order="7", amount=20)]
    mail = Tool(shop(traces)[1].function, needs_approval=True)

    async def scenario() -> None:
        await suspended(shop_agent(connect(), traces, two, "done", tools=[mail, *shop(traces)[:1]]))
        wrong = shop_agent(
            connect(), traces, two, "done", tools=[mail], budget=Budget(tool_calls=0)
        )
        with pytest.raises(BudgetExceeded):
            await wrong.resume_from_checkpoint(decisions={"send_mail": True})
        right = shop_agent(
            connect(), traces, two, "done", tools=[mail, *shop(traces)[:1]], budget=Budget()
        )
        result = await right.resume_from_checkpoint()
        assert "not available" in results(result.messages)["refund"]

    run(scenario())
    assert traces() == ["send_mail ann"]


@pytest.mark.parametrize("status", ["running", "interrupted", "suspended"])
@pytest.mark.parametrize("mark", ["approved", "started"])
def test_a_stored_mark_that_no_person_made_is_not_trusted(
    connect: Connect, traces: Traces, mark: str, status: str
) -> None:
    async def scenario() -> None:
        await suspended(shop_agent(connect(), traces))
        repeatable = Tool(shop(traces)[0].function, needs_approval=True, idempotent=True)
        snapshot = await connect().load("support-42")
        [stored] = snapshot["calls"]
        stored |= {"state": mark, "reason": None, "parameters": None}
        await connect().put("support-42", snapshot | {"status": status})
        with pytest.raises(AgentSuspended) as raised:
            await shop_agent(connect(), traces, tools=[repeatable]).resume_from_checkpoint()
        assert [(one.id, one.reason) for one in raised.value.pending] == [("refund", "approval")]

    run(scenario())
    assert traces() == []


def test_needing_approval_may_depend_on_the_arguments(traces: Traces) -> None:
    @tool(needs_approval=lambda arguments: arguments["amount"] > 10)
    def pay(amount: int) -> str:
        traces.leave("pay", amount)
        return "paid"

    script = ([call("pay", "small", amount=1), call("pay", "large", amount=11)], "done")
    agent = shop_agent(MemoryCheckpointer(), traces, *script, tools=[pay])
    error = run(suspended(agent))
    assert [one.id for one in error.pending] == ["large"]
    assert traces() == ["pay 1"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ToolCall("c", "send_mail", {"to": 7}), r"\$.to must be string"),
        (ToolCall("c", "send_mail", {}), r"\$.to is missing"),
        (ToolCall("c", "send_mail", '{"to": '), "must be object, not str"),
        (ToolCall("c", "send_mail", "[1]"), "must be object, not list"),
        (ToolCall("c", "send_mail", [1]), "must be object, not list"),  # type: ignore[arg-type]
        (ToolCall("c", "refund", {"order": "7", "amount": "a lot"}), r"\$.amount must be integer"),
        (ToolCall("c", "no_such_tool", {}), "is not available"),
    ],
    ids=["type", "missing", "no json", "no object", "a list", "before approval", "no tool"],
)
def test_a_call_that_does_not_fit_is_told_to_the_model(
    traces: Traces, asked: ToolCall, said: str
) -> None:
    result = run(shop_agent(MemoryCheckpointer(), traces, [asked], "done").run("Please"))
    [message] = [one for one in result.messages if one["role"] == "tool"]
    assert message["is_error"] is True
    assert re.search(said, message["content"])
    assert traces() == []


def test_arguments_may_come_as_the_text_of_an_object(traces: Traces) -> None:
    asked = ToolCall("c", "send_mail", '{"to": "ann"}')
    result = run(shop_agent(MemoryCheckpointer(), traces, [asked], "done").run("Please"))
    assert results(result.messages) == {"c": "sent to ann"}
    assert result.messages[1]["tool_calls"][0]["arguments"] == {"to": "ann"}


@pytest.mark.parametrize("amount", [2**53 + 1, 2**64, -(2**63) - 1, 10**30])
def test_whole_numbers_in_such_a_text_are_exact(
    checkpointer: BaseCheckpointer, traces: Traces, amount: int
) -> None:
    asked = ToolCall("c", "refund", f'{{"order": "7", "amount": {amount}}}')

    async def scenario() -> None:
        agent = shop_agent(checkpointer, traces, [asked], "done")
        [pending] = (await suspended(agent)).pending
        assert pending.arguments == {"order": "7", "amount": amount}
        await agent.resume_from_checkpoint(approver=yes)

    run(scenario())
    assert traces() == [f"refund 7 {amount}"]


@pytest.mark.parametrize(
    "text", ['{"to": NaN}', r'{"to": "\ud800"}', '{"to": 1e400}', "[" * 5000, "1" * 5000]
)
def test_a_text_that_cannot_be_taken_exactly_is_told_to_the_model(
    traces: Traces, text: str
) -> None:
    asked = ToolCall("c", "send_mail", text)
    result = run(shop_agent(MemoryCheckpointer(), traces, [asked], "done").run("Please"))
    assert "must be object, not str" in results(result.messages)["c"]
    assert traces() == []


def test_calls_that_share_an_id_are_told_apart(traces: Traces) -> None:
    asked = [call("refund", "x", order="1", amount=1), call("refund", "x", order="2", amount=2)]
    asked.append(ToolCall("", "look_up", {"order": "3"}))

    async def scenario() -> None:
        agent = shop_agent(MemoryCheckpointer(), traces, asked, "done")
        error = await suspended(agent)
        assert [one.id for one in error.pending] == ["x", "x-2"]
        result = await agent.resume_from_checkpoint(decisions={"x": True, "x-2": False})
        assert list(results(result.messages)) == ["x", "x-2", "call-3"]

    run(scenario())
    assert traces() == ["look_up 3", "refund 1 1"]


def test_a_tool_that_fails_is_told_to_the_model(traces: Traces) -> None:
    @tool
    def breaks(how: str) -> object:
        if how == "raises":
            raise KeyError("no such order")
        return object()

    script = ([call("breaks", "a", how="raises"), call("breaks", "b", how="returns")], "done")
    result = run(shop_agent(MemoryCheckpointer(), traces, *script, tools=[breaks]).run("Please"))
    found = results(result.messages)
    assert found["a"] == "KeyError: 'no such order'"
    assert found["b"].startswith("breaks ran, but its result cannot be stored")


def test_an_error_whose_text_cannot_be_stored_is_told_all_the_same(
    checkpointer: BaseCheckpointer, traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    # What is logged is sent to the process that collects reports, which takes no such text either.
    caplog.set_level(logging.CRITICAL, "holdfast.agent")

    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @tool
    def breaks(how: str) -> None:
        raise Speechless if how == "silent" else ValueError("caf\udce9 and a \0")

    class Broken(ScriptedModel):
        async def __call__(self, messages: Any, tools: Any, /) -> Reply:
            if len(messages) > 1:
                raise ValueError("caf\udce9 and a \0")
            return await super().__call__(messages, tools)

    async def scenario() -> None:
        script = ([call("breaks", "a", how="loud"), call("breaks", "b", how="silent")], "done")
        agent = shop_agent(checkpointer, traces, *script, tools=[breaks])
        assert results((await agent.run("Please")).messages) == {
            "a": r"ValueError: caf\udce9 and a \0",
            "b": "Speechless: (its message cannot be read)",
        }
        agent = shop_agent(checkpointer, traces, model=Broken(*script), tools=[breaks])
        with pytest.raises(ValueError, match="and a"):
            await agent.run("Please")
        snapshot = await checkpointer.load("support-42")
        assert snapshot["status"] == "interrupted"
        assert snapshot["error"] == r"ValueError: caf\udce9 and a \0"

    run(scenario())


def test_a_model_sees_its_tools_and_cannot_change_what_was_said(traces: Traces) -> None:
    class Meddling(ScriptedModel):
        async def __call__(self, messages: Any, tools: Any, /) -> Reply:
            reply = await super().__call__(messages, tools)
            messages[0]["content"] = "something else"
            messages.clear()
            return reply

    model = Meddling([call("look_up", order="7")], "done")
    agent = Agent(model=model, tools=shop(traces), checkpointer=MemoryCheckpointer())
    result = run(agent.run("Please", messages=[{"role": "system", "content": "Be brief"}]))
    assert [one["content"] for one in result.messages[:2]] == ["Be brief", "Please"]
    assert [spec.name for spec in model.specs] == ["refund", "send_mail", "look_up"]
    assert model.specs[1].description == "Write to a customer."
    assert model.specs[1].parameters["required"] == ["to"]


def test_none_means_none_as_the_clients_of_vendors_say_it(traces: Traces) -> None:
    replies = [
        Reply(tool_calls=[ToolCall("c", "greet", None)], usage=None),
        Reply("done", tool_calls=None, usage=None),
    ]

    async def model(messages: Any, tools: Any) -> Reply:
        return replies.pop(0)

    agent = Agent(model=model, tools=[greet], checkpointer=MemoryCheckpointer())
    result = run(agent.run("Please"))
    assert (result.text, results(result.messages)) == ("done", {"c": "hello you"})
    assert result.usage == Usage(model_calls=2, tool_calls=1)


def test_what_is_no_reply_interrupts_the_run(traces: Traces) -> None:
    replies: list[Any] = [
        "text",
        Reply(text=None),  # type: ignore[arg-type]
        Reply(tool_calls=["look_up"]),  # type: ignore[list-item]
        Reply(tool_calls=ToolCall("c", "look_up")),  # type: ignore[arg-type]
        Reply(usage={"input_tokens": 1}),  # type: ignore[arg-type]
        Reply(usage=Usage(input_tokens=None)),  # type: ignore[arg-type]
        Reply(usage=Usage(input_tokens="5")),  # type: ignore[arg-type]
        Reply(usage=Usage(output_tokens=-5)),
        Reply(usage=Usage(cost=Decimal("0.1"))),  # type: ignore[arg-type]
        Reply(usage=Usage(cost=math.nan)),
    ]

    for reply in replies:

        async def model(messages: Any, tools: Any, reply: Any = reply) -> Any:
            return reply

        checkpointer = MemoryCheckpointer()
        agent = Agent(model=model, checkpointer=checkpointer, default_thread_id="t")
        with pytest.raises(Exception, match="the model"):
            run(agent.run("Please"))
        snapshot = run(checkpointer.load("t"))
        assert (snapshot["status"], snapshot["worker"]) == ("interrupted", None)
        assert snapshot["error"].startswith("InvalidReply")


def greet(name: str = "you") -> str:
    return f"hello {name}"


@pytest.mark.parametrize(
    "options",
    [
        {"model": None},
        {"version": 0},
        {"save_on": "sometimes"},
        {"save_on": "trigger"},
        {"trigger": lambda step: True},
        {"tools": [call, call]},
        {"tools": [greet, greet]},
        {"tools": ["no function"]},
        {"default_thread_id": ""},
        {"tools": 5},
        {"migrations": 5},
        {"budget": 5},
        {"budget": {"tokens": 5}},
        {"budget": Budget(tokens="5")},  # type: ignore[arg-type]
        {"budget": Budget(tokens=True)},
        {"budget": Budget(cost=math.nan)},
        {"budget": Budget(model_calls=-1)},
    ],
)
def test_an_agent_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"model": ScriptedModel(), "checkpointer": MemoryCheckpointer()}
    with pytest.raises(ValueError, match=r"\w+"):
        Agent(**given | options)


@pytest.mark.parametrize("messages", [["hello"], [5], 5, None, "abc", {"role": "user"}], ids=repr)
def test_what_are_no_messages_is_refused_before_a_run(traces: Traces, messages: Any) -> None:
    checkpointer = MemoryCheckpointer()
    with pytest.raises(InvalidState, match="messages are a list of dicts"):
        run(shop_agent(checkpointer, traces).run("Please", messages=messages))
    assert run(checkpointer.list("support-42")) == []


def test_tools_may_be_plain_functions(traces: Traces) -> None:
    async def wave() -> str:
        return "waves"

    script = ([call("greet", name="ann"), call("wave"), call("hidden", "h")], "done")
    hidden = Tool(wave, name="hidden", description="The same.")
    agent = shop_agent(MemoryCheckpointer(), traces, *script, tools=[greet, wave, hidden])
    result = run(agent.run("Please"))
    assert results(result.messages) == {"greet": "hello ann", "wave": "waves", "h": "waves"}
