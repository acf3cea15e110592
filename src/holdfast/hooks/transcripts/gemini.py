"""Chats of Gemini CLI: ``{"id": …, "timestamp": …, "type": "user", "content": …}``."""

from __future__ import annotations

from typing import Any

import orjson

from holdfast.hooks.transcripts.items import OTHER, entries_of
from holdfast.model import utc_now

_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant", "info": "system"}


def place(entry: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Tell the role of an entry, and where its content is."""
    role = _ROLES.get(str(entry.get("type")))
    return (role, ("content",)) if role is not None and "content" in entry else (OTHER, ())


def fork(lines: list[bytes], old: str, new: str) -> tuple[str, list[bytes]]:
    """Return the file name and the lines of the same conversation under another id."""
    entries = entries_of(lines)
    for entry in entries:
        if entry.get("sessionId") == old:
            entry["sessionId"] = new
    # Its list of conversations goes by the beginning of the id in the name.
    name = f"session-{utc_now():%Y-%m-%dT%H-%M}-{new[-8:]}.jsonl"
    return name, [orjson.dumps(one) for one in entries]
