"""What is kept of an error that a body raised, whatever that error makes of being asked."""

from __future__ import annotations

import traceback
from typing import Any, Final

_TRACEBACK_CHARACTERS: Final = 64 * 1024


def error_document(error: BaseException) -> dict[str, Any]:
    """Return what is kept of an error: its type, its message and its traceback."""
    return {
        "type": _storable(type(error).__qualname__),
        "message": error_message(error),
        "traceback": _storable(_traceback(error)),
    }


def _traceback(error: BaseException) -> str:
    try:
        return _last(traceback.format_exception(error))
    except Exception:
        return "(its traceback cannot be read)"


def _last(parts: list[str]) -> str:
    """Return the last parts of a traceback, each whole: half a secret would be recognised by nobody."""
    kept: list[str] = []
    room = _TRACEBACK_CHARACTERS
    for part in reversed(parts):
        room -= len(part)
        if room < 0 and kept:
            break
        kept.append(part)
    return "".join(reversed(kept))


def error_message(error: BaseException | str) -> str:
    """Return the message of an error as it can be stored."""
    try:
        return _storable(str(error))
    except Exception:
        return "(its message cannot be read)"


def _storable(text: str) -> str:
    """Return text from an error, with what cannot be stored spelled out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
