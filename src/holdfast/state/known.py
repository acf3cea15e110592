"""Recognising a list that only grew, without looking at each of its elements in Python.

Two comparisons at memory speed tell together whether the old elements are exactly what they were.
Equality with a copy compares structure and values, and finds texts that were not replaced by their
identity alone; but it takes 1, 1.0 and True for the same and does not see the order of keys. Equality
of the JSON text sees just that, but takes a tuple for a list and NaN for null. Only plain lists are
remembered, so there is nothing that both would overlook.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

# In blocks: a buffer for all of the text would be fetched from the system anew each time.
_BLOCK: Final = 128
# What orjson would otherwise write in the form of its base type; an error is wanted instead.
_STRICT: Final = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)


class KnownList:
    """A plain list as it was last saved. It shares immutable values with the caller's, no others."""

    __slots__ = ("_elements", "_texts", "bytes")

    def __init__(self, value: list[Any], before: KnownList | None = None) -> None:
        """Remember ``value``, whose plain beginning ``before`` may know already."""
        known = before._elements if before is not None else []
        full = len(known) // _BLOCK
        texts = before._texts[:full] if before is not None else []
        self._elements: list[Any] = known + _copied(value[len(known) :])
        self._texts: list[bytes] = texts + [
            orjson.dumps(value[at : at + _BLOCK], option=_STRICT)
            for at in range(full * _BLOCK, len(value), _BLOCK)
        ]
        self.bytes = sum(map(len, self._texts))

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


def _copied(value: Any) -> Any:
    """Return a plain list or dict with containers of its own all the way down."""
    if type(value) is dict:
        return {key: _copied(item) if type(item) in _NEST else item for key, item in value.items()}
    return [_copied(item) if type(item) in _NEST else item for item in value]


_NEST: Final = frozenset({dict, list})
