"""Texts that belong together, though they stand in several elements of a list.

A message consists of blocks, and an answer arrives in pieces. A secret that begins in one of them and ends
in the next is in neither, so neighbours are looked at as the one text that they are. The placeholder goes
to where the secret begins; the others lose their part of it, and all together say the same as before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final

from holdfast.redaction.placeholders import Finding

_FIELDS: Final = ("text", "delta")


def text_field(value: Any) -> str | None:
    """Return the name of the field with the text of a block, None for anything but a block."""
    if type(value) is not dict or "role" in value:
        return None
    return next((field for field in _FIELDS if type(value.get(field)) is str), None)


def runs(values: list[Any]) -> Iterator[tuple[int, int, str]]:
    """Yield where neighbours are that belong together, and the field that their texts are in."""
    start, field = 0, None
    for at in range(len(values) + 1):
        here = text_field(values[at]) if at < len(values) else None
        if here is None or here != field:
            if field is not None and at - start > 1:
                yield start, at, field
            start, field = at, here


def mended(
    texts: list[str], find: Callable[[str], list[Finding]], placeholder: Callable[[str, str], str]
) -> list[str] | None:
    """Return neighbouring texts without the secrets that reach from one to another, None if none does."""
    whole = "".join(texts)
    borders = list(accumulate(map(len, texts)))
    across = [one for one in find(whole) if crossed(one, borders)]
    if not across:
        return None
    parts: list[list[str]] = [[] for _ in texts]
    start, at = 0, 0
    rest = iter(across)
    one = next(rest, None)
    for number, border in enumerate(borders):
        at = max(at, start)
        while one is not None and one.start < border:
            parts[number] += [
                whole[at : one.start],
                placeholder(one.kind, whole[one.start : one.end]),
            ]
            at = one.end
            one = next(rest, None)
        parts[number].append(whole[at:border])
        start = border
    return ["".join(part) for part in parts]


def crossed(finding: Finding, borders: list[int]) -> bool:
    """Tell whether a secret reaches over one of the borders, which are in order."""
    after = bisect_right(borders, finding.start)
    return after < len(borders) and borders[after] < finding.end
