"""Death at every point of a run: before and after each save, before and after each effect.

A death is an exception that nothing here catches, so that the run leaves what kill -9 would leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentSuspended, SQLiteCheckpointer
from holdfast.agent import Decision, PendingCall, Tool
from holdfast.errors import AlreadyResumed, NothingToResume
from tests.agent.scripts import ScriptedModel, Traces, call, results, shop

SCRIPT: Any = (
    [call("send_mail", "first", to="a"), call("look_up", order="7")],
    [call("refund", "pay", order="7", amount=20), call("send_mail", "second", to="b")],
    [call("refund", "more", order="8", amount=1)],
    "done",
)
ONCE = ["refund 7 20", "refund 8 1", "send_mail a", "send_mail b"]


class Killed(BaseException):
    """The process is gone."""


class Fate:
    """Kills at one of the points that are passed."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise Killed


class Mortal(SQLiteCheckpointer):
    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(path)
        self.fate = fate

    async def put(
        self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
    ) -> str:
        self.fate.point()
        made = await super().put(thread_id, snapshot, consumes=consumes)
        self.fate.point()
        return made


def mortal(one: Tool, fate: Fate) -> Tool:
    async def function(**arguments: Any) -> Any:
        fate.point()
        result = await one(arguments)
        fate.point()
        return result

    return Tool(
        function,
        name=one.name,
        parameters=one.spec.parameters,
        needs_approval=one.needs_approval,
        idempotent=one.idempotent,
    )


def finish(path: Path, thread: str, fate: Fate) -> tuple[list[str], dict[str, Any]]:
    """Run to the end as a supervisor would; return the deaths and doubts, and the results."""
    met: list[str] = []
    traces = Traces(path.parent / thread)

    def judge(pending: PendingCall) -> Decision:
        """Look at the world, as a person would: has it happened?"""
        done = {"first": "send_mail a", "second": "send_mail b", "pay": "refund 7 20",
                "more": "refund 8 1"}[pending.id] in traces()  # fmt: skip
        met.append(f"unknown {pending.id}")
        return Decision.answer("it happened") if done else Decision.approve()

    async def attempt(decisions: dict[str, Decision]) -> dict[str, Any]:
        async with Mortal(path, fate) as checkpointer:
            agent = Agent(
                model=ScriptedModel(*SCRIPT),
                tools=[mortal(one, fate) for one in shop(traces)],
                checkpointer=checkpointer,
                default_thread_id=thread,
            )
            try:
                await agent.resume_from_checkpoint(
                    approver=lambda pending: True, decisions=decisions
                )
            except NothingToResume:
                await agent.run("Please")
            except AlreadyResumed:
                met.append("ended")
            snapshot = await checkpointer.load(thread)
            assert snapshot["status"] == "completed"
            assert snapshot["messages"][-1]["content"] == "done"
            return results(snapshot["messages"])

    decisions: dict[str, Decision] = {}
    for _ in range(12):
        try:
            found = asyncio.run(attempt(decisions))
        except AgentSuspended as error:
            doubtful = [one for one in error.pending if one.reason == "unknown"]
            decisions = {one.id: judge(one) for one in doubtful}
        except Killed:
            met.append("killed")
            decisions = {}
        else:
            return met, found
    raise AssertionError(f"the run never ends: {met}")


def points_of_a_run(tmp_path: Path) -> int:
    fate = Fate(at=0)
    met, found = finish(tmp_path / "agent.db", "unharmed", fate)
    assert met == []
    assert list(found) == ["first", "look_up", "pay", "second", "more"]
    return fate.passed


@pytest.mark.row("S3-24", "S3-27")
def test_wherever_a_run_dies_it_ends_and_nothing_runs_twice(tmp_path: Path) -> None:
    points = points_of_a_run(tmp_path)
    assert points > 40
    doubts = 0
    for at in range(1, points + 1):
        met, found = finish(tmp_path / "agent.db", f"killed at {at}", Fate(at))
        assert met[0] == "killed", at
        assert list(found) == ["first", "look_up", "pay", "second", "more"], at
        traces = Traces(tmp_path / f"killed at {at}")()
        ran = sorted(line for line in traces if not line.startswith("look_up"))
        # The agent never repeats; the supervisor of this test repeats nothing that has happened.
        assert ran == ONCE, at
        doubts += sum(one.startswith("unknown") for one in met)
        assert ("ended" in met) is (at == points), at
    # Four tools that may not run twice, and for each four points at which nobody can know: after the
    # mark, before the effect, after it, and before its result is stored.
    assert doubts == 16
