"""What a model is given and what it answers: the one seam between an agent and a vendor.

A model is an async callable. It gets the conversation and the tools, and returns a `Reply`:

    async def model(messages, tools):
        answer = await client.chat(...)
        return Reply(text=answer.text, tool_calls=[ToolCall(call.id, call.name, call.arguments)])

Messages are plain dicts, fit for storing and close to what vendors use:

    {"role": "user", "content": "…"}
    {"role": "assistant", "content": "…", "tool_calls": [{"id": …, "name": …, "arguments": {…}}]}
    {"role": "tool", "tool_call_id": …, "name": …, "content": …, "is_error": False}

A tool's message also has ``arguments`` when an approver changed them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; ``parameters`` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for. ``arguments`` may be the text of a JSON object.

    None means none, as vendors' clients say it; so it does in a `Reply`.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used: by one reply, or by a run so far, all its pauses included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    model_calls: int = 0
    tool_calls: int = 0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps over a whole run, all its pauses included; None means no cap.

    The next call of the model or of a tool is refused once a cap is reached.
    """

    tokens: int | None = None
    cost: float | None = None
    model_calls: int | None = None
    tool_calls: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answers: a text, calls of tools, or both. Without calls it is the last word."""

    text: str = ""
    tool_calls: Sequence[ToolCall] | None = ()
    usage: Usage | None = Usage()


class Model(Protocol):
    """An async callable; see the module."""

    def __call__(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], /
    ) -> Awaitable[Reply]:
        """Answer a conversation."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, and where it is stored."""

    text: str
    messages: Sequence[Message]
    usage: Usage
    thread_id: str
    checkpoint_id: str | None
