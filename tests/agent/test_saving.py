"""When steps are saved, what an error leaves behind, and who may write."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import pytest

from holdfast import Agent, AgentSuspended, MemoryCheckpointer
from holdfast.agent import Reply, Step, decide, tool
from holdfast.checkpointers import BaseCheckpointer
from holdfast.errors import AlreadyResumed, SnapshotNotSaved, StoreUnavailable, ThreadOccupied
from tests.agent.conftest import Connect
from tests.agent.scripts import ScriptedModel, Traces, call, results, shop

T = TypeVar("T")
SCRIPT: Any = ([call("send_mail", "a", to="a"), call("look_up", "b", order="7")], "done")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def agent_of(checkpointer: Any, traces: Traces, *script: Any, **options: Any) -> Agent:
    return Agent(
        **{
            "model": ScriptedModel(*(script or SCRIPT)),
            "tools": shop(traces),
            "checkpointer": checkpointer,
            "default_thread_id": "t",
        }
        | options
    )


async def statuses(checkpointer: BaseCheckpointer, thread_id: str = "t") -> list[str]:
    """Return what a thread's snapshots say, oldest first: status, messages, states of calls."""
    found = []
    for info in reversed(await checkpointer.list(thread_id)):
        snapshot = await checkpointer.load(thread_id, info.id)
        calls = "".join(one["state"][0] for one in snapshot["calls"])
        found.append(f"{snapshot['status']} {len(snapshot['messages'])} {calls}".strip())
    return found


@pytest.mark.row("S3-24")
def test_by_default_every_step_is_saved(checkpointer: BaseCheckpointer, traces: Traces) -> None:
    run(agent_of(checkpointer, traces).run("Please"))
    assert run(statuses(checkpointer)) == [
        "running 1",  # the prompt
        "running 2 nn",  # the model's calls
        "running 2 sa",  # the first is started, the second may run
        "running 2 da",  # the first is done
        "running 2 dd",  # the second, which may run twice, needs no mark before it
        "completed 5",
    ]


@pytest.mark.row("S3-24")
def test_an_invocation_is_saved_at_its_end(checkpointer: BaseCheckpointer, traces: Traces) -> None:
    pay: Any = ([call("refund", order="7", amount=1)], *SCRIPT[1:])

    async def scenario() -> None:
        await agent_of(checkpointer, traces, save_on="invocation").run("Please")
        assert await statuses(checkpointer) == ["completed 5"]
        agent = agent_of(checkpointer, traces, *pay, save_on="invocation", default_thread_id="u")
        with pytest.raises(AgentSuspended):
            await agent.run("Please")
        await agent.resume_from_checkpoint(approver=lambda pending: True)
        assert await statuses(checkpointer, "u") == [
            "suspended 2 p",
            "running 2 a",  # taken up: nobody else may
            "running 2 s",  # what a person agreed to is marked before it runs
            "completed 4",
        ]

    run(scenario())


@pytest.mark.row("S3-24")
def test_a_trigger_says_when_to_save(checkpointer: BaseCheckpointer, traces: Traces) -> None:
    seen: list[Step] = []

    def trigger(step: Step) -> bool:
        seen.append(step)
        return step.kind == "tool_finished" and step.tool == "send_mail"

    async def scenario() -> None:
        await agent_of(checkpointer, traces, save_on="trigger", trigger=trigger).run("Please")
        # A run that has left a checkpoint also leaves its end.
        assert await statuses(checkpointer) == ["running 2 da", "completed 5"]
        never = agent_of(
            checkpointer, traces, save_on="trigger", trigger=lambda step: False,
            default_thread_id="never",
        )  # fmt: skip
        assert (await never.run("Please")).checkpoint_id is None
        assert await checkpointer.list("never") == []

    run(scenario())
    assert [(step.kind, step.tool) for step in seen] == [
        ("prompt", None),
        ("model", None),
        ("tool_started", "send_mail"),
        ("tool_finished", "send_mail"),
        ("tool_finished", "look_up"),
    ]
    assert seen[-1].usage.tool_calls == 2


class Broken(Exception):
    """A vendor's error."""


def test_an_error_of_the_model_leaves_a_run_that_anybody_can_resume(
    connect: Connect, traces: Traces
) -> None:
    class Flaky(ScriptedModel):
        broken = True

        async def __call__(self, messages: Any, tools: Any, /) -> Reply:
            if len(messages) > 1 and self.broken:
                raise Broken("overloaded")
            return await super().__call__(messages, tools)

    model = Flaky(*SCRIPT)

    async def scenario() -> None:
        with pytest.raises(Broken):
            await agent_of(connect(), traces, model=model).run("Please")
        snapshot = await connect().load("t")
        assert (snapshot["status"], snapshot["worker"]) == ("interrupted", None)
        assert snapshot["error"] == "Broken: overloaded"
        model.broken = False
        result = await agent_of(connect(), traces, model=model).resume_from_checkpoint()
        assert result.text == "done"
        assert (await connect().load("t"))["error"] is None

    run(scenario())
    assert traces() == ["send_mail a", "look_up 7"]


def test_a_cancelled_run_can_be_resumed_and_its_tool_is_unknown(
    connect: Connect, traces: Traces
) -> None:
    async def scenario() -> None:
        working = asyncio.Event()

        @tool
        async def slow() -> str:
            traces.leave("slow")
            working.set()
            await asyncio.Event().wait()
            return "never"

        script: Any = ([call("send_mail", "a", to="a"), call("slow")], "done")
        tools = [*shop(traces), slow]
        agent = agent_of(connect(), traces, *script, tools=tools)
        work = asyncio.create_task(agent.run("Please"))
        await working.wait()
        with pytest.raises(AlreadyResumed, match="being worked on by process"):
            await agent_of(connect(), traces, *script, tools=tools).resume_from_checkpoint()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        with pytest.raises(AgentSuspended) as raised:
            await agent.resume_from_checkpoint(approver=lambda pending: True)
        assert [(one.id, one.reason) for one in raised.value.pending] == [("slow", "unknown")]
        result = await agent.resume_from_checkpoint(decisions={"slow": {"action": "answer",
                                                                        "result": "it ran"}})  # fmt: skip
        assert results(result.messages) == {"a": "sent to a", "slow": "it ran"}

    run(scenario())
    assert traces() == ["send_mail a", "slow"]


@pytest.mark.parametrize("way", ["returns", "raises"])
def test_what_a_tool_in_a_thread_came_to_outlasts_a_cancellation(
    connect: Connect, traces: Traces, way: str
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        working, free = asyncio.Event(), threading.Event()

        @tool
        def charge() -> str:
            loop.call_soon_threadsafe(working.set)
            free.wait(30)
            traces.leave("charge")
            if way == "raises":
                raise ValueError("no money")
            return "receipt-1"

        agent = agent_of(connect(), traces, [call("charge")], "done", tools=[charge])
        work = asyncio.create_task(agent.run("Please"))
        await working.wait()
        work.cancel()
        await asyncio.sleep(0)
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (await statuses(connect()))[-1] == "interrupted 2 d"
        said = {"returns": "receipt-1", "raises": "ValueError: no money"}[way]
        result = await agent.resume_from_checkpoint()
        assert results(result.messages) == {"charge": said}

    run(scenario())
    assert traces() == ["charge"]


@pytest.mark.parametrize("name", ["send_mail", "refund"])
def test_a_call_that_was_cancelled_before_it_began_is_not_unknown(
    traces: Traces, name: str
) -> None:
    asked = {
        "send_mail": call("send_mail", to="a"),
        "refund": call("refund", order="7", amount=1),
    }[name]

    async def scenario() -> None:
        saving, free = asyncio.Event(), asyncio.Event()

        class Slow(MemoryCheckpointer):
            async def put(
                self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
            ) -> str:
                if any(one["state"] == "started" for one in snapshot["calls"]):
                    saving.set()
                    await free.wait()
                return await super().put(thread_id, snapshot, consumes=consumes)

        checkpointer = Slow()
        agent = agent_of(checkpointer, traces, [asked], "done")
        work = asyncio.create_task(agent.run("Please"))
        if name == "refund":
            with pytest.raises(AgentSuspended):
                await work
            work = asyncio.create_task(agent.resume_from_checkpoint(decisions={"refund": True}))
        await saving.wait()
        work.cancel()
        await asyncio.sleep(0)
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert traces() == []
        assert (await statuses(checkpointer))[-2:] == ["running 2 s", "interrupted 2 a"]
        result = await agent.resume_from_checkpoint()
        assert (result.text, result.usage.tool_calls) == ("done", 1)

    run(scenario())
    assert len(traces()) == 1


def test_a_cancelled_tool_that_may_run_twice_is_run_again(connect: Connect, traces: Traces) -> None:
    async def scenario() -> None:
        working, free = asyncio.Event(), asyncio.Event()

        @tool(idempotent=True)
        async def slow() -> str:
            traces.leave("slow")
            working.set()
            await free.wait()
            return "at last"

        agent = agent_of(connect(), traces, [call("slow")], "done", tools=[slow])
        work = asyncio.create_task(agent.run("Please"))
        await working.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        free.set()
        result = await agent.resume_from_checkpoint()
        assert results(result.messages) == {"slow": "at last"}

    run(scenario())
    assert traces() == ["slow", "slow"]


def test_any_step_of_a_run_can_be_forked(connect: Connect, traces: Traces) -> None:
    async def scenario() -> None:
        agent = agent_of(connect(), traces)
        first = await agent.run("Please")
        infos = await connect().list("t")
        prompt, done = infos[-1].id, infos[1].id
        with pytest.raises(AlreadyResumed):
            await agent.resume_from_checkpoint(checkpoint_id=done)
        again = await agent.resume_from_checkpoint(checkpoint_id=done, fork=True)
        assert again.messages == first.messages
        assert traces() == ["send_mail a", "look_up 7"]
        whole = await agent.resume_from_checkpoint(checkpoint_id=prompt, fork=True)
        assert whole.messages == first.messages
        assert traces() == ["send_mail a", "look_up 7"] * 2

    run(scenario())


def test_a_save_that_is_cancelled_is_finished_first(traces: Traces) -> None:
    async def scenario() -> None:
        saving, free = asyncio.Event(), asyncio.Event()

        class Slow(MemoryCheckpointer):
            async def put(
                self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
            ) -> str:
                saving.set()
                await free.wait()
                return await super().put(thread_id, snapshot, consumes=consumes)

        checkpointer = Slow()
        agent = agent_of(checkpointer, traces)
        work = asyncio.create_task(agent.run("Please"))
        await saving.wait()
        work.cancel()
        free.set()
        with pytest.raises(asyncio.CancelledError) as raised:
            await work
        assert not hasattr(raised.value, "__notes__")
        assert await statuses(checkpointer) == ["running 1", "interrupted 1"]
        assert (await agent.resume_from_checkpoint()).text == "done"

    run(scenario())


@pytest.mark.parametrize("stored", [True, False])
def test_a_cancellation_while_a_suspension_is_stored_leaves_a_run_that_waits(
    traces: Traces, stored: bool
) -> None:
    async def scenario() -> None:
        saving, free = asyncio.Event(), asyncio.Event()

        class Slow(MemoryCheckpointer):
            async def put(
                self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
            ) -> str:
                if snapshot["status"] == "suspended" and not saving.is_set():
                    saving.set()
                    await free.wait()
                    if not stored:
                        raise StoreUnavailable("the disk is full")
                return await super().put(thread_id, snapshot, consumes=consumes)

        checkpointer = Slow()
        agent = agent_of(checkpointer, traces, [call("refund", order="7", amount=1)], "done")
        work = asyncio.create_task(agent.run("Please"))
        await saving.wait()
        work.cancel()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (await statuses(checkpointer))[1:] == [
            "running 2 n",
            "suspended 2 p" if stored else "interrupted 2 p",
        ]
        with pytest.raises(ThreadOccupied):
            await agent.run("Please")
        await decide(checkpointer, "t", {"refund": True})
        assert (await agent.resume_from_checkpoint()).text == "done"

    run(scenario())
    assert traces() == ["refund 7 1"]


class Full(MemoryCheckpointer):
    """Takes a number of puts."""

    room = 0

    async def put(
        self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
    ) -> str:
        self.room -= 1
        if self.room < 0:
            raise StoreUnavailable("the disk is full")
        return await super().put(thread_id, snapshot, consumes=consumes)


@pytest.mark.parametrize(
    ("room", "ran"), [(0, []), (2, []), (3, ["send_mail a"]), (5, ["send_mail a", "look_up 7"])]
)
def test_a_step_that_cannot_be_stored_stops_the_run_before_the_next(
    traces: Traces, room: int, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        checkpointer = Full()
        checkpointer.room = room
        agent = agent_of(checkpointer, traces)
        with pytest.raises(SnapshotNotSaved, match="the disk is full") as raised:
            await agent.run("Please")
        assert isinstance(raised.value.__cause__, StoreUnavailable)
        assert raised.value.snapshot["run_id"]
        assert "could not be stored" in caplog.text
        assert traces() == ran
        assert len(await checkpointer.list("t")) == room

    run(scenario())


def test_a_run_whose_end_cannot_be_stored_keeps_its_own_error(traces: Traces) -> None:
    async def scenario() -> None:
        checkpointer = Full()
        checkpointer.room = 1

        async def model(messages: Any, tools: Any, /) -> Reply:
            raise Broken("overloaded")

        with pytest.raises(Broken) as raised:
            await agent_of(checkpointer, traces, model=model).run("Please")
        assert "could not be stored either" in raised.value.__notes__[0]
        # The process lives, but it is not at work on the run: the run can be resumed.
        checkpointer.room = 99
        assert (await agent_of(checkpointer, traces).resume_from_checkpoint()).text == "done"

    run(scenario())


def test_a_worker_that_lost_its_run_starts_nothing_more(connect: Connect, traces: Traces) -> None:
    """It was taken for dead, and somebody else goes on."""

    async def scenario() -> None:
        inside, leave = asyncio.Event(), asyncio.Event()

        @tool
        async def first() -> str:
            inside.set()
            await leave.wait()
            return "first"

        script: Any = ([call("first"), call("send_mail", "a", to="a")], "done")
        tools = [*shop(traces), first]
        old = asyncio.create_task(agent_of(connect(), traces, *script, tools=tools).run("Please"))
        await inside.wait()
        successor = agent_of(connect(), traces, *script, tools=tools)
        with pytest.raises(AgentSuspended):
            await successor.resume_from_checkpoint(fork=True)
        assert traces() == ["send_mail a"]
        leave.set()
        with pytest.raises(AlreadyResumed):
            await old
        result = await successor.resume_from_checkpoint(decisions={"first": False})
        assert result.text == "done"

    run(scenario())
    assert traces() == ["send_mail a"]


def test_the_smallest_cap_is_enough(connect: Connect, traces: Traces) -> None:
    async def scenario() -> None:
        checkpointer = connect(max_checkpoints_per_thread=1)
        script: Any = ([call("refund", order="7", amount=1)], *SCRIPT)
        agent = agent_of(checkpointer, traces, *script)
        with pytest.raises(AgentSuspended):
            await agent.run("Please")
        assert (await agent.resume_from_checkpoint(approver=lambda pending: True)).text
        assert len(await checkpointer.list("t")) == 1

    run(scenario())
