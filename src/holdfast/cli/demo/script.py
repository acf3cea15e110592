"""What the model says, and what its tools answer when all is well.

A model that is a function of the conversation says the same words in every run. So the conversation in
the end can be compared with the one of a run that nobody disturbed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.agent import Reply, ToolCall
from holdfast.agent.messages import Message
from holdfast.cli.demo.project import (
    BROKEN_PRICES,
    CHANGELOG,
    PRICE,
    PRICES,
    TAX_TABLE,
    TESTS,
    VERSION,
)

_FOUND: Final = 900
_LINE: Final = 80


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a tool, and what it answers."""

    tool: str
    result: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says at one point; without actions it is its last word."""

    says: str
    actions: tuple[Action, ...] = ()


def search(query: str) -> str:
    """Return a few kilobytes that are the same for the same query, and look like nothing else."""
    words: list[str] = []
    while len(words) < _FOUND:
        words.append(hashlib.sha256(f"{query}/{len(words)}".encode()).hexdigest()[:6])
    return f"{query}: {' '.join(words)}"


def wrote(path: str, text: str) -> str:
    """Return what the tool says that writes a file."""
    return f"wrote {path}, {len(text.encode())} bytes"


def _write(path: str, text: str) -> Action:
    return Action("write_file", wrote(path, text), {"path": path, "text": text})


PASSED: Final = "3 tests passed"
BOUGHT: Final = f"bought for {PRICE}, receipt T-1"
PUBLISHED: Final = f"published {VERSION}"
TASK: Final = f"Add a discount, buy the tax table, publish {VERSION}, tidy up."
FINISH: Final = "The tidying was taken back. Check once more and finish."
_FIRST: Final = (
    Turn(
        "I look up how discounts work.",
        (Action("search", search("discount rules"), {"query": "discount rules"}),),
    ),
    Turn("I write the tests first.", (_write("tests/test_prices.py", TESTS),)),
    Turn("They should fail.", (Action("run_tests", "1 of 3 tests failed"),)),
    Turn("Now the discount.", (_write("shop/prices.py", PRICES),)),
    Turn("They should pass.", (Action("run_tests", PASSED),)),
    Turn("I buy the tax table.", (Action("buy_tax_table", BOUGHT, {"price": PRICE}),)),
    Turn("I note the changes.", (_write("CHANGELOG.md", CHANGELOG),)),
    Turn("One last check.", (Action("run_tests", PASSED),)),
    Turn("Ready to go out.", (Action("publish", PUBLISHED, {"version": VERSION}),)),
    Turn(
        "I tidy up.",
        (
            _write("shop/prices.py", BROKEN_PRICES),
            Action("delete_file", f"deleted {TAX_TABLE}", {"path": TAX_TABLE}),
            _write("shop/old.py", PRICES),
        ),
    ),
    Turn("All should be well.", (Action("run_tests", "1 of 1 tests failed"),)),
    Turn("I tidied up, and now the tests fail. Sorry."),
)
_SECOND: Final = (
    Turn("I check once more.", (Action("run_tests", PASSED),)),
    Turn(f"{VERSION} is out, the tests pass, and nothing was left behind."),
)
_TURNS: Final = {TASK: _FIRST, FINISH: _SECOND}


def _step_that(tool: str) -> int:
    return next(
        number
        for number, turn in enumerate(_FIRST, 1)
        if any(action.tool == tool for action in turn.actions)
    )


KILLED_IN_STEP: Final = _step_that("buy_tax_table")
APPROVED_STEP: Final = _step_that("publish")
GOOD: Final = f"{APPROVED_STEP:02}-publish"


def steps_done(messages: Sequence[Message]) -> int:
    """Return how often the model has spoken."""
    return sum(message["role"] == "assistant" for message in messages)


def reply_to(messages: Sequence[Message]) -> Reply:
    """Return what the model says next: a function of the conversation and of nothing else."""
    step = steps_done(messages) + 1
    asked = max(at for at, message in enumerate(messages) if message["role"] == "user")
    turn = _TURNS[messages[asked]["content"]][steps_done(messages[asked:])]
    calls = [
        ToolCall(f"call-{step}-{number}", action.tool, action.arguments)
        for number, action in enumerate(turn.actions, 1)
    ]
    return Reply(turn.says, calls)


def name_of(messages: Sequence[Message]) -> str:
    """Return the name of the save point at this place of the conversation."""
    last = messages[-1]
    what = {"user": "asked", "assistant": "answered"}.get(last["role"]) or last["name"]
    return f"{steps_done(messages):02}-{what}"


def happened_in(messages: Sequence[Message]) -> str:
    """Return what has just happened, in a line: what a tool said if that is short, else the words."""
    last = messages[-1]["content"]
    words = [one["content"] for one in messages if one["role"] != "tool"]
    return str(last if len(last) <= _LINE else words[-1])


def state_of(messages: Sequence[Message]) -> dict[str, Any]:
    """Return what the agent saves."""
    return {
        "conversation_history": list(messages),
        "variable_state": {"next_step": steps_done(messages) + 1},
    }


def expected_state() -> dict[str, Any]:
    """Return the last state of a run that nobody disturbed and that had no bad idea."""
    return state_of(_conversation(_conversation([], TASK, APPROVED_STEP), FINISH))


def expected_names() -> list[str]:
    """Return the names of all save points, those of the bad idea too."""
    first, good = _conversation([], TASK), _conversation([], TASK, APPROVED_STEP)
    second = _conversation(good, FINISH)
    return [*_names(first), *_names(second)[APPROVED_STEP + 1 :]]


def _names(messages: list[Message]) -> list[str]:
    ends = [
        at
        for at, message in enumerate(messages, 1)
        if message["role"] != "assistant" or at == len(messages)
    ]
    return list(dict.fromkeys(name_of(messages[:end]) for end in ends if _is_whole(messages, end)))


def _is_whole(messages: list[Message], end: int) -> bool:
    """Whether a turn ends here: the model is asked when all of its calls have been answered."""
    return end == len(messages) or messages[end]["role"] != "tool"


def _conversation(before: list[Message], prompt: str, turns: int | None = None) -> list[Message]:
    messages = [*before, {"role": "user", "content": prompt}]
    for turn in _TURNS[prompt][:turns]:
        reply = reply_to(messages)
        said: Message = {"role": "assistant", "content": reply.text}
        if reply.tool_calls:
            said["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments}
                for call in reply.tool_calls
            ]
        messages.append(said)
        messages += [
            {
                "role": "tool",
                "tool_call_id": call.id,
                "name": call.name,
                "content": action.result,
                "is_error": False,
            }
            for call, action in zip(reply.tool_calls or (), turn.actions, strict=True)
        ]
    return messages
