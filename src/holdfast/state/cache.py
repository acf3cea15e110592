"""Content that this process has read and verified already.

A chunk never changes under its digest, nor does what a run of references stands for, so what was
verified once needs neither reading nor unpacking nor hashing again. The least recently used is forgotten
first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from holdfast.locks import new_lock

CACHED_BYTES: Final = 16 * 1024 * 1024

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values by key, each with the memory that it takes, within a bound; safe to share between threads."""

    def __init__(self, max_bytes: int = CACHED_BYTES) -> None:
        self.max_bytes = max_bytes
        self._lock = new_lock(reset=self._empty)
        self._empty()

    def _empty(self) -> None:
        self._bytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it is known."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value, in place of the one that the key has, unless it is too large."""
        with self._lock:
            self._bytes -= self._values.pop(key, (None, 0))[1]
            if size > self.max_bytes:
                return
            self._values[key] = (value, size)
            self._bytes += size
            while self._bytes > self.max_bytes:
                self._bytes -= self._values.popitem(last=False)[1][1]

    def remove(self, key: K) -> None:
        """Forget a value."""
        with self._lock:
            self._bytes -= self._values.pop(key, (None, 0))[1]

    def remove_where(self, matches: Callable[[K], bool]) -> None:
        """Forget the values of all keys that match."""
        for key in self.all_keys():
            if matches(key):
                self.remove(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._empty()

    def all_keys(self) -> list[K]:
        """Return the keys of what is known now, the least recently used first."""
        with self._lock:
            return list(self._values)


class ChunkCache(Cache[bytes, bytes]):
    """Verified chunks by digest."""

    def add(self, digest: bytes, data: bytes) -> None:
        """Remember bytes whose digest has been checked."""
        self.put(digest, data, len(data))


NO_CACHE: Final = ChunkCache(0)
