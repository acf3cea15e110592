"""Packing: what comes back, and what is kept for the next chunk."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.stores import compression
from holdfast.stores.compression import PLAIN, ZSTD, pack, unpack


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> deque[Any]:
    """The compressors that are kept, none at first."""
    kept: deque[Any] = deque(maxlen=compression._idle.maxlen)
    monkeypatch.setattr(compression, "_idle", kept)
    return kept


def test_what_is_packed_comes_back() -> None:
    for data in (b"", b"short", b"a" * 47, b"a" * 48, bytes(range(256)) * 4, b"text " * 5000):
        codec, packed = pack(memoryview(data))
        assert unpack(codec, bytes(packed)) == data
    assert pack(b"text " * 100)[0] == ZSTD
    assert pack(b"text " * 100, compress=False)[0] == PLAIN


def test_threads_that_come_one_after_the_other_share_a_compressor(idle: deque[Any]) -> None:
    packed = []
    for number in range(20):
        data = b"%d of many" % number * 50
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
        pack(memoryview(b"a" * 100).cast("b")[::2])
    assert not idle
    assert unpack(*pack(b"text " * 100)) == b"text " * 100  # type: ignore[arg-type]
