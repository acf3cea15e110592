"""Messages of opencode, as its plugin writes them down: ``{"info": {"role": …}, "parts": […]}``."""

from __future__ import annotations

from typing import Any

from holdfast.hooks.transcripts.items import OTHER, inside

WHY_NOT = "opencode keeps conversations in a database of its own, which nobody else may write to"


def place(entry: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Tell the role of an entry, and where its content is."""
    if inside(entry, "info", "role") and "parts" in entry:
        role = entry["info"]["role"]
        return (role if isinstance(role, str) else OTHER), ("parts",)
    return OTHER, ()
