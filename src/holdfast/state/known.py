"""Recognising a list that only grew, without serialising it, and building it again."""

from __future__ import annotations

import sys
from typing import Any, Final

from holdfast.state.plain import Attributes, Outline, built, fits, outline

# Outlines are made and shared by the block: of a list that grows, only the last one is copied.
_BLOCK: Final = 128
_PLAIN_ONLY: Final[Attributes] = {}


class KnownList:
    """A list as it was last saved. It keeps the caller's scalars alive, and nothing else.

    ``cost`` is about how many bytes of memory it takes, without those scalars.
    """

    __slots__ = ("_blocks", "_count", "cost")

    def __init__(
        self,
        added: list[Any],
        before: KnownList | None = None,
        room: int = sys.maxsize,
        attributes: Attributes = _PLAIN_ONLY,
    ) -> None:
        """Remember a list that has what ``before`` knows, if anything, and then what was added.

        Raises `NoRoom` as soon as it turns out to cost more than ``room``, and TypeError for an element
        that is neither plain nor of one of the classes.
        """
        self._blocks: list[Outline] = [] if before is None else before._blocks[:]
        known = 0 if before is None else len(before)
        self._count = known + len(added)
        self.cost: int = 0 if before is None else before.cost
        at = 0
        while at < len(added):
            filled = (known + at) % _BLOCK
            end = min(at + _BLOCK - filled, len(added))
            block = outline(added[at:end], attributes)
            if filled:
                begun = self._blocks.pop()
                block = begun + block
                self.cost -= sys.getsizeof(begun)
            self._blocks.append(block)
            self.cost += sys.getsizeof(block)
            if self.cost > room:
                raise NoRoom
            at = end

    def __len__(self) -> int:
        return self._count

    def begins(self, value: list[Any]) -> bool:
        """Tell whether ``value`` begins with exactly these elements."""
        try:
            return fits(self._blocks, value)
        except Exception:
            # Something else stands there, which cannot even be compared.
            return False

    def built(self, spares: list[Any]) -> list[Any]:
        """Return a list of the same elements that is the caller's own; see `plain.built`."""
        made = built(self._blocks, spares)
        del spares[len(made) :]
        return made


class NoRoom(Exception):
    """Remembering the list would take more memory than it may."""
