"""The garbage collector rests while many objects are made, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import orjson
import pytest

from holdfast.collector import collection_paused
from holdfast.model import Payload
from holdfast.state import StateEncoder, decode_state, decode_states


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """What the collector does meanwhile."""
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        seen.append(f"{phase} {info['generation']}")

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_it_rests_in_the_block_and_goes_on_afterwards() -> None:
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collection_paused():
        1 / 0  # noqa: B018, for its error
    assert gc.isenabled()


def test_a_program_that_does_without_it_is_left_so() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_long_list_is_read_without_a_look_at_every_few_items(collections: list[str]) -> None:
    state = {"messages": [{"role": "user", "parts": [str(n)]} for n in range(5_000)]}
    encoded = StateEncoder().encode(state)
    payload = Payload(encoded.manifest, encoded.refs)

    def read(digests: object) -> dict[bytes, bytes]:
        return {digest: bytes(data) for digest, data in encoded.chunks.items()}

    for decode in (decode_state, lambda *given: decode_states([given[0]], given[1])[0]):
        gc.collect()
        collections.clear()
        assert decode(payload, read).state == state
        # Once at the end, when it may go on.
        assert collections.count("start 0") <= 1
    collections.clear()
    assert orjson.loads(orjson.dumps(state)) == state
    assert collections.count("start 0") > 5
