"""Plain data: what consists of exact JSON types, and how all of it is looked at on every save.

Two questions are asked of each value of a state, so they decide what a save costs: is it plain, and is it
what it was at the last save? The second is answered by an outline: scalars and keys, by reference and in
their order, and before those of a container a mark (``list``,
``dict``, or ``object`` for what has attributes) and its length. Scalars do not change, so where the
very same objects stand in the same places nothing did. Objects that are not the same may still be equal, as
after a round through JSON: then their types decide as well, because 1, 1.0 and True are equal too.

Whoever keeps such values to hand them out again makes copies of them, which is the third thing here.

`_plain.c` has the same functions, several times as fast. They are used where it could be compiled;
what is written here says what they do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from holdfast.state.tags import MARK, MAX_DEPTH

__all__ = ["COMPILED", "Attributes", "copied", "fits", "is_plain", "outline"]

Attributes = dict[type, tuple[str, ...]]
"""Classes whose objects may stand among plain data, and the attributes that these consist of."""

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


def outline(values: list[Any], attributes: Attributes) -> list[Any]:
    """Return what `fits` recognises these values by.

    Raises TypeError for one that is neither plain nor of one of the classes.
    """
    found: list[Any] = []
    for value in values:
        _outline(value, attributes, found)
    return found


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
    elif kind in attributes:
        names = attributes[kind]
        found += (object, kind, names)
        for name in names:
            _outline(getattr(value, name), attributes, found)
    else:
        raise TypeError(f"an object of the class {kind.__qualname__}")


def fits(known: list[Any], values: list[Any], start: int) -> bool:
    """Tell whether exactly the values of an outline stand from ``start`` on.

    Raises what an object says that lacks an attribute.
    """
    marks = iter(known)
    for mark in marks:
        if start >= len(values) or not _is(mark, marks, values[start]):
            return False
        start += 1
    return True


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


def copied(value: Any, attributes: Attributes, spares: list[Any] | None = None) -> Any:
    """Return a copy that shares nothing but scalars with ``value``.

    ``spares`` are the elements of the last copy of the same list. One that nobody else has any more, and that
    nobody changed, may be handed out again, which saves making it and the collector's looking at
    it. Only the compiled function can tell; it leaves there what it returns.
    Raises TypeError where something is neither plain, nor a set of scalars, nor of one of the classes.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is list:
        return [copied(item, attributes) for item in value]
    if kind is dict:
        if any(type(key) is not str for key in value):
            raise TypeError("a key is no text")
        return {key: copied(item, attributes) for key, item in value.items()}
    if kind is set:
        if not all(type(item) in _SCALARS for item in value):
            raise TypeError("a set of more than scalars")
        return value.copy()
    if kind not in attributes:
        raise TypeError(f"an object of the class {kind.__qualname__}")
    made: Any = object.__new__(kind)
    for name in attributes[kind]:
        object.__setattr__(made, name, copied(getattr(value, name), attributes))
    return made


try:
    from holdfast.state._plain import copied, fits, is_plain, outline
except ImportError:
    COMPILED = False
else:
    COMPILED = True
