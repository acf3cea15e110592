"""Recognising a list that only grew, without looking at each of its elements in Python.

Of a list as it was last saved an outline is kept, depth by depth: the scalars that stood there, the keys of the
dicts, how long each dict and list was. Scalars do not change, so where the very same objects stand in the same
places nothing did; and since all of one depth lie in one flat list, that is told at the speed of C. Objects
that are not the same may still be equal, as after a round through JSON: then their types decide as well, because 1,
1.0 and True are equal too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, compress, repeat
from operator import is_
from typing import Any, Final, Protocol

# Outlines are made and shared by the block: of a list that grows, only the last one is made anew.
_BLOCK: Final = 128
_OBJECT_BYTES: Final = 64


class KnownList:
    """A plain list as it was last saved. It keeps the caller's scalars alive, and nothing else.

    ``cost`` is about how many bytes of memory it takes, without those scalars.
    """

    __slots__ = ("_blocks", "_count", "cost")

    def __init__(
        self, value: list[Any], before: KnownList | None = None, room: int = sys.maxsize
    ) -> None:
        """Remember ``value``, whose plain beginning ``before`` may know already.

        Raises `NoRoom` as soon as it turns out to cost more than ``room``.
        """
        full = 0 if before is None else len(before) // _BLOCK
        self._blocks: list[_Outline] = [] if before is None else before._blocks[:full]
        self._count = len(value)
        self.cost: int = sum(block.cost for block in self._blocks)
        for at in range(full * _BLOCK, len(value), _BLOCK):
            block = _Outline(value[at : at + _BLOCK])
            self._blocks.append(block)
            self.cost += block.cost
            if self.cost > room:
                raise NoRoom

    def __len__(self) -> int:
        return self._count

    def begins(self, value: list[Any]) -> bool:
        """Tell whether ``value`` begins with exactly these elements."""
        count = self._count
        if len(value) < count:
            return False
        try:
            return all(
                block.fits(partial(iter, value[at : min(at + _BLOCK, count)]))
                for at, block in zip(range(0, count, _BLOCK), self._blocks, strict=True)
            )
        except Exception:
            # Something new stands there that cannot even be compared.
            return False


class NoRoom(Exception):
    """Remembering the list would take more memory than it may."""


_Values = Callable[[], Iterable[Any]]
"""Values in their order, from the first each time it is called."""


class _Known(Protocol):
    cost: int

    def fits(self, now: _Values) -> bool:
        """Tell whether these values, as many as there were, are exactly what they were."""


class _Outline:
    """The values of one depth, by kind: which of them they are, and what is known of these.

    Where all are of one kind, as they mostly are, nothing needs to be chosen.
    """

    __slots__ = ("_parts", "cost")

    def __init__(self, values: list[Any]) -> None:
        kinds = list(map(type, values))
        nested = kinds.count(dict), kinds.count(list)
        self._parts: list[tuple[bytes, _Known]] = []
        if not any(nested):
            self._parts.append((b"", _Scalars(values)))
        elif len(values) in nested:
            self._parts.append((b"", _Dicts(values) if nested[0] else _Lists(values)))
        else:
            for known_as, chosen in (
                (_Scalars, bytes(kind is not dict and kind is not list for kind in kinds)),
                (_Dicts, bytes(kind is dict for kind in kinds)),
                (_Lists, bytes(kind is list for kind in kinds)),
            ):
                if any(chosen):
                    self._parts.append((chosen, known_as(list(compress(values, chosen)))))
        self.cost: int = _OBJECT_BYTES + sum(
            sys.getsizeof(chosen) + known.cost for chosen, known in self._parts
        )

    def fits(self, now: _Values) -> bool:
        if len(self._parts) == 1:
            return self._parts[0][1].fits(now)
        values = list(now())
        return all(known.fits(partial(compress, values, chosen)) for chosen, known in self._parts)


class _Scalars:
    """Values that hold no others."""

    __slots__ = ("_values", "cost")

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self.cost = _OBJECT_BYTES + sys.getsizeof(values)

    def fits(self, now: _Values) -> bool:
        known = self._values
        return all(map(is_, now(), known)) or (
            all(map(is_, map(type, now()), map(type, known)))
            and list(now()) == known
            # What equality does not see in a finite number is the sign of zero.
            and [*map(repr, filter(_is_float, now()))] == [*map(repr, filter(_is_float, known))]
        )


def _all_are(kind: type, values: list[Any]) -> bool:
    # By identity: a class may have its own idea of which others it equals.
    return all(map(is_, map(type, values), repeat(kind)))


def _is_float(value: object) -> bool:
    return type(value) is float


class _Lists:
    """Lists, one after the other."""

    __slots__ = ("_items", "_lengths", "cost")

    def __init__(self, lists: list[list[Any]]) -> None:
        self._lengths = list(map(len, lists))
        self._items = _Outline(list(chain.from_iterable(lists)))
        self.cost: int = _OBJECT_BYTES + sys.getsizeof(self._lengths) + self._items.cost

    def fits(self, now: _Values) -> bool:
        lists = list(now())
        return (
            _all_are(list, lists)
            and list(map(len, lists)) == self._lengths
            and self._items.fits(partial(chain.from_iterable, lists))
        )


class _Dicts:
    """Dicts, one after the other: their keys in order, and their values."""

    __slots__ = ("_keys", "_lengths", "_values", "cost")

    def __init__(self, dicts: list[dict[str, Any]]) -> None:
        self._lengths = list(map(len, dicts))
        self._keys = _Scalars(list(chain.from_iterable(dicts)))
        self._values = _Outline(list(_values_of(dicts)))
        self.cost: int = (
            _OBJECT_BYTES + sys.getsizeof(self._lengths) + self._keys.cost + self._values.cost
        )

    def fits(self, now: _Values) -> bool:
        dicts = list(now())
        return (
            _all_are(dict, dicts)
            and list(map(len, dicts)) == self._lengths
            and self._keys.fits(partial(chain.from_iterable, dicts))
            and self._values.fits(partial(_values_of, dicts))
        )


def _values_of(dicts: list[dict[str, Any]]) -> Iterable[Any]:
    return chain.from_iterable(map(dict.values, dicts))
