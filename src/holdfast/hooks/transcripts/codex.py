"""Rollouts of Codex: ``{"timestamp": …, "type": "response_item", "payload": {…}}``."""

from __future__ import annotations

from typing import Any

from holdfast.hooks.transcripts.items import OTHER, inside

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
