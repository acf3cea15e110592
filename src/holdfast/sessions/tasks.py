"""Tasks over time: what was completed stays completed.

A state carries its own task list and is stored exactly as given. But an agent that reports only what
it is doing now must not thereby forget what it finished two saves ago, so completed tasks that a state
no longer mentions travel along in the checkpoint's context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from holdfast.state.documented import documented, tasks_in
from holdfast.state.tags import normalise

CARRIED: Final = "completed_tasks"


def all_tasks(state: Mapping[str, Any], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every task that a checkpoint knows of: carried ones first, then the state's own."""
    return [*context.get(CARRIED, []), *tasks_in(documented(state))]


def completed_tasks(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return copies of the completed ones, safe from what the caller does to the originals."""
    return [deepcopy(dict(task)) for task in tasks if _is_completed(task)]


def carried_tasks(
    completed: Sequence[dict[str, Any]], state: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the tasks completed earlier that ``state`` does not mention."""
    mentioned = {task["id"] for task in tasks_in(state)}
    return [task for task in completed if task["id"] not in mentioned]


def progress_of(tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how far a list of tasks has come."""
    completed = sum(map(_is_completed, tasks))
    percent = round(100 * completed / len(tasks), 1) if tasks else 0.0
    return {"completed": completed, "total": len(tasks), "percent": percent}


def _is_completed(task: Mapping[str, Any]) -> bool:
    # A status may be an enum's member; what counts is what is stored for it.
    return bool(normalise(task.get("status")) == "completed")
