"""An agent that pays three orders one after the other, and may be told to die at one of them.

``shop URL RUN LEDGER DIE`` runs it: every request and payment leaves a line in the ledger. DIE is the line
with which the process kills itself, before that line is written for "before …", after it for "after …".
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.integrations.pydantic_ai import HoldfastDurability, durable_run

ORDERS = 3


def make_agent(ledger: Path, die: str = "", **options: Any) -> Agent[None, str]:
    def note(line: str) -> None:
        if die == f"before {line}":
            os.kill(os.getpid(), signal.SIGKILL)
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        if die == f"after {line}":
            os.kill(os.getpid(), signal.SIGKILL)

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        paid = sum(isinstance(part, ToolReturnPart) for part in parts)
        note(f"request {paid + 1}")
        if paid < ORDERS:
            call = ToolCallPart("pay", {"order": paid + 1}, tool_call_id=f"call-{paid + 1}")
            return ModelResponse(parts=[call])
        return ModelResponse(parts=[TextPart(f"paid {paid} orders")])

    agent = Agent(FunctionModel(reply), name="shop", capabilities=[HoldfastDurability(**options)])

    @agent.tool_plain
    def pay(order: int) -> str:
        note(f"pay {order}")
        return f"receipt {order}"

    return agent


async def run(url: str, run_id: str, agent: Agent[None, str]) -> str:
    async with durable_run(url, run_id):
        result = await agent.run("Pay all orders")
    return str(result.output)


if __name__ == "__main__":
    _, url, run_id, ledger, die = sys.argv
    print(asyncio.run(run(url, run_id, make_agent(Path(ledger), die))))
