"""The envelope: AES-256-GCM around a value, bound to the place where the value belongs.

    offset  size  field
    0       1     version: 1
    1       1     length n of the key's id
    2       n     the key's id, ASCII
    2+n     12    nonce, random
    14+n    …     the sealed value and 16 bytes that prove it

The *place* is not in the envelope: whoever opens it says where it was found, and what was sealed for another
place does not open. Nor does what was shortened, changed or sealed with another key.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final

from holdfast.crypto.keys import Keys
from holdfast.errors import MissingExtra, PlaintextRefused, SealBroken

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError:
    raise MissingExtra("crypto", "Sealing a store") from None

VERSION: Final = 1
TEXT: Final = "sealed:"
_NONCE: Final = 12
_TAG: Final = 16


class Envelopes:
    """Seals values with the current key of a ring, and opens what any of its keys sealed."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._ciphers: dict[str, AESGCM] = {}

    def seal(self, data: bytes | memoryview, *place: str) -> bytes:
        """Return ``data`` in an envelope for ``place``."""
        key_id = self._keys.ring.current
        head = bytes((VERSION, len(key_id))) + key_id.encode()
        nonce = os.urandom(_NONCE)
        return head + nonce + self._cipher(key_id, place).encrypt(nonce, data, _bound(head, place))

    def open(self, sealed: bytes, *place: str) -> bytes:
        """Return what an envelope for ``place`` holds.

        Raises `PlaintextRefused` for what is no envelope, and `SealBroken` for one that does not open.
        """
        key_id = key_of(sealed, *place)
        begin = 2 + len(key_id)
        nonce = sealed[begin : begin + _NONCE]
        try:
            return self._cipher(key_id, place).decrypt(
                nonce, sealed[begin + _NONCE :], _bound(sealed[:begin], place)
            )
        except InvalidTag:
            raise SealBroken(
                f"{shown(place)} does not open with key {key_id!r}: it was changed, moved from another "
                f"place or sealed with another key of that id. Nothing of it was used"
            ) from None

    def _cipher(self, key_id: str, place: tuple[str, ...]) -> AESGCM:
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            if key_id not in self._keys.ring.keys:
                # Somebody may have begun to use a new one since this ring was read.
                self._keys.reload()
            key = self._keys.ring.keys.get(key_id)
            if key is None:
                raise SealBroken(
                    f"{shown(place)} is sealed with key {key_id!r}, which is not in the ring: add it "
                    f"to the keys and repeat this"
                )
            cipher = self._ciphers[key_id] = AESGCM(key)
        return cipher


def key_of(sealed: bytes, *place: str) -> str:
    """Return the id of the key that an envelope names. Raises as `Envelopes.open` does."""
    if not sealed or sealed[0] != VERSION:
        raise PlaintextRefused(
            f"{shown(place)} is not sealed, and all around it is: somebody wrote it past the key. Nothing "
            f"of it was used"
        )
    length = sealed[1] if len(sealed) > 1 else 0
    key_id = sealed[2 : 2 + length]
    if not length or len(sealed) < 2 + length + _NONCE + _TAG or not key_id.isascii():
        raise SealBroken(f"the envelope of {shown(place)} is damaged. Nothing of it was used")
    return key_id.decode()


def overhead(key_id: str) -> int:
    """Return how many bytes longer an envelope of this key is than what it holds."""
    return 2 + len(key_id) + _NONCE + _TAG


def as_text(sealed: bytes) -> str:
    """Return an envelope as a text, for columns that hold text."""
    return TEXT + base64.b64encode(sealed).decode()


def from_text(text: str, *place: str) -> bytes:
    """Return the envelope that a text is. Raises `PlaintextRefused` and `SealBroken`."""
    if not text.startswith(TEXT):
        return b""
    try:
        return base64.b64decode(text[len(TEXT) :], validate=True)
    except (binascii.Error, ValueError):
        raise SealBroken(
            f"the envelope of {shown(place)} is damaged. Nothing of it was used"
        ) from None


def shown(place: tuple[str, ...]) -> str:
    """Return a place as people read it; it is never content."""
    kind, _, *rest = place
    return f"the {kind} of {' '.join(rest)}" if rest else f"the {kind}"


def _bound(head: bytes, place: tuple[str, ...]) -> bytes:
    """Return the associated data: no two places have the same."""
    parts = [part.encode() for part in place]
    return head + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
