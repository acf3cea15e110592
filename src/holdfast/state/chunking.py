"""Where to cut: content decides, so equal content gives equal chunks wherever it stands.

Within the allowed range of sizes the cut goes to the place whose preceding bytes have the smallest
checksum. That place depends on its neighbourhood only: after an insertion the cuts fall back into
step within a chunk or two. A rolling hash would look at every byte, which pure Python cannot afford.
So only *candidates* are rated: places where two neighbouring bytes both belong to a fixed set, chosen
to occur a few times in every kilobyte of prose, source, JSON, base64, hex and binary alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

MIN_CHUNK: Final = 8 * 1024
MAX_CHUNK: Final = 32 * 1024

_MARKED: Final = b"bgmp7,}\nAQ\x00\x17\x80\x9c\xa8\xb8\xbd\xe5\xf1"
_MARKS: Final = bytes(byte in _MARKED for byte in range(256))
_CANDIDATE: Final = b"\x01\x01"
_WINDOW: Final = 32
# Where candidates are dense, the first few hundred span enough, and the next cut looks on.
_ENOUGH: Final = 256


def cut(data: memoryview) -> Iterator[memoryview]:
    """Yield ``data`` in pieces of `MIN_CHUNK` to `MAX_CHUNK` bytes (a short one if it is shorter)."""
    start, end = 0, len(data)
    while end - start > MAX_CHUNK:
        # What remains after this cut must make a whole chunk too.
        stop = _best_place(data, start + MIN_CHUNK, min(start + MAX_CHUNK, end - MIN_CHUNK))
        yield data[start:stop]
        start = stop
    yield data[start:]


def _best_place(data: memoryview, low: int, high: int) -> int:
    first = low - _WINDOW
    content = bytes(data[first:high])
    find = content.translate(_MARKS).find
    best, best_rating = len(content), 1 << 32
    place = find(_CANDIDATE, _WINDOW)
    for _ in range(_ENOUGH):
        if place < 0:
            break
        rating = crc32(content[place - _WINDOW : place])
        if rating < best_rating:
            best, best_rating = place, rating
        place = find(_CANDIDATE, place + 1)
    return first + best
