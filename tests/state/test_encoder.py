"""Successive saves: whatever changed, by whatever road, the state comes back exactly."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import Payload
from holdfast.state import EncodedState, StateEncoder
from holdfast.state.encoder import REMEMBERED_BYTES
from holdfast.state.known import KnownList
from tests.state.simulation import Chunks, exact, message

NAN = float("nan")
KINDS_OF_ONE: list[Any] = [1, 1.0, True, None, NAN, "1", (1,), [1], -0.0, 0.0, {"a": 1}, b"1"]

Edit = Callable[[dict[str, Any], int, int], None]


def _append(state: dict[str, Any], at: int, size: int) -> None:
    state["messages"] += [message(at + n, 300 + size) for n in range(1 + size % 3)]


def _insert(state: dict[str, Any], at: int, size: int) -> None:
    state["messages"].insert(at % (len(state["messages"]) + 1), message(at, 40 + size))


def _delete(state: dict[str, Any], at: int, size: int) -> None:
    place = at % (len(state["messages"]) + 1)
    del state["messages"][place : place + size % 40]


def _truncate(state: dict[str, Any], at: int, size: int) -> None:
    del state["messages"][at % (len(state["messages"]) + 1) :]


def _change_type(state: dict[str, Any], at: int, size: int) -> None:
    if state["messages"]:
        old = state["messages"][at % len(state["messages"])]
        old["flag"] = KINDS_OF_ONE[size % len(KINDS_OF_ONE)]


def _reorder_keys(state: dict[str, Any], at: int, size: int) -> None:
    if state["messages"]:
        place = at % len(state["messages"])
        old = state["messages"][place]
        state["messages"][place] = dict(reversed(old.items()))


def _grow_text(state: dict[str, Any], at: int, size: int) -> None:
    state["text"] += "é😀x"[at % 3] * (size % 700)


def _edit_text(state: dict[str, Any], at: int, size: int) -> None:
    place = at % (len(state["text"]) + 1)
    state["text"] = (
        state["text"][:place] + "edit\0" * (size % 9) + state["text"][place + size % 50 :]
    )


def _grow_bytes(state: dict[str, Any], at: int, size: int) -> None:
    state["bytes"] += bytes([at % 256]) * size


def _set_row(state: dict[str, Any], at: int, size: int) -> None:
    keys = ["", "a", "b.c", "b", "c", "\0", "$t", "messages"]
    state["table"][keys[at % len(keys)]] = KINDS_OF_ONE[size % 12] if size % 2 else "row " * size


def _swap_kind(state: dict[str, Any], at: int, size: int) -> None:
    kinds: list[Any] = [
        "word " * 300,
        b"byte" * 300,
        [1, 2] * 300,
        (1, 2) * 300,
        {"k": "v" * 900},
        7,
    ]
    state["kind"] = kinds[size % len(kinds)]


def _as_tuple(state: dict[str, Any], at: int, size: int) -> None:
    state["copy"] = tuple(state["messages"]) if size % 2 else list(state["messages"])


EDITS: list[Edit] = [
    _append,
    _append,
    _append,
    _insert,
    _delete,
    _truncate,
    _change_type,
    _change_type,
    _reorder_keys,
    _grow_text,
    _edit_text,
    _grow_bytes,
    _set_row,
    _swap_kind,
    _as_tuple,
]


def _first_state(messages: int) -> dict[str, Any]:
    return {
        "messages": [message(n, 700) for n in range(messages)],
        "text": "start " * 150,
        "bytes": b"\x00\x01" * 400,
        "table": {"a": {"b": "x" * 600}, "a.b": "y" * 600, "list": [1, 2, 3]},
        "step": 0,
    }


@settings(deadline=None, max_examples=120)
@given(
    messages=st.sampled_from([0, 3, 60]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(EDITS),
            st.integers(0, 10_000),
            st.integers(0, 1500),
            st.sampled_from(["accept", "accept", "accept", "lose", "fail", "restart"]),
        ),
        min_size=3,
        max_size=30,
    ),
)
def test_any_sequence_of_edits_and_failures_comes_back_exactly(
    messages: int, steps: list[tuple[Edit, int, int, str]]
) -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state = _first_state(messages)
    last: EncodedState | None = None
    for step, (edit, at, size, outcome) in enumerate(steps):
        edit(state, at, size)
        state["step"] = step
        encoded = encoder.encode(state)
        if outcome == "fail":  # the put was refused: nothing of it is stored
            continue
        chunks.put(encoded)
        assert exact(chunks.load(encoded)) == exact(state)
        last = encoded
        if outcome == "accept":
            encoder.accept(encoded)
        elif outcome == "restart":  # another process goes on from what is stored
            encoder = StateEncoder()
            encoder.adopt(Payload(last.manifest, last.refs), chunks.read)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(EDITS), st.integers(0, 10_000), st.integers(0, 1500)),
        min_size=1,
        max_size=8,
    )
)
def test_a_fresh_process_writes_what_the_old_one_would_have(
    steps: list[tuple[Edit, int, int]],
) -> None:
    chunks = Chunks()
    live = StateEncoder()
    state = _first_state(40)
    encoded = live.encode(state)
    for edit, at, size in steps:
        chunks.put(encoded)
        live.accept(encoded)
        fresh = StateEncoder()
        fresh.adopt(Payload(encoded.manifest, encoded.refs), chunks.read)
        edit(state, at, size)
        encoded = live.encode(state)
        other = fresh.encode(state)
        assert other.manifest == encoded.manifest
        assert other.refs == encoded.refs
        assert set(other.chunks) == set(encoded.chunks)
        assert set(other.expects) == set(encoded.expects)
        assert other.size_bytes == encoded.size_bytes


@pytest.mark.parametrize("before", KINDS_OF_ONE, ids=repr)
@pytest.mark.parametrize("after", KINDS_OF_ONE, ids=repr)
def test_a_change_of_type_in_an_old_element_is_noticed(before: Any, after: Any) -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state = {"messages": [message(n) for n in range(30)]}
    state["messages"][3]["value"] = before
    encoded = encoder.encode(state)
    chunks.put(encoded)
    encoder.accept(encoded)
    state["messages"][3]["value"] = after
    state["messages"].append(message(31))
    encoded = encoder.encode(state)
    chunks.put(encoded)
    assert exact(chunks.load(encoded)) == exact(state)


def test_a_list_that_becomes_a_tuple_and_back_is_noticed() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    items: list[Any] = [[n, "x" * 50] for n in range(100)]
    for value in (items, tuple(items), items, [tuple(items[0]), *items[1:]], items):
        encoded = encoder.encode({"items": value})
        chunks.put(encoded)
        encoder.accept(encoded)
        assert exact(chunks.load(encoded)) == exact({"items": value})


def test_an_unchanged_state_sends_nothing() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state = _first_state(100)
    first = encoder.encode(state)
    chunks.put(first)
    encoder.accept(first)
    again = encoder.encode(copy.deepcopy(state))
    assert not again.chunks
    assert again.manifest == first.manifest
    fresh = StateEncoder()
    fresh.adopt(Payload(first.manifest, first.refs), chunks.read)
    assert not fresh.encode(state).chunks


def test_a_lost_put_is_sent_again() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state = _first_state(20)
    lost = encoder.encode(state)
    again = encoder.encode(state)
    assert set(again.chunks) == set(lost.chunks)
    chunks.put(again)
    encoder.accept(again)
    assert not encoder.encode(state).chunks
    assert set(StateEncoder().encode(state).chunks) == set(lost.chunks)


def test_encoding_changes_neither_the_state_nor_the_encoder() -> None:
    encoder = StateEncoder()
    state = _first_state(50)
    before = exact(state)
    encoder.accept(encoder.encode(state))
    once = encoder.encode({**state, "more": "x" * 5000})
    twice = encoder.encode({**state, "more": "x" * 5000})
    assert exact(state) == before
    assert once._replace(memory=twice.memory) == twice


def test_what_the_caller_changes_after_the_call_does_not_reach_what_was_encoded() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    blob = bytearray(b"before" * 200)
    messages = [message(n) for n in range(30)]
    state: dict[str, Any] = {"messages": messages, "blob": blob, "view": memoryview(blob)}
    expected = exact({**copy.copy(state), "blob": bytes(blob), "view": bytes(blob)})
    state["messages"] = copy.deepcopy(state["messages"])
    encoded = encoder.encode(state)
    state["messages"][0]["content"] = "changed"
    state["messages"].clear()
    blob[:6] = b"after!"
    chunks.put(encoded)
    encoder.accept(encoded)
    assert exact(chunks.load(encoded)) == expected


class _Messages(list[Any]):
    """A list that can be watched: plain lists take no weak references."""


def test_the_encoder_keeps_nothing_of_the_callers_alive() -> None:
    encoder = StateEncoder()
    messages = _Messages(message(n) for n in range(50))
    watched = weakref.ref(messages)
    encoder.accept(encoder.encode({"messages": messages}))
    del messages
    gc.collect()
    assert watched() is None


def test_what_is_remembered_stays_within_bounds() -> None:
    encoder = StateEncoder()
    lists = {f"list-{n}": ["x" * 1000] * 2000 for n in range(8)}
    texts = {f"text-{n}": f"{n}€" * 100_000 for n in range(3)}
    small = {"small": [{"a": n % 10} for n in range(400_000)]}
    encoded = encoder.encode({**small, **texts, **lists})
    encoder.accept(encoded)
    memory = encoder._memory.sequences.values()
    known = [sequence.known for sequence in memory if sequence.known is not None]
    assert encoder._memory.sequences["state", "small"].known is None
    assert {type(one) for one in known} == {KnownList, str}
    costs = [one.cost if isinstance(one, KnownList) else sys.getsizeof(one) for one in known]
    assert sum(costs) <= REMEMBERED_BYTES
    again = encoder.encode({**small, **texts, **lists})
    assert not again.chunks


def test_keys_with_dots_and_empty_keys_are_told_apart() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state: dict[str, Any] = {
        "a": {"b": {"c": ["1" * 600]}, "b.c": ["2" * 600], "": {"": ["3" * 600]}},
        "a.b": {"c": ["4" * 600]},
        "a.b.c": ["5" * 600],
        "": ["6" * 600],
        "state": ["7" * 600],
        "context": {"a": ["8" * 600]},
    }
    for _ in range(3):
        encoded = encoder.encode(state, {"a": ["9" * 600]})
        chunks.put(encoded)
        encoder.accept(encoded)
        assert exact(chunks.load(encoded)) == exact(state)
        state["a"]["b"]["c"].append("more" * 9)
        state["a"]["b.c"].append("less" * 9)
        state["a.b"]["c"].insert(0, "first")


def test_growth_from_empty_passes_every_size_on_the_way() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state: dict[str, Any] = {"list": [], "text": "", "bytes": b"", "dict": {}}
    for n in range(120):
        state["list"].append(n * 1001)
        state["text"] += f"{n} é"
        state["bytes"] += b"%d" % n
        state["dict"][f"key {n}"] = n
        encoded = encoder.encode(state)
        chunks.put(encoded)
        encoder.accept(encoded)
        assert exact(chunks.load(encoded)) == exact(state)


def test_adopting_reads_the_outline_and_no_content() -> None:
    chunks = Chunks()
    encoder = StateEncoder()
    state = {"messages": [message(n) for n in range(400)], "a": "x" * 9000, "b": ["y"] * 900}
    encoded = encoder.encode(state)
    chunks.put(encoded)
    chunks.reads.clear()
    fresh = StateEncoder()
    fresh.adopt(Payload(encoded.manifest, encoded.refs), chunks.read)
    read = sum(len(chunks.stored[digest]) for digests in chunks.reads for digest in digests)
    assert len(chunks.reads) <= 3
    assert read < 10_000
