"""What states are made of, on its way: every chunk once, read in batches, checked by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import IO, Final

from holdfast.errors import BundleRefused, DigestMismatch
from holdfast.model import Payload
from holdfast.state.refs import ReadChunks, digest_of, digest_text, digests_in

# At 32 kB a chunk, a few megabytes.
BATCH: Final = 128
_RECORD: Final = Struct(">33sI")
_LARGEST: Final = 1 << 26


def payload_digest(payload: Payload) -> str:
    """Return the digest of a state as it is stored: of its manifest, and of what that refers to."""
    summed = hashlib.sha256(payload.manifest.encode())
    summed.update(b"\0" + payload.refs)
    return f"sha256:{summed.hexdigest()}"


@dataclass(slots=True)
class Closure:
    """The chunks that references reach, in the order in which they are met: the same for equal ones.

    Index chunks are kept, since they are few and small; of the others only the digests are.
    """

    read_chunks: ReadChunks
    indexes: dict[bytes, bytes] = field(default_factory=dict)
    leaves: dict[bytes, None] = field(default_factory=dict)

    def add(self, refs: bytes) -> list[bytes]:
        """Take in the references of a payload; return the chunks that none before it has."""
        leaves: list[bytes] = []
        indexes: list[bytes] = []
        frontier = [refs]
        while frontier:
            wanted: dict[bytes, None] = {}
            for records in frontier:
                for digest, is_index in digests_in(records):
                    if is_index:
                        if digest not in self.indexes:
                            wanted[digest] = None
                    elif digest not in self.leaves:
                        self.leaves[digest] = None
                        leaves.append(digest)
            found = dict(read_checked(wanted, self.read_chunks))
            self.indexes |= found
            indexes += found
            frontier = list(found.values())
        return leaves + indexes


def read_checked(
    digests: Iterable[bytes], read_chunks: ReadChunks
) -> Iterator[tuple[bytes, bytes]]:
    """Yield chunks in the order asked for, each with the bytes that its name promises."""
    wanted = list(digests)
    for at in range(0, len(wanted), BATCH):
        batch = wanted[at : at + BATCH]
        found = read_chunks(batch)
        for digest in batch:
            data = found.get(digest)
            if data is None or digest_of(data) != digest:
                raise DigestMismatch(
                    f"chunk {digest_text(digest)} is missing or has other bytes than its name says"
                )
            yield digest, data


def packed(digest: bytes, data: bytes) -> bytes:
    """Return a chunk as a bundle holds it: digest, length, bytes."""
    return _RECORD.pack(digest, len(data)) + data


class ChunkIndex:
    """Where the chunks of a bundle stand in its file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: dict[bytes, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, start: int, data: bytes) -> None:
        """Note the chunks of one member, whose content begins at ``start``. Each may come once."""
        at = 0
        while at < len(data):
            if len(data) - at < _RECORD.size:
                raise BundleRefused(_TORN)
            digest, size = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            if size > min(_LARGEST, len(data) - at):
                raise BundleRefused(_TORN)
            if digest in self._places:
                raise BundleRefused(f"the bundle has chunk {digest_text(digest)} twice")
            self._places[digest] = (start + at, size)
            at += size

    def read(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return those of the chunks that the bundle has; whoever asks compares the digests."""
        found = {}
        for digest in digests:
            place = self._places.get(digest)
            if place is not None:
                self._file.seek(place[0])
                found[digest] = self._file.read(place[1])
        return found


_TORN: Final = "the bundle has a list of chunks that ends in the middle of one. Nothing was changed"
