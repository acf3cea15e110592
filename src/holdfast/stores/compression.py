"""How chunks are packed: zstd where it helps, plain where it does not, and where they are small.

Compressors are kept and used again, by whichever thread comes next, because making one costs more than packing a
small chunk with it.
Unpacking is bounded, so that a few bytes in a database cannot fill the memory of its reader.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

from holdfast.model import Buffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PLAIN: Final = 0
ZSTD: Final = 1
LEVEL: Final = 3
MAX_CHUNK_BYTES: Final = 64 << 20
# Compressing lets other threads go first, and less than this is not worth the wait: see decision 30.
WORTH_PACKING: Final = 2048

# As many as are mostly in use at the same moment; neither end of a deque needs a lock.
_idle: deque[zstd.ZstdCompressor] = deque(maxlen=8)


def size_of(data: Buffer) -> int:
    """Return how many bytes there are."""
    return len(data) if isinstance(data, bytes) else data.nbytes


def pack(data: Buffer, *, compress: bool = True) -> tuple[int, Buffer]:
    """Return the codec and the bytes to store: compressed only if that is smaller."""
    size = size_of(data)
    if not compress or size < WORTH_PACKING:
        return PLAIN, data
    try:
        compressor = _idle.pop()
    except IndexError:
        compressor = zstd.ZstdCompressor(level=LEVEL)
    # Told that this is all of it, zstd writes the size into the frame's header: it lets the reader refuse
    # before it unpacks.
    packed = compressor.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    # One that failed is not used again.
    _idle.append(compressor)
    return (ZSTD, packed) if len(packed) < size else (PLAIN, data)


def unpack(codec: int, data: bytes) -> bytes | None:
    """Return the plain bytes, or None for what cannot be unpacked within bounds."""
    if codec == PLAIN:
        return data
    if codec != ZSTD:
        return None
    try:
        if (zstd.get_frame_info(data).decompressed_size or 0) > MAX_CHUNK_BYTES:
            return None
        decompressor = zstd.ZstdDecompressor()
        plain = decompressor.decompress(data, MAX_CHUNK_BYTES)
    except zstd.ZstdError:
        return None
    return plain if decompressor.eof and not decompressor.unused_data else None
