"""A worker that takes up an approved run when it is told to: ``worker URL NAME LEDGER``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast.errors import AlreadyResumed
from holdfast.integrations.openai_agents import HoldfastRunStates, HoldfastSession


def make_agent(*steps: Any, ledger: Path) -> Agent[Any]:
    """Return an agent whose model says what the steps say, and whose tool leaves a trace."""

    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{order}\n")
        return f"refunded {order}"

    return Agent(name="support", model=ScriptedModel([[step] for step in steps]), tools=[refund])


def asks(order: str) -> Any:
    """A model's reply that asks for a refund."""
    return function_call("refund", {"order": order}, call_id=f"call-{order}")


def says(text: str) -> Any:
    """A model's reply in words."""
    return assistant_message(text)


async def work(url: str, name: str, ledger: Path) -> str:
    runs, session = HoldfastRunStates(url), HoldfastSession(name, url)
    agent = make_agent(says("done"), ledger=ledger)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        run = await runs.take(name, agent)
    except AlreadyResumed:
        return "already"
    result = await Runner.run(agent, run.state, session=session)
    return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
