"""A run of Pydantic AI that survives its process, with a file instead of a server.

    pip install 'holdfast[pydantic-ai]'
    python examples/pydantic-ai.py --die    # kills itself after the first payment
    python examples/pydantic-ai.py          # goes on: the first order is not paid again
    python examples/pydantic-ai.py          # nothing left to do: the answer is read from its record

Everything is kept in runs.db. The model is a script; take its line out for a real one.
"""

import asyncio
import os
import signal
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from holdfast.integrations.pydantic_ai import HoldfastDurability, durable_run


def scripted(messages, info):
    """Ask for the payments one after the other."""
    parts = [part for message in messages for part in message.parts]
    paid = sum(isinstance(part, ToolReturnPart) for part in parts)
    if paid == 1 and "--die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if paid < 2:
        return ModelResponse(parts=[ToolCallPart("pay", {"order": paid + 1})])
    return ModelResponse(parts=[TextPart("All paid")])


agent = Agent(FunctionModel(scripted), name="shop", capabilities=[HoldfastDurability()])


@agent.tool_plain
def pay(order: int) -> str:
    """Pay an order."""
    print(f"… paying order {order}", flush=True)
    return f"receipt {order}"


async def main():
    async with durable_run("runs.db", "orders-of-today"):
        result = await agent.run("Pay all orders")
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
