"""The example runs as its first lines say, and its way to wrap a vendor's client works."""

from __future__ import annotations

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Agent, MemoryCheckpointer

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "approvals.py"


def say(command: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLE, command],
        cwd=folder, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("approve", "… paying 20 back for order 7\nOrder 7: refunded 20 (360 tokens)"),
        ("modify", "… paying 5 back for order 7\nOrder 7: refunded 5 (360 tokens)"),
        (
            "reject",
            "Order 7: The call was rejected and not run: ask again next week (360 tokens)",
        ),
    ],
)
def test_the_example_goes_on_in_another_process(tmp_path: Path, command: str, said: str) -> None:
    assert say("ask", tmp_path).startswith("thread 'support-42' waits for decisions on refund")
    assert say("pending", tmp_path) == "pay: refund {'order': '7', 'amount': 20} (approval)"
    assert say(command, tmp_path) == said


def test_a_vendors_client_can_be_wrapped() -> None:
    sent: list[Any] = []

    class Completions:
        async def create(self, **request: Any) -> Any:
            sent.append(request)
            calls: Any = None
            content: str | None = "all done"
            if len(sent) == 1:
                function = SimpleNamespace(name="look_up", arguments='{"order": "7"}')
                calls, content = [SimpleNamespace(id="c1", function=function)], None
            message = SimpleNamespace(content=content, tool_calls=calls)
            usage = SimpleNamespace(prompt_tokens=3, completion_tokens=2)
            return SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=usage)

    names = runpy.run_path(str(EXAMPLE))
    client = SimpleNamespace(chat=SimpleNamespace(completions=Completions()))
    agent = Agent(
        model=names["wrapped"](client, "some-model"),
        tools=[names["look_up"]],
        checkpointer=MemoryCheckpointer(),
    )
    result = asyncio.run(agent.run("Where is order 7?"))
    assert (result.text, result.usage.tokens) == ("all done", 10)
    assert sent[1]["tools"][0]["function"]["parameters"]["required"] == ["order"]
    assert sent[1]["messages"] == [
        {"role": "user", "content": "Where is order 7?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": '{"order": "7"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"order": "7", "paid": 20}'},
    ]
