"""Snapshots outlive the program that wrote them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, AgentSuspended
from holdfast.agent import snapshot as module
from holdfast.checkpointers import BaseCheckpointer
from holdfast.errors import NotResumable, SnapshotTooNew
from tests.agent.conftest import Connect
from tests.agent.scripts import ScriptedModel, Traces, call, results, shop


def agent_of(checkpointer: BaseCheckpointer, traces: Traces, **options: Any) -> Agent:
    return Agent(
        model=ScriptedModel([call("refund", order="7", amount=20)], "done"),
        checkpointer=checkpointer,
        default_thread_id="t",
        **{"tools": shop(traces)} | options,
    )


async def suspend(agent: Agent) -> None:
    with pytest.raises(AgentSuspended):
        await agent.run("Please")


def approve(pending: object) -> bool:
    return True


@pytest.mark.row("S3-25")
def test_a_snapshot_of_an_older_agent_is_migrated(connect: Connect, traces: Traces) -> None:
    """Version 1 paid whole amounts; version 2 counts cents; version 3 calls the tool otherwise."""

    def to_cents(snapshot: dict[str, Any]) -> dict[str, Any]:
        for one in snapshot["calls"]:
            one["arguments"]["amount"] *= 100
        return snapshot

    def rename(snapshot: dict[str, Any]) -> dict[str, Any]:
        for one in snapshot["calls"]:
            one["name"] = "pay_back"
        return snapshot

    def pay_back(order: str, amount: int) -> str:
        traces.leave("pay_back", order, amount)
        return "paid"

    async def scenario() -> None:
        await suspend(agent_of(connect(), traces))
        newer = agent_of(
            connect(), traces, tools=[pay_back], version=3, migrations={1: to_cents, 2: rename}
        )
        result = await newer.resume_from_checkpoint(approver=approve)
        assert results(result.messages) == {"refund": "paid"}
        assert (await connect().load("t"))["agent_version"] == 3

    asyncio.run(scenario())
    assert traces() == ["pay_back 7 2000"]


@pytest.mark.row("S3-25")
def test_a_snapshot_of_an_older_format_is_migrated(
    connect: Connect, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(snapshot: dict[str, Any]) -> dict[str, Any]:
        snapshot["calls"] = snapshot.pop("steps")
        return snapshot

    async def scenario() -> None:
        await suspend(agent_of(connect(), traces))
        old = await connect().load("t")
        old["steps"] = old.pop("calls")
        await connect().put("t", old)
        monkeypatch.setattr(module, "FORMAT", 2)
        monkeypatch.setattr(module, "_FORMAT_MIGRATIONS", {1: steps})
        await agent_of(connect(), traces).resume_from_checkpoint(approver=approve)
        assert (await connect().load("t"))["version"] == 2

    asyncio.run(scenario())
    assert traces() == ["refund 7 20"]


@pytest.mark.row("S3-25")
@pytest.mark.parametrize("key", ["version", "agent_version"])
def test_a_newer_snapshot_is_refused_and_stays_as_it_is(
    connect: Connect, traces: Traces, key: str
) -> None:
    async def scenario() -> None:
        agent = agent_of(connect(), traces)
        await suspend(agent)
        snapshot = await connect().load("t")
        newer = await connect().put("t", snapshot | {key: 2})
        for fork in (False, True):
            with pytest.raises(SnapshotTooNew, match=f"{key} 2"):
                await agent.resume_from_checkpoint(approver=approve, fork=fork)
        assert (await connect().list("t"))[0].id == newer
        # Nothing was consumed: the newer program can still go on from it.
        if key == "agent_version":
            later = agent_of(connect(), traces, version=2)
            assert (await later.resume_from_checkpoint(approver=approve)).text == "done"

    asyncio.run(scenario())


@pytest.mark.row("S3-25")
def test_what_no_migration_leads_from_is_refused(connect: Connect, traces: Traces) -> None:
    def broken(snapshot: dict[str, Any]) -> dict[str, Any]:
        return {"kind": snapshot["kind"], "version": 1}

    def forgetful(snapshot: dict[str, Any]) -> Any:
        snapshot["calls"] = []

    def failing(snapshot: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("calls")

    async def scenario() -> None:
        await suspend(agent_of(connect(), traces))
        before = await connect().list("t")
        for migrations in ({}, {2: broken}):
            agent = agent_of(connect(), traces, version=3, migrations=migrations)
            with pytest.raises(NotResumable, match="no migration leads from there to 3"):
                await agent.resume_from_checkpoint(approver=approve)
        agent = agent_of(connect(), traces, version=2, migrations={1: broken})
        with pytest.raises(NotResumable, match="cannot be read"):
            await agent.resume_from_checkpoint(approver=approve)
        for wrong, said in ((forgetful, "returned None"), (failing, "failed .KeyError")):
            agent = agent_of(connect(), traces, version=2, migrations={1: wrong})
            with pytest.raises(NotResumable, match=f"from agent_version 1 to 2 {said}"):
                await agent.resume_from_checkpoint(approver=approve)
        assert await connect().list("t") == before
        assert (await agent_of(connect(), traces).resume_from_checkpoint(approver=approve)).text

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1"},
        {"version": 0},
        {"status": "odd"},
        {"calls": None},
        {"usage": {"x": 1}},
        {"usage": {"input_tokens": None}},
        {"budget": {"cost": "1"}},
        {"calls": [{"id": "1", "name": "refund", "arguments": {}, "state": "odd"}]},
        {"calls": [{"id": [1], "name": "refund", "arguments": {}, "state": "pending"}]},
        {"messages": [1]},
    ],
    ids=["text", "zero", "status", "calls", "usage", "tokens", "cap", "state", "id", "messages"],
)
def test_what_is_no_snapshot_is_refused(
    checkpointer: BaseCheckpointer, traces: Traces, change: dict[str, Any]
) -> None:
    async def scenario() -> None:
        agent = agent_of(checkpointer, traces)
        await suspend(agent)
        await checkpointer.put("t", await checkpointer.load("t") | change)
        with pytest.raises(NotResumable):
            await agent.resume_from_checkpoint(approver=approve)

    asyncio.run(scenario())
    assert traces() == []
