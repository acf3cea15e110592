"""What changed between two states, in lines that a person can read."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from holdfast.state.diff import Change, diff_states
from tests.state.simulation import message
from tests.state.strategies import states

NAN = float("nan")


@settings(deadline=None, max_examples=50)
@given(states)
def test_a_state_does_not_differ_from_its_copy(state: dict[str, Any]) -> None:
    assert list(diff_states(state, copy.deepcopy(state))) == []


def test_keys_are_added_removed_and_changed() -> None:
    before = {"same": 1, "gone": 2, "deep": {"a b": [1, 2]}}
    after = {"same": 1, "deep": {"a b": [1, 3]}, "new": 4}
    assert list(diff_states(before, after)) == [
        Change("removed", "$.gone", before=2),
        Change("changed", "$.deep['a b'][1]", 2, 3),
        Change("added", "$.new", after=4),
    ]


def test_an_insertion_into_a_long_list_is_one_line() -> None:
    before: dict[str, list[Any]] = {"messages": [message(n) for n in range(100)]}
    after = copy.deepcopy(before)
    after["messages"].insert(40, "new")
    assert list(diff_states(before, after)) == [Change("added", "$.messages[40]", after="new")]
    assert list(diff_states(after, before)) == [Change("removed", "$.messages[40]", before="new")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (None, NAN),
        (0.0, -0.0),
        ((1,), [1]),
        ("1", b"1"),
        (Decimal("1.0"), Decimal("1.00")),
        ([0.0], [-0.0]),
        ({1}, {True}),
    ],
)
def test_values_that_are_stored_differently_differ(one: Any, other: Any) -> None:
    assert len(list(diff_states({"x": one}, {"x": other}))) == 1
    assert list(diff_states({"x": one}, {"x": one})) == []
