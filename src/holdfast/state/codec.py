"""Python values as JSON text, exactly.

What JSON has is written as it is, and orjson does that at memory speed. But it would turn tuples into
lists and NaN into null without a word. So a strict walk looks at every value first (`is_plain`); only
what it finds harmless goes to orjson untouched, and all else is rebuilt with tags (`holdfast.state.tags`),
which is also where an error learns the path of the bad value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from holdfast.errors import StateCorrupt, StateNotSerializable
from holdfast.state.plain import is_plain
from holdfast.state.screen import Screen
from holdfast.state.tags import MAX_DEPTH, Json, tagged, untagged

_SHORT: Final = 16 * 1024
# What most small documents consist of: JSONB rewrites some floats, and these never, nor empty containers.
_NEVER_TAGGED: Final = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list})


def compact(text: bytes) -> bytes:
    """Return the same text in as much memory as it needs.

    What orjson returns keeps the buffer that it was written in: kilobytes for a few characters.
    """
    return bytes(memoryview(text))


def dump(
    value: object,
    path: str,
    room: int = MAX_DEPTH,
    *,
    look: Callable[[Any], Any] | None = None,
) -> tuple[bytes, bool]:
    """Return the JSON text of ``value``, as ``look`` lets it pass, and whether it contains tags.

    Raises `StateNotSerializable` with the path of the first value that has no exact form.
    """
    if is_plain(value, room):
        try:
            text = orjson.dumps(value if look is None else look(value))
            return compact(text) if len(text) < _SHORT else text, False
        except TypeError:
            pass  # the walk below says what and where
    document = tagged(value, path, room)
    return orjson.dumps(document if look is None else look(document)), True


def dump_items(
    values: Sequence[Any],
    room: int,
    *,
    screen: Screen | None,
    name: str,
    before: tuple[Any, ...] = (),
) -> tuple[memoryview, bool]:
    """Return the text of a list's elements, a comma before each, and whether it contains tags.

    ``before`` is the element in front of them, if there is one: the screen may want to know. An error
    has no useful path.
    """
    look = None if screen is None else partial(_look_at_items, screen, name, before)
    # After a zero the first element gets its comma too, without a copy of the text.
    text, tags = dump([0, *values], "", room, look=look)
    return memoryview(text)[len("[0") : -len("]")], tags


def _look_at_items(
    screen: Screen, name: str, before: tuple[Any, ...], after_zero: list[Any]
) -> list[Any]:
    return [0, *screen.items(after_zero[1:], name=name, before=before)]


def parsed_bytes(text: bytes) -> int:
    """Return how much memory the values of a JSON text take at most, or about that."""
    # A dict with one item, a short list, a short text or a number: each has its comma or its bracket.
    return len(text) + 240 * text.count(b"{") + 96 * text.count(b"[") + 64 * text.count(b",")


def load_json(text: bytes | str, what: str) -> Json:
    """Parse stored JSON. Raises `StateCorrupt`; depth is bounded by the parser."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise StateCorrupt(f"{what} is not JSON: {error}") from None


def array_of(parts: Sequence[bytes]) -> bytes:
    """Return the chunks of a stored list as the text of a JSON array. Raises `StateCorrupt`.

    Lists that were stored before each element had its comma begin with the bracket already.
    """
    first = memoryview(parts[0] if parts else b"")
    if bytes(first[:1]) not in (b",", b"["):
        raise StateCorrupt("a stored list does not begin like one")
    return b"".join((b"[", first[1:], *parts[1:], b"]"))


def dump_document(document: Mapping[str, Any], what: str) -> str:
    """Return a small document (metadata, log data) as tagged JSON that JSONB keeps exactly."""
    if type(document) is not dict and not isinstance(document, Mapping):
        raise StateNotSerializable(what, f"must be a dict, not {type(document).__name__}")
    plain = dict(document)
    kinds = [type(value) for value in plain.values() if type(value) not in _CONTAINERS or value]
    if _NEVER_TAGGED.issuperset(kinds) and is_plain(plain):
        try:
            return orjson.dumps(plain).decode()
        except TypeError:
            pass  # the walk below says what and where
    return orjson.dumps(tagged(plain, what, jsonb=True)).decode()


def load_document(text: bytes | str) -> dict[str, Any]:
    """Return what `dump_document` stored."""
    document = untagged(load_json(text, "a stored document"))
    if not isinstance(document, dict):
        raise StateCorrupt("a stored document is not an object")
    return document
