"""References: how a checkpoint names the chunks it is made of.

A reference is a record of 40 bytes, the same in a checkpoint's ``refs`` column and in index chunks,
so that SQL can take it apart with ``substring`` as easily as Python:

    offset  size  field
    0       33    digest: one byte that names the algorithm, then the digest of the plain bytes
    33      1     shape: the level in the high four bits, the tier in the low four
    34      6     length of the plain content below this reference, big-endian

Level 0 is a *leaf*: the chunk is content. At level n > 0 the chunk is an *index*: a run of records of
level n - 1 whose lengths add up to its own. An index chunk is open for reading even where content is
encrypted, so that a sweep needs no key.

The tier is the age of a small leaf: how often it has been merged from smaller ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from holdfast.errors import DigestMismatch, StateCorrupt
from holdfast.state.cache import ChunkCache

RECORD_BYTES: Final = 40
DIGEST_BYTES: Final = 33
MAX_LEVEL: Final = 8
SHA256: Final = b"\x12"  # the multihash code
_RECORD: Final = Struct(">33sBHI")
_FEW_LEAVES: Final = 1024
_TINY_LEAF: Final = 256

ReadChunks: TypeAlias = Callable[[Collection[bytes]], dict[bytes, bytes]]


class Ref(NamedTuple):
    """One reference. ``length`` counts the plain content below it."""

    digest: bytes
    level: int
    tier: int
    length: int


def digest_of(data: bytes | memoryview) -> bytes:
    """Return the tagged digest that names these plain bytes."""
    return SHA256 + hashlib.sha256(data).digest()


def digest_text(digest: bytes) -> str:
    """Return a digest as people read it."""
    return f"sha256:{digest[1:].hex()}"


def pack_refs(refs: Iterable[Ref]) -> bytes:
    """Write references as records."""
    packed = bytearray()
    for digest, level, tier, length in refs:
        packed += digest + bytes((level << 4 | tier,)) + length.to_bytes(6, "big")
    return bytes(packed)


def unpack_refs(data: bytes) -> list[Ref]:
    """Read records. Raises `StateCorrupt` when the bytes are not whole records."""
    if len(data) % RECORD_BYTES:
        raise StateCorrupt(f"references of {len(data)} bytes are not whole records")
    return [
        Ref(digest, shape >> 4, shape & 0xF, high << 32 | low)
        for digest, shape, high, low in _RECORD.iter_unpack(data)
    ]


def check_chunk(ref: Ref, data: bytes | None) -> bytes:
    """Return a chunk's bytes if they are what the reference names; raise otherwise."""
    if data is None:
        raise DigestMismatch(f"chunk {digest_text(ref.digest)} is missing or unreadable")
    if digest_of(data) != ref.digest:
        raise DigestMismatch(f"chunk {digest_text(ref.digest)} has other bytes than its name says")
    if ref.level == 0 and len(data) != ref.length:
        raise StateCorrupt(f"chunk {digest_text(ref.digest)} is not {ref.length} bytes long")
    return data


def children(ref: Ref, data: bytes) -> list[Ref]:
    """Return what an index chunk refers to, after checking that it fits its reference."""
    below = unpack_refs(data)
    length = 0
    for child in below:
        if child.level != ref.level - 1 or not child.length:
            length = -1
            break
        length += child.length
    if ref.level > MAX_LEVEL or length != ref.length:
        raise StateCorrupt(f"index chunk {digest_text(ref.digest)} does not fit its reference")
    return below


def read_verified(
    refs: Iterable[Ref], read_chunks: ReadChunks, cache: ChunkCache
) -> dict[bytes, bytes]:
    """Return the bytes of chunks by digest, from the cache or read and verified now."""
    verified: dict[bytes, bytes] = {}
    missing: dict[bytes, Ref] = {}
    for ref in refs:
        data = cache.get(ref.digest)
        if data is None:
            missing[ref.digest] = ref
        else:
            verified[ref.digest] = data
    if missing:
        found = read_chunks(missing.keys())
        for digest, ref in missing.items():
            data = verified[digest] = check_chunk(ref, found.get(digest))
            cache.add(digest, data)
    return verified


def expand_each(
    runs: list[list[Ref]], read_chunks: ReadChunks, cache: ChunkCache
) -> list[list[Ref]]:
    """Replace every index in several runs by what is below it: one read a level for all of them."""
    # A handful of index chunks that name each other could ask for any amount of memory; a sequence
    # that was cut as ours are stays far below this.
    most = [_FEW_LEAVES + sum(ref.length for ref in run) // _TINY_LEAF for run in runs]
    while wanted := [ref for run in runs for ref in run if ref.level]:
        found = read_verified(wanted, read_chunks, cache)
        runs = [
            [
                below
                for ref in run
                for below in (children(ref, found[ref.digest]) if ref.level else (ref,))
            ]
            for run in runs
        ]
        if any(len(run) > limit for run, limit in zip(runs, most, strict=True)):
            raise StateCorrupt("the references name more chunks than their content can have")
    return runs


def digests_in(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the digests in packed records, each with whether it names an index chunk."""
    for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        yield data[at : at + DIGEST_BYTES], data[at + DIGEST_BYTES] >= 0x10
