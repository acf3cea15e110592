"""The file around a bundle: a plain tar archive with exactly one way to write it.

Anybody can look inside with ``tar``. Whoever reads it here is stricter: a header must be the very bytes that
this module writes for its name and size, what fills up a block must be zeros, and nothing may follow the
end. So there are no links, devices, owners, times, extensions or compression to be careful with, and a
flipped bit anywhere outside of the content is seen; those inside are seen by the digests in the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Final, Protocol

from holdfast.errors import BundleCorrupt, BundleRefused, NotABundle

_BLOCK: Final = 512
_NAME: Final = 100
# What eleven octal digits can say; a larger size is written in base 256, as every tar reads it.
_OCTAL: Final = 8**11
_MOST: Final = 1 << 50
_COPIED: Final = 1 << 20
_END: Final = bytes(2 * _BLOCK)


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> object:
        """Take some bytes."""


def header(name: str, size: int) -> bytes:
    """Return the block that announces a file: mode 0644, no owner, the first second of 1970."""
    length = f"{size:011o}\0".encode() if size < _OCTAL else b"\x80" + size.to_bytes(11, "big")
    block = b"".join(
        (
            name.encode("ascii").ljust(_NAME, b"\0"),
            b"0000644\0" + b"0000000\0" * 2,
            length,
            b"00000000000\0",
            b" " * 8,
            b"0" + bytes(_NAME),
            b"ustar\x0000",
            bytes(64),
            b"0000000\0" * 2,
            bytes(167),
        )
    )
    return block[:148] + f"{sum(block):06o}\0 ".encode() + block[156:]


def padding(size: int) -> int:
    """Return how many zeros follow a content of this size."""
    return -size % _BLOCK


def write_member(target: Sink, name: str, size: int, content: Iterator[bytes]) -> None:
    """Write a file of a known size."""
    target.write(header(name, size))
    for part in content:
        target.write(part)
    target.write(bytes(padding(size)))


def write_end(target: Sink) -> None:
    """Write what ends an archive."""
    target.write(_END)


def blocks(file: IO[bytes], offset: int, size: int) -> Iterator[bytes]:
    """Yield a part of a file, at most a megabyte at a time."""
    while size:
        file.seek(offset)
        part = file.read(min(size, _COPIED))
        if not part:
            raise BundleCorrupt(_CUT)
        offset += len(part)
        size -= len(part)
        yield part


class Reader:
    """Reads an archive from its beginning, one header after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.end = file.seek(0, os.SEEK_END)
        self._place = 0

    def next(self) -> tuple[str, int, int]:
        """Return the next file's name, where its content begins, and its size."""
        self.file.seek(self._place)
        block = self.file.read(_BLOCK)
        if not self._place and not _is_tar(block):
            raise NotABundle("this is not a bundle of Holdfast; nothing was changed")
        if len(block) < _BLOCK:
            raise BundleCorrupt(_CUT)
        name, size = _parsed(block)
        start = self._place + _BLOCK
        after = start + size + padding(size)
        if after + len(_END) > self.end:
            raise BundleCorrupt(_CUT)
        self.file.seek(start + size)
        if any(self.file.read(padding(size))):
            raise BundleCorrupt(f"the bundle has bytes behind {name} that do not belong there")
        self._place = after
        return name, start, size

    def finish(self) -> None:
        """Raise unless the archive ends here."""
        self.file.seek(self._place)
        if self.file.read(len(_END) + 1) != _END:
            raise BundleRefused("the bundle has more in it than its manifest names")


def is_archive(file: IO[bytes]) -> bool:
    """Tell whether a file begins as an archive does."""
    file.seek(0)
    return _is_tar(file.read(_BLOCK))


def _is_tar(block: bytes) -> bool:
    return block[257:262] == b"ustar"


def _parsed(block: bytes) -> tuple[str, int]:
    try:
        name = block[:_NAME].rstrip(b"\0").decode("ascii")
        field = block[124:136]
        size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else int(field[:11], 8)
    except ValueError:
        raise BundleRefused(_ODD) from None
    if not name or not 0 <= size < _MOST or header(name, size) != block:
        raise BundleRefused(_ODD)
    return name, size


_CUT: Final = "the bundle was cut off: it ends before its content does. Nothing was changed"
_ODD: Final = (
    "the bundle has a header that Holdfast does not write: a link, a foreign file, or damage. "
    "Nothing was changed"
)
