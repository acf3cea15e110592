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
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.errors import ClassNotAllowed, StateCorrupt
from holdfast.integrations.langgraph.classes import Classes

Make = Callable[..., Any]
Name = tuple[str, str]

_STANDARD: Final[Mapping[Name, Make]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
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
        reading = _Reading(self._makers, self._by_name)
        try:
            return reading.value(kind, data)
        except Exception as error:
            # A parser reports whatever happens in its hook as an error of its own.
            if reading.refused is None:
                raise StateCorrupt(
                    f"thread {thread_id!r}, channel {channel!r}: the stored value cannot be read: "
                    f"{error}"
                ) from None
        raise ClassNotAllowed(
            reading.refused,
            thread_id=thread_id,
            channel=channel,
            path="$",
            what=f"it holds an object of {reading.refused}, which is not allowed here and was not "
            f"made; the source was not changed",
        )


class _Reading:
    """One value, and the name in it that is not allowed."""

    def __init__(self, makers: Mapping[Name, Make], by_name: Mapping[str, Make]) -> None:
        self.makers = makers
        self.by_name = by_name
        self.refused: str | None = None

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
        raise self.not_allowed(f"the kind {kind}")

    def not_allowed(self, name: str) -> Exception:
        self.refused = self.refused or name
        return ValueError(name)

    def unpacked(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self.made, option=ormsgpack.OPT_NON_STR_KEYS)

    def made(self, code: int, data: bytes) -> Any:
        """Return what an extension stands for: a constructor's name and its arguments."""
        if code == _DELTA:
            return _DeltaSnapshot(self.unpacked(data))
        if code not in (_SINGLE, _POSITIONAL, _NAMED, _METHOD, _MODEL):
            raise self.not_allowed(f"the extension {code}")
        module, name, given, *method = self.unpacked(data)
        make = self.makers.get((module, name))
        if make is None or (code == _METHOD and method != ["fromisoformat"]):
            raise self.not_allowed(".".join((module, name, *(method if code == _METHOD else ()))))
        if code in (_SINGLE, _METHOD):
            return make(given)
        if code == _POSITIONAL:
            if name == "Send" and len(given) == 3:
                return make(*given[:2], timeout=given[2])
            return make(*given)
        return make(**given)

    def revived(self, value: dict[str, Any]) -> Any:
        """Return what a JSON object stands for; those with ``lc`` name a constructor."""
        if "lc" not in value or value.get("type") != "constructor":
            return value
        names = value.get("id")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.not_allowed(f"{names!r:.80}")
        make = self.makers.get((".".join(names[:-1]), names[-1]))
        if make is None and _core(names[0]):
            # Names of langchain have moved between its packages; those of its messages are its own.
            make = self.by_name.get(names[-1])
        if make is None:
            raise self.not_allowed(".".join(names))
        return make(*(value.get("args") or ()), **(value.get("kwargs") or {}))


def _core(module: str) -> bool:
    return module.partition(".")[0] in ("langchain", "langchain_core")
