"""The processes of the demonstration: ``python -m holdfast.cli.demo.agent``, told on stdin what to do.

The agent is a `holdfast.Agent` whose words are scripted and whose tools are real: they write files, run
tests, pay, publish. Before the model is asked, everything is saved: the conversation, and with it
the project's files. To pay and to publish are steps of the session, so that they happen once, whoever
comes past them again. To publish needs approval: the run suspends itself, the session is paused and the
process ends.

Whatever happens is also appended to a journal outside of Holdfast, and payments and publications go to
files that stand for the outside world. What ran twice shows there, whatever the checkpoints say.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from holdfast.agent import Agent, Reply, Tool, ToolSpec, decide, pending_calls
from holdfast.agent.messages import Message
from holdfast.checkpointers import StoreCheckpointer
from holdfast.cli.demo import script
from holdfast.cli.demo.project import TAX_RATES, TAX_TABLE, run_tests
from holdfast.errors import AgentSuspended
from holdfast.sessions import Session, SessionManager

Role: TypeAlias = Literal["start", "resume", "decide", "finish"]
Journal: TypeAlias = Callable[..., None]

MARK: Final = "mark"


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent tells a process.

    ``hold`` lets the agent stand still once it has paid, until it is killed or told to go on: so the
    kill cannot miss the worst moment, when the money is gone and the agent does not know yet.
    """

    role: Role
    url: str
    tenant: str | None
    project: str
    session_id: str
    journal: str
    bank: str
    outbox: str
    pace: float = 0.0
    hold: bool = False

    @property
    def thread_id(self) -> str:
        """The thread in which the agent's run is kept, beside the session."""
        return f"{self.session_id}-run"

    def open(self) -> SessionManager:
        """Open the store, with the files of the little project."""
        return SessionManager.open(self.url, tenant=self.tenant, project_dir=self.project)


def command_line() -> list[str]:
    """Return the command that starts a process; it reads its orders from the first line of stdin."""
    # -P: nothing in the working directory may pass for one of our modules.
    return [sys.executable, "-P", "-m", "holdfast.cli.demo.agent"]


def append_line(path: str, facts: dict[str, Any]) -> None:
    """Append a line of JSON to a file, whole or not at all as far as a kill is concerned."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(facts).encode() + b"\n")
    finally:
        os.close(descriptor)


class Developer:
    """The agent: a scripted model, real tools, and a session that is saved at every turn."""

    def __init__(
        self, orders: Orders, manager: SessionManager, session: Session, journal: Journal
    ) -> None:
        self._orders = orders
        self._project = Path(orders.project)
        self._session = session
        self._journal = journal
        self._saved: str | None = None
        self._step = 0
        self._agent = Agent(
            model=self._model,
            tools=[
                # What may run twice without harm is run again if a crash cut it short; steps of a
                # session may, since they remember.
                self._tool(self.search, idempotent=True),
                self._tool(self.write_file, idempotent=True),
                self._tool(self.delete_file, idempotent=True),
                self._tool(self.run_tests, idempotent=True),
                self._tool(self.buy_tax_table, idempotent=True),
                self._tool(self.publish, idempotent=True, needs_approval=True),
            ],
            checkpointer=StoreCheckpointer.of(manager),
            default_thread_id=orders.thread_id,
        )

    async def work(self) -> None:
        """Start or go on, until the model has nothing more to say or a person has to decide."""
        role = self._orders.role
        if role != "start":
            before = self._session.latest_checkpoint()
            self._saved, self._step = before.id, script.steps_done(_conversation(before.state)) + 1
        try:
            if role == "start":
                result = await self._agent.run(script.TASK)
            elif role == "finish":
                said = _conversation(self._session.state)
                result = await self._agent.run(script.FINISH, messages=said)
            else:
                result = await self._agent.resume_from_checkpoint()
        except AgentSuspended as suspended:
            [call] = suspended.pending
            self._session.pause(f"approval of {call.name}")
            self._journal(
                "suspended", step=self._step, tool=call.name, about=_about(call.arguments)
            )
            return
        self._save(result.messages)
        if role == "finish":
            self._session.complete()

    # The model -------------------------------------------------------------------------------

    async def _model(self, messages: Sequence[Message], tools: Sequence[ToolSpec], /) -> Reply:
        await asyncio.to_thread(self._save, messages)
        self._step = script.steps_done(messages) + 1
        return script.reply_to(messages)

    def _save(self, messages: Sequence[Message]) -> None:
        since = time.perf_counter()
        self._saved = self._session.save_checkpoint(
            script.name_of(messages),
            state=script.state_of(messages),
            description=script.happened_in(messages),
            retention_class="step",
            # Killed between this save and the next, the model is asked the same once more.
            overwrite=True,
        ).id
        self._journal("saved", step=script.steps_done(messages), ms=milliseconds(since))

    # Its tools -------------------------------------------------------------------------------

    def _tool(self, function: Callable[..., str], **options: Any) -> Tool:
        """Return a tool whose every run is in the journal."""

        @functools.wraps(function)
        def journalled(**arguments: Any) -> str:
            facts = {"step": self._step, "tool": function.__name__, "about": _about(arguments)}
            self._journal("ran", **facts)
            time.sleep(self._orders.pace)
            result = function(**arguments)
            self._journal("did", **facts, note=result[:80])
            return result

        return Tool(journalled, **options)

    def search(self, query: str) -> str:
        """Look something up."""
        return script.search(query)

    def write_file(self, path: str, text: str) -> str:
        """Write a file of the project."""
        (self._project / path).write_text(text, encoding="utf-8", newline="\n")
        return script.wrote(path, text)

    def delete_file(self, path: str) -> str:
        """Delete a file of the project."""
        (self._project / path).unlink(missing_ok=True)
        return f"deleted {path}"

    def run_tests(self) -> str:
        """Run the project's tests."""
        return run_tests(self._project)

    def buy_tax_table(self, price: int) -> str:
        """Buy the tax table. This costs money."""
        receipt = self._session.step("buy-tax-table", self._pay, price, key="tax-table")
        self._journal("paid", step=self._step, tool="buy_tax_table", note=receipt)
        if self._orders.hold:
            sys.stdin.read()
        (self._project / TAX_TABLE).write_text(TAX_RATES, encoding="utf-8", newline="\n")
        return f"bought for {price}, receipt {receipt}"

    def publish(self, version: str) -> str:
        """Publish a version for all the world to see."""
        return self._session.step("publish", self._release, version, key=f"release-{version}")

    def _pay(self, price: int) -> str:
        bank = Path(self._orders.bank)
        earlier = bank.read_text(encoding="utf-8").splitlines() if bank.exists() else []
        receipt = f"T-{len(earlier) + 1}"
        append_line(str(bank), {"pid": os.getpid(), "amount": price, "receipt": receipt})
        self._note(f"paid {price} for the tax table, receipt {receipt}")
        return receipt

    def _release(self, version: str) -> str:
        append_line(self._orders.outbox, {"pid": os.getpid(), "version": version})
        self._note(f"published {version}")
        return f"published {version}"

    def _note(self, text: str) -> None:
        """Note an effect in the session's log, at the save point that it followed."""
        self._session.log("info", text, data={"checkpoint": self._saved, MARK: "effect"})


async def _approve(orders: Orders, manager: SessionManager, journal: Journal) -> None:
    """Be somebody else: look at what waits, agree, and leave the rest to whoever resumes."""
    checkpointer = StoreCheckpointer.of(manager)
    [call] = await pending_calls(checkpointer, orders.thread_id)
    await decide(checkpointer, orders.thread_id, {call.id: "approve"})
    session = manager.get_session(orders.session_id)
    text = f"process {os.getpid()} approved {call.name} {_about(call.arguments)}"
    anchor = session.latest_checkpoint().id
    session.log("info", text, data={"checkpoint": anchor, MARK: "approval"})
    journal("approved", tool=call.name, about=_about(call.arguments))


def _begin(orders: Orders, manager: SessionManager) -> Session:
    if orders.role == "start":
        return manager.create_session(
            "developer", task_description=script.TASK, session_id=orders.session_id
        )
    # The parent has seen the process before this one end. On Linux that is found out here as well;
    # elsewhere a session of somebody dead has to be taken.
    return manager.resume_session(orders.session_id, take_over=not sys.platform.startswith("linux"))


def _about(arguments: Any) -> str:
    """Return what a call is about: the first of its arguments."""
    return str(next(iter(arguments.values()), ""))


def _conversation(state: dict[str, Any]) -> list[Message]:
    found: list[Message] = state["conversation_history"]
    return found


def milliseconds(since: float) -> float:
    """Return the time since a reading of the performance counter."""
    return round((time.perf_counter() - since) * 1000, 3)


def main(orders: Orders) -> None:
    """Do what was ordered."""

    def journal(event: str, **facts: Any) -> None:
        append_line(orders.journal, {"event": event, "pid": os.getpid(), **facts})

    since = time.perf_counter()
    with orders.open() as manager:
        if orders.role == "decide":
            asyncio.run(_approve(orders, manager, journal))
            return
        session = _begin(orders, manager)
        said = [] if orders.role == "start" else _conversation(session.state)
        journal("began", step=script.steps_done(said) + 1, ms=milliseconds(since))
        asyncio.run(Developer(orders, manager, session, journal).work())


def as_line(orders: Orders) -> bytes:
    """Return orders as a process reads them."""
    return json.dumps(asdict(orders)).encode() + b"\n"


if __name__ == "__main__":
    main(Orders(**json.loads(sys.stdin.readline())))
