"""Content that this process has read and verified already.

A chunk never changes under its digest, nor does what a run of references stands for, so what was
verified once needs neither reading nor unpacking nor hashing again. The least recently used is forgotten
first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from holdfast.locks import Lock

CACHED_BYTES: Final = 16 * 1024 * 1024


class ChunkCache:
    """Verified chunks by digest, within a bound of memory; safe to share between threads."""

    def __init__(self, max_bytes: int = CACHED_BYTES) -> None:
        self.max_bytes = max_bytes
        self._lock = Lock(reset=self._forget_all)
        self._forget_all()

    def _forget_all(self) -> None:
        self._bytes = 0
        self._chunks: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, digest: bytes) -> bytes | None:
        """Return the bytes behind a digest, if they are known."""
        with self._lock:
            data = self._chunks.get(digest)
            if data is not None:
                self._chunks.move_to_end(digest)
            return data

    def add(self, digest: bytes, data: bytes) -> None:
        """Remember bytes whose digest has been checked."""
        with self._lock:
            if digest in self._chunks or len(data) > self.max_bytes:
                return
            self._chunks[digest] = data
            self._bytes += len(data)
            while self._bytes > self.max_bytes:
                self._bytes -= len(self._chunks.popitem(last=False)[1])


NO_CACHE: Final = ChunkCache(0)
