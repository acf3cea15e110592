"""Packing: what comes back, and what is kept for the next chunk."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.stores import compression
from holdfast.stores.compression import PLAIN, WORTH_PACKING, ZSTD, pack, unpack

LONG = b"t" * WORTH_PACKING


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> deque[Any]:
    """The compressors that are kept, none at first."""
    kept: deque[Any] = deque(maxlen=compression._idle.maxlen)
    monkeypatch.setattr(compression, "_idle", kept)
    return kept


def test_what_is_packed_comes_back() -> None:
    for data in (b"", b"short", LONG[1:], LONG, bytes(range(256)) * 40, b"text " * 5000):
        codec, packed = pack(memoryview(data))
        assert unpack(codec, bytes(packed)) == data
    assert pack(LONG)[0] == ZSTD
    assert pack(LONG, compress=False)[0] == PLAIN


def test_what_is_small_stays_as_it_is(idle: deque[Any]) -> None:
    assert pack(LONG[1:]) == (PLAIN, LONG[1:])
    assert not idle


def test_threads_that_come_one_after_the_other_share_a_compressor(idle: deque[Any]) -> None:
    packed = []
    for number in range(20):
        data = b"%d of many" % number * 500
        thread = threading.Thread(target=lambda data=data: packed.append((data, pack(data))))
        thread.start()
        thread.join()
    assert all(unpack(codec, bytes(stored)) == data for data, (codec, stored) in packed)
    assert len(idle) == 1


def test_threads_at_the_same_time_do_not(idle: deque[Any]) -> None:
    rows = [b"%d of many" % number * 5000 for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        packed = list(pool.map(pack, rows))
    assert [unpack(codec, bytes(stored)) for codec, stored in packed] == rows
    assert 1 <= len(idle) <= 8


def test_a_compressor_that_failed_is_not_used_again(idle: deque[Any]) -> None:
    with pytest.raises(BufferError):
        pack(memoryview(LONG * 2).cast("b")[::2])
    assert not idle
    assert unpack(*pack(LONG)) == LONG  # type: ignore[arg-type]
