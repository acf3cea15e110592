"""Deciding about pending calls: here and now, or in a process that has neither model nor tools."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from holdfast.agent.decisions import Approver, Decidable, Decision, PendingCall
from holdfast.agent.saving import Checkpointer, Trail, require_free
from holdfast.agent.schema import check_arguments, check_schema
from holdfast.agent.snapshot import Call, RunState, read_snapshot, waits_for_people
from holdfast.agent.tools import Tool
from holdfast.agent.values import stored_form
from holdfast.errors import AlreadyResumed, InvalidArguments, InvalidDecision, NothingToResume


async def pending_calls(
    checkpointer: Checkpointer, thread_id: str, *, checkpoint_id: str | None = None
) -> tuple[PendingCall, ...]:
    """Return the calls of a thread that wait for a decision. Raises `NothingToResume`."""
    return (await load(checkpointer, thread_id, checkpoint_id))[1].pending


async def decide(
    checkpointer: Checkpointer,
    thread_id: str,
    decisions: Mapping[str, Decidable],
    *,
    checkpoint_id: str | None = None,
) -> str:
    """Store decisions by call id without going on, and return the id of the new checkpoint.

    For a process that talks to people and has no model and no tools: whoever resumes the thread
    later finds the calls decided. Changed arguments are compared with the tool's schema as it was
    at the suspension, and again when the call is run. Raises `AlreadyResumed` when the run has gone
    on from the checkpoint, `ThreadOccupied` when another run waits for people in the thread,
    `InvalidDecision`, `InvalidArguments`, `InvalidConfiguration` when the schema as it was stored is
    none; nothing is stored then.
    """
    found_id, state = await load(checkpointer, thread_id, checkpoint_id)
    if not waits_for_people(state.document()):
        raise AlreadyResumed(
            f"thread {thread_id!r} does not wait for decisions: it is {state.status}"
        )
    await require_free(checkpointer, thread_id, state.run_id)
    apply_decisions(state, decisions, {})
    # What had interrupted it matters no more: it waits for whoever resumes it.
    state.status, state.error = "suspended", None
    trail = Trail(checkpointer, thread_id, found_id)
    await trail.save(state)
    return str(trail.last)


async def load(
    checkpointer: Checkpointer, thread_id: str, checkpoint_id: str | None, **migrating: Any
) -> tuple[str, RunState]:
    """Return a checkpoint's id and the run in it. Raises `NothingToResume`."""
    found = await checkpointer.find(thread_id, checkpoint_id)
    if found is None:
        which = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id}"
        raise NothingToResume(f"thread {thread_id!r} has {which}: nothing to resume from")
    info, snapshot = found
    return info.id, read_snapshot(snapshot, **migrating)


def admit(state: RunState, tools: Mapping[str, Tool]) -> None:
    """Find out which of the new calls may run at once, which wait for approval, and which cannot."""
    for call in state.calls:
        if call.state == "new":
            tool = tool_for(call, tools)
            if tool is not None and tool.needs_approval(call.arguments):
                call.wait("approval", tool.spec.parameters)
            elif tool is not None:
                call.state = "approved"


def tool_for(call: Call, tools: Mapping[str, Tool]) -> Tool | None:
    """Return the tool that a call can run with; without one, end the call: the model is told.

    It ends here and now. Were it left to run, a worker that has the tool would find a call that
    nobody was asked about.
    """
    tool = tools.get(call.name)
    if tool is None:
        call.finish(
            f"The tool {call.name!r} is not available (any more); the call was not run",
            is_error=True,
        )
        return None
    try:
        tool.check(call.arguments)
    except InvalidArguments as error:
        call.finish(f"The call was not run: {error}", is_error=True)
        return None
    return tool


def apply_decisions(
    state: RunState, decisions: Mapping[str, Decidable], tools: Mapping[str, Tool]
) -> None:
    """Apply decisions by call id. Raises `InvalidDecision` or `InvalidArguments`."""
    if not isinstance(decisions, Mapping):
        raise InvalidDecision(
            f"decisions are a mapping of call ids to decisions, not {decisions!r:.120}"
        )
    waiting = {call.id: call for call in state.calls if call.state == "pending"}
    if unknown := [str(call_id) for call_id in decisions if call_id not in waiting]:
        raise InvalidDecision(
            f"no call {', '.join(unknown)} waits for a decision; these do: "
            f"{', '.join(waiting) or 'none'}. Nothing was changed"
        )
    for call_id, decision in decisions.items():
        call = waiting[call_id]
        _apply(call, Decision.of(decision), tools.get(call.name))


async def ask(state: RunState, approver: Approver, tools: Mapping[str, Tool]) -> None:
    """Ask an approver about each call that waits for approval.

    It is not asked about calls whose outcome is unknown: whoever approves everything would
    repeat what has perhaps been done.
    """
    for pending in state.pending:
        if pending.reason == "approval":
            answer = approver(pending)
            decision = await answer if inspect.isawaitable(answer) else answer
            apply_decisions(state, {pending.id: decision}, tools)


def _apply(call: Call, decision: Decision, tool: Tool | None) -> None:
    match decision.action:
        case "approve":
            call.state = "approved"
        case "modify":
            arguments = stored_form(dict(decision.arguments or {}), f"arguments of {call.id}")
            if tool is not None:
                tool.check(arguments)
            elif call.parameters:
                # As it was stored: nobody has looked at it since.
                check_schema(call.parameters, call.name)
                check_arguments(arguments, call.parameters, call.name)
            call.arguments, call.modified = arguments, True
            call.state = "approved"
        case "reject":
            why = f": {decision.reason}" if decision.reason else ""
            call.finish(f"The call was rejected and not run{why}", is_error=True)
        case "answer":
            call.finish(stored_form(decision.result, f"result of {call.id}"))
        case "suspend":
            pass
