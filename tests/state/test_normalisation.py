"""What is stored in place of enum members, dataclasses, pydantic objects and subclasses."""

from __future__ import annotations

import datetime as dt
import enum
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest

from holdfast.errors import StateNotSerializable
from holdfast.state import StateEncoder
from tests.state.simulation import exact, round_trip


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = "fast"


class Flags(enum.IntFlag):
    A = 1
    B = 2


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)
    child: Any = None


@dataclass(frozen=True)
class Frozen:
    x: int


class Model(pydantic.BaseModel):
    name: str
    point: Point
    when: datetime | None = None


class Base(pydantic.BaseModel):
    kind: str = "base"


class Extended(Base):
    extra: int = 7


class Holder(pydantic.BaseModel):
    item: Base


class Row(NamedTuple):
    a: int
    b: str


class Masked(str):
    """A secret that does not print itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "***"


class Half(float):
    """A number that converts to something else."""

    __slots__ = ()

    def __float__(self) -> float:
        return 99.0


Pair = namedtuple("Pair", "left right")

CASES = [
    (Colour.RED, "red"),
    (Colour.PAIR, (1, 2)),
    (Level.HIGH, 3),
    (Mode.FAST, "fast"),
    (Flags.A | Flags.B, 3),
    (
        Point(1, ["a"], Point(2)),
        {"x": 1, "tags": ["a"], "child": {"x": 2, "tags": [], "child": None}},
    ),
    (Frozen(5), {"x": 5}),
    (
        Model(name="n", point=Point(1)),
        {"name": "n", "point": {"x": 1, "tags": [], "child": None}, "when": None},
    ),
    (Holder(item=Extended()), {"item": {"kind": "base", "extra": 7}}),
    (Row(1, "b"), (1, "b")),
    (Pair([1], None), ([1], None)),
    (defaultdict(list, a=[1]), {"a": [1]}),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (Counter("aab"), {"a": 2, "b": 1}),
    (Masked("secret"), "secret"),
    (Half(0.5), 0.5),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"abcd")[::2], b"ac"),
    ({Colour.RED: 1, Mode.FAST: 2}, {"red": 1, "fast": 2}),
    ({Row(1, "b"), Level.HIGH}, {(1, "b"), 3}),
]


@pytest.mark.row("S1-23")
@pytest.mark.parametrize(("value", "stored"), CASES, ids=lambda case: type(case).__name__)
def test_objects_are_stored_as_plain_values(value: Any, stored: Any) -> None:
    for state in ({"x": value}, {"x": [value] * 300}, {"x": {"y": (value,)}}):
        expected = {
            "x": stored
            if state["x"] is value
            else [stored] * 300
            if isinstance(state["x"], list)
            else {"y": (stored,)}
        }
        assert exact(round_trip(state)) == exact(expected)


def test_the_state_itself_may_be_such_an_object() -> None:
    assert round_trip(defaultdict(int, a=1)) == {"a": 1}
    assert round_trip(Point(1)) == {"x": 1, "tags": [], "child": None}  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, [], "text", 1, Row(1, "b")])
def test_a_state_that_is_no_dict_is_refused(value: Any) -> None:
    with pytest.raises(StateNotSerializable, match="a state must be a dict") as caught:
        StateEncoder().encode(value)
    assert caught.value.path == "$"


def test_keys_that_would_become_one_are_refused() -> None:
    with pytest.raises(StateNotSerializable, match="two keys are stored as 'red'") as caught:
        StateEncoder().encode({"a": {Colour.RED: 1, "red": 2}})
    assert caught.value.path == "$.a"


def test_elements_of_a_set_that_would_become_one_or_unhashable_are_refused() -> None:
    for value, reason in (({Colour.RED, "red"}, "alike"), ({Frozen(1)}, "dict or list")):
        with pytest.raises(StateNotSerializable, match=reason) as caught:
            StateEncoder().encode({"a": [value]})
        assert caught.value.path == "$.a[0]{…}"


def test_a_marker_that_hides_behind_an_enum_is_still_data() -> None:
    class Key(enum.Enum):
        MARK = "$t"
        NUL = "a\0b"

    state = {"x": {Key.MARK: "ref", Key.NUL: 1, "v": 0}}
    assert round_trip(state) == {"x": {"$t": "ref", "a\0b": 1, "v": 0}}


class Stamp(datetime):
    """Says more than a datetime can: it compares unequal to what would come back."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stamp)

    __hash__ = datetime.__hash__


def test_a_subclass_that_says_more_than_its_stored_form_is_refused() -> None:
    with pytest.raises(StateNotSerializable, match="says more") as caught:
        StateEncoder().encode({"at": [Stamp(2024, 1, 1)]})
    assert caught.value.path == "$.at[0]"


def test_a_path_subclass_that_says_the_same_is_stored_as_a_path() -> None:
    class Here(type(Path())):  # type: ignore[misc]
        pass

    assert exact(round_trip({"p": Here("a/b")})) == exact({"p": Path("a/b")})


class FixedZone(dt.tzinfo):
    """A zone of one offset, as many libraries have of their own."""

    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=2)

    def dst(self, moment: dt.datetime | None) -> None:
        return None

    def tzname(self, moment: dt.datetime | None) -> str:
        return "somewhere"


def test_another_librarys_fixed_offset_becomes_a_timezone() -> None:
    parsed = pydantic.TypeAdapter(dt.datetime).validate_python("2024-07-01T12:00:00+02:00")
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=FixedZone())
    two = dt.timezone(dt.timedelta(hours=2))
    back = round_trip({"noon": noon, "parsed": parsed, "time": dt.time(12, tzinfo=FixedZone())})
    assert back["noon"] == noon
    assert exact(back["noon"]) == exact(back["parsed"]) == exact(noon.replace(tzinfo=two))
    assert exact(back["time"]) == exact(dt.time(12, tzinfo=two))
