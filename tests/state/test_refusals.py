"""What has no exact stored form is refused, with the path of the bad value, and nothing changes."""

from __future__ import annotations

import datetime as dt
import inspect
import sys
import threading
import tracemalloc
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
import pytest

from holdfast.errors import StateNotSerializable, StateTooLarge
from holdfast.model import Payload
from holdfast.state import EncodedState, StateEncoder, decode_state
from holdfast.state.codec import dump_document
from holdfast.state.tags import MAX_DEPTH
from tests.state.simulation import Chunks, exact, message, round_trip

LONE = "lone \ud800 surrogate"


class Broken(pydantic.BaseModel):
    x: int

    @pydantic.model_serializer
    def refuse(self) -> dict[str, Any]:
        raise ZeroDivisionError("no dump today")


@dataclass(slots=True)
class Unset:
    x: int


class Zone(dt.tzinfo):
    def utcoffset(self, moment: dt.datetime | None) -> None:
        return None

    def dst(self, moment: dt.datetime | None) -> None:
        return None

    def tzname(self, moment: dt.datetime | None) -> None:
        return None


class Summer(Zone):
    """A zone with a summer time, as pytz and dateutil make them."""

    def utcoffset(self, moment: dt.datetime | None) -> Any:
        return None if moment is None else dt.timedelta(hours=2 if 4 <= moment.month <= 9 else 1)


class Rude(Zone):
    """A zone whose author did not think of times without a date."""

    def utcoffset(self, moment: dt.datetime | None) -> Any:
        return dt.timedelta(hours=moment.month)  # type: ignore[union-attr]


def _unset() -> Unset:
    return Unset.__new__(Unset)


class Hidden:
    def __repr__(self) -> str:
        raise RuntimeError("never shown")


UNSERIALISABLE: list[Any] = [
    object(),
    lambda: None,
    iter("x"),
    int,
    sys,
    threading.Lock(),
    1j,
    range(3),
    ...,
    NotImplemented,
    ValueError("x"),
    Hidden(),
    LONE,
    LONE * 100,
    Path(LONE),
    Broken(x=1),
    _unset(),
    dt.time(1, tzinfo=Zone()),
    dt.time(1, tzinfo=Rude()),
    dt.datetime(2024, 7, 1, tzinfo=Zone()),
    dt.datetime(2024, 7, 1, tzinfo=Summer()),
    dt.datetime(2024, 7, 1, tzinfo=Rude()),
]


@pytest.mark.row("S1-23")
@pytest.mark.parametrize("bad", UNSERIALISABLE, ids=lambda bad: type(bad).__name__)
def test_the_path_of_a_bad_value_is_named(bad: Any) -> None:
    padding = [{"name": "tool", "text": "x" * 300}] * 3
    cases: list[tuple[dict[str, Any], str]] = [
        ({"client": bad}, "$.client"),
        ({"tools": [*padding, {"client": bad}]}, "$.tools[3].client"),
        ({"a b": {"": (1, bad)}}, "$['a b'][''][1]"),
        ({"x": {"$t": {"y": [bad]}}}, "$.x['$t'].y[0]"),
        ({"x": "y" * 9000, "z": {"deep": {"deeper": [[[bad]]]}}}, "$.z.deep.deeper[0][0][0]"),
    ]
    for state, path in cases:
        with pytest.raises(StateNotSerializable) as caught:
            StateEncoder().encode(state)
        assert caught.value.path == path
        assert str(caught.value).startswith(f"{path}: ")
        assert caught.value.reason


def test_a_bad_value_that_arrives_later_is_named_where_it_stands() -> None:
    chunks, encoder = Chunks(), StateEncoder()
    state: dict[str, Any] = {"messages": [message(n) for n in range(50)], "log": "x" * 900}
    encoded = encoder.encode(state)
    chunks.put(encoded)
    encoder.accept(encoded)
    state["messages"].append({"client": object()})
    with pytest.raises(StateNotSerializable) as caught:
        encoder.encode(state)
    assert caught.value.path == "$.messages[50].client"
    state["messages"].pop()
    state["log"] += LONE
    with pytest.raises(StateNotSerializable) as caught:
        encoder.encode(state)
    assert caught.value.path == "$.log"
    assert "905" in caught.value.reason
    state["log"] = "x" * 901
    encoded = encoder.encode(state)  # the refused saves left nothing behind
    chunks.put(encoded)
    assert exact(chunks.load(encoded)) == exact(state)


@pytest.mark.parametrize(
    "key", [1, 1.5, None, True, b"x", (1,), 10**5000, LONE], ids=lambda k: type(k).__name__
)
def test_a_key_that_is_not_text_is_refused(key: Any) -> None:
    for state, path in (
        ({key: 1}, "$"),
        ({"a": {"ok": 1, key: 1}}, "$.a"),
        ({"a": [{key: "x" * 900}]}, "$.a[0]"),
    ):
        with pytest.raises(StateNotSerializable, match="key") as caught:
            StateEncoder().encode(state)
        assert caught.value.path == path


def test_a_value_that_contains_itself_is_refused() -> None:
    items: list[Any] = [1]
    items.append({"back": items})
    table: dict[str, Any] = {}
    table["self"] = {"again": table}
    twice: list[Any] = []
    twice += [twice, twice]
    for value, path in (
        (items, "$.x[1].back"),
        (table, "$.x.self.again"),
        (twice, "$.x[0]"),
        ((1, items), "$.x[1][1].back"),
    ):
        with pytest.raises(StateNotSerializable, match="contains itself") as caught:
            StateEncoder().encode({"x": value})
        assert caught.value.path == path


def _nested(depth: int, kind: str) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = {"list": [value], "tuple": (value,), "dict": {"k": value}, "odd": {"$t": value}}[
            kind
        ]
    return value


@pytest.mark.parametrize("kind", ["list", "tuple", "dict", "odd"])
def test_depth_is_bounded_and_what_is_accepted_can_be_read(kind: str) -> None:
    levels = {"list": 1, "tuple": 2, "dict": 1, "odd": 3}[kind]
    deepest = (MAX_DEPTH - 1) // levels
    state = {"x": _nested(deepest, kind)}
    assert exact(round_trip(state)) == exact(state)
    long = {
        "x": _nested(deepest, kind),
        "pad": ["x" * 600] * 3,
        "y": [_nested(deepest - 1, kind)] * 9,
    }
    assert exact(round_trip(long)) == exact(long)
    for depth in (deepest + 1, 5000):
        with pytest.raises(StateNotSerializable, match="nested deeper than 200 levels"):
            StateEncoder().encode({"x": _nested(depth, kind)})
        with pytest.raises(StateNotSerializable, match="nested deeper than 200 levels"):
            StateEncoder().encode({"x": [_nested(depth, kind)] * 9, "y": ["x" * 600]})


def test_a_caller_with_little_stack_left_gets_a_typed_error() -> None:
    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)
        else:
            StateEncoder().encode({"x": _nested(90, "tuple")})

    used = len(inspect.stack(0))
    with pytest.raises(StateNotSerializable, match="call stack"):
        descend(sys.getrecursionlimit() - used - 100)


def test_what_can_be_written_is_saved_also_where_it_cannot_be_remembered() -> None:
    state = {"x": [_nested(150, "list"), "text " * 200]}
    encoder = StateEncoder()

    def save(levels: int) -> EncodedState:
        return save(levels - 1) if levels else encoder.encode(state)

    # Enough to walk through it, not for more than one call a level.
    levels = sys.getrecursionlimit() - len(inspect.stack(0)) - 250
    chunks = Chunks()
    for _ in range(2):
        encoded = save(levels)
        chunks.put(encoded)
        encoder.accept(encoded)
        assert chunks.load(encoded) == state


def test_a_state_that_changes_meanwhile_is_refused_or_whole() -> None:
    state = {"x": {str(n): [n, (n,)] for n in range(2000)}}
    stop = threading.Event()

    def meddle() -> None:
        number = 0
        while not stop.is_set():
            state["x"][f"new {number % 500}"] = [number, (number,)]
            state["x"].pop(f"new {(number * 7) % 500}", None)
            number += 1

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        for _ in range(30):
            try:
                StateEncoder().encode(state)
            except StateNotSerializable as error:
                assert "changed" in error.reason  # noqa: PT017 - either outcome is fine
    finally:
        stop.set()
        meddler.join()


@pytest.mark.parametrize("bad", [None, [], "x", 1])
def test_a_document_that_is_no_dict_is_refused(bad: Any) -> None:
    with pytest.raises(StateNotSerializable, match="must be a dict"):
        dump_document(bad, "metadata")


def test_a_bad_value_in_a_document_is_named_below_its_name() -> None:
    with pytest.raises(StateNotSerializable) as caught:
        dump_document({"a": [object()]}, "metadata")
    assert caught.value.path == "metadata.a[0]"
    with pytest.raises(StateNotSerializable) as caught:
        StateEncoder().encode({}, {"git": {"x": object()}})
    assert caught.value.path == "context.git.x"


@pytest.mark.parametrize(
    "state",
    [
        {"text": "x" * 10_001},
        {"one": "x" * 5_001, "other": b"y" * 5_000},
        {"items": [1] * 5_001},
        {"outer": {"a": "x" * 9_000, **{f"key{n}": n for n in range(100)}}},
    ],
    ids=["text", "two values", "list", "dict"],
)
def test_what_reading_would_refuse_is_refused_before_it_is_stored(state: dict[str, Any]) -> None:
    with pytest.raises(StateNotSerializable, match="the limit is 10000"):
        StateEncoder(max_bytes=10_000).encode(state)
    fits = StateEncoder().encode(state)
    with pytest.raises(StateTooLarge):
        decode_state(Payload(fits.manifest, fits.refs), lambda wanted: {}, max_bytes=10_000)


def test_a_state_at_the_bound_is_stored_and_growth_beyond_it_is_not() -> None:
    encoder = StateEncoder(max_bytes=10_000)
    encoded = encoder.encode({"text": "x" * 9_000}, {"around": "y" * 1_000})
    chunks = {digest: bytes(data) for digest, data in encoded.chunks.items()}
    payload = Payload(encoded.manifest, encoded.refs)
    decoded = decode_state(payload, lambda wanted: chunks, max_bytes=10_000)
    assert decoded.state == {"text": "x" * 9_000}
    encoder.accept(encoded)
    for grown in ({"text": "x" * 10_001}, {"text": "x" * 9_000, "more": "z" * 1_001}):
        with pytest.raises(StateNotSerializable, match="the limit is 10000"):
            encoder.encode(grown)
    assert encoder.encode({"text": "x" * 10_000}).chunks


@pytest.mark.parametrize(
    "state", [[("a", 1)], [], "text", b"bytes", 7, None, ("a", "b"), {"a"}, object(), dict]
)
def test_a_state_that_is_no_dict_is_refused(state: Any) -> None:
    with pytest.raises(StateNotSerializable, match="must be a dict"):
        StateEncoder().encode(state)


def test_a_root_that_cannot_be_read_is_named() -> None:
    with pytest.raises(StateNotSerializable, match=r"^\$: a Broken cannot be read"):
        StateEncoder().encode(Broken(x=1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", [MappingProxyType, UserDict, OrderedDict], ids=lambda one: one.__name__
)
def test_every_mapping_is_a_state(kind: Any) -> None:
    plain = {"a": 1, "text": "x" * 5000}
    assert StateEncoder().encode(kind(plain)).manifest == StateEncoder().encode(plain).manifest


def test_what_would_take_too_much_memory_is_neither_stored_nor_parsed() -> None:
    # Three bytes of text each, and more than seventy of memory.
    state: dict[str, Any] = {"many": [{} for _ in range(100_000)]}
    with pytest.raises(StateNotSerializable, match="so many small values"):
        StateEncoder(max_bytes=1_000_000).encode(state)
    encoded = StateEncoder().encode(state)
    payload = Payload(encoded.manifest, encoded.refs)
    chunks = {digest: bytes(data) for digest, data in encoded.chunks.items()}
    tracemalloc.start()
    try:
        with pytest.raises(StateTooLarge, match="very many small values"):
            decode_state(payload, lambda wanted: chunks, max_bytes=1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert decode_state(payload, lambda wanted: chunks).state == state
