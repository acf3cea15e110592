"""What a feature list says: which features are complete, and which one is being worked on.

Lists come in several dialects: a JSON array, or an object with one under ``features``; entries that
``passes``, are ``done`` or ``completed``, or have a ``status``. All are read, none is written. A list that is
no JSON, or has another shape, says nothing, and is kept byte for byte all the same. In names that JSON can
hold and a checkpoint cannot (half an emoji, a NUL) what is not storable is spelled out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_NAMES: Final = ("id", "name", "title", "description")
_FLAGS: Final = ("passes", "passed", "completed", "complete", "done")
_COMPLETE: Final = frozenset({"complete", "completed", "done", "passed", "passing"})
_UNDERWAY: Final = frozenset({"in_progress", "in-progress", "in progress", "current", "active"})
_CURRENT: Final = ("current", "current_feature")


@dataclass(frozen=True, slots=True)
class Features:
    """What was found. ``current`` is None when all are complete, or nothing is known."""

    current: str | None = None
    completed: tuple[str, ...] = ()


def read_features(content: bytes | None) -> Features:
    """Read a feature list. Never raises: a list that cannot be understood says nothing."""
    try:
        document = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return Features()
    listed = document.get("features") if isinstance(document, Mapping) else document
    rows = listed if isinstance(listed, list) else []
    entries = [one for one in rows if isinstance(one, Mapping)]
    completed = [name for one in entries if _is_complete(one) and (name := _name_of(one))]
    return Features(_current(document, entries), tuple(dict.fromkeys(completed)))


def _current(document: Any, entries: list[Mapping[str, Any]]) -> str | None:
    if isinstance(document, Mapping):
        for key in _CURRENT:
            if isinstance(document.get(key), str) and document[key]:
                return _storable(document[key])
    left = [one for one in entries if not _is_complete(one)]
    underway = [one for one in left if _status(one) in _UNDERWAY]
    return next((name for one in (*underway, *left) if (name := _name_of(one))), None)


def _is_complete(entry: Mapping[str, Any]) -> bool:
    return any(entry.get(flag) is True for flag in _FLAGS) or _status(entry) in _COMPLETE


def _status(entry: Mapping[str, Any]) -> str:
    status = entry.get("status")
    return status.lower() if isinstance(status, str) else ""


def _name_of(entry: Mapping[str, Any]) -> str | None:
    for key in _NAMES:
        value = entry.get(key)
        if isinstance(value, str) and value:
            return _storable(value)
        if type(value) is int:
            return str(value)
    return None


def _storable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
