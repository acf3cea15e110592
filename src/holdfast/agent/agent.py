"""`Agent`: a small loop around a model whose work survives crashes, deploys and people's pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from typing import Any

from holdfast.agent.approvals import admit, apply_decisions, ask, load, tool_for
from holdfast.agent.decisions import Approver, Decidable
from holdfast.agent.messages import Budget, Message, Model, RunResult
from holdfast.agent.run import Equipment, Run
from holdfast.agent.saving import Checkpointer, SaveOn, Strategy, Trail, Trigger, require_free
from holdfast.agent.snapshot import Migration, RunState
from holdfast.agent.tools import Tool, tools_by_name
from holdfast.agent.values import is_amount, stored_form
from holdfast.agent.worker import is_at_work
from holdfast.errors import (
    AgentSuspended,
    AlreadyResumed,
    InvalidConfiguration,
    InvalidState,
    NothingToResume,
)
from holdfast.ids import check_session_id, new_id


class Agent:
    """Runs a model with tools, and keeps the run in a checkpointer.

        agent = Agent(model=model, tools=[refund], checkpointer=SQLiteCheckpointer("agent.db"))
        try:
            result = await agent.run("Please refund order 7", thread_id="support-42")
        except AgentSuspended:
            ...  # stored already: in this process or another, today or next week
            result = await agent.resume_from_checkpoint("support-42", approver=approver)

    ``save_on`` says when steps are stored: ``message`` after every message and around every call
    of a tool, so that kill -9 costs at most the step at work; ``invocation`` at the end of a run or
    resume; ``trigger`` when ``trigger`` says so of a `Step`. Suspensions are always stored.
    ``version`` is the agent's own; after a change that old snapshots do not fit, raise it, and let
    ``migrations`` turn a snapshot of version n, a dict, into one of n + 1.
    """

    def __init__(
        self,
        *,
        model: Model,
        checkpointer: Checkpointer,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        default_thread_id: str | None = None,
        save_on: SaveOn = "message",
        trigger: Trigger | None = None,
        budget: Budget | None = None,
        version: int = 1,
        migrations: Mapping[int, Migration] | None = None,
    ) -> None:
        if not callable(model):
            raise InvalidConfiguration(f"a model is an async callable, not {model!r:.80}")
        if type(version) is not int or version < 1:
            raise InvalidConfiguration(f"version must be a whole number above 0: {version!r}")
        self._checkpointer = checkpointer
        if default_thread_id is not None:
            check_session_id(default_thread_id)
        self._default_thread_id = default_thread_id
        self._budget = _checked_budget(budget)
        self._version = version
        if not isinstance(migrations, Mapping | None):
            raise InvalidConfiguration(f"migrations are a dict by version, not {migrations!r:.80}")
        self._migrations = dict(migrations or {})
        self._tools = tools_by_name(tools)
        self._equipment = Equipment(model, self._tools, Strategy(save_on, trigger))

    async def run(
        self,
        prompt: Any,
        *,
        thread_id: str | None = None,
        messages: Iterable[Message] = (),
        abandon: bool = False,
    ) -> RunResult:
        """Run a prompt to its end; ``messages`` are what was said before.

        Every call is a run of its own, stored in the thread given, in the agent's default one, or
        in a new one. Raises `AgentSuspended` when calls wait for approval, `BudgetExceeded`,
        `SnapshotNotSaved`, and whatever the model raises; the run can be resumed then. Before it
        begins, `InvalidState` for messages that are no dicts.

        Raises `ThreadOccupied` while another run waits for people in the thread. ``abandon=True``
        leaves that one behind: nobody finds it by its thread any more, only by its checkpoint's id,
        and it goes the way of all old checkpoints. When another one begins to wait meanwhile, this
        one stops at its next step with `SnapshotNotSaved`.
        """
        thread_id = self._thread(thread_id) or new_id()
        prompted = [*_checked_messages(messages), {"role": "user", "content": prompt}]
        state = RunState(
            run_id=new_id(),
            agent_version=self._version,
            messages=stored_form(prompted, "messages"),
            budget=self._budget or Budget(),
        )
        if not abandon:
            await require_free(self._checkpointer, thread_id, state.run_id)
        trail = Trail(self._checkpointer, thread_id, abandon=abandon)
        return await Run(self._equipment, state, trail).start()

    async def resume_from_checkpoint(
        self,
        thread_id: str | None = None,
        *,
        approver: Approver | None = None,
        decisions: Mapping[str, Decidable] | None = None,
        fork: bool = False,
        checkpoint_id: str | None = None,
    ) -> RunResult:
        """Go on with a run from the thread's latest checkpoint, or from the one named.

        ``decisions`` holds decisions by call id; ``approver``, which may be async, is asked about
        the pending calls that are left. What stays undecided suspends the run again, with the
        results of all that ran in between. A call that was started before a crash and may have
        happened waits for a decision by id, unless its tool is idempotent.

        One checkpoint is resumed once: the second who tries gets `AlreadyResumed`, and so does
        everybody while the run is at work or when it has ended. ``fork=True`` goes on regardless,
        as a run of its own: from a checkpoint that was used, from the last suspension of a run that
        has ended, or from that of a worker on another machine of which you know that it is dead.

        Raises `NothingToResume`, `NotResumable`, `SnapshotTooNew`, `InvalidDecision`,
        `InvalidArguments`, `InvalidConfiguration` when no thread is named or the schema of a tool that is
        gone is none as it was stored, and `ThreadOccupied` while another run waits for people in the
        thread; then nothing has changed. Else as `run` does.
        """
        thread = self._thread(thread_id)
        if thread is None:
            raise InvalidConfiguration("name the thread to resume: the agent has no default one")
        origin, state = await self._load(thread, checkpoint_id)
        if state.status == "completed":
            origin, state = await self._before_its_end(thread, state, fork=fork)
        await require_free(self._checkpointer, thread, state.run_id)
        was, before = state.status, state.pending
        if was == "running" and not fork:
            _require_nobody_at_work(thread, state)
        await self._decide(state, approver, decisions)
        decided = any(call.state == "approved" for call in state.calls)
        if was == "suspended" and before and state.pending == before and not decided:
            raise AgentSuspended(thread, state.pending, state.document(), checkpoint_id=origin)
        if was == "suspended":
            state.decided_from = origin
        if fork:
            # Who takes over from a worker is known by the beginning of its id.
            state.run_id = f"{state.run_id}/{new_id()}" if was == "running" else new_id()
        if self._budget is not None:
            state.budget = self._budget
        # A fork leaves what waits for people to be resumed by others, but stops a worker at work.
        last = None if fork and was != "running" else origin
        trail = Trail(self._checkpointer, thread, last, abandon=fork)
        return await Run(self._equipment, state, trail).go_on(take_over=fork)

    def _thread(self, thread_id: str | None) -> str | None:
        if thread_id is None:
            return self._default_thread_id
        return check_session_id(thread_id)

    async def _load(self, thread_id: str, checkpoint_id: str | None) -> tuple[str, RunState]:
        return await load(
            self._checkpointer,
            thread_id,
            checkpoint_id,
            agent_version=self._version,
            migrations=self._migrations,
        )

    async def _before_its_end(
        self, thread_id: str, ended: RunState, *, fork: bool
    ) -> tuple[str, RunState]:
        """Return the last suspension of a run that has ended, for a fork; nobody else may go on."""
        other = "to go on with another run of the thread, name its checkpoint_id"
        if not fork:
            how = f"it was never suspended; {other}"
            if ended.decided_from is not None:
                how = f"fork=True repeats it from its last suspension; {other}"
            raise AlreadyResumed(
                f"the run of thread {thread_id!r} has ended: its last message is in its snapshot; {how}"
            )
        if ended.decided_from is None:
            raise NothingToResume(
                f"the run of thread {thread_id!r} has ended and was never suspended: name the "
                f"checkpoint to fork from"
            )
        return await self._load(thread_id, ended.decided_from)

    async def _decide(
        self,
        state: RunState,
        approver: Approver | None,
        decisions: Mapping[str, Decidable] | None,
    ) -> None:
        """Find out about every call that has not run."""
        for call in state.calls:
            if call.state == "started":
                tool = self._tools.get(call.name)
                if tool is not None and tool.idempotent:
                    call.state = "approved"
                else:
                    call.wait("unknown", {} if tool is None else tool.spec.parameters)
            # What no person has agreed to another worker has let pass, perhaps with other tools.
            if call.state == "approved" and call.reason is None:
                call.state = "new"
        admit(state, self._tools)
        apply_decisions(state, decisions or {}, self._tools)
        for call in state.calls:
            missing = call.name not in self._tools
            if call.state == "pending" and call.reason == "approval" and missing:
                tool_for(call, self._tools)  # nobody is asked in vain, and the model is told
        if approver is not None:
            await ask(state, approver, self._tools)


def _checked_budget(budget: Budget | None) -> Budget | None:
    if budget is None:
        return None
    if not isinstance(budget, Budget):
        raise InvalidConfiguration(f"a budget is a Budget, not {budget!r:.80}")
    if not all(cap is None or is_amount(cap) for cap in astuple(budget)):
        raise InvalidConfiguration(f"a cap is a number that is not negative, or None: {budget}")
    return budget


def _checked_messages(messages: object) -> list[Any]:
    """Return what was said before; nobody could resume a run whose messages are none."""
    said = list(messages) if isinstance(messages, Iterable) else [messages]
    if wrong := [one for one in said if not isinstance(one, Mapping)]:
        raise InvalidState(f"messages are a list of dicts, and {wrong[0]!r:.80} is none")
    return said


def _require_nobody_at_work(thread_id: str, state: RunState) -> None:
    if is_at_work(state.worker, state.run_id) is False:
        return
    worker = state.worker or {}
    raise AlreadyResumed(
        f"thread {thread_id!r} is being worked on by process {worker.get('pid')} on "
        f"{worker.get('host')}. If you know that it is dead, go on with fork=True"
    )
