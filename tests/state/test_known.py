"""A list that only grew is recognised; one that changed in whatever small way is not."""

from __future__ import annotations

import enum
import gc
import tracemalloc
import unittest.mock
from copy import deepcopy
from decimal import Decimal
from typing import Any

import orjson
import pytest

from holdfast.state import known as module
from holdfast.state.known import KnownList, NoRoom
from tests.state.plain import IMPLEMENTATIONS

ELEMENTS: list[Any] = [
    {"role": "user", "n": 1, "x": 0.0, "flag": True, "none": None, "nested": {"a": [1, 2]}},
    "text",
    7,
    [1, [2, {"k": "v"}]],
]


@pytest.fixture(autouse=True, params=IMPLEMENTATIONS)
def _implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on each implementation of what it is about."""
    for name in ("built", "fits", "outline"):
        monkeypatch.setattr(module, name, getattr(IMPLEMENTATIONS[request.param], name))


class Text(str):
    """A subclass that compares like its base."""

    __slots__ = ()


class Alike(type):
    """The kind of a class that calls itself equal to every other."""

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = type.__hash__


class Anything(metaclass=Alike):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class Pair(tuple[int, int], metaclass=Alike):
    """A tuple whose class says that it is a list."""

    __slots__ = ()


class Colour(enum.Enum):
    RED = "user"


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
def test_growth_is_recognised_at_every_size(count: int) -> None:
    value = [deepcopy(ELEMENTS) for _ in range(count)]
    known = KnownList(value)
    assert (len(known), known.begins(value)) == (count, True)
    grown = [*deepcopy(value), "new", {"more": 1}]
    assert known.begins(grown)
    further = KnownList(grown[count:], known)
    assert further.begins([*grown, 1])
    assert not further.begins(grown[:-1])
    assert further.cost >= known.cost
    assert further.cost == KnownList(grown).cost


@pytest.mark.parametrize(
    ("path", "replacement"),
    [
        (("n",), 1.0), (("n",), True), (("n",), Decimal(1)), (("x",), -0.0), (("x",), 0),
        (("x",), False), (("flag",), 1), (("flag",), 1.0), (("none",), float("nan")),
        (("nested",), {"a": (1, 2)}), (("nested",), {"a": [2, 1]}), (("nested",), {}),
        (("role",), Text("user")), (("role",), b"user"), (("role",), unittest.mock.ANY),
        (("role",), Colour.RED), (("role",), object()),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_replaced_value_is_noticed(path: tuple[str], replacement: Any) -> None:
    value = deepcopy(ELEMENTS) * 100
    known = KnownList(value)
    changed = deepcopy(value)
    changed[200][path[0]] = replacement
    assert not known.begins(changed)


def test_a_class_that_calls_itself_equal_to_others_is_noticed() -> None:
    assert not KnownList(["text"]).begins([Anything()])
    assert not KnownList([{"k": 1}]).begins([{"k": Anything()}])
    assert not KnownList([[1, 2]]).begins([Pair((1, 2))])


def test_another_order_of_keys_is_noticed() -> None:
    value = deepcopy(ELEMENTS)
    known = KnownList(value)
    value[0] = dict(reversed(value[0].items()))
    assert not known.begins(value)


def test_keys_that_only_look_the_same_are_noticed() -> None:
    known = KnownList([{"role": "user"}])
    assert not known.begins([{Text("role"): "user"}])
    assert known.begins([{"".join(("ro", "le")): "user"}])


@pytest.mark.parametrize(
    ("value", "moved"),
    [
        ([{"a": 1, "b": 2}, {"c": 3}], [{"a": 1}, {"b": 2, "c": 3}]),
        ([[1, 2], [3]], [[1], [2, 3]]),
        ([[1], {"a": 2}], [{"a": 1}, [2]]),
        ([[], {}], [{}, []]),
        ([[[1]], 2], [[1], [2]]),
        ([["a"], "b"], ["a", ["b"]]),
    ],
    ids=["dicts", "lists", "kinds", "empty", "depths", "places"],
)
def test_values_that_moved_between_containers_are_noticed(value: list[Any], moved: Any) -> None:
    known = KnownList(deepcopy(value))
    assert known.begins(value)
    assert not known.begins(moved)


def test_equal_values_that_are_other_objects_are_recognised() -> None:
    value = deepcopy(ELEMENTS) * 70
    value.append({"long": 10**15, "real": 0.1, "zero": -0.0, "text": "as long as it takes"})
    assert KnownList(value).begins(orjson.loads(orjson.dumps(value)))


def test_later_changes_of_the_callers_list_are_noticed() -> None:
    value = deepcopy(ELEMENTS)
    known = KnownList(value)
    value[3][1][1]["k"] = "changed"
    assert not known.begins(value)
    assert known.begins(ELEMENTS)


def test_a_list_that_contains_itself_is_not_the_old_one() -> None:
    value: list[Any] = deepcopy(ELEMENTS)
    known = KnownList(value)
    value[3].append(value)
    value[3].append(value)
    assert not known.begins(value)


@pytest.mark.parametrize(
    "value",
    [
        [{"a": n % 10} for n in range(20_000)],
        [[n % 10] for n in range(20_000)],
        [{"a": {"b": [n % 10]}, "c": []} for n in range(5_000)],
        [{f"key{k}": k for k in range(40)} for _ in range(1_000)],
        list(range(-5, 200)) * 1_000,
        ["text " * 200] * 1_000,
    ],
    ids=["dicts", "lists", "nested", "wide", "numbers", "texts"],
)
def test_the_cost_is_about_what_is_kept(value: list[Any]) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        known = KnownList(value)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.3 * known.cost
    assert known.cost < 3 * kept


def test_a_list_that_costs_too_much_is_given_up_early() -> None:
    value = [{"a": n % 10} for n in range(100_000)]
    tracemalloc.start()
    try:
        with pytest.raises(NoRoom):
            KnownList(value, room=2_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    known = KnownList(value[:1_000])
    assert KnownList(value[1_000:2_000], known, room=known.cost * 3).begins(value)
    with pytest.raises(NoRoom):
        KnownList(value[1_000:2_000], known, room=known.cost)
