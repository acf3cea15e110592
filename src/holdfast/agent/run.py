"""One run: the model is asked, its calls are run, until it has nothing left to call.

The order of things is the point. A step is stored before the next one begins; a tool that must not run
twice is stored as started before it runs, and its result before anything else happens. Wherever the
process dies, its last checkpoint says what was done, what was not, and what nobody can know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import astuple, dataclass
from typing import Any, Final

import orjson

from holdfast.agent.approvals import admit, tool_for
from holdfast.agent.messages import Message, Model, Reply, RunResult, ToolCall, Usage
from holdfast.agent.saving import Kind, Step, Strategy, Trail, logger
from holdfast.agent.snapshot import Call, RunState
from holdfast.agent.tools import Tool
from holdfast.agent.values import error_text, is_amount, stored_form
from holdfast.agent.worker import at_work, this_worker
from holdfast.errors import (
    AgentSuspended,
    AlreadyResumed,
    BudgetExceeded,
    InvalidReply,
    SnapshotNotSaved,
    StateNotSerializable,
)

_MODEL_CAPS: Final = ("tokens", "cost", "model_calls")


@dataclass(frozen=True, slots=True)
class Equipment:
    """What an agent lends to its runs."""

    model: Model
    tools: Mapping[str, Tool]
    strategy: Strategy


class Run:
    """A run at work in this process."""

    def __init__(self, equipment: Equipment, state: RunState, trail: Trail) -> None:
        self._model = equipment.model
        self._tools = equipment.tools
        self._strategy = equipment.strategy
        self._state = state
        self._trail = trail

    async def start(self) -> RunResult:
        """Run from the prompt."""
        with at_work(self._state.run_id):
            self._begin()
            return await self._guarded("prompt")

    async def go_on(self, *, take_over: bool = False) -> RunResult:
        """Run from a checkpoint, which is consumed by that; the others who try get an error.

        With ``take_over`` it does not matter whether somebody has consumed it.
        """
        with at_work(self._state.run_id):
            self._begin()
            try:
                await self._trail.save(self._state)
            except AlreadyResumed:
                if not take_over:
                    raise
                self._trail.last = None
                await self._trail.save(self._state)
            return await self._guarded(None)

    def _begin(self) -> None:
        self._state.status, self._state.error = "running", None
        self._state.worker = this_worker()

    async def _guarded(self, first: Kind | None) -> RunResult:
        """Run, and store what an error interrupts, so that anybody can go on from there."""
        try:
            if first is not None:
                await self._reached(first)
            return await self._loop()
        except (AgentSuspended, AlreadyResumed, SnapshotNotSaved):
            raise
        except (Exception, asyncio.CancelledError) as error:
            if self._trail.stored == "suspended":
                raise  # whoever was cancelled meanwhile: what is stored waits for people
            self._state.status, self._state.worker = "interrupted", None
            self._state.error = error_text(error)
            try:
                await self._reached("end")
            except (AlreadyResumed, SnapshotNotSaved) as failure:
                error.add_note(f"The interrupted run could not be stored either: {failure}")
            raise

    async def _loop(self) -> RunResult:
        state = self._state
        while True:
            if state.calls:
                await self._settle_calls()
            self._check_budget(_MODEL_CAPS)
            reply = await self._ask_model()
            state.usage += (reply.usage or Usage()) + Usage(model_calls=1)
            state.calls = _calls_of(reply)
            state.messages.append(_message_of(reply, state.calls))
            if not state.calls:
                break
            await self._reached("model")
        state.status, state.worker = "completed", None
        await self._reached("end")
        return RunResult(
            text=reply.text,
            messages=tuple(state.messages),
            usage=state.usage,
            thread_id=self._trail.thread_id,
            checkpoint_id=self._trail.last,
        )

    async def _ask_model(self) -> Reply:
        specs = tuple(tool.spec for tool in self._tools.values())
        # Its own copy: what a model does to its messages is not what was said.
        reply: object = await self._model(deepcopy(self._state.messages), specs)
        if not isinstance(reply, Reply) or not isinstance(reply.text, str):
            raise InvalidReply(f"the model returned {reply!r:.120}, not a Reply with a text")
        if not isinstance(reply.usage, Usage | None):
            raise InvalidReply(f"the model's usage is {reply.usage!r:.120}, not a Usage")
        if reply.usage is not None and not all(map(is_amount, astuple(reply.usage))):
            raise InvalidReply(f"the model's usage holds what is no amount: {reply.usage!r:.200}")
        if not isinstance(reply.tool_calls, Iterable | None):
            raise InvalidReply(
                f"the model asked for {reply.tool_calls!r:.120}, no list of ToolCalls"
            )
        return reply

    async def _settle_calls(self) -> None:
        """Run what may run; suspend if calls wait for a decision; else hand the results over."""
        state = self._state
        admit(state, self._tools)
        for call in state.calls:
            if call.state == "approved":
                await self._execute(call)
        if state.pending:
            await self._suspend()
        state.messages.extend(call.message() for call in state.calls)
        state.calls = []

    async def _execute(self, call: Call) -> None:
        tool = tool_for(call, self._tools)
        if tool is None:
            return
        self._check_budget(("tool_calls",))
        before = self._state.usage
        self._state.usage += Usage(tool_calls=1)
        call.state = "started"
        try:
            # What a person had to agree to is recorded before it runs, whatever the strategy.
            if call.reason is not None and not tool.idempotent:
                await self._trail.save(self._state)
            elif not tool.idempotent:
                await self._reached("tool_started", call.name)
        except BaseException:
            # Whatever comes next, it has not run: what is stored after this may say so.
            call.state, self._state.usage = "approved", before
            raise
        await self._call(tool, call)
        await self._reached("tool_finished", call.name)

    async def _call(self, tool: Tool, call: Call) -> None:
        outcome: Future[Any] = Future()
        try:
            result = await tool(call.arguments, outcome)
        except asyncio.CancelledError:
            if outcome.done():  # it ran to its end while its caller was being cancelled
                failure = outcome.exception()
                if failure is None:
                    _returned(call, outcome.result())
                else:
                    _failed(call, failure)
            raise
        except Exception as error:
            _failed(call, error)
        else:
            _returned(call, result)

    async def _suspend(self) -> None:
        state = self._state
        state.status, state.worker = "suspended", None
        failure: BaseException | None = None
        try:
            await self._trail.save(state)
        except SnapshotNotSaved as error:
            failure = error.__cause__
        raise AgentSuspended(
            self._trail.thread_id,
            state.pending,
            state.document(),
            checkpoint_id=None if failure else self._trail.last,
            persist_error=failure,
        )

    async def _reached(self, kind: Kind, tool: str | None = None) -> None:
        """Save if the strategy wants to. A run that has left checkpoints always saves its end."""
        step = Step(kind, tuple(self._state.messages), self._state.usage, tool)
        begun = kind == "end" and self._trail.last is not None
        if begun or self._strategy.wants(step):
            await self._trail.save(self._state)

    def _check_budget(self, caps: tuple[str, ...]) -> None:
        for name in caps:
            cap = getattr(self._state.budget, name)
            used = getattr(self._state.usage, name)
            if cap is not None and used >= cap:
                raise BudgetExceeded(
                    f"the run has used {used} of {cap} {name}. It can be resumed by an agent with a "
                    f"larger budget"
                )


def _returned(call: Call, result: Any) -> None:
    try:
        call.finish(stored_form(result, f"result of {call.name}"))
    except StateNotSerializable as error:
        call.finish(f"{call.name} ran, but its result cannot be stored: {error}", is_error=True)


def _failed(call: Call, error: BaseException) -> None:
    logger.warning("the tool %r failed", call.name, exc_info=error)
    call.finish(error_text(error), is_error=True)


def _calls_of(reply: Reply) -> list[Call]:
    calls: dict[str, Call] = {}
    for number, asked in enumerate(reply.tool_calls or (), 1):
        if not isinstance(asked, ToolCall):
            raise InvalidReply(f"the model asked for {asked!r:.120}, which is no ToolCall")
        # Decisions and results are found by id, so within a turn no two calls share one.
        call_id = str(asked.id or f"call-{number}")
        while call_id in calls:
            call_id += f"-{number}"
        calls[call_id] = Call(call_id, str(asked.name), _arguments_of(asked))
    return list(calls.values())


def _arguments_of(asked: ToolCall) -> Any:
    if isinstance(asked.arguments, str):
        text = asked.arguments or "{}"
        try:
            # The first refuses what is no JSON or cannot be stored, and makes floats of whole
            # numbers above 64 bits; the second keeps them, and would let NaN pass.
            orjson.loads(text)
            return json.loads(text)
        except (ValueError, RecursionError):
            return text  # no object, as the model will be told
    given: Any = {} if asked.arguments is None else asked.arguments
    given = dict(given) if isinstance(given, Mapping) else given
    return stored_form(given, f"arguments of {asked.name}")


def _message_of(reply: Reply, calls: list[Call]) -> Message:
    message: Message = {"role": "assistant", "content": reply.text}
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls
        ]
    return message
