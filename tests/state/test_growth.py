"""What a save costs: what changed, not what exists."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from holdfast.errors import StateCorrupt
from holdfast.model import Payload
from holdfast.state import StateEncoder, outline_state
from holdfast.state.chunking import MAX_CHUNK, MIN_CHUNK, cut
from holdfast.state.codec import array_of, dump_items
from holdfast.state.refs import RECORD_BYTES
from holdfast.state.sequence import MERGED_LEAVES
from tests.state.simulation import Chunks, exact, message, save


def _append_messages(
    count: int, *, size: int = 1000, check_every: int = 100
) -> tuple[Chunks, StateEncoder, Any, int, int]:
    chunks, encoder = Chunks(), StateEncoder()
    state: dict[str, Any] = {"messages": [], "step": 0}
    new_bytes = most_refs = 0
    for number in range(count):
        state["messages"].append(message(number, size))
        state["step"] = number
        encoded, added = save(encoder, chunks, state)
        new_bytes += added
        most_refs = max(most_refs, len(encoded.refs) // RECORD_BYTES)
        if number % check_every == 0:
            assert exact(chunks.load(encoded)) == exact(state)
    return chunks, encoder, state, new_bytes, most_refs


def test_a_thousand_appends_write_little_more_than_twice_their_content() -> None:
    _, _, state, new_bytes, most_refs = _append_messages(1000)
    size = len(orjson.dumps(state))
    assert 900_000 < size < 1_100_000
    assert new_bytes < 2_600_000
    assert most_refs <= 40


@pytest.mark.parametrize("size", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_four_thousand_appends_stay_in_proportion(size: int) -> None:
    _, _, state, new_bytes, most_refs = _append_messages(4000, size=size, check_every=1000)
    assert new_bytes < 4.5 * len(orjson.dumps(state))
    assert most_refs <= 48


@pytest.mark.parametrize("piece", [1, 20, 300])
def test_a_text_that_grows_by_a_little_at_a_time_stays_in_proportion(piece: int) -> None:
    chunks, encoder = Chunks(), StateEncoder()
    source = random.Random(piece)
    state = {"log": "x" * 600}
    new_bytes = most_refs = 0
    for _ in range(1500):
        state["log"] += "".join(source.choices("abcdefgh \n", k=piece))
        encoded, added = save(encoder, chunks, state)
        new_bytes += added
        most_refs = max(most_refs, len(encoded.refs) // RECORD_BYTES)
    assert chunks.load(encoded) == state
    # Each byte is written once for each tier that it passes through; each save adds its share of
    # the index, which outweighs pieces this small.
    assert new_bytes < 4 * len(state["log"]) + 60 * 1500
    assert most_refs <= 64


def test_an_edit_in_the_middle_writes_one_leaf_and_its_index() -> None:
    chunks, encoder, state, _, _ = _append_messages(1000, check_every=999)
    for place in (0, 333, 500, 998):
        state["messages"][place]["content"] += " edited"
        encoded, added = save(encoder, chunks, state)
        assert added <= 20 * 1024
        assert exact(chunks.load(encoded)) == exact(state)


def test_an_edit_and_an_append_together_write_what_changed() -> None:
    """Changes at both ends leave the middle to be cut anew, once."""
    chunks, encoder, state, _, _ = _append_messages(1000, check_every=999)
    costs = []
    for number in range(5):
        state["messages"][0]["content"] += " edited"
        state["messages"].append(message(2000 + number))
        encoded, added = save(encoder, chunks, state)
        assert exact(chunks.load(encoded)) == exact(state)
        costs.append(added)
    assert max(costs[1:]) < 150 * 1024


def test_a_fresh_process_appends_as_cheaply() -> None:
    chunks, encoder, state, _, _ = _append_messages(500, check_every=499)
    encoded = encoder.encode(state)
    total = 0
    for number in range(50):
        fresh = StateEncoder()
        fresh.adopt(Payload(encoded.manifest, encoded.refs), chunks.read)
        state["messages"].append(message(1000 + number))
        encoded, added = save(fresh, chunks, state)
        total += added
    assert exact(chunks.load(encoded)) == exact(state)
    assert total < 200_000


def test_scattered_edits_do_not_splinter_the_layout() -> None:
    chunks, encoder = Chunks(), StateEncoder()
    source = random.Random(5)
    state = {"messages": [message(number, 600) for number in range(600)]}
    for _ in range(400):
        place = source.randrange(len(state["messages"]))
        match source.randrange(4):
            case 0:
                state["messages"].insert(place, message(source.randrange(10**6), 80))
            case 1:
                del state["messages"][place]
            case 2:
                state["messages"][place] = message(source.randrange(10**6), 200)
            case _:
                state["messages"].append(message(source.randrange(10**6), 500))
        encoded, _ = save(encoder, chunks, state)
    assert exact(chunks.load(encoded)) == exact(state)
    leaves = chunks.leaves(encoded)
    assert len(leaves) <= 64 or sum(leaves) / len(leaves) >= 4096


@pytest.mark.row("S1-18")
def test_a_change_of_one_percent_of_fifty_megabytes_adds_less_than_three() -> None:
    chunks, encoder = Chunks(), StateEncoder()
    state = {"messages": [message(number, 10_000) for number in range(5200)]}
    size = len(orjson.dumps(state))
    assert size > 50_000_000
    save(encoder, chunks, state)
    for place in range(2000, 2052):
        state["messages"][place] = message(place, 10_000, seed=77)
    encoded, added = save(encoder, chunks, state)
    assert added < 0.03 * size
    fresh = StateEncoder()
    fresh.adopt(Payload(encoded.manifest, encoded.refs), chunks.read)
    assert not fresh.encode(state).chunks
    assert chunks.load(encoded) == state
    assert len(encoded.manifest) + len(encoded.refs) < 4096


def test_encoding_needs_little_more_memory_than_the_text_and_keeps_less() -> None:
    state = {"messages": [message(number, 10_000) for number in range(1000)]}
    size = len(orjson.dumps(state))
    assert size > 9_000_000
    encoder = StateEncoder()
    tracemalloc.start()
    try:
        encoded = encoder.encode(state)
        peak = tracemalloc.get_traced_memory()[1]
        encoder.accept(encoded)
        del encoded
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Beside the state itself, which was there before.
    assert peak < 2 * size
    assert kept < 0.1 * size


def test_a_window_that_moves_on_writes_its_two_ends() -> None:
    encoder, chunks = StateEncoder(), Chunks()
    window = [message(number) for number in range(300)]
    save(encoder, chunks, {"messages": window})
    written = []
    for number in range(300, 700):
        window = [*window[1:], message(number)]
        encoded, new_bytes = save(encoder, chunks, {"messages": window})
        written.append(new_bytes)
        if number % 50 == 0:
            assert chunks.load(encoded) == {"messages": window}
    # A leaf or two at the beginning, what was appended at the end, and the index above.
    assert sum(written) / len(written) < 3 * MAX_CHUNK / 2
    leaves = chunks.leaves(encoded)
    assert len(leaves) < sum(leaves) / MIN_CHUNK + MERGED_LEAVES


def test_a_window_is_not_cut_again_where_it_was_cut_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0

    def counting(data: memoryview) -> Iterator[memoryview]:
        nonlocal looked_at
        for piece in cut(data):
            looked_at += 1
            yield piece

    encoder, chunks = StateEncoder(), Chunks()
    window = [message(number) for number in range(300)]
    save(encoder, chunks, {"messages": window})
    monkeypatch.setattr("holdfast.state.sequence.cut", counting)
    for number in range(300, 400):
        window = [*window[1:], message(number)]
        save(encoder, chunks, {"messages": window})
    assert looked_at < 100 * 6


def test_an_element_is_the_same_chunk_wherever_it_stands_alone() -> None:
    """As what a task wrote, as the first of a conversation, and at the end of a long one."""
    chunks, encoder = Chunks(), StateEncoder()
    messages = [message(number) for number in range(40)]
    save(encoder, chunks, {"messages": messages})
    written, _ = save(StateEncoder(), chunks, {"value": [message(41)]})
    _, new_bytes = save(encoder, chunks, {"messages": [*messages, message(41)]})
    assert set(written.chunks) <= set(chunks.stored)
    assert new_bytes == 0


def test_a_list_that_begins_with_a_bracket_is_read_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As lists were stored once."""
    chunks, encoder = Chunks(), StateEncoder()
    messages = [message(number) for number in range(40)]

    def bracketed(*values: Any, **options: Any) -> tuple[memoryview, bool]:
        items, tags = dump_items(*values, **options)
        return memoryview(b"[" + items[1:]), tags

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.state.encoder.dump_items", bracketed)
        old, _ = save(encoder, chunks, {"messages": messages})
    (first, *_) = old.chunks.values()
    assert bytes(first[:1]) == b"["
    assert chunks.load(old) == {"messages": messages}
    grown = {"messages": [*messages, message(40)]}
    known, new_bytes = save(encoder, chunks, grown)
    assert chunks.load(known) == grown
    assert new_bytes < 1200
    outlined = outline_state(Payload(known.manifest, known.refs), chunks.read)
    assert outlined.state["messages"].whole() == grown["messages"]
    # A process that knows nothing of it writes the first chunk again, and no other.
    anew = StateEncoder()
    anew.adopt(Payload(known.manifest, known.refs), chunks.read)
    rewritten, new_bytes = save(anew, chunks, grown)
    assert chunks.load(rewritten) == grown
    assert new_bytes < 20_000


@pytest.mark.parametrize("text", [b"{},{}", b"", b"]", b"1"])
def test_what_does_not_begin_like_a_list_is_damage(text: bytes) -> None:
    with pytest.raises(StateCorrupt):
        array_of([text])
