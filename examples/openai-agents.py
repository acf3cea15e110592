"""A conversation of OpenAI Agents that lasts, and a refund that is approved in another process.

    pip install 'holdfast[openai-agents]'
    python examples/openai-agents.py ask        # stops before the tool runs
    python examples/openai-agents.py approve    # goes on, once: a second call is refused
    python examples/openai-agents.py show       # what was said

Everything is kept in the file agents.db. The model is a script; take its line out for a real one.
"""

import asyncio
import sys

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast.errors import AlreadyResumed
from holdfast.integrations.openai_agents import HoldfastRunStates, HoldfastSession

NAME = "support-42"
FILE = "agents.db"


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    print(f"… paying order {order} back")
    return "paid"


def make_agent(*replies):
    return Agent(name="support", tools=[refund], model=ScriptedModel([[one] for one in replies]))


async def ask():
    agent = make_agent(function_call("refund", {"order": "7"}, call_id="call-1"))
    session = HoldfastSession(NAME, FILE)
    result = await Runner.run(agent, "Please refund order 7", session=session)
    await HoldfastRunStates(FILE).save(NAME, result.to_state())
    for item in result.interruptions:
        print(f"{NAME} waits for a decision: {item.tool_name} {item.arguments}")


async def approve():
    agent = make_agent(assistant_message("Order 7 was paid back"))
    try:
        run = await HoldfastRunStates(FILE).take(NAME, agent)
    except AlreadyResumed as error:
        print(error)
        return
    for item in run.state.get_interruptions():
        run.state.approve(item)
    result = await Runner.run(agent, run.state, session=HoldfastSession(NAME, FILE))
    print(result.final_output)


async def show():
    for item in await HoldfastSession(NAME, FILE).get_items():
        print(f"{item.get('role') or item['type']}: {item.get('content') or item.get('output')}")


if __name__ == "__main__":
    commands = {"ask": ask, "approve": approve, "show": show}
    asyncio.run(commands[sys.argv[1]]())
