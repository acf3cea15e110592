"""Chats of Gemini CLI: ``{"id": …, "timestamp": …, "type": "user", "content": …}``."""

from __future__ import annotations

from typing import Any

from holdfast.hooks.transcripts.items import OTHER

_ROLES = {"user": "user", "gemini": "assistant", "model": "assistant", "info": "system"}


def place(entry: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Tell the role of an entry, and where its content is."""
    role = _ROLES.get(str(entry.get("type")))
    return (role, ("content",)) if role is not None and "content" in entry else (OTHER, ())
