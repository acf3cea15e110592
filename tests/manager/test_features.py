"""Feature lists in their dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.manager.features import Features, read_features


@pytest.mark.row("S4-12")
@pytest.mark.parametrize(
    ("document", "current", "completed"),
    [
        ([{"id": "a", "passes": True}, {"id": "b", "passes": False}], "b", ("a",)),
        ({"features": [{"id": "a", "status": "Completed"}, {"id": "b"}]}, "b", ("a",)),
        ({"features": [{"name": "a"}, {"name": "b", "status": "in_progress"}]}, "b", ()),
        ({"current": "c", "features": [{"id": "a", "done": True}]}, "c", ("a",)),
        ([{"id": 1, "completed": True}, {"id": 2, "completed": "yes"}], "2", ("1",)),
        ([{"description": "Log in", "passes": True}], None, ("Log in",)),
        ([{"id": "a", "passes": True}, {"id": "a", "done": True}], None, ("a",)),
        ([{"passes": True}, "text", None], None, ()),
        ([{"id": "half \ud83d", "done": True}, {"id": "a\0b"}], "a\\0b", ("half \\ud83d",)),
        ({"current": "\ud83d", "features": []}, "\\ud83d", ()),
        ({"features": "none"}, None, ()),
        ("text", None, ()),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_dialects(document: Any, current: str | None, completed: tuple[str, ...]) -> None:
    assert read_features(json.dumps(document).encode()) == Features(current, completed)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", b"[" * 100_000], ids=range(5))
def test_what_is_no_list_says_nothing(content: bytes | None) -> None:
    assert read_features(content) == Features()
