"""Transcripts of Claude Code: ``{"type": "user", "uuid": …, "parentUuid": …, "message": {…}}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from holdfast.hooks.transcripts.items import OTHER, entries_of, inside, up_to_open_calls


def place(entry: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Tell the role of an entry, and where its content is."""
    kind = entry.get("type")
    if inside(entry, "message", "content"):
        role = entry["message"].get("role")
        return (role if isinstance(role, str) else str(kind)), ("message", "content")
    if kind == "system" and "content" in entry:
        return "system", ("content",)
    if kind == "summary" and "summary" in entry:
        return "system", ("summary",)
    return OTHER, ()


def fork(lines: list[bytes], old: str, new: str) -> tuple[str, list[bytes]]:
    """Return the file name and the lines of the same conversation under another id."""
    entries = up_to_open_calls(entries_of(lines), _calls, _results, _asks)
    for entry in entries:
        if entry.get("sessionId") == old:
            entry["sessionId"] = new
    return f"{new}.jsonl", [orjson.dumps(one) for one in entries]


def _calls(entry: dict[str, Any]) -> Iterator[str]:
    yield from (str(one.get("id")) for one in _blocks(entry) if one.get("type") == "tool_use")


def _results(entry: dict[str, Any]) -> Iterator[str]:
    for one in _blocks(entry):
        if one.get("type") == "tool_result":
            yield str(one.get("tool_use_id"))


def _asks(entry: dict[str, Any]) -> bool:
    """Tell whether the user says something here: neither a tool does, nor the agent to itself or a subagent."""
    if entry.get("type") != "user" or entry.get("isMeta") or entry.get("isSidechain"):
        return False
    return inside(entry, "message", "content") and not any(_results(entry))


def _blocks(entry: dict[str, Any]) -> list[dict[str, Any]]:
    content = entry["message"]["content"] if inside(entry, "message", "content") else None
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
