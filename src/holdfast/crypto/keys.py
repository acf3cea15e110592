"""The keys of a sealed store: a ring of them, of which the first seals and all of them open.

A ring is a text, so that it fits a file, a variable of the environment and a vault alike: entries
``id:key`` between spaces, commas or line ends, a key being 32 bytes in base64. Text after ``#`` says
something to people.

    # made on 2026-11-15
    k-3f9c0a1b:RLmVg…
    k-81d20c77:Jq0wX…         an older one, which still opens
    names:9Y4tP…              for the names of chunks; it never changes

The entry ``names`` is not rotated: the names that chunks have in the store are derived with it, and they
could not change without every reference to them. It opens nothing.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.errors import InvalidKey
from holdfast.regular_files import read_small_file

NAMES: Final = "names"
KEY_BYTES: Final = 32
_ID: Final = re.compile("[a-z0-9][a-z0-9-]{0,31}")
_COMMENT: Final = re.compile(r"#[^\n]*")
_BETWEEN: Final = re.compile(r"[\s,]+")
_ADVICE: Final = (
    "put it right from a copy, since a new ring opens nothing of what another has sealed; for a new store "
    "make one with: holdfast keys new FILE"
)


class KeyRing:
    """Keys by id, the one that seals first, and the key of names. Never shows what they are."""

    __slots__ = ("keys", "names")

    def __init__(self, keys: dict[str, bytes], names: bytes) -> None:
        self.keys = keys
        self.names = names

    @classmethod
    def new(cls) -> KeyRing:
        """Return a ring with one new key, for a new store."""
        return cls({_new_id(): os.urandom(KEY_BYTES)}, os.urandom(KEY_BYTES))

    @classmethod
    def parse(
        cls, text: str, where: str = "the text of the keys (HOLDFAST_KEY, or what the program gave)"
    ) -> KeyRing:
        """Read a ring. Raises `InvalidKey`, which says where and never what."""
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(filter(None, _BETWEEN.split(_COMMENT.sub("", text))), 1):
            id_, colon, written = entry.partition(":")
            if not colon or _ID.fullmatch(id_) is None:
                raise InvalidKey(f"entry {number} of {where} is not id:key in base64; {_ADVICE}")
            if id_ in keys:
                raise InvalidKey(f"{where} has the entry {id_!r} twice; {_ADVICE}")
            keys[id_] = _bytes_of(written, f"the entry {id_!r} of {where}")
        names = keys.pop(NAMES, None)
        if names is None or not keys:
            lacking = "no key" if not keys else f"no entry {NAMES!r}"
            raise InvalidKey(f"{where} has {lacking}; {_ADVICE}")
        return cls(keys, names)

    @classmethod
    def from_file(cls, path: str | Path) -> KeyRing:
        """Read a ring from a file, through links. Raises `InvalidKey`, also where it cannot be read.

        It is read more than once, so a pipe is none.
        """
        try:
            text = read_small_file(Path(path).expanduser()).decode("ascii")
        except (OSError, RuntimeError, ValueError) as error:
            # The home of an unknown user, and a path with a NUL, are no errors of the system.
            raise InvalidKey(f"the key file {path} cannot be read: {error}") from None
        return cls.parse(text, str(path))

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return next(iter(self.keys))

    def rotated(self) -> KeyRing:
        """Return the ring with a new key in front; the others still open."""
        return KeyRing({_new_id(): os.urandom(KEY_BYTES), **self.keys}, self.names)

    def only(self, ids: set[str]) -> KeyRing:
        """Return the ring with the current key and those of its keys that are named."""
        kept = {id_: key for id_, key in self.keys.items() if id_ == self.current or id_ in ids}
        return KeyRing(kept, self.names)

    def text(self) -> str:
        """Return the ring as `parse` reads it: the only way to see its keys."""
        entries = [*self.keys.items(), (NAMES, self.names)]
        return "".join(f"{id_}:{base64.b64encode(key).decode()}\n" for id_, key in entries)

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self.keys)}>"


KeySource: TypeAlias = KeyRing | Path | Callable[[], "KeyRing | str | bytes"]
"""What a key may be given as: a ring, the path of a file, or a function that returns a ring or its text."""

GivenKeys: TypeAlias = KeySource | Literal[False] | None
"""The same as an argument: None means those of the environment, and False means none."""


class Keys:
    """A ring that can be read again: a key that somebody else began to use may be in it by now."""

    def __init__(self, read: Callable[[], KeyRing]) -> None:
        self._read = read
        self.ring = read()

    def reload(self) -> None:
        """Read the ring again. Raises `InvalidKey` and keeps the one it has."""
        self.ring = self._read()


def keys_from(source: KeySource) -> Keys:
    """Return the keys that a caller gave. Raises `InvalidKey`."""
    if isinstance(source, KeyRing):
        return Keys(lambda: source)
    if isinstance(source, Path):
        return Keys(lambda: KeyRing.from_file(source))
    if not callable(source):
        raise InvalidKey(
            f"a key must be a KeyRing, the Path of a file or a function, not {type(source).__name__}"
        )

    return Keys(lambda: _ring_of(source()))


def _ring_of(given: object) -> KeyRing:
    """Return the ring that a function gave. Many vaults answer with bytes, and some with nothing."""
    if isinstance(given, KeyRing):
        return given
    if isinstance(given, bytes):
        # A byte that is no ASCII stands for no entry, and is refused as such.
        given = given.decode("ascii", "replace")
    if not isinstance(given, str):
        raise InvalidKey(
            f"the function that gives the keys must return a KeyRing or its text, not "
            f"{type(given).__name__}"
        )
    return KeyRing.parse(given)


def _bytes_of(written: str, what: str) -> bytes:
    try:
        # Vaults write either alphabet, and leave the padding out or not.
        digits = written.rstrip("=").translate(str.maketrans("-_", "+/"))
        key = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidKey(f"{what} is not {KEY_BYTES} bytes in base64; {_ADVICE}")
    return key


def _new_id() -> str:
    return f"k-{os.urandom(4).hex()}"
