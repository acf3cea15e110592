"""An agent in a process of its own: ``python -m tests.agent.program URL TABLE TRACES COMMAND [JSON]``.

It prints one JSON line. The tool `hold` says so on stdout, once it has left its trace, and waits for
stdin: that is where tests kill it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from psycopg_pool import ConnectionPool

from holdfast import Agent, AgentSuspended, PostgresCheckpointer, SQLiteCheckpointer
from holdfast.agent import Tool, decide, pending_calls, tool
from holdfast.checkpointers import BaseCheckpointer
from holdfast.errors import HoldfastError
from tests.agent.scripts import ScriptedModel, Traces, call, shop

THREAD = "a-thread"


def tools(traces: Traces, *, wait: bool) -> list[Tool]:
    @tool
    def hold(name: str) -> str:
        traces.leave("hold", name)
        if wait:
            print("holding", flush=True)
            sys.stdin.read()
        return f"held {name}"

    @tool(idempotent=True)
    def hold_again(name: str) -> str:
        return str(hold.function(name))

    @tool(needs_approval=True)
    def hold_approved(name: str) -> str:
        return str(hold.function(name))

    return [*shop(traces), hold, hold_again, hold_approved]


SCRIPTS: dict[str, Any] = {
    "approval": (
        [call("refund", "pay", order="7", amount=20), call("send_mail", "mail", to="ann")],
        "done",
    ),
    "hold": ([call("send_mail", "mail", to="ann")], [call("hold", name="x")], "done"),
    "hold again": ([call("send_mail", "mail", to="ann")], [call("hold_again", name="x")], "done"),
    "approved hold": ([call("hold_approved", "slow", name="y")], "done"),
}


def connect(url: str, table: str, stack: ExitStack) -> BaseCheckpointer:
    if url.startswith("postgresql:"):
        pool = stack.enter_context(ConnectionPool(url, min_size=1, max_size=2, open=True))
        return PostgresCheckpointer(pool, table=table)
    return SQLiteCheckpointer(url)


async def main(url: str, table: str, traces: str, command: str, text: str = "{}") -> object:
    with ExitStack() as stack:
        return await work(connect(url, table, stack), traces, command, json.loads(text))


async def work(
    checkpointer: BaseCheckpointer, traces: str, command: str, options: dict[str, Any]
) -> object:
    agent = Agent(
        model=ScriptedModel(*SCRIPTS[options.get("script", "approval")]),
        tools=tools(Traces(Path(traces)), wait=options.get("wait", False)),
        checkpointer=checkpointer,
        default_thread_id=THREAD,
        save_on=options.get("save_on", "message"),
    )
    if options.get("start") == "together":
        print("ready", flush=True)
        sys.stdin.readline()
    try:
        if command == "decide":
            asked = await pending_calls(checkpointer, THREAD)
            await decide(checkpointer, THREAD, options["decisions"])
            return {"asked": [one.id for one in asked]}
        if command == "run":
            result = await agent.run("Please")
        else:
            result = await agent.resume_from_checkpoint(
                approver=(lambda pending: True) if options.get("approve") else None,
                decisions=options.get("decisions"),
                fork=options.get("fork", False),
            )
        return {"text": result.text, "usage": result.usage.tokens}
    except AgentSuspended as error:
        return {"suspended": [f"{one.id} {one.reason}" for one in error.pending]}
    except HoldfastError as error:
        return {"error": error.code}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))), flush=True)
