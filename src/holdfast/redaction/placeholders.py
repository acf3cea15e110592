"""What stands in a secret's place: ``[redacted:github-token:3f9a1c2b5d7e9a01]``.

The last part is a keyed digest of the secret, so the same secret has the same placeholder everywhere
in a project: states still share what they have in common, and whoever has the secret can tell that it
is the one. Without the key nothing can be tried against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, TypeAlias

from holdfast.errors import InvalidConfiguration

_DIGITS: Final = 16
_LONGEST_KIND: Final = 36
MARK: Final = "[redacted:"
_MARK_BYTES: Final = MARK.encode()
# Stands for placeholders while secrets are looked for: in no token, yet within anything with a frame.
FILLER: Final = "\ue000"
# What is left of a secret beside a placeholder: less than this tells nothing, such as the name of a cookie.
_SHORTEST_PIECE: Final = 4
PATTERN: Final = re.compile(r"\[redacted:([a-z0-9][a-z0-9\-]{0,40}):([0-9a-f]{16})\]")


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a secret lies in a text, and of which kind it is."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, order=True)
class Placeholder:
    """A secret that was taken out: of which kind it was, and its keyed digest."""

    kind: str
    digest: str

    def __str__(self) -> str:
        return f"{MARK}{self.kind}:{self.digest}]"


Rehydrate: TypeAlias = Callable[[Placeholder], str | None]
"""Returns the secret that a placeholder stands for, or None."""


def digest_of(secret: str, key: bytes) -> str:
    """Return the digest that a secret's placeholder carries."""
    import hmac

    return hmac.new(key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[
        :_DIGITS
    ]


def text_of(data: bytes) -> str:
    """Return bytes as the text that they are, or that is in them; `bytes_of` undoes it exactly.

    A secret is then the same in both, and none begins or ends within a character.
    """
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return what `text_of` was given."""
    return text.encode("utf-8", "surrogateescape")


def placeholders_in(value: Any) -> Iterator[Placeholder]:
    """Yield the placeholders in a text, or in all texts, bytes and paths of a value, keys included."""
    if isinstance(value, bytes):
        if _MARK_BYTES in value:
            yield from placeholders_in(text_of(value))
    elif isinstance(value, PurePath):
        yield from placeholders_in(str(value))
    elif isinstance(value, str):
        if MARK in value:
            for match in PATTERN.finditer(value):
                yield Placeholder(match[1], match[2])
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from placeholders_in(key)
            yield from placeholders_in(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from placeholders_in(item)


def masked(text: str) -> str:
    """Return a text of the same length in which no placeholder can be taken for a part of a secret."""
    return PATTERN.sub(lambda match: FILLER * len(match[0]), text) if MARK in text else text


def without_filler(value: str) -> str:
    """Return what a masked text says beside its placeholders."""
    return value.replace(FILLER, "") if FILLER in value else value


def cut(findings: Iterable[Finding], spans: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    """Yield the findings without what lies in a span. Both are in order, so each is looked at once."""
    rest = iter(spans)
    span = next(rest, None)
    for one in findings:
        start = one.start
        while span is not None and span[0] < one.end:
            if span[0] - start >= _SHORTEST_PIECE:
                yield Finding(one.kind, start, span[0])
            start = max(start, span[1])
            if span[1] > one.end:
                break
            span = next(rest, None)
        if start == one.start or one.end - start >= _SHORTEST_PIECE:
            yield Finding(one.kind, start, one.end)


def numbered(text: str, number: int) -> str:
    """Return a text with other placeholders for the same secrets."""

    def other(match: re.Match[str]) -> str:
        return str(Placeholder(f"{match[1][:_LONGEST_KIND]}-{number}", match[2]))

    return PATTERN.sub(other, text)


def filled(value: Any, rehydrate: Rehydrate) -> Any:
    """Return a value with its placeholders replaced by what ``rehydrate`` knows.

    What it does not know stays a placeholder. Where there is nothing to replace, the value itself comes
    back.
    """
    if isinstance(value, str):
        if MARK not in value:
            return value
        return PATTERN.sub(lambda match: _known(match, rehydrate), value)
    if isinstance(value, bytes):
        return bytes_of(filled(text_of(value), rehydrate)) if _MARK_BYTES in value else value
    if isinstance(value, PurePath):
        text = str(value)
        return value if (new := filled(text, rehydrate)) is text else type(value)(new)
    if isinstance(value, dict):
        items: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            new, new_key = filled(item, rehydrate), filled(key, rehydrate)
            if new_key is not key and (new_key in value or new_key in items):
                new_key = key  # what stands there already keeps its place
            changed = changed or new is not item or new_key is not key
            items[new_key] = new
        return items if changed else value
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [filled(item, rehydrate) for item in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    return value


def _known(match: re.Match[str], rehydrate: Rehydrate) -> str:
    found = rehydrate(Placeholder(match[1], match[2]))
    if found is None:
        return match[0]
    if not isinstance(found, str):
        raise InvalidConfiguration(
            f"rehydrate returned {type(found).__name__} for {match[0]}, and must return a text, or None where "
            "it knows nothing. Nothing was changed"
        )
    return found


def among(values: Iterable[str], key: bytes) -> Rehydrate:
    """Return what finds secrets among some texts, such as the values of environment variables."""
    known = {digest_of(value, key): value for value in values}

    def rehydrate(placeholder: Placeholder) -> str | None:
        return known.get(placeholder.digest)

    return rehydrate
