"""Objects as plain values.

An object is stored with the name of its class, and only if the class is on a list: the framework's own
and those that the caller hands over. Reading looks the name up in that list, so nothing is imported, and
no code of an object runs that is not on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Message,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)

from holdfast.errors import StateNotSerializable

_CLASS: Final = "$class"
# What the type of an answer may be beside classes.
_TYPES: Final[Mapping[str, Any]] = {"typing:Any": Any, "builtins:object": object, "...": Ellipsis}
_SETS: Final = {"set": set, "frozenset": frozenset}
_PLAIN: Final = (bool, int, float, str, bytes, list, tuple, set, frozenset, dict, NoneType)
_OWN: Final = (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    Message,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowCheckpoint,
    WorkflowMessage,
    type(WorkflowMessage(data=None, source_id="").type),
)


class Forms:
    """From objects of allowed classes, the framework's and those given, to plain values and back."""

    def __init__(self, types: Iterable[type[Any]]) -> None:
        allowed = [*_PLAIN, *_OWN, *types]
        self._allowed: Mapping[str, type[Any]] = {_name(one): one for one in allowed}

    def stored(self, value: Any, path: str) -> Any:
        """Return the plain form of a value. Raises `StateNotSerializable`, naming its place."""
        kind = type(value)
        if kind is dict:
            return self._dict(value, path)
        if kind in (list, tuple):
            return kind(self.stored(item, f"{path}[{at}]") for at, item in enumerate(value))
        if kind in (set, frozenset):
            items = [self.stored(item, f"{path}[{at}]") for at, item in enumerate(value)]
            try:
                return kind(items)
            except TypeError:  # the form of an object is a dict, which no set can hold
                return {_CLASS: kind.__name__, "items": items}
        if isinstance(value, WorkflowEvent):
            return {_CLASS: "event", **self._event(value, path)}
        if kind in _PLAIN:
            return value
        if self._allowed.get(_name(kind)) is not kind:
            if _would_change(value):
                raise StateNotSerializable(
                    path, f"a {_name(kind)}: hand its class over with types=[…] to have it stored"
                )
            return value  # a date, say; what no state can hold is refused there
        form: Any
        if isinstance(value, Enum):
            form = value.value
        elif hasattr(value, "model_dump") or (
            hasattr(kind, "from_dict") and not is_dataclass(kind)
        ):
            form = _written(value, path)
        elif is_dataclass(kind):
            form = _fields(value, path)
        elif _would_change(value):
            raise StateNotSerializable(path, f"a {_name(kind)} has no form in which it is stored")
        else:
            return value
        return {_CLASS: _name(kind), "value": self.stored(form, path)}

    def live(self, value: Any) -> Any:
        """Return what a plain form stands for. Raises ``WorkflowCheckpointException``."""
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            return kind(self.live(item) for item in value)
        if kind is not dict:
            return value
        if _CLASS not in value:
            return {key: self.live(item) for key, item in value.items()}
        if value[_CLASS] == "dict":
            return {key: self.live(item) for key, item in value["items"].items()}
        if value[_CLASS] == "pairs":
            return {self.live(key): self.live(item) for key, item in value["items"]}
        if value[_CLASS] in _SETS:
            return _SETS[value[_CLASS]](self.live(item) for item in value["items"])
        if value[_CLASS] == "event":
            return WorkflowEvent.request_info(
                request_id=value["request_id"],
                source_executor_id=value["source_executor_id"],
                request_data=self.live(value["data"]),
                response_type=self._live_type(value["response_type"]),
            )
        return _made(self._class(value[_CLASS]), self.live(value["value"]))

    def _dict(self, value: dict[Any, Any], path: str) -> dict[str, Any]:
        if any(type(key) is not str for key in value):
            pairs = [
                [self.stored(one, f"{path}[{key!r:.80}]") for one in (key, item)]
                for key, item in value.items()
            ]
            return {_CLASS: "pairs", "items": pairs}
        plain = {key: self.stored(item, f"{path}.{key}") for key, item in value.items()}
        return {_CLASS: "dict", "items": plain} if _CLASS in plain else plain

    def _event(self, event: WorkflowEvent[Any], path: str) -> dict[str, Any]:
        if event.type != "request_info":
            raise StateNotSerializable(path, f"an event of the type {event.type} is not for later")
        return {
            "request_id": event.request_id,
            "source_executor_id": event.source_executor_id,
            "data": self.stored(event.data, f"{path}.data"),
            "response_type": self._type(event.response_type, path),
        }

    def _type(self, kind: Any, path: str) -> Any:
        """Return what is stored for the type of an answer: a class, or one that is made of others."""
        for name, one in _TYPES.items():
            if kind is one:
                return name
        origin, parts = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"literal": self.stored(list(parts), path)}
        if origin in (Union, UnionType):
            return {"union": [self._type(one, path) for one in parts]}
        if isinstance(origin, type):
            return {
                "of": self._type(origin, path),
                "parts": [self._type(one, path) for one in parts],
            }
        if not isinstance(kind, type) or self._allowed.get(_name(kind)) is not kind:
            raise StateNotSerializable(
                path, f"asks for a {_name(kind)}: hand that class over with types=[…]"
            )
        return _name(kind)

    def _live_type(self, form: Any) -> Any:
        if not isinstance(form, dict):
            return _TYPES[form] if form in _TYPES else self._class(form)
        if "literal" in form:
            return Literal[tuple(self.live(form["literal"]))]
        if "union" in form:
            return reduce(or_, map(self._live_type, form["union"]))
        return self._live_type(form["of"])[tuple(map(self._live_type, form["parts"]))]

    def _class(self, name: str) -> Any:
        if name not in self._allowed:
            raise WorkflowCheckpointException(
                f"The checkpoint holds a {name}, a class that is not allowed; nothing was made of it. "
                f"Hand the class over with types=[…] if it is yours."
            )
        return self._allowed[name]


def _name(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', kind)}"


def _written(value: Any, path: str) -> Any:
    """Return what an object writes of itself, if the same object can be made of that again."""
    kind = type(value)
    if kind is AgentResponse:
        # What was made of the answer is no part of what it writes.
        return {**value.to_dict(), "value": _answer(value)}
    if kind in _OWN:
        return value.to_dict()
    try:
        if hasattr(value, "model_dump"):
            # By the names of its fields, and only what one of its kind is made of.
            form = value.model_dump(mode="json", by_alias=False, round_trip=True)
            same = _made(kind, form) == value
        else:
            form = value.to_dict()
            same = _made(kind, deepcopy(form)).to_dict() == form
    except Exception as error:
        raise StateNotSerializable(
            path, f"a {_name(kind)} does not come back from what it writes of itself: {error}"
        ) from error
    if not same:
        # A secret that is masked, say, or a field that holds more than its type says.
        raise StateNotSerializable(
            path, f"a {_name(kind)} would come back as another one from what it writes of itself"
        )
    return form


def _fields(value: Any, path: str) -> dict[str, Any]:
    """Return the fields of a dataclass, if an object of it can be made of them again."""
    kind = type(value)
    try:
        _blank(kind)
    except TypeError as error:
        raise StateNotSerializable(
            path,
            f"a {_name(kind)} cannot be made again from its fields ({error}): put them into a dataclass "
            f"that extends nothing built in",
        ) from error
    # One that is no argument may not have been set yet.
    own = [one.name for one in fields(kind) if one.init or hasattr(value, one.name)]
    return {name: getattr(value, name) for name in own}


def _answer(response: AgentResponse[Any]) -> Any:
    try:
        return response.value
    except ValueError:
        return None  # what the model said is nothing of the kind, so nothing can be made of it


def _would_change(value: Any) -> bool:
    """Tell whether a state would take a value for something simpler than it is."""
    return isinstance(value, (Enum, *_PLAIN)) or is_dataclass(value) or hasattr(value, "model_dump")


def _made(kind: type[Any], form: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(form)
    if hasattr(kind, "model_validate"):
        return kind.model_validate(form, by_name=True)
    if not is_dataclass(kind):
        return kind.from_dict(form)
    # Its fields are set as they were; no code of the class runs.
    made = _blank(kind)
    for one in fields(kind):
        if one.init or one.name in form:
            object.__setattr__(made, one.name, form[one.name])
    return made


def _blank(kind: type[Any]) -> Any:
    """Return an object of a dataclass without its fields. Raises TypeError for one that extends what is built in."""
    return object.__new__(kind)
