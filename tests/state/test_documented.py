"""The documented keys: free to be absent, checked when present, named when wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from holdfast.errors import InvalidState
from holdfast.state.documented import tasks_in, validate_documented

GOOD: dict[str, Any] = {
    "conversation_history": [{"role": "user", "content": "hi"}, {}],
    "variable_state": {"x": 1},
    "execution_context": {"cwd": "/srv"},
    "task_state": [{"id": "a", "title": "A", "status": "pending"}, {"id": "b"}],
    "progress": 0.5,
    "agent_history": [{"agent": "planner"}],
    "memory_refs": [{"key": "k", "uri": "s3://x"}, {"key": "k", "path": "a", "hash": "h"}],
    "open_files": [{"path": "a.py", "line": 3, "column": None, "active": True}],
    "decisions": ["use SQLite", {"text": "no ORM", "rationale": "speed"}],
    "features": {"login": True},
    "context": {"session_number": 2, "token_usage": 1000, "more": "free"},
    "anything": object(),
}


class Status(Enum):
    PENDING = "pending"


@dataclass
class Task:
    id: str
    status: Status = Status.PENDING


@pytest.mark.row("S0-13")
def test_a_state_with_the_documented_keys_is_accepted() -> None:
    validate_documented(GOOD)
    for key, value in GOOD.items():
        validate_documented({key: value})
    validate_documented({})
    validate_documented({"progress": {"done": 3}, "features": ["a"], "task_state": {"tasks": []}})


@pytest.mark.row("S0-13")
@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("conversation_history", {}, "$.conversation_history"),
        ("conversation_history", "hi", "$.conversation_history"),
        ("conversation_history", [{}, "hi"], "$.conversation_history[1]"),
        ("variable_state", [], "$.variable_state"),
        ("variable_state", None, "$.variable_state"),
        ("execution_context", "x", "$.execution_context"),
        ("task_state", "x", "$.task_state"),
        ("task_state", [{"title": "A"}], "$.task_state[0]"),
        ("task_state", [{"id": 1}], "$.task_state[0].id"),
        ("task_state", [{"id": "a", "status": "odd"}], "$.task_state[0].status"),
        ("task_state", [{"id": "a", "status": 10**5000}], "$.task_state[0].status"),
        ("task_state", [{"id": "a"}, {"id": "a"}], "$.task_state[1].id"),
        ("task_state", {"tasks": [{"id": "a"}, {}]}, "$.task_state.tasks[1]"),
        ("progress", "half", "$.progress"),
        ("progress", True, "$.progress"),
        ("agent_history", [1], "$.agent_history[0]"),
        ("memory_refs", [{"uri": "x"}], "$.memory_refs[0]"),
        ("memory_refs", [{"key": "k"}], "$.memory_refs[0]"),
        ("open_files", [{"line": 1}], "$.open_files[0]"),
        ("open_files", [{"path": "a", "line": -1}], "$.open_files[0].line"),
        ("open_files", [{"path": "a", "line": True}], "$.open_files[0].line"),
        ("open_files", [{"path": "a", "column": "x"}], "$.open_files[0].column"),
        ("decisions", [1], "$.decisions[0]"),
        ("decisions", [{"rationale": "x"}], "$.decisions[0]"),
        ("features", "x", "$.features"),
        ("context", [], "$.context"),
        ("context", {"session_number": "1"}, "$.context.session_number"),
        ("context", {"token_usage": -5}, "$.context.token_usage"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_path(key: str, value: Any, path: str) -> None:
    with pytest.raises(InvalidState) as caught:
        validate_documented({**GOOD, key: value})
    assert str(caught.value).startswith(f"{path} ")


def test_objects_count_as_what_they_are_stored_as() -> None:
    state = {
        "task_state": [Task("a"), Task("b")],
        "conversation_history": [Task("message")],
        "variable_state": Task("x"),
    }
    validate_documented(state)
    assert tasks_in(state) == [
        {"id": "a", "status": Status.PENDING},
        {"id": "b", "status": Status.PENDING},
    ]


def test_tasks_are_found_in_either_form_and_are_copies() -> None:
    tasks = [{"id": "a"}, {"id": "b"}]
    for form in (tasks, tuple(tasks), {"tasks": tasks}):
        found = tasks_in({"task_state": form})
        assert found == tasks
        assert found[0] is not tasks[0]
    forms: list[dict[str, Any]] = [{}, {"task_state": None}, {"task_state": {}}]
    assert [tasks_in(form) for form in forms] == [[], [], []]
