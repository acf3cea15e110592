"""The write-ahead log of a database as it lies on the disk, read without SQLite.

    header:  magic, version, page size, sequence, salts, checksum
    frames:  page number, pages of the database after a commit (else 0), salts, checksum, the page

A checksum goes on from that of the frame before it, and a log that starts over gets new salts: so
it can be told where what was written in one go ends. The log itself is never locked, so unlike the database
it may be opened beside SQLite.

SQLite stops at the first frame that does not fit, as after a power cut, and drops the rest. But who commits
begins where the last commit ended, and that one was on the disk by then: two commits in one go behind a frame
that does not fit were acknowledged, and the frame was damaged since. One alone may be a torn end.

The header is on the disk before the first frame is written, so no power cut leaves frames without one. Where it does
not fit, SQLite drops them all. It is told anew from the frames: checksums can be undone, and what the first frame
goes on from is the header's.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, pairwise, product
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

HEADER: Final = struct.Struct(">4I8s2I")
FRAME: Final = struct.Struct(">2I8s2I")
# The last bit says in which order the checksums take the bytes of a number.
_MAGIC: Final = 0x377F0682
_VERSION: Final = 3007000
# So many commits in one go behind a frame that does not fit were acknowledged.
_PROOF: Final = 2
# Where none of so many frames is of the present run, those behind them are older too.
_A_FEW: Final = 64
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

    at: int
    page_number: int
    pages: int
    salts: bytes
    checksum: Checksum
    page: bytes


def is_damaged(
    log: Path, frames_read: Callable[[], int], page_of: Callable[[int, int], bytes]
) -> bool:
    """Whether a log has commits that SQLite does not see, of which ``frames_read`` tells where it stopped.

    Others may write meanwhile. As a rule this reads a few headers of frames and no more. Where there is no header,
    ``page_of`` returns what the database has at some place: nothing is lost of a log that is all in there.
    """
    with log.open("rb", buffering=0) as file:
        header = read_header(file)
        if header is None:
            return _has_more(file, page_of) and frames_read() <= 0 and read_header(file) is None
        read = max(frames_read(), 0)
        if not _has_commits(file, header, read) or not _has_lost_commits(file, header, read):
            return False
        # Whoever has written in between changed one of these.
        return frames_read() == read and read_header(file) == header


def _has_commits(file: BinaryIO, header: Header, read: int) -> bool:
    """Whether there are two commits of the present run behind so many frames, by headers alone."""
    commits = current = looked = 0
    at = HEADER.size + read * (FRAME.size + header.page_size)
    while commits < _PROOF:
        file.seek(at)
        stored = file.read(FRAME.size)
        if len(stored) < FRAME.size or (looked == _A_FEW and not current):
            return False
        _, pages, salts, *_ = FRAME.unpack(stored)
        looked += 1
        current += salts == header.salts
        commits += salts == header.salts and pages > 0
        at += FRAME.size + header.page_size
    return True


def _has_lost_commits(file: BinaryIO, header: Header, read: int) -> bool:
    """Whether two commits in one go stand behind a frame that does not fit, which SQLite stopped at."""
    before = header.checksum
    if read:
        before = next(read_frames(file, header.page_size, after=read - 1)).checksum
    commits, broken = 0, False
    for frame in read_frames(file, header.page_size, after=read):
        if not fits(frame, header, before):
            commits, broken = 0, True
        if frame.pages:
            if not broken:
                # SQLite would see it: somebody has just written it, or is about to start the log over.
                return False
            commits += 1
            if commits == _PROOF:
                return True
        before = frame.checksum
    return False


def _has_more(file: BinaryIO, page_of: Callable[[int, int], bytes]) -> bool:
    """Whether a log without a header may have a committed page that is not in the database as it is there."""
    header = header_of_frames(file)
    if header is None:
        return _is_written(file)
    newest = {number: at for at, number, _ in _committed(file, header)[0]}
    for number, at in newest.items():
        file.seek(at + FRAME.size)
        if file.read(header.page_size) != page_of(
            (number - 1) * header.page_size, header.page_size
        ):
            return True
    return False


def lost_commits(log: Path) -> bool:
    """Whether a log that nobody writes to has commits that SQLite does not see."""
    with log.open("rb") as file:
        header = read_header(file)
        if header is not None:
            return _committed(file, header)[1]
        header = header_of_frames(file)
        return header is not None and bool(_committed(file, header)[0])


def is_unreadable(log: Path) -> bool:
    """Whether nothing can be read of a log that was written, so that nobody knows what it had."""
    with log.open("rb") as file:
        return read_header(file) is None and header_of_frames(file) is None and _is_written(file)


def _is_written(file: BinaryIO) -> bool:
    """Whether a log has room for a frame and something where its header was."""
    if file.seek(0, os.SEEK_END) < HEADER.size + FRAME.size + min(_PAGE_SIZES):
        return False
    file.seek(0)
    return any(file.read(HEADER.size))


def fold_log(log: Path, copy: Path) -> int:
    """Write what was committed to a log into a copy of its database; return how many frames that took.

    That includes what SQLite does not see behind a damaged frame, and the frame itself: what is wrong
    with it shows when its rows are verified. Pages that neither has are left empty.
    """
    with log.open("rb") as file, copy.open("rb+") as database:
        header = read_header(file) or header_of_frames(file)
        if header is None:
            return 0
        committed, _ = _committed(file, header)
        for at, page_number, _ in committed:
            file.seek(at + FRAME.size)
            database.seek((page_number - 1) * header.page_size)
            database.write(file.read(header.page_size))
        if committed:
            database.truncate(committed[-1][2] * header.page_size)
        return len(committed)


def _committed(file: BinaryIO, header: Header) -> tuple[list[tuple[int, int, int]], bool]:
    """Return where committed frames are, their pages and commits, and whether SQLite sees them all."""
    frames: list[tuple[int, int, int]] = []
    kept = commits = 0
    broken = damaged = False
    before = header.checksum
    for frame in read_frames(file, header.page_size):
        number, pages = frame.page_number, frame.pages
        if not fits(frame, header, before):
            commits, broken = 0, True
            number, pages = _with_right_numbers(frame, header, before)
        frames.append((frame.at, number, pages))
        if pages:
            commits += 1
            if not broken or commits >= _PROOF:
                kept, damaged = len(frames), broken
        before = frame.checksum
    last = frames[kept - 1][2] if kept else 0
    return [one for one in frames[:kept] if 0 < one[1] <= max(last, one[2])], damaged


def _with_right_numbers(frame: Frame, header: Header, before: Checksum) -> tuple[int, int]:
    """Return the numbers of a frame that does not fit; with one bit turned if it fits then."""
    numbers = frame.page_number << 32 | frame.pages
    for bit in range(64) if frame.salts == header.salts else ():
        turned = numbers ^ 1 << bit
        other = replace(frame, page_number=turned >> 32, pages=turned & 0xFFFFFFFF)
        if fits(other, header, before):
            return other.page_number, other.pages
    return frame.page_number, frame.pages


def keep_log(log: Path) -> Path:
    """Copy a log aside, once, for its owner only; return where to."""
    with log.open("rb") as file:
        header = read_header(file) or header_of_frames(file)
        kept = Path(f"{log}.damaged-{header.salts.hex() if header else 'unknown'}")
        if not kept.exists():
            file.seek(0)
            partial = Path(f"{kept}.{os.getpid()}.part")
            with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                os.fsync(copy.fileno())
            partial.replace(kept)
    return kept


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


def header_of_frames(file: BinaryIO) -> Header | None:
    """Return what the header of a log must have said, by its frames; None where they do not tell.

    Where the first frame is damaged too, others tell all but the checksum that it goes on from.
    """
    ways = list(product("<>", sorted(_PAGE_SIZES)))
    for order, page_size in ways:
        first = next(read_frames(file, page_size), None)
        if first is not None and first.page_number:
            before = _undone(first, order)
            if _is_of_a_header(before, order, page_size, first.salts):
                return Header(order, page_size, first.salts, before)
    for order, page_size in ways:
        for one, other in pairwise(islice(read_frames(file, page_size), _A_FEW)):
            header = Header(order, page_size, one.salts, (0, 0))
            if fits(other, header, one.checksum):
                return header
    return None


def _undone(frame: Frame, order: str) -> Checksum:
    """Return the checksum that a frame goes on from, if it is whole."""
    before = undone(frame.page, order, frame.checksum)
    return undone(struct.pack(">2I", frame.page_number, frame.pages), order, before)


def _is_of_a_header(checksum: Checksum, order: str, page_size: int, salts: bytes) -> bool:
    """Whether that is the checksum of a header of which only the sequence is not known."""
    magic = _MAGIC | (order == ">")
    begun = checksum_of(struct.pack(">2I", magic, _VERSION), order, (0, 0))
    first, _ = undone(salts, order, checksum)
    # Of the two numbers that come next, the sequence is in the second sum only.
    size = page_size if order == ">" else int.from_bytes(page_size.to_bytes(4, "big"), "little")
    return first == (begun[0] + size + begun[1]) & 0xFFFFFFFF


def read_frames(file: BinaryIO, page_size: int, *, after: int = 0) -> Iterator[Frame]:
    """Yield the frames of a log, of whatever age, behind so many."""
    at = HEADER.size + after * (FRAME.size + page_size)
    while True:
        file.seek(at)
        stored = file.read(FRAME.size + page_size)
        if len(stored) < FRAME.size + page_size:
            return
        page_number, pages, salts, *checksum = FRAME.unpack_from(stored)
        yield Frame(at, page_number, pages, salts, (checksum[0], checksum[1]), stored[FRAME.size :])
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


def undone(data: bytes, order: str, after: Checksum) -> Checksum:
    """Return the checksum that `checksum_of` made that one of, with these bytes."""
    first, second = after
    words = reversed(struct.unpack(f"{order}{len(data) // 4}I", data))
    for other, one in zip(words, words, strict=True):
        second = (second - other - first) & 0xFFFFFFFF
        first = (first - one - second) & 0xFFFFFFFF
    return first, second
