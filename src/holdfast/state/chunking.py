"""Where to cut: content decides, so equal content gives equal chunks wherever it stands.

Within the allowed range of sizes the cut goes to the place whose preceding bytes have the smallest
checksum. That place depends on its neighbourhood only: after an insertion the cuts fall back into
step within a chunk or two. A rolling hash would look at every byte, which pure Python cannot afford;
instead a regular expression proposes places (a handful of byte values that occur in prose, source,
JSON, base64 and binary alike) and only those are rated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from zlib import crc32

MIN_CHUNK: Final = 8 * 1024
MAX_CHUNK: Final = 32 * 1024

_CANDIDATE = re.compile(rb"[\n},A7q\x00\x80\xb8\xf1]")
_WINDOW: Final = 48
_ENOUGH: Final = 512


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
    best, best_rating = high, 1 << 32
    rated = 0
    for match in _CANDIDATE.finditer(data, low, high):
        place = match.end()
        rating = crc32(data[place - _WINDOW : place])
        if rating < best_rating:
            best, best_rating = place, rating
        rated += 1
        if rated == _ENOUGH:
            # Dense candidates: the first few hundred span enough, and the next window looks on.
            break
    return best
