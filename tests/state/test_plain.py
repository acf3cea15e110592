"""Plain data is told from other data, and known again, the same way by each implementation."""

from __future__ import annotations

import copy
import enum
import gc
import random
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
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
    for values in (now, before, copy.deepcopy(before), [*before, 1], before[:-1], [1, *before]):
        said = {
            looking.fits([looking.outline(before, MESSAGES)], values)
            for looking in IMPLEMENTATIONS.values()
        }
        assert said == {repr(values[: len(before)]) == repr(before)}


@given(values=st.lists(_VALUES, max_size=5), cut=st.integers(0, 5))
def test_outlines_are_read_one_after_the_other_and_joined(values: list[Any], cut: int) -> None:
    for looking in IMPLEMENTATIONS.values():
        parts = [looking.outline(some, MESSAGES) for some in (values[:cut], [], values[cut:])]
        whole = looking.outline(values, MESSAGES)
        for known in ([whole], parts, [parts[0] + parts[1] + parts[2]]):
            assert looking.fits(known, values)
            assert looking.fits(known, [*copy.deepcopy(values), 1])
            assert looking.fits(known, values[:-1]) == (not values)
            assert repr(looking.built(known, [])) == repr(values)
        assert sys.getsizeof(parts[0] + parts[2]) <= sys.getsizeof(whole)


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
    assert looking.fits([known], copy.deepcopy(values))
    values[0].extra["b"] = True
    assert not looking.fits([known], values)
    assert not looking.fits([known], [Message("a", {"b": 1}), {"content": ["c"], "extra": None}])


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
        looking.fits([known], [Lacking()])


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
    assert looking.fits([known], values)
    held["a"].meddles = True
    try:
        same = looking.fits([known], values)
    except RuntimeError:
        same = False
    assert not same


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.pop("z"),
        lambda held: held.update(more=1),
        lambda held: held.update({str(number): number for number in range(100)}),
        dict.clear,
    ],
    ids=["shorter", "longer", "much longer", "empty"],
)
def test_a_dict_that_changes_while_it_is_looked_at_harms_nothing(
    looking: ModuleType, change: Callable[[Any], None]
) -> None:
    class Meddling:
        meddles = False

        @property
        def content(self) -> str:
            if self.meddles:
                change(held)
            return "text"

    attributes = {Meddling: ("content",)}
    held: dict[str, Any] = {"a": Meddling(), "y": [], "z": {"b": []}}
    values = [held, {"c": []}]
    known = looking.outline(values, attributes)
    before = dict(held)
    Meddling.meddles = True
    with suppress(RuntimeError):
        looking.fits([known], values)
    held.clear()
    held.update(before)
    with pytest.raises(RuntimeError):
        looking.outline(values, attributes)


class Garbage:
    """What does something when it is collected."""

    def __init__(self, last_act: Callable[[], object]) -> None:
        self.itself = self
        self.last_act = last_act

    def __del__(self) -> None:
        self.last_act()


@pytest.mark.parametrize(
    "inner", [{"a", "b", "c"}, {"a": {}}, ["a", []]], ids=["set", "dict", "list"]
)
def test_what_is_dropped_by_a_collection_meanwhile_harms_nothing(
    looking: ModuleType, inner: Any
) -> None:
    held = [inner]
    known = looking.outline([held], {})
    held[0] = copy.deepcopy(inner)
    del inner
    rest: list[bytearray] = []

    def drop() -> None:
        held.clear()
        rest.extend(bytearray(b"\xff" * 200) for _ in range(50))

    thresholds = gc.get_threshold()
    gc.disable()
    Garbage(drop)
    try:
        gc.set_threshold(1)
        gc.enable()
        looking.fits([known], [held])
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()


def test_a_metaclass_does_not_say_where_weak_references_are(looking: ModuleType) -> None:
    class Meta(type):
        __weakrefoffset__ = 1 << 40

    class Odd(metaclass=Meta):
        pass

    known = looking.outline([Odd()], {Odd: ("__dict__",)})
    spares: list[Any] = []
    for _ in range(2):
        assert [type(made) for made in looking.built([known], spares)] == [Odd]


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
    assert looking.fits([looking.outline(shallow, {})], shallow)


def test_wrong_arguments_are_refused() -> None:
    for looking in IMPLEMENTATIONS.values():
        with pytest.raises((TypeError, AttributeError)):
            looking.outline(1, {})
        with pytest.raises((TypeError, AttributeError)):
            looking.fits(1, [])
        for read in (looking.fits, looking.built):
            with pytest.raises(TypeError):
                read([looking.outline([1], {}), 1], [1])
        with pytest.raises(TypeError):
            looking.outline([], {}) + 1


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
    made: list[Any] = looking.built([looking.outline(values, attributes)], spares)
    del spares[len(made) :]
    return made


@given(st.lists(_VALUES, max_size=4))
def test_what_is_built_is_equal_and_shares_nothing_but_scalars(values: list[Any]) -> None:
    for looking in IMPLEMENTATIONS.values():
        made = rebuilt(looking, values, _COPIED)
        assert looking.fits([looking.outline(values, MESSAGES)], made)
        assert _containers(made).isdisjoint(_containers(values))


def _containers(value: Any) -> set[int]:
    if isinstance(value, list):
        return {id(value)}.union(*map(_containers, value))
    if isinstance(value, dict):
        return {id(value)}.union(*map(_containers, value.values()))
    if isinstance(value, Message):
        return {id(value), id(value.__dict__)}.union(*map(_containers, vars(value).values()))
    return set()


def test_a_set_is_known_whatever_the_order_of_its_texts(looking: ModuleType) -> None:
    texts = [f"text {number}" for number in range(100)]
    known = [looking.outline([set(texts)], {})]
    other = {*texts, *map(str, range(1_000))}
    other.difference_update(map(str, range(1_000)))
    assert list(other) != list(set(texts))
    assert looking.fits(known, [other])
    assert looking.built(known, []) == [other]
    other.remove(texts[50])
    assert not looking.fits(known, [other])
    other.add("another")
    assert not looking.fits(known, [other])
    other.remove("another")
    other.add(Text(texts[50]))
    assert not looking.fits(known, [other])


class Base:
    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


SLOT: Any = vars(Base)["content"]


class Louder:
    """A way around the slot, for which a class that is asked gives the slot itself."""

    def __get__(self, one: Any, kind: Any = None) -> Any:
        return SLOT if one is None else SLOT.__get__(one).upper()


class Around(Base):
    __slots__ = ()
    content: Any = Louder()


class OwnWay(Base):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found.upper() if name == "content" else found


class Missing(Base):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return "A"


@pytest.mark.parametrize("kind", [Base, Around, OwnWay, Missing])
def test_a_slot_has_what_its_object_says(looking: ModuleType, kind: type[Base]) -> None:
    attributes = {kind: ("content",)}
    one, other = kind.__new__(kind), kind.__new__(kind)
    for each, content in ((one, "a"), (other, "A")):
        SLOT.__set__(each, content)
    same = one.content == other.content
    assert looking.fits([looking.outline([one], attributes)], [one])
    assert looking.fits([looking.outline([one], attributes)], [other]) == same
    SLOT.__delete__(one)
    if kind is Missing:
        assert looking.fits([looking.outline([other], attributes)], [one])
    else:
        with pytest.raises(AttributeError):
            looking.fits([looking.outline([other], attributes)], [one])


def test_a_class_may_change_between_two_looks(looking: ModuleType) -> None:
    class Changing(Base):
        __slots__ = ()

    values = [Changing("a"), Changing("b")]
    known = [looking.outline(values, {Changing: ("content",)})]
    assert looking.fits(known, values)
    type.__setattr__(Changing, "content", "c")
    assert not looking.fits(known, values)
    type.__delattr__(Changing, "content")
    assert looking.fits(known, values)


def test_any_number_of_classes_stand_in_each_other(looking: ModuleType) -> None:
    kinds = [type(f"Kind{number}", (Base,), {"__slots__": ()}) for number in range(20)]
    attributes = dict.fromkeys(kinds, ("content",))
    value: Any = "text"
    for kind in [*kinds, *kinds]:
        value = kind([value])
    known = [looking.outline([value], attributes)]
    assert looking.fits(known, [copy.deepcopy(value)])
    (made,) = looking.built(known, [])
    assert looking.fits(known, [made])
    made.content[0].content[0].content.append(1)
    assert not looking.fits(known, [made])


def test_names_belong_to_their_outline(looking: ModuleType) -> None:
    value = Message("a", "b")
    known = [looking.outline([value], {Message: (name,)}) for name in ("content", "extra")]
    assert looking.fits(known, [value, value])
    assert not looking.fits(known, [value, Message("a", "c")])
    assert looking.fits(known, [Message("a", "c"), value])


def test_what_was_held_is_let_go(looking: ModuleType) -> None:
    class Failing(Base):
        __slots__ = ("fails",)

    class Refusing(Base):
        __slots__ = ("fails",)

        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    text, key, names = "".join(("some ", "text")), "".join(("k", "ey")), ("content", "fails")
    attributes: Any = {Failing: names, Refusing: names}
    kinds = [Failing, Refusing]

    def counted() -> list[int]:
        gc.collect()
        slots = [vars(kind)["fails"] for kind in kinds]
        return [sys.getrefcount(one) for one in (text, key, names, *kinds, *slots)]

    def look(kind: Any) -> None:
        value = kind([text, {key: text}, {text, key}])
        value.fails = None
        known = looking.outline([value, text], attributes)
        assert looking.fits([known + known], [value, text] * 2)
        spares: list[Any] = []
        for _ in range(3):
            looking.built([known, known], spares)
        assert not looking.fits([known], [value, {key: text}])
        del value.fails
        for ask, wrongly in (
            (looking.fits, ([known], [value])),
            (looking.outline, ([value], attributes)),
        ):
            with pytest.raises((AttributeError, KeyboardInterrupt)):
                ask(*wrongly)
        for odd in ({key: (1,)}, {text: 1, 1: text}, {text, 1}):
            with pytest.raises(TypeError):
                looking.outline([text, odd], attributes)

    # Python itself keeps something of a class that it meets for the first time.
    for kind in kinds:
        look(kind)
    before = counted()
    for kind in kinds * 5:
        look(kind)
    assert counted() == before


def test_a_class_that_leads_to_its_own_outline_can_be_collected(looking: ModuleType) -> None:
    class Leading(Base):
        __slots__ = ()
        known: Any

    leads = weakref.ref(Leading)
    Leading.known = looking.outline([Leading("a")], {Leading: ("content",)})
    del Leading
    gc.collect()
    assert leads() is None


def test_sets_of_texts_and_slots_are_built(looking: ModuleType) -> None:
    value = Slotted([{"a": {"b", "c"}}])
    (made,) = rebuilt(looking, [value], _COPIED)
    assert made.content == value.content
    assert looking.fits([looking.outline([value], _COPIED)], [made])
    for odd in ({"b"}, {"b", Text("c")}, {"b", 1}, frozenset({"b", "c"})):
        assert not looking.fits([looking.outline([value], _COPIED)], [Slotted([{"a": odd}])])
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
