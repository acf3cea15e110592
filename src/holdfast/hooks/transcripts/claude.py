"""Transcripts of Claude Code: ``{"type": "user", "uuid": …, "parentUuid": …, "message": {…}}``."""

from __future__ import annotations

from typing import Any

from holdfast.hooks.transcripts.items import OTHER, inside


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
