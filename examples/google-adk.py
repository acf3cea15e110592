"""A shopping list that an agent of Google ADK keeps, from process to process.

    pip install 'holdfast[google-adk]'
    python examples/google-adk.py milk
    python examples/google-adk.py bread
    python examples/google-adk.py --rewind      # takes the last one back

Sessions are kept in sessions.db. The model is a script; name a real one instead.
"""

import asyncio
import logging
import sys

from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.tools import ToolContext
from google.genai import types

from holdfast.integrations.google_adk import HoldfastSessionService

WHO = {"user_id": "ann", "session_id": "shopping"}
logging.disable(logging.WARNING)


class Scripted(BaseLlm):
    """Writes down whatever it is told."""

    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        call = types.FunctionCall(name="write_down", args={"thing": last.text or ""})
        part = (
            types.Part(text="noted") if last.function_response else types.Part(function_call=call)
        )
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def write_down(thing: str, tool_context: ToolContext) -> str:
    """Add a thing to the list."""
    tool_context.state["things"] = [*(tool_context.state.get("things") or []), thing]
    return "written"


async def main(thing):
    service = HoldfastSessionService("sessions.db")
    agent = Agent(name="clerk", model=Scripted(model="scripted"), tools=[write_down])
    runner = Runner(agent=agent, app_name="shop", session_service=service)
    session = await service.get_session(app_name="shop", **WHO)
    if session is None:
        session = await service.create_session(app_name="shop", **WHO)
    if thing == "--rewind":
        last = session.events[-1].invocation_id
        await runner.rewind_async(**WHO, rewind_before_invocation_id=last)
    else:
        message = types.Content(role="user", parts=[types.Part(text=thing)])
        async for event in runner.run_async(**WHO, new_message=message):
            if event.is_final_response():
                print(event.content.parts[0].text, end="; ")
    session = await service.get_session(app_name="shop", **WHO)
    print("the list:", ", ".join(session.state["things"] or []))
    await service.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
