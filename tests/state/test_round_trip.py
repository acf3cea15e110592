"""Every value comes back as it was: type, order of keys, sign of zero and all."""

from __future__ import annotations

import base64
import os
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import StateCorrupt
from holdfast.model import Payload
from holdfast.state import StateEncoder, decode_state
from holdfast.state.codec import dump_document, load_document
from holdfast.state.encoder import MAX_SEQUENCES
from holdfast.state.plain import is_plain
from tests.state.simulation import Chunks, exact, round_trip
from tests.state.strategies import json_states, json_values, states, values

BERLIN = ZoneInfo("Europe/Berlin")

ODD_VALUES: list[Any] = [
    -0.0,
    float("nan"),
    float("inf"),
    float("-inf"),
    1e308,
    5e-324,
    -(1 << 63),
    -(1 << 63) - 1,
    (1 << 64) - 1,
    1 << 64,
    10**5000,
    True,
    "nul \0 inside",
    "\0",
    "😀 \u2028 \x7f \x1f",
    b"",
    bytes(range(256)),
    b"x" * 700,
    (),
    ((), [()]),
    set(),
    {1, "1", (1, b"1"), frozenset({None})},
    frozenset({(1, 2)}),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, 1, 2, 3, 4),  # noqa: DTZ001 - naive on purpose
    datetime(1, 1, 1, fold=1),  # noqa: DTZ001
    date(9999, 12, 31),
    time(23, 59, 59, 999_999, fold=1),
    time(1, 2, tzinfo=BERLIN),
    time(1, 2, tzinfo=UTC),
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    UUID(int=0),
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("sNaN123"),
    Decimal("1E+999999"),
    Path("a/b"),
    Path(os.fsdecode(b"caf\xe9")),
    Path("a\0b"),
    PurePosixPath("/x"),
    PureWindowsPath("C:\\x"),
    {"$t": "ref", "v": 0},
    {"$t": "set", "v": [1]},
    {"$t": None},
    {"a\0b": {"$t": {"$t": 1}}},
    {"b": 1, "a": 2, "": 3, "k" * 600: 4},
]


@settings(deadline=None, max_examples=120)
@given(states)
@pytest.mark.row("S1-23")
def test_a_state_comes_back_exactly(state: dict[str, Any]) -> None:
    assert exact(round_trip(state)) == exact(state)


@pytest.mark.row("S1-23")
@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: f"{type(value).__name__}")
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_odd_values_come_back_exactly_wherever_they_stand(value: Any, large: bool) -> None:
    many = [value] * (400 if large else 2)
    state = {"it": value, "list": many, "dict": {str(at): item for at, item in enumerate(many)}}
    state["nested"] = {"tuple": (many, value), "deep": [[{"x": value}]]}
    assert exact(round_trip(state)) == exact(state)


@settings(deadline=None, max_examples=50)
@given(json_states)
def test_what_is_stored_of_a_plain_state_is_plain_json(state: dict[str, Any]) -> None:
    assert is_plain(state)
    encoded = StateEncoder().encode(state)
    assert encoded.size_bytes == len(orjson.dumps(state))
    assert exact(round_trip(state)) == exact(state)


@pytest.mark.row("S1-23")
def test_the_stored_payload_is_json_and_never_pickle() -> None:
    state = {"items": [{"at": datetime(2024, 1, 1, tzinfo=UTC), "n": n} for n in range(100)]}
    encoded = StateEncoder().encode(state)
    assert orjson.loads(encoded.manifest)["state"] == {"items": {"$t": "ref", "v": 0}}
    text = b"".join(bytes(data) for data in encoded.chunks.values())
    assert orjson.loads(b"[%b]" % text[1:])[0]["at"] == {
        "$t": "datetime",
        "v": "2024-01-01T00:00:00+00:00",
    }


@settings(deadline=None, max_examples=30)
@given(states, st.dictionaries(st.text("abc", max_size=3), values, max_size=3))
def test_the_context_comes_back_beside_the_state(
    state: dict[str, Any], context: dict[str, Any]
) -> None:
    chunks = Chunks()
    encoded = StateEncoder().encode(state, context)
    chunks.put(encoded)
    decoded = decode_state(Payload(encoded.manifest, encoded.refs), chunks.read)
    assert exact(decoded.state) == exact(state)
    assert exact(decoded.context) == exact(context)
    assert encoded.size_bytes == StateEncoder().encode(state).size_bytes


def _grown(value: Any) -> Any:
    return value + value[-1:] if type(value) in (str, list) else value


@pytest.mark.row("S3-32")
@pytest.mark.parametrize(
    "state",
    [
        {},
        {"emoji": "😀" * 10},
        {"emoji": "😀" * 1000, "escaped": 'a"\\\n\x01' * 500, "é": ["é" * 300] * 30},
        {"nested": {"text": "x" * 2000, "list": [{"t": "😀"}] * 200, "n": 1.5}},
    ],
)
def test_size_bytes_is_the_utf8_length_of_the_json(state: dict[str, Any]) -> None:
    encoder = StateEncoder()
    encoded = encoder.encode(state)
    assert encoded.size_bytes == len(orjson.dumps(state))
    encoder.accept(encoded)
    grown = {key: _grown(value) for key, value in state.items()}
    assert encoder.encode(grown).size_bytes == len(orjson.dumps(grown))


def test_bytes_count_as_the_tagged_text_that_json_needs() -> None:
    for size in (5, 600):
        data = bytes(size)
        form = {"b": {"$t": "bytes", "v": base64.b64encode(data).decode()}}
        assert StateEncoder().encode({"b": data}).size_bytes == len(orjson.dumps(form))


def test_a_dict_of_many_parts_keeps_its_manifest_small() -> None:
    state = {"table": {f"row-{n}": {"text": f"{n}" * 200} for n in range(2000)}}
    chunks = Chunks()
    encoder = StateEncoder()
    encoded = encoder.encode(state)
    chunks.put(encoded)
    encoder.accept(encoded)
    assert len(orjson.loads(encoded.manifest)["seqs"]) <= MAX_SEQUENCES
    assert len(encoded.manifest) + len(encoded.refs) < 10_000
    assert exact(chunks.load(encoded)) == exact(state)
    state["table"]["row-7"]["text"] = "changed"
    again = encoder.encode(state)
    assert chunks.put(again) < 50_000
    assert exact(chunks.load(again)) == exact(state)


def test_sharing_is_not_kept_but_equal_values_are() -> None:
    shared = [1, 2]
    back = round_trip({"a": shared, "b": shared})
    assert back == {"a": [1, 2], "b": [1, 2]}
    assert back["a"] is not back["b"]


def test_a_zone_that_is_unknown_here_leaves_the_same_moment() -> None:
    stored = '{"at":{"$t":"datetime","v":"2024-06-01T12:00:00+02:00","zone":"Nowhere/Land"}}'
    assert load_document(stored)["at"] == datetime(2024, 6, 1, 10, tzinfo=UTC)
    with pytest.raises(StateCorrupt, match="Nowhere/Land"):
        load_document('{"at":{"$t":"time","v":"12:00:00","zone":"Nowhere/Land"}}')


@settings(deadline=None, max_examples=50)
@given(states)
def test_small_documents_round_trip_too(document: dict[str, Any]) -> None:
    assert exact(load_document(dump_document(document, "metadata"))) == exact(document)


@settings(deadline=None, max_examples=50)
@given(json_values)
def test_a_small_document_has_no_float_that_jsonb_rewrites(value: Any) -> None:
    text = dump_document({"x": value, "big": 1e16, "zero": -0.0}, "metadata")
    assert '"big":{"$t":"float","v":"1e+16"}' in text
    assert '"zero":{"$t":"float","v":"-0.0"}' in text
    assert "\\u0000" not in text
