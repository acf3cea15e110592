"""When a run is saved, and how its checkpoints hang together.

Each checkpoint of a run consumes the one before it, in the transaction that stores it. So the
checkpoints of a run are a line with one end, whoever works on it: a worker that was taken for dead and
is not finds its checkpoint consumed at its next save, and stops before it starts another tool.

Several runs may be at work in one thread. When one of them begins to wait for people the others store nothing
more there: the newest checkpoint of a thread is the one in which everybody looks for what waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from holdfast.agent.messages import Message, Usage
from holdfast.agent.snapshot import RunState, Status, waits_for_people
from holdfast.errors import (
    AlreadyResumed,
    InvalidConfiguration,
    SnapshotNotSaved,
    ThreadOccupied,
)
from holdfast.waiting import outlast

SaveOn: TypeAlias = Literal["message", "invocation", "trigger"]
Kind: TypeAlias = Literal["prompt", "model", "tool_started", "tool_finished", "end"]

logger: Final = logging.getLogger("holdfast.agent")


@dataclass(frozen=True, slots=True)
class Step:
    """What has just happened in a run: what a trigger is asked about.

    ``kind`` is prompt, model, tool_started, tool_finished or end; ``tool`` names the tool.
    """

    kind: Kind
    messages: Sequence[Message]
    usage: Usage
    tool: str | None = None


Trigger: TypeAlias = Callable[[Step], bool]


class Identified(Protocol):
    """Whatever has the id of a checkpoint."""

    @property
    def id(self) -> str:
        """The checkpoint's id."""


class Checkpointer(Protocol):
    """What an agent asks of a checkpointer; those of Holdfast have it, and their contract tests it."""

    async def put(
        self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
    ) -> str:
        """Store a snapshot; consume another in the same transaction, or raise `AlreadyResumed`."""

    async def find(
        self, thread_id: str, checkpoint_id: str | None = None
    ) -> tuple[Identified, dict[str, Any]] | None:
        """Return a snapshot, the latest without an id, or None."""


class Strategy:
    """Which steps are saved. Suspensions, and whatever takes up a checkpoint, are saved always."""

    def __init__(self, save_on: str, trigger: Trigger | None) -> None:
        if save_on not in ("message", "invocation", "trigger"):
            raise InvalidConfiguration(
                f"save_on must be message, invocation or trigger: {save_on!r}"
            )
        if (save_on == "trigger") != (trigger is not None):
            raise InvalidConfiguration("save_on='trigger' needs trigger=, and nothing else has one")
        self._save_on = save_on
        self._trigger = trigger

    def wants(self, step: Step) -> bool:
        """Tell whether to save now."""
        if self._trigger is not None:
            return bool(self._trigger(step))
        return self._save_on == "message" or step.kind == "end"


async def require_free(checkpointer: Checkpointer, thread_id: str, run_id: str) -> None:
    """Raise `ThreadOccupied` if another run waits for people in the thread.

    One that took over from this one is no other: whoever lost its run is told so by its next save.
    """
    found = await checkpointer.find(thread_id)
    if found is None or not waits_for_people(found[1]):
        return
    if not f"{found[1].get('run_id')}/".startswith(f"{run_id}/"):
        raise ThreadOccupied(
            f"a run waits for people in thread {thread_id!r}: decide about its calls and resume it "
            f"first, run in another thread, or leave it behind with abandon=True (its "
            f"checkpoint_id is {found[0].id})"
        )


class Trail:
    """The checkpoints that one run leaves in a thread.

    With ``abandon`` its first one leaves behind whatever waits for people in the thread.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        thread_id: str,
        last: str | None = None,
        *,
        abandon: bool = False,
    ) -> None:
        self._checkpointer = checkpointer
        self.thread_id = thread_id
        self.last = last
        self.stored: Status | None = None
        self._abandon = abandon

    async def save(self, state: RunState) -> None:
        """Store the run as it stands. Raises `AlreadyResumed` or `SnapshotNotSaved`."""
        snapshot = state.document()
        try:
            # A save that is cancelled half-way would not know which checkpoint comes next.
            await outlast(self._put(snapshot))
        except AlreadyResumed:
            raise
        except Exception as error:
            logger.exception("a step of thread %r could not be stored", self.thread_id)
            raise SnapshotNotSaved(self.thread_id, snapshot, str(error)) from error

    async def _put(self, snapshot: Mapping[str, Any]) -> None:
        if not self._abandon:
            await require_free(self._checkpointer, self.thread_id, snapshot["run_id"])
        self.last = await self._checkpointer.put(self.thread_id, snapshot, consumes=self.last)
        self.stored, self._abandon = snapshot["status"], False
