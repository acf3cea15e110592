"""Documents of another shape: JSON in an input with one of its values replaced, or taken out.

Mutation of bytes seldom ends in JSON that is read at all, and nearly never in a list where an object should be. So
a part of all inputs is made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

_DEEPEST: Final = 40
# What only looks like documents, such as brackets by the thousand, is not tried for ever.
_MOST_TRIES: Final = 100
_OPENINGS: Final = (ord("{"), ord("["))
# What a reader may not have thought of, one of each kind. Half a character comes from texts cut by their length.
ODD: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1.5, 10**30, -1e308, "", "x", "\0", "\ud800", "\udcff", "9" * 400,
    "9999-12-31T23:59:59.999999+23:59", "0001-01-01T00:00:00+00:00",
    [], [1], ["x"], [[]], [None], [{}], {}, {"a": 1},
)  # fmt: skip
_GONE: Final = object()
_DECODER: Final = json.JSONDecoder()


def reshaped(data: bytes, chance: Random) -> bytes:
    """Return an input in one of whose documents one value is another; without a document, the input."""
    found = list(_documents(data))
    if not found:
        return data
    start, end, document = chance.choice(found)
    whole = [document]
    holder: Any = whole
    place: Any = 0
    for _ in range(_DEEPEST):
        inner = holder[place]
        if not inner or not isinstance(inner, dict | list) or chance.random() < 0.2:
            break
        holder = inner
        place = chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
    odd = chance.choice((*ODD, _GONE))
    if odd is not _GONE:
        holder[place] = odd
    elif holder is not whole:
        del holder[place]
    # With escapes where there is half a character, and without where there is none: both are read.
    try:
        text = json.dumps(whole[0], separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(whole[0], separators=(",", ":")).encode()
    return data[:start] + text + data[end:]


def _documents(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield where each object or list of an input is, and what it says."""
    # A character for a byte, so that places are the same.
    text = data.decode("latin-1")
    place = tries = 0
    while place < len(data) and tries < _MOST_TRIES:
        if data[place] in _OPENINGS:
            tries += 1
            try:
                _, end = _DECODER.raw_decode(text, place)
                yield place, end, json.loads(data[place:end])
                place = end
                continue
            except (ValueError, RecursionError):
                pass
        place += 1
