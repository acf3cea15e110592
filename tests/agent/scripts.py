"""A model that follows a script, and tools that leave a trace: one line a run, in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.agent import Message, Reply, Tool, ToolCall, ToolSpec, Usage, tool

SPENT = Usage(input_tokens=10, output_tokens=5, cost=0.5)


class ScriptedModel:
    """Answers the n-th question of a conversation with the n-th reply, in whatever process.

    A text is the last word, a list is the calls of a turn.
    """

    def __init__(self, *replies: str | list[ToolCall]) -> None:
        self.replies = replies
        self.seen: list[Sequence[Message]] = []
        self.specs: Sequence[ToolSpec] = ()

    async def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSpec], /) -> Reply:
        self.seen.append(messages)
        self.specs = tools
        answered = sum(message["role"] == "assistant" for message in messages)
        reply = self.replies[answered]
        if isinstance(reply, str):
            return Reply(reply, usage=SPENT)
        return Reply("calling", reply, usage=SPENT)


def call(name: str, call_id: str | None = None, /, **arguments: Any) -> ToolCall:
    return ToolCall(call_id or name, name, arguments)


class Traces:
    """Which tools ran, with what, in which order: read from a file that processes share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def leave(self, *words: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            print(*words, file=file, flush=True)

    def __call__(self) -> list[str]:
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8").splitlines()


def shop(traces: Traces) -> list[Tool]:
    """Return the tools of a shop; `refund` needs approval, `look_up` may run twice."""

    @tool(needs_approval=True)
    async def refund(order: str, amount: int) -> dict[str, Any]:
        """Pay money back."""
        traces.leave("refund", order, amount)
        return {"refunded": amount}

    @tool
    def send_mail(to: str) -> str:
        """Write to a customer."""
        traces.leave("send_mail", to)
        return f"sent to {to}"

    @tool(idempotent=True)
    async def look_up(order: str) -> str:
        """Find an order."""
        traces.leave("look_up", order)
        return f"order {order}"

    return [refund, send_mail, look_up]


def results(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the results of tools by call id."""
    return {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
