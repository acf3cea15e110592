"""Recognising a list that only grew, without looking at each of its elements in Python.

Two comparisons at memory speed tell together whether the old elements are exactly what they were.
Equality with a copy compares structure and values, and finds texts that were not replaced by their
identity alone; but it takes 1, 1.0 and True for the same and does not see the order of keys. Equality
of the JSON text sees just that, but takes a tuple for a list and NaN for null. Only plain lists are
remembered, so there is nothing that both would overlook.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import orjson

from holdfast.state.codec import compact

# In blocks: a buffer for all of the text would be fetched from the system anew each time.
_BLOCK: Final = 128
# About what a copied list or dict takes besides its items, and what each item takes in it.
_CONTAINER_BYTES: Final = 200
_ITEM_BYTES: Final = 16
# What orjson would otherwise write in the form of its base type; an error is wanted instead.
_STRICT: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)


class KnownList:
    """A plain list as it was last saved. It shares immutable values with the caller's, no others.

    ``text_bytes`` is the size of its JSON text. ``cost`` is about how many bytes of memory it takes:
    that text and the copied containers, without the values that it shares.
    """

    __slots__ = ("_copies", "_elements", "_texts", "cost", "text_bytes")

    def __init__(
        self, value: list[Any], before: KnownList | None = None, room: int = sys.maxsize
    ) -> None:
        """Remember ``value``, whose plain beginning ``before`` may know already.

        Raises `NoRoom` as soon as it turns out to cost more than ``room``.
        """
        known = before._elements if before is not None else []
        full = len(known) // _BLOCK
        self._texts: list[bytes] = before._texts[:full] if before is not None else []
        self._copies: int = before._copies if before is not None else 0
        self.text_bytes = sum(map(len, self._texts))
        for at in range(full * _BLOCK, len(value), _BLOCK):
            text = compact(orjson.dumps(value[at : at + _BLOCK], option=_STRICT))
            self._texts.append(text)
            self.text_bytes += len(text)
            if self.text_bytes > room:
                raise NoRoom
        copying = _Copying(room - self.text_bytes - self._copies)
        self._elements: list[Any] = known + copying.copied(value[len(known) :])
        # The outer list is one, however often it grows.
        self._copies += copying.bytes - (_CONTAINER_BYTES if before is not None else 0)
        self.cost = self.text_bytes + self._copies

    def __len__(self) -> int:
        return len(self._elements)

    def begins(self, value: list[Any]) -> bool:
        """Tell whether ``value`` begins with exactly these elements."""
        count = len(self._elements)
        try:
            if value[:count] != self._elements:
                return False
            return all(
                orjson.dumps(value[at : min(at + _BLOCK, count)], option=_STRICT) == text
                for at, text in zip(range(0, count, _BLOCK), self._texts, strict=True)
            )
        except Exception:
            # Something new stands there that cannot even be compared or written.
            return False


class NoRoom(Exception):
    """Remembering the list would take more memory than it may."""


class _Copying:
    """Copies plain lists and dicts and counts about how much memory the copies take."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.bytes = 0

    def copied(self, value: Any) -> Any:
        """Return a plain list or dict with containers of its own all the way down."""
        self.bytes += _CONTAINER_BYTES + _ITEM_BYTES * len(value)
        if self.bytes > self.room:
            raise NoRoom
        if type(value) is dict:
            return {
                key: self.copied(item) if type(item) in _NEST else item
                for key, item in value.items()
            }
        return [self.copied(item) if type(item) in _NEST else item for item in value]


_NEST: Final = frozenset({dict, list})
