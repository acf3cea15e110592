"""Values as LangGraph's own checkpointers store them, read by our list of classes.

They are msgpack, or JSON in old databases, with extensions that name a constructor and its arguments.
LangGraph imports and calls what is named. Here a name is looked up in a table: types of the standard
library, and the classes that the saver allows. Anything else, pickles included, is refused.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

from holdfast.errors import ClassNotAllowed, StateCorrupt
from holdfast.integrations.langgraph.classes import Classes
from holdfast.integrations.langgraph.misplaced import Damaged, Misplaced, Refused, key_step

Make = Callable[..., Any]
Name = tuple[str, str]


def _hashable(item: Any) -> Any:
    """Return an item of a set as it was: msgpack and JSON make lists of its tuples."""
    return tuple(map(_hashable, item)) if isinstance(item, list) else item


_STANDARD: Final[Mapping[Name, Make]] = {
    ("builtins", "set"): lambda items: set(map(_hashable, items)),
    ("builtins", "frozenset"): lambda items: frozenset(map(_hashable, items)),
    ("collections", "deque"): deque,
    ("uuid", "UUID"): UUID,
    ("decimal", "Decimal"): Decimal,
    ("datetime", "datetime"): datetime.fromisoformat,
    ("datetime", "date"): date,
    ("datetime", "time"): time,
    ("datetime", "timedelta"): timedelta,
    ("datetime", "timezone"): timezone,
    ("zoneinfo", "ZoneInfo"): ZoneInfo,
    ("re", "compile"): re.compile,
    **{
        (module, name): Path
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath")
    },
    **{
        ("ipaddress", family + kind): getattr(ipaddress, family + kind)
        for family in ("IPv4", "IPv6")
        for kind in ("Address", "Interface", "Network")
    },
}
# The codes of LangGraph's extensions, by how the arguments are given.
_SINGLE, _POSITIONAL, _NAMED, _METHOD, _MODEL, _DELTA = 0, 1, 2, 3, 5, 7
_CALLS: Final = (_SINGLE, _POSITIONAL, _NAMED, _METHOD, _MODEL)


class PeerValues:
    """Reads what LangGraph's serializer wrote."""

    def __init__(self, classes: Classes) -> None:
        self._makers: dict[Name, Make] = dict(_STANDARD)
        for allowed in classes.by_class:
            self._makers.setdefault((allowed.__module__, allowed.__name__), allowed)
        self._by_name = {
            name: make for (module, name), make in self._makers.items() if _core(module)
        }

    def read(self, kind: str | None, data: bytes | None, thread_id: str, channel: str) -> Any:
        """Return a stored value.

        Raises `ClassNotAllowed` for a class or a kind that is not allowed, `StateCorrupt` for bytes
        that are not what their kind says.
        """
        return self._read(kind, data, thread_id, channel)

    def read_checkpoint(self, kind: str | None, data: bytes | None, thread_id: str) -> Any:
        """Return a checkpoint that was stored with its channels. Raises as `read` does."""
        return self._read(kind, data, thread_id, "checkpoint", channels="channel_values")

    def read_metadata(self, data: bytes | None, thread_id: str) -> Any:
        """Return metadata, which are plain values, also where they look like an object.

        Raises `StateCorrupt`.
        """
        try:
            return None if data is None else json.loads(data)
        except (ValueError, TypeError, RecursionError) as error:
            raise _corrupt(thread_id, "metadata", Damaged(str(error))) from None

    def _read(
        self,
        kind: str | None,
        data: bytes | None,
        thread_id: str,
        channel: str,
        *,
        channels: str | None = None,
    ) -> Any:
        reading = _Reading(self._makers, self._by_name)
        try:
            return reading.value(kind, data)
        except Exception as error:
            # A parser reports whatever happens in its hook as an error of its own.
            wrong: Misplaced = reading.refused or Damaged(str(error))
        # What is forged may be anything, and is refused wherever it stands.
        with suppress(Exception):
            whole = _outlined(kind, data)
            parts = {} if channels is None else whole[channels]
            for place, part in (*parts.items(), (channel, whole)):
                if (found := reading.found_in(part)) is not None:
                    wrong, channel = found, place
                    break
        if isinstance(wrong, _Unreadable):
            raise ClassNotAllowed(
                wrong.name,
                thread_id=thread_id,
                channel=channel,
                path=wrong.path,
                what=f"it is {wrong}, and was not read; the source was not changed",
                advice="Only LangGraph reads it: have it stored plainly there, and import it then",
            )
        if isinstance(wrong, Refused):
            raise ClassNotAllowed(
                wrong.name,
                thread_id=thread_id,
                channel=channel,
                path=wrong.path,
                what=f"it holds an object of {wrong.name}, which is not allowed here and was not made; "
                f"the source was not changed",
            )
        raise _corrupt(thread_id, channel, wrong)


def _corrupt(thread_id: str, channel: str, wrong: Misplaced) -> StateCorrupt:
    return StateCorrupt(
        f"thread {thread_id!r}, channel {channel!r}, {wrong.path}: the stored value cannot be read: {wrong}"
    )


class _Unreadable(Refused):
    """A way to store values that is not read here, whatever classes are allowed."""


def _unreadable(kind: str) -> _Unreadable:
    if "+" in kind:
        return _Unreadable(f"encrypted ({kind}), with a key that is not known here")
    return _Unreadable(f"stored in a way that is not read here, {kind}")


@dataclass(frozen=True, slots=True)
class _Unmade:
    """An extension as it is stored."""

    code: int
    data: bytes


def _outlined(kind: str | None, data: bytes | None) -> Any:
    """Return a stored value with nothing made of what it names."""
    if data is None or kind not in ("msgpack", "json"):
        return None
    return json.loads(data) if kind == "json" else _unpacked(bytes(data), _Unmade)


def _unpacked(data: bytes, hook: Callable[[int, bytes], Any]) -> Any:
    return ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)


class _Reading:
    """One value, and what in it is not allowed."""

    def __init__(self, makers: Mapping[Name, Make], by_name: Mapping[str, Make]) -> None:
        self.makers = makers
        self.by_name = by_name
        self.refused: Refused | None = None

    def value(self, kind: str | None, data: bytes | None) -> Any:
        if kind == "null" or data is None:
            return None
        if kind == "bytes":
            return bytes(data)
        if kind == "bytearray":
            return bytearray(data)
        if kind == "msgpack":
            return self.unpacked(bytes(data))
        if kind == "json":
            return json.loads(data, object_hook=self.revived)
        raise self.not_allowed(_unreadable(str(kind)))

    def not_allowed(self, refused: Refused) -> Refused:
        self.refused = self.refused or refused
        return refused

    def unpacked(self, data: bytes) -> Any:
        return _unpacked(data, self.made)

    def made(self, code: int, data: bytes) -> Any:
        """Return what an extension stands for: a constructor's name and its arguments."""
        if code == _DELTA:
            return _DeltaSnapshot(self.unpacked(data))
        if code not in _CALLS:
            raise self.not_allowed(_unreadable(f"the extension {code}"))
        module, name, given, *method = self.unpacked(data)
        make = self.maker(code, module, name, method)
        if make is None:
            raise self.not_allowed(Refused(_called(code, module, name, method)))
        if code in (_SINGLE, _METHOD):
            return make(given)
        if code == _POSITIONAL:
            if name == "Send" and len(given) == 3:
                return make(*given[:2], timeout=given[2])
            return make(*given)
        return _record(make, given) if code == _NAMED else _model(make, given)

    def maker(self, code: int, module: str, name: str, method: list[str]) -> Make | None:
        known = code != _METHOD or method == ["fromisoformat"]
        return self.makers.get((module, name)) if known else None

    def revived(self, value: dict[str, Any]) -> Any:
        """Return what a JSON object stands for; those with ``lc`` name a constructor."""
        if not _is_constructor(value):
            return value
        names = value.get("id")
        make = self.reviver(names)
        if make is None:
            raise self.not_allowed(Refused(_revived_name(names)))
        return make(*(value.get("args") or ()), **(value.get("kwargs") or {}))

    def reviver(self, names: Any) -> Make | None:
        if not _are_names(names):
            return None
        make = self.makers.get((".".join(names[:-1]), names[-1]))
        if make is None and _core(names[0]):
            # Names of langchain have moved between its packages; those of its messages are its own.
            make = self.by_name.get(names[-1])
        return make

    def found_in(self, value: Any) -> Misplaced | None:
        """Return what in an outline is not allowed or cannot be made, the first of it, with the way to it."""
        try:
            self.look(value)
        except Misplaced as wrong:
            return wrong
        return None

    def look(self, value: Any, step: Callable[[Any], str] = key_step) -> None:
        if isinstance(value, _Unmade):
            self.look_into(value)
        elif isinstance(value, list):
            self.look_behind((f"[{number}]", item) for number, item in enumerate(value))
        elif isinstance(value, dict) and _is_constructor(value):
            if self.reviver(value.get("id")) is None:
                raise Refused(_revived_name(value.get("id")))
            self.look(value.get("args"))
            self.look(value.get("kwargs"), _field_step)
            self.try_out(_revived_name(value.get("id")), self.value, "json", json.dumps(value))
        elif isinstance(value, dict):
            self.look_behind((step(key), item) for key, item in value.items())

    def look_behind(self, items: Iterable[tuple[str, Any]]) -> None:
        for step, item in items:
            try:
                self.look(item)
            except Misplaced as wrong:
                wrong.inside(step)
                raise

    def look_into(self, unmade: _Unmade) -> None:
        code, parts = unmade.code, _unpacked(unmade.data, _Unmade)
        if code == _DELTA:
            self.look(parts)
            return
        if code not in _CALLS:
            raise _unreadable(f"the extension {code}")
        module, name, given, *method = parts
        if self.maker(code, module, name, method) is None:
            raise Refused(_called(code, module, name, method))
        self.look(given, _field_step if code in (_NAMED, _MODEL) else key_step)
        self.try_out(_called(code, module, name, method), self.made, code, unmade.data)

    def try_out(self, name: str, make: Make, *given: Any) -> None:
        try:
            make(*given)
        except Exception as error:
            raise Damaged(f"no {name} can be made of it: {error}") from None


def _record(make: Make, given: dict[str, Any]) -> Any:
    """Return an object made of named arguments; those that its constructor does not take are set."""
    late = {one.name for one in fields(make) if not one.init} if is_dataclass(make) else set()
    made = make(**{name: value for name, value in given.items() if name not in late})
    for name in late & given.keys():
        object.__setattr__(made, name, given[name])
    return made


def _model(make: Make, given: dict[str, Any]) -> Any:
    """Return a pydantic model; one that refuses what it was dumped as has its fields as they are."""
    try:
        return make(**given)
    except Exception:
        if not (isinstance(make, type) and issubclass(make, BaseModel)):
            raise
        made = make.model_construct(**given)
        # Without one of its fields it could not be made again here.
        if make.model_fields.keys() - vars(made).keys():
            raise
        return made


def _called(code: int, module: str, name: str, method: list[str]) -> str:
    return ".".join((module, name, *(method if code == _METHOD else ())))


def _is_constructor(value: dict[str, Any]) -> bool:
    return "lc" in value and value.get("type") == "constructor"


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _revived_name(names: Any) -> str:
    return ".".join(names) if _are_names(names) else f"{names!r:.80}"


def _field_step(name: Any) -> str:
    return f".{name!s:.80}"


def _core(module: str) -> bool:
    return module.partition(".")[0] in ("langchain", "langchain_core")
