"""A sealed bundle: the archive in envelopes, so that it says nothing to whoever has no key.

holdfast-sealed-bundle 1 KEY BUNDLE     one line: the format's version, which key, a random id
envelope                                of the archive's first 64 kilobytes
envelope …                              of the next ones
envelope                                of what is left: the last one

Each is bound to the bundle, to its number, and to being the last one or not. So a part that was changed,
cut off, left out, put elsewhere or taken from another bundle does not open, though all have the same key.
Nothing shows but the size, and which key it takes. The archive is read in place: it is nowhere unsealed.
"""

from __future__ import annotations

import io
import os
import re
from typing import IO, Any, Final

from holdfast.bundle import names
from holdfast.bundle.container import Sink
from holdfast.crypto.envelope import Envelopes, overhead
from holdfast.crypto.keys import KeyRing, Keys, keys_from
from holdfast.errors import BundleCorrupt, BundleTooNew, SealBroken, WrongKey

BLOCK: Final = 1 << 16
_HEAD: Final = re.compile(rb"([1-9][0-9]{0,8}) ")
_REST: Final = re.compile(rb"([a-z0-9][a-z0-9-]{0,31}) ([0-9a-f]{32})\n")
_LONGEST: Final = 128


class SealedWriter:
    """Takes an archive from its beginning to its end, and writes it sealed."""

    def __init__(self, target: Sink, ring: KeyRing) -> None:
        self._target = target
        self._envelopes = Envelopes(keys_from(ring))
        self._bundle = os.urandom(16).hex()
        self._pending = bytearray()
        self._number = 0
        head = f"{names.SEALED}{names.SEALED_FORMAT} {ring.current} {self._bundle}\n"
        target.write(head.encode())

    def write(self, data: bytes, /) -> None:
        """Take some bytes. The last ones wait, since only `finish` knows that they are the last."""
        self._pending += data
        ready = max(len(self._pending) - 1, 0) // BLOCK * BLOCK
        for at in range(0, ready, BLOCK):
            self._seal(bytes(self._pending[at : at + BLOCK]), last=False)
        del self._pending[:ready]

    def finish(self) -> None:
        """Write what is left. Without this the file is one that was cut off."""
        self._seal(bytes(self._pending), last=True)

    def _seal(self, data: bytes, *, last: bool) -> None:
        place = _place(self._bundle, self._number, last=last)
        self._target.write(self._envelopes.seal(data, *place))
        self._number += 1


def open_sealed(file: IO[bytes], keys: Keys) -> IO[bytes]:
    """Return the archive in a sealed bundle as a file to read and to seek in.

    Raises `BundleTooNew`, `BundleCorrupt` and `WrongKey`; and, also when it is read, `SealBroken` for
    what does not open, and `PlaintextRefused` for what is not sealed.
    """
    file.seek(len(names.SEALED))
    line = file.readline(_LONGEST)
    version = _HEAD.match(line)
    if version is not None and int(version[1]) > names.SEALED_FORMAT:
        raise BundleTooNew(
            f"the sealed bundle has the format {int(version[1])}, and this Holdfast knows "
            f"{names.SEALED_FORMAT}. Nothing was changed: import it with a newer version"
        )
    rest = _REST.fullmatch(line, version.end()) if version is not None else None
    if rest is None:
        raise BundleCorrupt("the sealed bundle begins with a damaged line. Nothing was changed")
    key_id, bundle = rest[1].decode(), rest[2].decode()
    if key_id not in keys.ring.keys:
        # Somebody may have begun to use a new one since this ring was read.
        keys.reload()
    if key_id not in keys.ring.keys:
        raise WrongKey(
            f"the bundle is sealed with key {key_id!r}, which is none of those that were given. Nothing "
            f"was changed: give the keys of the store that it was exported from"
        )
    return io.BufferedReader(_Blocks(file, Envelopes(keys), key_id, bundle), BLOCK)


class _Blocks(io.RawIOBase):
    """What stands in the envelopes from here to the end of a file, opened where it is read."""

    def __init__(self, file: IO[bytes], envelopes: Envelopes, key_id: str, bundle: str) -> None:
        self._file = file
        self._envelopes = envelopes
        self._bundle = bundle
        self._start = file.tell()
        self._whole = BLOCK + overhead(key_id)
        sealed = file.seek(0, os.SEEK_END) - self._start
        full, rest = divmod(sealed, self._whole)
        self._count = full + bool(rest)
        self._size = sealed - self._count * overhead(key_id)
        if not sealed or 0 < rest < overhead(key_id):
            raise BundleCorrupt("the sealed bundle was cut off. Nothing was changed")
        self._at = 0
        self._opened: tuple[int, bytes] = (-1, b"")
        # It opens as the last one of that number only: blocks that are missing show before any is used.
        try:
            self._block(self._count - 1)
        except SealBroken as error:
            raise SealBroken(
                f"the end of the sealed bundle was cut off or changed: {error}"
            ) from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        if self._at >= self._size:
            return 0
        number, within = divmod(self._at, BLOCK)
        part = self._block(number)[within : within + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _block(self, number: int) -> bytes:
        if self._opened[0] != number:
            self._file.seek(self._start + number * self._whole)
            place = _place(self._bundle, number, last=number == self._count - 1)
            data = self._envelopes.open(self._file.read(self._whole), *place)
            self._opened = (number, data)
        return self._opened[1]


def _place(bundle: str, number: int, *, last: bool) -> tuple[str, ...]:
    return ("content", bundle, "the bundle's", "last block" if last else "block", str(number))
