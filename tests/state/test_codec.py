"""JSON texts that are kept take the memory that they need."""

from __future__ import annotations

import tracemalloc

import pytest

from holdfast.state import StateEncoder
from holdfast.state.codec import dump


@pytest.mark.parametrize("size", [1, 300, 8_000])
def test_a_short_text_does_not_keep_the_buffer_it_was_written_in(size: int) -> None:
    document = {"text": "x" * size}
    tracemalloc.start()
    try:
        text, _ = dump(document, "$")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < len(text) + 500


def test_a_dict_of_many_small_parts_takes_little_memory_to_encode() -> None:
    state = {f"key{n}": {"items": [n, n]} for n in range(10_000)}
    tracemalloc.start()
    try:
        encoded = StateEncoder().encode(state)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * encoded.size_bytes
