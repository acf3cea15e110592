"""Recognising a list that only grew, without serialising it."""

from __future__ import annotations

import sys
from typing import Any, Final

from holdfast.state.plain import Attributes, fits, outline

# Outlines are made and shared by the block: of a list that grows, only the last one is made anew.
_BLOCK: Final = 128
_PLAIN_ONLY: Final[Attributes] = {}


class KnownList:
    """A list as it was last saved. It keeps the caller's scalars alive, and nothing else.

    ``cost`` is about how many bytes of memory it takes, without those scalars.
    """

    __slots__ = ("_blocks", "_count", "cost")

    def __init__(
        self,
        value: list[Any],
        before: KnownList | None = None,
        room: int = sys.maxsize,
        attributes: Attributes = _PLAIN_ONLY,
    ) -> None:
        """Remember ``value``, whose beginning ``before`` may know already.

        Raises `NoRoom` as soon as it turns out to cost more than ``room``.
        """
        full = 0 if before is None else len(before) // _BLOCK
        self._blocks: list[list[Any]] = [] if before is None else before._blocks[:full]
        self._count = len(value)
        self.cost: int = sum(map(sys.getsizeof, self._blocks))
        for at in range(full * _BLOCK, len(value), _BLOCK):
            block = outline(value[at : at + _BLOCK], attributes)
            self._blocks.append(block)
            self.cost += sys.getsizeof(block)
            if self.cost > room:
                raise NoRoom

    def __len__(self) -> int:
        return self._count

    def begins(self, value: list[Any]) -> bool:
        """Tell whether ``value`` begins with exactly these elements."""
        try:
            return all(fits(block, value, at * _BLOCK) for at, block in enumerate(self._blocks))
        except Exception:
            # Something else stands there, which cannot even be compared.
            return False


class NoRoom(Exception):
    """Remembering the list would take more memory than it may."""
