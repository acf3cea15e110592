"""Plain data is told from other data, and known again, the same way by each implementation."""

from __future__ import annotations

import copy
import enum
import random
import sys
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state import plain
from holdfast.state.tags import MARK, MAX_DEPTH
from tests.state.plain import IMPLEMENTATIONS


@pytest.fixture(params=IMPLEMENTATIONS)
def looking(request: pytest.FixtureRequest) -> ModuleType:
    return IMPLEMENTATIONS[request.param]


class Text(str):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


@dataclass
class Message:
    content: Any
    extra: Any = None


class Lacking:
    """An object without what its class is said to consist of."""


MESSAGES = {Message: ("content", "extra"), Lacking: ("content",)}

# Drawn from few values, so that two of them are often nearly the same.
_SCALARS = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -1,
        2**63,
        10**30,
        0.0,
        -0.0,
        1.0,
        0.1,
        "",
        "a",
        "b",
        "é",
        "\U0001f600",
    ]
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "c", ""]), inner, max_size=3),
        st.builds(Message, inner, inner),
    ),
    max_leaves=12,
)
_ODD = st.sampled_from(
    [
        *("a\0b", float("nan"), float("inf"), -float("inf"), (1,), {1: 2}, {"a\0": 1}, {MARK: 1}),
        *(b"a", Text("a"), Number.ONE, {Text("a"): 1}, OrderedDict(a=1), datetime.now(UTC), object),
        *([[["\0"]]], {"a": {"b": [float("nan")]}}, [{"a": (1,)}]),
    ]
)


@given(value=st.one_of(_VALUES, _ODD), room=st.integers(0, 4), size=st.integers(0, 12))
def test_all_agree_on_what_is_plain(value: Any, room: int, size: int) -> None:
    assert len({looking.is_plain(value, room) for looking in IMPLEMENTATIONS.values()}) == 1
    assert len({looking.is_plain(value, 9, size) for looking in IMPLEMENTATIONS.values()}) == 1


@given(before=st.lists(_VALUES, max_size=5), now=st.lists(_VALUES, max_size=5))
def test_all_agree_on_what_is_the_same(before: list[Any], now: list[Any]) -> None:
    outlines = [looking.outline(before, MESSAGES) for looking in IMPLEMENTATIONS.values()]
    assert all(len(one) == len(outlines[0]) and all(map(_is, one, outlines[0])) for one in outlines)
    for values in (now, before, copy.deepcopy(before), [*before, 1], before[:-1], [1, *before]):
        for start in (0, 1):
            said = {
                looking.fits(outlines[0], values, start) for looking in IMPLEMENTATIONS.values()
            }
            there = _text(values[start : start + len(before)])
            assert said == {there == _text(before)}


def _is(one: Any, other: Any) -> bool:
    # Lengths beyond the small numbers are other objects each time.
    return one is other or (type(one) is int and one == other)


def _text(values: list[Any]) -> str:
    return repr(values)


@pytest.mark.parametrize(
    "value", ["\0", {"\0": 1}, {1: 1}, {MARK: 1}, (1,), Text(), Number.ONE, b""]
)
def test_what_is_not_plain(looking: ModuleType, value: Any) -> None:
    assert not looking.is_plain(value)
    assert not looking.is_plain([{"a": [value]}])
    assert looking.is_plain([{"a": [repr(value).replace("\0", "")]}])


def test_the_depth_is_bounded(looking: ModuleType) -> None:
    nested: Any = 0
    for _ in range(MAX_DEPTH):
        nested = [nested]
    assert looking.is_plain(nested)
    assert looking.is_plain({"a": nested}, MAX_DEPTH + 1)
    assert not looking.is_plain({"a": nested})


def test_the_size_is_bounded(looking: ModuleType) -> None:
    value = {"ab": ["cde", 1, None], "f": {}}
    assert looking.is_plain(value, 9, 12)
    assert not looking.is_plain(value, 9, 11)
    # No more is looked at than that.
    assert not looking.is_plain(["x" * 20, *[value] * 100], 9, 10)


def test_an_object_is_known_by_its_attributes(looking: ModuleType) -> None:
    values = [Message("a", {"b": 1}), Message(["c"])]
    known = looking.outline(values, MESSAGES)
    assert looking.fits(known, copy.deepcopy(values), 0)
    values[0].extra["b"] = True
    assert not looking.fits(known, values, 0)
    assert not looking.fits(known, [Message("a", {"b": 1}), {"content": ["c"], "extra": None}], 0)


@pytest.mark.parametrize(
    "value", [(1,), b"", datetime.now(UTC), {1: 2}, Text(), Number.ONE, {Text()}]
)
def test_what_no_class_is_named_for_is_not_outlined(looking: ModuleType, value: Any) -> None:
    with pytest.raises(TypeError):
        looking.outline([Message([value])], MESSAGES)


def test_an_object_that_lacks_an_attribute_says_so(looking: ModuleType) -> None:
    with pytest.raises(AttributeError):
        looking.outline([Lacking()], MESSAGES)
    lacking = Lacking()
    lacking.content = 1  # type: ignore[attr-defined]
    known = looking.outline([lacking], MESSAGES)
    with pytest.raises(AttributeError):
        looking.fits(known, [Lacking()], 0)


def test_an_attribute_that_changes_its_own_list_harms_nothing(looking: ModuleType) -> None:
    class Meddling:
        def __init__(self) -> None:
            self.meddles = False

        @property
        def content(self) -> str:
            if self.meddles:
                values.clear()
                held.clear()
            return "text"

    held: dict[str, Any] = {"a": Meddling(), "b": ["c"] * 3}
    values = [held, [held["a"], "d"], "e"]
    known = looking.outline(values, {Meddling: ("content",)})
    assert looking.fits(known, values, 0)
    held["a"].meddles = True
    try:
        same = looking.fits(known, values, 0)
    except RuntimeError:
        same = False
    assert not same


def test_depth_beyond_the_call_stack_is_an_error_and_no_crash(looking: ModuleType) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(RecursionError):
        looking.outline(nested, {})
    levels = sys.getrecursionlimit() // 8
    shallow: Any = 0
    for _ in range(levels):
        shallow = [shallow]
    assert looking.fits(looking.outline(shallow, {}), shallow, 0)


def test_wrong_arguments_are_refused() -> None:
    for looking in IMPLEMENTATIONS.values():
        with pytest.raises((TypeError, AttributeError)):
            looking.outline(1, {})
        with pytest.raises((TypeError, AttributeError)):
            looking.fits(1, [], 0)


def test_a_compiled_part_is_used_where_there_is_one() -> None:
    assert ("c" in IMPLEMENTATIONS) == plain.COMPILED
    assert (type(plain.fits).__name__ == "builtin_function_or_method") == plain.COMPILED


@dataclass(slots=True)
class Slotted:
    content: Any


_COPIED = {**MESSAGES, Slotted: ("content",)}


def rebuilt(
    looking: ModuleType,
    values: list[Any],
    attributes: Any,
    spares: list[Any] | None = None,
) -> list[Any]:
    """Return what is built from the outline of values."""
    spares = [] if spares is None else spares
    made: list[Any] = looking.built(looking.outline(values, attributes), spares, 0)
    del spares[len(made) :]
    return made


@given(st.lists(_VALUES, max_size=4))
def test_what_is_built_is_equal_and_shares_nothing_but_scalars(values: list[Any]) -> None:
    for looking in IMPLEMENTATIONS.values():
        made = rebuilt(looking, values, _COPIED)
        assert looking.fits(looking.outline(values, MESSAGES), made, 0)
        assert _containers(made).isdisjoint(_containers(values))


def _containers(value: Any) -> set[int]:
    if isinstance(value, list):
        return {id(value)}.union(*map(_containers, value))
    if isinstance(value, dict):
        return {id(value)}.union(*map(_containers, value.values()))
    if isinstance(value, Message):
        return {id(value), id(value.__dict__)}.union(*map(_containers, vars(value).values()))
    return set()


def test_sets_of_texts_and_slots_are_built(looking: ModuleType) -> None:
    value = Slotted([{"a": {"b", "c"}}])
    (made,) = rebuilt(looking, [value], _COPIED)
    assert made.content == value.content
    assert looking.fits(looking.outline([value], _COPIED), [made], 0)
    for odd in ({"b"}, {"b", Text("c")}, {"b", 1}, frozenset({"b", "c"})):
        assert not looking.fits(looking.outline([value], _COPIED), [Slotted([{"a": odd}])], 0)
    assert made.content[0]["a"] is not value.content[0]["a"]


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        b"x",
        {1: 2},
        {(1, 2)},
        {1},
        {Text("x")},
        frozenset(),
        Text("x"),
        Number.ONE,
        OrderedDict(),
        datetime(2026, 1, 1, tzinfo=UTC),
        Ellipsis,
    ],
    ids=repr,
)
def test_what_cannot_be_built_of_its_parts_is_refused(looking: ModuleType, value: Any) -> None:
    for around in (value, [value], {"a": value}, Message(value)):
        with pytest.raises(TypeError):
            rebuilt(looking, [around], _COPIED)


class Made:
    """One that is not made without a word."""

    def __new__(cls, word: str) -> Made:
        made = super().__new__(cls)
        made.word = word
        return made

    word: str


class Dict(dict[str, Any]):
    """One that is more than its attributes."""

    word = ""


def test_a_class_may_have_its_own_way_to_begin(looking: ModuleType) -> None:
    (made,) = rebuilt(looking, [Made("a")], {Made: ("word",)})
    assert type(made) is Made
    assert made.word == "a"


def test_nothing_is_built_of_which_attributes_do_not_say_all(looking: ModuleType) -> None:
    with pytest.raises(TypeError):
        rebuilt(looking, [Dict(a=1)], {Dict: ("word",)})


def test_what_is_outlined_has_every_attribute(looking: ModuleType) -> None:
    with pytest.raises(AttributeError):
        rebuilt(looking, [Lacking()], _COPIED)


class Model:
    """One like pydantic's: everything it has stands in its ``__dict__``, except which fields were given."""

    __slots__ = ("__dict__", "__pydantic_fields_set__", "__weakref__")

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)
        self.__pydantic_fields_set__ = set(fields)


MODELS: dict[type, tuple[str, ...]] = {
    Model: ("__dict__", "__pydantic_fields_set__"),
    Message: ("content", "extra"),
}


def model(number: int) -> Model:
    return Model(content=f"text {number}", extra={"a": [number, {}]}, calls=[])


def shown(values: list[Any]) -> list[Any]:
    return [(type(one), repr(vars(one)), sorted(one.__pydantic_fields_set__)) for one in values]


def parts_of(value: Any) -> list[Any]:
    """Return a value and every container in it."""
    if isinstance(value, Model):
        return [value, value.__pydantic_fields_set__, *parts_of(value.__dict__)]
    if isinstance(value, dict):
        return [value, *(part for item in value.values() for part in parts_of(item))]
    if isinstance(value, list):
        return [value, *(part for item in value for part in parts_of(item))]
    return []


def spoil(part: Any, chance: random.Random) -> None:
    """Change a part of a copy, as a program may that owns it."""
    if isinstance(part, list):
        part.append(1)
    elif isinstance(part, set):
        part.discard("content") if chance.random() < 0.5 else part.add("id")
    elif isinstance(part, dict) and part and chance.random() < 0.5:
        part.pop(next(iter(part)))
    elif isinstance(part, dict):
        part["new"] = part
    else:
        part.content = "changed"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_was_done_to_the_last_copies_the_next_ones_are_the_callers_own(
    looking: ModuleType, seed: int
) -> None:
    chance = random.Random(seed)
    values = [model(number) for number in range(6)]
    expected = shown(values)
    spares: list[Any] = []
    kept: list[Any] = []
    for _ in range(40):
        made = rebuilt(looking, values, MODELS, spares)
        assert shown(made) == expected
        held = {id(part) for part in kept}
        assert held.isdisjoint(id(part) for part in parts_of(made))
        assert held.isdisjoint(id(part) for part in parts_of(values))
        parts = [part for one in made for part in parts_of(one)]
        for part in chance.sample(parts, chance.randrange(3)):
            spoil(part, chance)
        kept = [*kept[-4:], *chance.sample(parts, chance.randrange(3))]
        del made, parts
        # What somebody kept they may change as well.
        if kept:
            spoil(chance.choice(kept), chance)


compiled = pytest.mark.skipif(not plain.COMPILED, reason="nothing was compiled here")


@compiled
def test_copies_that_came_back_are_handed_out_again() -> None:
    values = [model(number) for number in range(4)]
    spares: list[Any] = []
    first = [id(one) for one in rebuilt(plain, values, MODELS, spares)]
    assert [id(one) for one in rebuilt(plain, values, MODELS, spares)] == first
    kept = rebuilt(plain, values, MODELS, spares)
    again = rebuilt(plain, values, MODELS, spares)
    assert {id(one) for one in kept}.isdisjoint(id(one) for one in again)
    # The list grew, and it was cut.
    del kept, again
    longer = [*values, model(4)]
    assert shown(rebuilt(plain, longer, MODELS, spares)) == shown(longer)
    assert shown(rebuilt(plain, values[:2], MODELS, spares)) == shown(values[:2])
    assert len(spares) == 2


@compiled
def test_a_copy_that_a_weak_reference_leads_to_is_not_handed_out_again() -> None:
    values: list[Any] = [model(0)]
    spares: list[Any] = []
    made = rebuilt(plain, values, MODELS, spares)
    leads = weakref.ref(made[0])
    del made
    (again,) = rebuilt(plain, values, MODELS, spares)
    assert leads() is not again


@compiled
def test_nor_is_one_with_a_set_that_a_weak_reference_leads_to() -> None:
    values: list[Any] = [model(0)]
    spares: list[Any] = []
    made = rebuilt(plain, values, MODELS, spares)
    leads = weakref.ref(made[0].__pydantic_fields_set__)
    del made
    (again,) = rebuilt(plain, values, MODELS, spares)
    assert leads() is not again.__pydantic_fields_set__


class Interrupted(Model):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


@compiled
def test_an_interrupt_while_a_copy_is_looked_at_is_not_swallowed() -> None:
    attributes = {Interrupted: MODELS[Model]}
    values: list[Any] = [Interrupted(content="a")]
    spares: list[Any] = []
    made = rebuilt(plain, values, attributes, spares)
    del made[0].__pydantic_fields_set__
    del made
    with pytest.raises(KeyboardInterrupt):
        rebuilt(plain, values, attributes, spares)
    assert shown(rebuilt(plain, values, attributes, spares)) == shown(values)


@compiled
def test_of_objects_with_more_than_named_attributes_new_copies_are_made() -> None:
    values: list[Any] = [Message("a")]
    spares: list[Any] = []
    made = rebuilt(plain, values, MODELS, spares)
    made[0].added = "by the caller"
    del made
    (again,) = rebuilt(plain, values, MODELS, spares)
    assert vars(again) == {"content": "a", "extra": None}
