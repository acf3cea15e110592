"""The write-ahead log of a database as it lies on the disk, read without SQLite.

    header:  magic, version, page size, sequence, salts, checksum
    frames:  page number, pages of the database after a commit (else 0), salts, checksum, the page

A checksum goes on from that of the frame before it, and a log that starts over gets new salts: so
it can be told where what was written in one go ends. The log itself is never locked, so unlike the database
it may be opened beside SQLite.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

HEADER: Final = struct.Struct(">4I8s2I")
FRAME: Final = struct.Struct(">2I8s2I")
# The last bit says in which order the checksums take the bytes of a number.
_MAGIC: Final = 0x377F0682
_PAGE_SIZES: Final = frozenset(1 << bits for bits in range(9, 17))

Checksum: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Header:
    """What a log says of itself."""

    order: str
    page_size: int
    salts: bytes
    checksum: Checksum


@dataclass(frozen=True, slots=True)
class Frame:
    """One page of the log. ``pages`` is how many the database has after a commit, and 0 where none is."""

    page_number: int
    pages: int
    salts: bytes
    checksum: Checksum
    page: bytes


def fold_log(log: Path, copy: Path) -> int:
    """Write what was committed to a log into a copy of its database; return how many frames that took.

    Pages that neither has are left empty.
    """
    with log.open("rb") as file, copy.open("rb+") as database:
        header = read_header(file)
        if header is None:
            return 0
        committed: list[Frame] = []
        begun: list[Frame] = []
        for frame in _whole_frames(file, header):
            begun.append(frame)
            if frame.pages:
                committed += begun
                begun = []
        for frame in committed:
            database.seek((frame.page_number - 1) * header.page_size)
            database.write(frame.page)
        if committed:
            database.truncate(committed[-1].pages * header.page_size)
        return len(committed)


def read_header(file: BinaryIO) -> Header | None:
    """Return the header of a log, or None where it has none that fits its own checksum."""
    file.seek(0)
    stored = file.read(HEADER.size)
    if len(stored) < HEADER.size:
        return None
    magic, _, page_size, _, salts, *checksum = HEADER.unpack(stored)
    order = ">" if magic & 1 else "<"
    if magic & ~1 != _MAGIC or page_size not in _PAGE_SIZES:
        return None
    if checksum_of(stored[:24], order, (0, 0)) != tuple(checksum):
        return None
    return Header(order, page_size, salts, (checksum[0], checksum[1]))


def read_frames(file: BinaryIO, page_size: int, *, after: int = 0) -> Iterator[Frame]:
    """Yield the frames of a log, of whatever age, behind so many."""
    at = HEADER.size + after * (FRAME.size + page_size)
    while True:
        file.seek(at)
        stored = file.read(FRAME.size + page_size)
        if len(stored) < FRAME.size + page_size:
            return
        page_number, pages, salts, *checksum = FRAME.unpack_from(stored)
        yield Frame(page_number, pages, salts, (checksum[0], checksum[1]), stored[FRAME.size :])
        at += FRAME.size + page_size


def fits(frame: Frame, header: Header, before: Checksum) -> bool:
    """Whether a frame is of the log's present run, whole, and was written after that checksum."""
    if frame.salts != header.salts or not frame.page_number:
        return False
    begun = checksum_of(struct.pack(">2I", frame.page_number, frame.pages), header.order, before)
    return checksum_of(frame.page, header.order, begun) == frame.checksum


def checksum_of(data: bytes, order: str, before: Checksum) -> Checksum:
    """Return the checksum of bytes that come after others."""
    first, second = before
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def _whole_frames(file: BinaryIO, header: Header) -> Iterator[Frame]:
    """Yield the frames that SQLite would read: up to the first that does not fit."""
    before = header.checksum
    for frame in read_frames(file, header.page_size):
        if not fits(frame, header, before):
            return
        yield frame
        before = frame.checksum
