"""What a tool is about to do, as far as its name and arguments tell.

A tool that nobody knows, an MCP server's for instance, may change anything.
"""

from __future__ import annotations

import os

from holdfast.hooks.agents import CHANGES, EDITS, READS
from holdfast.hooks.desk import is_path
from holdfast.hooks.events import Event, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_PATCH_FILES = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
_PATCH_FIELDS = ("command", "patchText", "patch", "input")
_DETAILS = ("command", "cmd", "description", "pattern", "query", "url", "prompt")
_DETAIL_CHARACTERS = 160
_MOST_PATHS = 1000
# Tools with which an agent keeps its list of tasks.
PLANS = frozenset({"TodoWrite", "update_plan", "write_todos", "todowrite"})
_MOST_TASKS = 200
_TITLE_CHARACTERS = 300
_STATUSES = ("pending", "in_progress", "completed", "cancelled")


class Use:
    """One use of a tool: what it does, the files it names, and what to call it in a list."""

    __slots__ = ("detail", "does", "paths")

    def __init__(self, does: str, paths: list[str], detail: str) -> None:
        self.does = does
        self.paths = paths
        self.detail = detail


def use_of(event: Event, read_only: Iterable[str] = ()) -> Use:
    """Look at the tool of an event. ``read_only`` names further tools that change nothing."""
    tool, given = event.tool, event.tool_input
    does = event.words.TOOLS.get(tool, CHANGES)
    if any(_matches(tool, one) for one in read_only):
        does = READS
    paths = _paths(event, given) if does == EDITS else []
    if does == EDITS and not paths:
        # It says that it edits files and not which: they have to be looked for.
        does = CHANGES
    return Use(does, paths, _detail(event, given, paths))


def _matches(tool: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return tool.startswith(pattern[:-1])
    return bool(tool) and tool == pattern


def _paths(event: Event, given: dict[str, Any]) -> list[str]:
    found = [given[key] for key in event.words.PATHS if isinstance(given.get(key), str)]
    for key in _PATCH_FIELDS:
        if not found and (text := _text_of(given.get(key))):
            found = [
                line[len(start) :].strip()
                for line in text.splitlines()
                for start in _PATCH_FILES
                if line.startswith(start)
            ]
    base = event.cwd or os.sep
    absolute = (os.path.normpath(os.path.join(base, one)) for one in found if one.strip("\0"))
    return [one for one in dict.fromkeys(absolute) if is_path(one)][:_MOST_PATHS]


def _detail(event: Event, given: dict[str, Any], paths: list[str]) -> str:
    if paths:
        shown = [os.path.relpath(one, event.cwd) if event.cwd else one for one in paths[:3]]
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        return clean(", ".join(shown) + more, _DETAIL_CHARACTERS)
    for key in _DETAILS:
        if text := _text_of(given.get(key)):
            return clean(" ".join(text.split()), _DETAIL_CHARACTERS)
    return ""


def _text_of(value: Any) -> str:
    """Return a text, or a command that comes as a list of words."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return " ".join(value)
    return value if isinstance(value, str) else ""


def planned_tasks(event: Event) -> list[dict[str, str]]:
    """Return the agent's list of tasks, where its tool has just brought that up to date."""
    if event.tool not in PLANS:
        return []
    listed = event.tool_input.get("todos") or event.tool_input.get("plan")
    tasks: dict[str, dict[str, str]] = {}
    for one in listed[:_MOST_TASKS] if isinstance(listed, list) else ():
        fields = one if isinstance(one, dict) else {}
        title = next(
            (fields[key] for key in ("content", "step", "description") if fields.get(key)), None
        )
        if isinstance(title, str):
            name = clean(title, _TITLE_CHARACTERS)
            status = fields.get("status")
            known = status if status in _STATUSES else "pending"
            tasks[name] = {"id": name, "title": name, "status": known}
    return list(tasks.values())
