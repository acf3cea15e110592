"""Cuts: within bounds, decided by content, the same every time."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.state.chunking import MAX_CHUNK, MIN_CHUNK, cut
from tests.state.simulation import message

SIZE = 600_000


def _prose(source: random.Random) -> bytes:
    return orjson.dumps([message(n, seed=source.randrange(99)) for n in range(SIZE // 1000)])


def _binary(source: random.Random) -> bytes:
    return source.randbytes(SIZE)


def _base64(source: random.Random) -> bytes:
    return base64.b64encode(source.randbytes(SIZE * 3 // 4))


def _numbers(source: random.Random) -> bytes:
    return orjson.dumps([source.random() for _ in range(SIZE // 20)])


def _chinese(source: random.Random) -> bytes:
    return "".join(chr(0x4E00 + source.randrange(3000)) for _ in range(SIZE // 3)).encode()


KINDS = [_prose, _binary, _base64, _numbers, _chinese]


def _pieces(data: bytes) -> list[bytes]:
    return [bytes(piece) for piece in cut(memoryview(data))]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10 * MAX_CHUNK), st.integers(0, 99), st.sampled_from([b"a", b"ab,}", b"\x00"])
)
def test_pieces_are_the_content_in_order_and_within_bounds(
    size: int, seed: int, alphabet: bytes
) -> None:
    source = random.Random(seed)
    data = source.randbytes(size) if seed % 2 else bytes(source.choices(alphabet, k=size))
    pieces = _pieces(data)
    assert b"".join(pieces) == data
    assert all(len(piece) <= MAX_CHUNK for piece in pieces)
    assert len(pieces) == 1 or all(len(piece) >= MIN_CHUNK for piece in pieces)
    assert _pieces(data) == pieces


@pytest.mark.parametrize("kind", KINDS)
def test_the_cuts_fall_into_step_again_after_an_insertion(
    kind: Callable[[random.Random], bytes],
) -> None:
    source = random.Random(kind.__name__)
    data = kind(source)
    before = set(_pieces(data))
    fresh = []
    for _ in range(12):
        at = source.randrange(len(data))
        changed = data[:at] + source.randbytes(source.randrange(1, 9000)) + data[at:]
        fresh.append(sum(len(piece) for piece in _pieces(changed) if piece not in before))
    assert sum(fresh) / len(fresh) < 4 * MAX_CHUNK


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_content_has_places_to_cut(kind: Callable[[random.Random], bytes]) -> None:
    sizes = [len(piece) for piece in _pieces(kind(random.Random(1)))]
    assert len(set(sizes)) > len(sizes) // 2, "cuts at fixed sizes are not decided by content"
    assert MIN_CHUNK < sum(sizes) / len(sizes) < MAX_CHUNK


def test_the_cuts_are_part_of_the_format_and_do_not_move() -> None:
    """Other cuts still read, but then unchanged states are written again once."""
    data = _binary(random.Random(0))
    assert [len(piece) for piece in _pieces(data)][:5] == [10_028, 30_335, 19_972, 28_470, 11_276]
