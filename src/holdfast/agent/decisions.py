"""What people say about calls that wait for them.

    Decision.approve()                    run it as it is
    Decision.modify({"amount": 5})        run it with these arguments; they are checked first
    Decision.reject("too much")           do not run it; the model is told why
    Decision.answer({"id": 7})            do not run it; this is its result, for example of a call
                                          that is known to have happened before a crash
    Decision.suspend()                    not decided yet

True and False mean approve and reject. Decisions travel as JSON too: ``{"action": "modify",
"arguments": {…}}``, ``{"action": "reject", "reason": "…"}``, or ``"approve"`` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from holdfast.errors import InvalidDecision

Action: TypeAlias = Literal["approve", "modify", "reject", "answer", "suspend"]
Reason: TypeAlias = Literal["approval", "unknown"]

_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "approve": frozenset(),
    "modify": frozenset({"arguments"}),
    "reject": frozenset({"reason"}),
    "answer": frozenset({"result"}),
    "suspend": frozenset(),
}
_ACTIONS: Final = tuple(_FIELDS)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for a decision.

    ``reason`` is ``approval``, or ``unknown`` when it was started before a crash and nobody knows
    whether it happened: approving it then means running it again.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about a pending call; made by its methods, see the module.

    Raises `InvalidDecision` for an action that is none, and for arguments where only a
    modification has them: what is not understood must not run anything.
    """

    action: Action
    arguments: Mapping[str, Any] | None = None
    reason: str = ""
    result: Any = None

    def __post_init__(self) -> None:
        wanted = Mapping if self.action == "modify" else type(None)
        if self.action not in _ACTIONS or not isinstance(self.arguments, wanted):
            raise _no_decision({"action": self.action, "arguments": self.arguments})

    @classmethod
    def approve(cls) -> Decision:
        """Run the call as it is."""
        return cls("approve")

    @classmethod
    def modify(cls, arguments: Mapping[str, Any]) -> Decision:
        """Run the call with other arguments."""
        return cls("modify", arguments=arguments)

    @classmethod
    def reject(cls, reason: str = "") -> Decision:
        """Do not run the call."""
        return cls("reject", reason=reason)

    @classmethod
    def answer(cls, result: Any) -> Decision:
        """Do not run the call, and take this as its result."""
        return cls("answer", result=result)

    @classmethod
    def suspend(cls) -> Decision:
        """Leave the call undecided."""
        return cls("suspend")

    @classmethod
    def of(cls, value: object) -> Decision:
        """Return the decision that a value stands for. Raises `InvalidDecision`."""
        if isinstance(value, Decision):
            return value
        if isinstance(value, bool):
            return cls.approve() if value else cls.reject()
        if isinstance(value, str):
            value = {"action": value}
        if isinstance(value, Mapping):
            action: Any = value.get("action")
            given = {key: one for key, one in value.items() if key != "action"}
            allowed = _FIELDS[action] if action in _ACTIONS else None
            if given.keys() == allowed or (action == "reject" and not given):
                return cls(action, **given)
        raise _no_decision(value)


def _no_decision(value: object) -> InvalidDecision:
    return InvalidDecision(
        f"{value!r:.120} is no decision: use Decision.approve(), .modify(arguments), "
        f".reject(reason), .answer(result) or .suspend(), True, False, or their JSON form"
    )


Decidable: TypeAlias = Decision | bool | str | Mapping[str, Any]
Approver: TypeAlias = Callable[[PendingCall], Decidable | Awaitable[Decidable]]
