"""The garbage collector rests while many objects are made, and only then."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator

import orjson
import pytest

from holdfast.collector import collection_paused
from holdfast.model import Payload
from holdfast.state import StateEncoder, decode_state, decode_states
from tests.test_locks import exit_code


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


def test_a_block_that_an_interrupt_kept_from_its_end_is_made_good_by_the_next() -> None:
    try:
        interrupted = collection_paused()
        interrupted.__enter__()
        with collection_paused():
            pass
        # It may still be at work, in another thread.
        assert not gc.isenabled()
        del interrupted
        with collection_paused():
            assert not gc.isenabled()
        assert gc.isenabled()
    finally:
        gc.enable()


def test_a_program_that_does_without_it_is_left_so() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_it_is_at_work_in_a_child_that_is_forked_meanwhile() -> None:
    resting, enough = threading.Event(), threading.Event()

    def rest() -> None:
        with collection_paused():
            resting.set()
            enough.wait()

    thread = threading.Thread(target=rest)
    thread.start()
    try:
        resting.wait()
        assert not gc.isenabled()
        assert exit_code(lambda: 1 / gc.isenabled()) == 0
    finally:
        enough.set()
        thread.join()
    assert gc.isenabled()


def test_it_is_at_work_while_a_store_is_waited_for() -> None:
    encoded = StateEncoder().encode({"messages": ["text " * 200] * 3})
    payload = Payload(encoded.manifest, encoded.refs)
    seen = []

    def read(digests: object) -> dict[bytes, bytes]:
        seen.append(gc.isenabled())
        return {digest: bytes(data) for digest, data in encoded.chunks.items()}

    decode_state(payload, read)
    decode_states([payload], read)
    assert len(seen) >= 2
    assert all(seen)


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
    # Since Python 3.12 the collector waits for the end of a call into C.
    assert collections.count("start 0") > 5 or sys.version_info >= (3, 12)
