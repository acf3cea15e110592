"""Names that say nothing of what they name.

A chunk is named after the digest of its bytes, and whoever has a guess at the bytes has their digest. In
a sealed store the name is the digest under AES-XTS: of equal length, the same for equal content, and
nobody without the key can tell which content that is. Unlike a keyed digest it can be turned back,
so that references say in the store what they mean outside of it, and nothing but the store knows of keys.
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# A save names the chunks of the one before again; looking is ten times faster than deriving.
_REMEMBERED: Final = 1 << 14


class Names:
    """Hides and reveals digests. Each tenant has names of its own."""

    def __init__(self, key: bytes, tenant: str) -> None:
        derived = hmac.digest(key, b"holdfast names\0" + tenant.encode(), "sha512")
        self._cipher = Cipher(algorithms.AES(derived), modes.XTS(bytes(16)))
        self.proof = hmac.digest(derived, b"proof", "sha256").hex()[:32]
        """What tells that another key of names is the same one, and nothing more."""
        self._rows = hmac.digest(derived, b"rows", "sha256")
        self.hide = lru_cache(_REMEMBERED)(self._hide)
        self.reveal = lru_cache(_REMEMBERED)(self._reveal)

    def digest_row(self, content: bytes) -> bytes:
        """Return the keyed digest of a checkpoint's row, for the hash chain of its session."""
        return hmac.digest(self._rows, content, "sha256")

    def _hide(self, digest: bytes) -> bytes:
        """Return the name that stands for a digest of 16 or more bytes."""
        return self._cipher.encryptor().update(digest)

    def _reveal(self, name: bytes) -> bytes:
        """Return the digest that a name stands for."""
        return self._cipher.decryptor().update(name)
