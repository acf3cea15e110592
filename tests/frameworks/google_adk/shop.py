"""An agent that notes what it is told, in the state of session, user and app; and workers.

``shop append URL NAME`` adds ten events as often as it takes; ``shop die URL`` is killed after an event is
stored and before what it says about user and app is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import Agent
from google.adk.errors import StaleSessionError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import ToolContext
from google.genai import types

from holdfast.integrations.google_adk import HoldfastSessionService

WHO: Any = {"app_name": "shop", "user_id": "ann", "session_id": "s"}


def content(role: str, **part: Any) -> types.Content:
    return types.Content(role=role, parts=[types.Part(**part)])


class ScriptedModel(BaseLlm):
    """Notes what it is told by its tool, then says so."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            yield LlmResponse(content=content("model", text="noted"))
        else:
            call = types.FunctionCall(name="note", args={"text": last.text})
            yield LlmResponse(content=content("model", function_call=call))


def note(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Note a text."""
    for prefix in ("", "user:", "app:", "temp:"):
        tool_context.state[f"{prefix}last"] = text
    tool_context.state[f"said {text}"] = [text, {"n": 1.5}]
    return {"noted": text}


def make_runner(service: Any) -> Runner:
    agent = Agent(name="clerk", model=ScriptedModel(model="scripted"), tools=[note])
    return Runner(agent=agent, app_name="shop", session_service=service)


async def say(runner: Runner, text: str) -> list[Event]:
    message = content("user", text=text)
    who = {"user_id": "ann", "session_id": "s"}
    return [event async for event in runner.run_async(**who, new_message=message)]


async def append(url: str, name: str) -> None:
    service = HoldfastSessionService(url)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        while True:
            session = await service.get_session(**WHO)
            delta = {f"{name}{number}": number, f"app:{name}{number}": number}
            event = Event(author=name, actions=EventActions(state_delta=delta))
            try:
                await service.append_event(session, event)
            except StaleSessionError:
                continue
            break
    await service.close()


async def die(url: str) -> None:
    service = HoldfastSessionService(url)
    service._shared.tell = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    session = await service.get_session(**WHO)
    delta = {"own": 1, "user:mine": 2, "app:ours": 3}
    await service.append_event(session, Event(author="a", actions=EventActions(state_delta=delta)))


if __name__ == "__main__":
    asyncio.run(append(*sys.argv[2:4]) if sys.argv[1] == "append" else die(sys.argv[2]))
