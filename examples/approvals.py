"""A shop's agent asks before it pays money back, in whatever process the answer arrives.

    python examples/approvals.py ask        # runs until the refund needs approval, then ends
    python examples/approvals.py pending    # shows what waits
    python examples/approvals.py approve    # goes on; also: reject, or modify with a smaller amount

Each command is a process of its own; `shop.db` in the present directory is all that they share. The
model here follows a script, so that the example runs without an account. `wrapped` shows how to use a
real one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from holdfast import Agent, AgentSuspended, SQLiteCheckpointer
from holdfast.agent import (
    Budget,
    Decision,
    Message,
    Reply,
    ToolCall,
    ToolSpec,
    Usage,
    pending_calls,
    tool,
)

THREAD = "support-42"


@tool(idempotent=True)
def look_up(order: str) -> dict[str, Any]:
    """Find an order."""
    return {"order": order, "paid": 20}


@tool(needs_approval=True)
def refund(order: str, amount: int) -> str:
    """Pay money back to the customer."""
    print(f"  … paying {amount} back for order {order}")
    return f"refunded {amount}"


async def scripted(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
    """Look the order up, ask for a refund, and say how it went."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    spent = Usage(input_tokens=100, output_tokens=20)
    if not results:
        return Reply(tool_calls=[ToolCall("find", "look_up", {"order": "7"})], usage=spent)
    if len(results) == 1:
        wanted = {"order": "7", "amount": results[0]["paid"]}
        return Reply(tool_calls=[ToolCall("pay", "refund", wanted)], usage=spent)
    return Reply(f"Order 7: {results[-1]}", usage=spent)


def wrapped(client: Any, name: str) -> Any:
    """Return a model that asks a vendor's chat client, here one that speaks OpenAI's format."""

    async def model(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        answer = await client.chat.completions.create(
            model=name,
            messages=[_for_vendor(message) for message in messages],
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": spec.name,
                        "description": spec.description,
                        "parameters": spec.parameters,
                    },
                }
                for spec in tools
            ],
        )
        said = answer.choices[0].message
        return Reply(
            text=said.content or "",
            tool_calls=[
                # The arguments are JSON text, and may be broken: the agent deals with both.
                ToolCall(call.id, call.function.name, call.function.arguments)
                for call in said.tool_calls or ()
            ],
            usage=Usage(answer.usage.prompt_tokens, answer.usage.completion_tokens),
        )

    return model


def _for_vendor(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        content = json.dumps(message["content"])
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": content}
    if "tool_calls" not in message:
        return {"role": message["role"], "content": message["content"]}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": message["content"], "tool_calls": calls}


async def main(command: str) -> None:
    async with SQLiteCheckpointer("shop.db") as checkpointer:
        agent = Agent(
            model=scripted,
            tools=[look_up, refund],
            checkpointer=checkpointer,
            default_thread_id=THREAD,
            budget=Budget(tokens=10_000),
        )
        try:
            if command == "ask":
                result = await agent.run("Please refund order 7")
            elif command == "pending":
                for call in await pending_calls(checkpointer, THREAD):
                    print(f"{call.id}: {call.name} {dict(call.arguments)} ({call.reason})")
                return
            else:
                decision = {
                    "approve": Decision.approve(),
                    "reject": Decision.reject("ask again next week"),
                    "modify": Decision.modify({"order": "7", "amount": 5}),
                }[command]
                result = await agent.resume_from_checkpoint(decisions={"pay": decision})
        except AgentSuspended as suspended:
            print(suspended)
        else:
            print(f"{result.text} ({result.usage.tokens} tokens)")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ask"))
