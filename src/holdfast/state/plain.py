"""Plain data: what consists of exact JSON types, and how all of it is looked at on every save.

Two questions are asked of each value of a state, so they decide what a save costs: is it plain, and is it
what it was at the last save? The second is answered by an outline: scalars and keys, by reference and in
their order, and before those of a container a mark (``list``, ``dict``, or ``object`` for what has
attributes) and its length. A set of texts is kept as a whole. Scalars do not change, so where the very same
objects stand in the same places nothing did. Objects that are not the same may still be equal, as
after a round through JSON: then their types decide as well, because 1, 1.0 and True are equal too.

An outline says all that there is to say of a value, so that it can also be built again from it.

`_plain.c` and its neighbours have the same functions, several times as fast. They are used where they could be
compiled; what is written here says what they do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from holdfast.state.tags import MARK, MAX_DEPTH

__all__ = ["COMPILED", "Attributes", "Outline", "built", "fits", "is_plain", "outline"]

Attributes = dict[type, tuple[str, ...]]
"""Classes whose objects may stand among plain data, and the attributes that these consist of."""

Outline = Any
"""What a list is known by: here a list of marks, in C a type of its own. With ``+`` one is joined to another."""

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def is_plain(value: Any, room: int = MAX_DEPTH, size: int = sys.maxsize) -> bool:
    """Tell whether ``value`` consists of exact JSON types only, nested no deeper than ``room``.

    It may also be too large for ``size``, which counts values and the characters of texts; no more than that is
    looked at. Integers beyond 64 bits and lone surrogates are left to orjson, which refuses them.
    """
    return _size_left(value, room, size) >= 0


def _size_left(value: Any, room: int, size: int) -> int:
    """Return what is left of ``size`` behind a plain value, something below 0 for any other."""
    kind = type(value)
    size -= 1
    if kind is str:
        return -1 if "\0" in value else size - len(value)
    if kind is list or kind is dict:
        if room <= 0:
            return -1
        items = value
        if kind is dict:
            if MARK in value:
                return -1
            for key in value:
                if type(key) is not str or "\0" in key:
                    return -1
                size -= len(key)
            items = value.values()
        for item in items:
            if size < 0:
                return -1
            size = _size_left(item, room - 1, size)
        return size
    if kind is float:
        return size if value - value == 0.0 else -1
    return size if kind in _SCALARS else -1


def outline(values: list[Any], attributes: Attributes) -> Outline:
    """Return what `fits` recognises these values by.

    Raises TypeError for one that is neither plain nor of one of the classes.
    """
    found: list[Any] = []
    for value in values:
        _outline(value, attributes, found)
    # Without room to grow: callers ask for its size.
    return found[:]


def _outline(value: Any, attributes: Attributes, found: list[Any]) -> None:
    kind = type(value)
    if kind in _SCALARS:
        found.append(value)
    elif kind is list:
        found += (list, len(value))
        for item in value:
            _outline(item, attributes, found)
    elif kind is dict:
        found += (dict, len(value))
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError("a key is no text")
            found.append(key)
            _outline(item, attributes, found)
    elif kind is set:
        if any(type(item) is not str for item in value):
            raise TypeError("a set of more than texts")
        found += (set, frozenset(value))
    elif kind in attributes:
        names = attributes[kind]
        found += (object, kind, names)
        for name in names:
            _outline(getattr(value, name), attributes, found)
    else:
        raise TypeError(f"an object of the class {kind.__qualname__}")


def fits(known: list[Outline], values: list[Any]) -> bool:
    """Tell whether ``values`` begin with exactly those of outlines, one after the other.

    Raises what an object says that lacks an attribute.
    """
    marks = chain.from_iterable(known)
    return all(at < len(values) and _is(mark, marks, values[at]) for at, mark in enumerate(marks))


def _is(mark: Any, marks: Iterator[Any], value: Any) -> bool:
    if mark is dict:
        return (
            type(value) is dict
            and len(value) == next(marks)
            and all(
                _is_scalar(next(marks), key) and _is(next(marks), marks, item)
                for key, item in value.items()
            )
        )
    if mark is list:
        return (
            type(value) is list
            and len(value) == next(marks)
            and all(_is(next(marks), marks, item) for item in value)
        )
    if mark is set:
        texts = next(marks)
        return type(value) is set and all(type(item) is str for item in value) and value == texts
    if mark is object:
        kind, names = next(marks), next(marks)
        return type(value) is kind and all(
            _is(next(marks), marks, getattr(value, name)) for name in names
        )
    return _is_scalar(mark, value)


def _is_scalar(known: Any, value: Any) -> bool:
    if known is value:
        return True
    if type(known) is not type(value) or known != value:
        return False
    # What equality does not see in a finite number is the sign of zero.
    return type(known) is not float or repr(known) == repr(value)


def built(known: list[Outline], spares: list[Any]) -> list[Any]:
    """Return new values that outlines fit, one after the other.

    ``spares`` has what was returned the last time. One that nobody else has any more, and that
    nobody changed, may be returned again, which saves making it and the collector's looking at it. Only the
    compiled function can tell; it leaves there what it returns.
    Raises TypeError for a class that has to be made in a way of its own.
    """
    marks = chain.from_iterable(known)
    return [_built(mark, marks) for mark in marks]


def _built(mark: Any, marks: Iterator[Any]) -> Any:
    if mark is dict:
        return {next(marks): _built(next(marks), marks) for _ in range(next(marks))}
    if mark is list:
        return [_built(next(marks), marks) for _ in range(next(marks))]
    if mark is set:
        return set(next(marks))
    if mark is not object:
        return mark
    made: Any = object.__new__(next(marks))
    for name in next(marks):
        object.__setattr__(made, name, _built(next(marks), marks))
    return made


try:
    from holdfast.state._plain import built, fits, is_plain, outline
except ImportError:
    COMPILED = False
else:
    COMPILED = True
