"""The snapshot of a run: all that another process needs to go on with it.

It is a plain dict, so that a checkpointer can keep it, SQL can read it and a later release can migrate it:

    version        of this format; Holdfast's own migrations bring an older one up to date
    kind           "holdfast.agent"
    agent_version  of the agent that wrote it; its owner's migrations bring an older one up to date
    run_id         one for each run; a fork is a run of its own. One that took over from a worker
                   has that one's id, a slash, and its own
    status         running, suspended, interrupted (by an error) or completed
    messages       the conversation, without the results of the present turn
    calls          the calls of the present turn; see `Call`
    usage, budget  so far, and the caps
    worker         who runs it, while it is running
    decided_from   the checkpoint of the last suspension that the run was resumed from
    error          what interrupted it

A snapshot of a newer version is refused: to guess what it means could repeat what it has done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, astuple, dataclass, field
from numbers import Number
from typing import Any, Final, Literal, TypeAlias, get_args

from holdfast.agent.decisions import PendingCall, Reason
from holdfast.agent.messages import Budget, Message, Usage
from holdfast.errors import NotResumable, SnapshotTooNew

Status: TypeAlias = Literal["running", "suspended", "interrupted", "completed"]
CallState: TypeAlias = Literal["new", "pending", "approved", "started", "done"]
Migration: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

FORMAT: Final = 1
KIND: Final = "holdfast.agent"
_FORMAT_MIGRATIONS: Final[Mapping[int, Migration]] = {}
_STATUSES: Final = get_args(Status)
_CALL_STATES: Final = get_args(CallState)


@dataclass(slots=True)
class Call:
    """A call of the present turn.

    new → pending (waits for a decision) → approved → started → done. Most go from new to approved
    at once, and those that cannot run to done. ``reason`` tells why a call waited: approved without
    one was judged by a worker, not by a person, and is judged again by the next. ``parameters`` is
    the schema that a pending call has to fit, so that a decision can be checked where the tool is
    not installed.
    """

    id: str
    name: str
    arguments: Any
    state: CallState = "new"
    reason: Reason | None = None
    parameters: dict[str, Any] | None = None
    modified: bool = False
    result: Any = None
    is_error: bool = False

    def finish(self, result: Any, *, is_error: bool = False) -> None:
        """Keep the result."""
        self.state, self.result, self.is_error = "done", result, is_error

    def wait(self, reason: Reason, parameters: Mapping[str, Any]) -> None:
        """Wait for a decision."""
        self.state, self.reason, self.parameters = "pending", reason, dict(parameters)

    def message(self) -> Message:
        """Return the result as the model sees it."""
        message: Message = {
            "role": "tool",
            "tool_call_id": self.id,
            "name": self.name,
            "content": self.result,
            "is_error": self.is_error,
        }
        return message | ({"arguments": self.arguments} if self.modified else {})


@dataclass(slots=True)
class RunState:
    """A run, as it stands between two steps."""

    run_id: str
    agent_version: int
    messages: list[Message]
    status: Status = "running"
    calls: list[Call] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    budget: Budget = field(default_factory=Budget)
    worker: dict[str, Any] | None = None
    decided_from: str | None = None
    error: str | None = None

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for a decision."""
        return tuple(
            PendingCall(call.id, call.name, deepcopy(call.arguments), call.reason or "approval")
            for call in self.calls
            if call.state == "pending"
        )

    def document(self) -> dict[str, Any]:
        """Return the snapshot to store."""
        return {
            "version": FORMAT,
            "kind": KIND,
            "agent_version": self.agent_version,
            "run_id": self.run_id,
            "status": self.status,
            # The list is new, its messages are not: they are never changed once they are in it.
            "messages": list(self.messages),
            "calls": [asdict(call) for call in self.calls],
            "usage": asdict(self.usage),
            "budget": asdict(self.budget),
            "worker": self.worker,
            "decided_from": self.decided_from,
            "error": self.error,
        }


def read_snapshot(
    document: Mapping[str, Any],
    *,
    agent_version: int | None = None,
    migrations: Mapping[int, Migration] | None = None,
) -> RunState:
    """Return the run that a snapshot holds, brought up to date.

    Without ``agent_version`` the owner's version stays as it is. Raises `SnapshotTooNew`, and
    `NotResumable` for what is no snapshot of an agent or has no migration.
    """
    if document.get("kind") != KIND:
        raise NotResumable("the checkpoint holds no snapshot of an Agent: nothing was changed")
    current = _migrated(dict(document), "version", FORMAT, _FORMAT_MIGRATIONS)
    if agent_version is not None:
        current = _migrated(current, "agent_version", agent_version, migrations or {})
    try:
        if current["status"] not in _STATUSES:
            raise ValueError(f"unknown status {current['status']!r}")
        run = RunState(
            run_id=current["run_id"],
            agent_version=current["agent_version"],
            messages=list(current["messages"]),
            status=current["status"],
            calls=[Call(**call) for call in current["calls"]],
            usage=Usage(**current["usage"]),
            budget=Budget(**current["budget"]),
            worker=current["worker"],
            decided_from=current["decided_from"],
            error=current["error"],
        )
        _check(run)
    except (KeyError, TypeError, ValueError) as error:
        raise NotResumable(
            f"the snapshot cannot be read ({error!r}): nothing was changed. If a migration made it, "
            f"correct the migration and resume again"
        ) from error
    return run


def waits_for_people(document: Mapping[str, Any]) -> bool:
    """Tell whether a snapshot, of whatever version, is of a run that waits for people.

    It is suspended, or something interrupted it that left calls undecided.
    """
    if document.get("kind") != KIND or document.get("status") not in ("suspended", "interrupted"):
        return False
    calls = document.get("calls")
    return document["status"] == "suspended" or (
        isinstance(calls, list)
        and any(isinstance(one, Mapping) and one.get("state") == "pending" for one in calls)
    )


def _check(run: Any) -> None:
    """Refuse values that no run has: what is not understood could be done twice."""
    caps = [cap for cap in astuple(run.budget) if cap is not None]
    if not (
        isinstance(run.run_id, str)
        and all(isinstance(one, Mapping) for one in run.messages)
        and all(isinstance(one, Number) for one in (*astuple(run.usage), *caps))
        and isinstance(run.worker, Mapping | None)
        and all(
            isinstance(call.id, str)
            and isinstance(call.name, str)
            and call.state in _CALL_STATES
            and isinstance(call.parameters, Mapping | None)
            for call in run.calls
        )
    ):
        raise ValueError("a value is not of its type")


def _migrated(
    document: dict[str, Any], key: str, newest: int, steps: Mapping[int, Migration]
) -> dict[str, Any]:
    version = document.get(key)
    if type(version) is not int or version < 1:
        raise NotResumable(f"the snapshot's {key} is {version!r}: nothing was changed")
    if version > newest:
        raise SnapshotTooNew(
            f"the snapshot has {key} {version} and this program knows up to {newest}. It is intact: "
            f"resume it with the newer program"
        )
    while version < newest:
        step = steps.get(version)
        if step is None:
            raise NotResumable(
                f"the snapshot has {key} {version}, and no migration leads from there to {newest}. "
                f"It is intact: add migrations={{{version}: …}}"
            )
        version += 1
        document = _step(step, document, f"the migration from {key} {version - 1} to {version}")
        document |= {key: version}
    return document


def _step(step: Migration, document: dict[str, Any], name: str) -> dict[str, Any]:
    try:
        migrated: object = step(document)
    except Exception as error:
        raise NotResumable(f"{name} failed ({error!r}): nothing was changed") from error
    if not isinstance(migrated, dict):
        raise NotResumable(
            f"{name} returned {migrated!r:.80} and not the snapshot: nothing was changed"
        )
    return migrated
