"""Rollouts of Codex: ``{"timestamp": …, "type": "response_item", "payload": {…}}``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from holdfast.hooks.transcripts.items import OTHER, entries_of, inside, up_to_open_calls
from holdfast.model import utc_now

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "reasoning")
_RESULTS = ("function_call_output", "custom_tool_call_output")


def place(entry: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Tell the role of an entry, and where its content is."""
    if entry.get("type") != "response_item" or not isinstance(entry.get("payload"), dict):
        return OTHER, ()
    kind = entry["payload"].get("type")
    if kind == "message" and inside(entry, "payload", "content"):
        role = entry["payload"].get("role")
        return (role if isinstance(role, str) else OTHER), ("payload", "content")
    if kind in _CALLS:
        return "assistant", ("payload",)
    if kind in _RESULTS and inside(entry, "payload", "output"):
        return "tool", ("payload", "output")
    return OTHER, ()


def fork(lines: list[bytes], old: str, new: str) -> tuple[str, list[bytes]]:
    """Return the file name and the lines of the same conversation under another id."""
    entries = up_to_open_calls(entries_of(lines), _calls, _results, _asks)
    for entry in entries:
        if entry.get("type") == "session_meta" and isinstance(entry.get("payload"), dict):
            for key in ("id", "session_id"):
                if entry["payload"].get(key) == old:
                    entry["payload"][key] = new
    name = f"rollout-{utc_now():%Y-%m-%dT%H-%M-%S}-{new}.jsonl"
    return name, [orjson.dumps(one) for one in entries]


def _calls(entry: dict[str, Any]) -> Iterator[str]:
    payload = _payload(entry)
    if payload.get("type") in ("function_call", "custom_tool_call", "local_shell_call"):
        yield str(payload.get("call_id"))


def _results(entry: dict[str, Any]) -> Iterator[str]:
    payload = _payload(entry)
    if str(payload.get("type")).endswith("_output"):
        yield str(payload.get("call_id"))


def _asks(entry: dict[str, Any]) -> bool:
    payload = _payload(entry)
    return payload.get("type") == "message" and payload.get("role") == "user"


def _payload(entry: dict[str, Any]) -> dict[str, Any]:
    payload = entry.get("payload")
    response = entry.get("type") == "response_item"
    return payload if response and isinstance(payload, dict) else {}
