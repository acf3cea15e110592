"""What the tests of the state format share: a store in a dict, exact comparison, sample messages."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from datetime import datetime, time
from typing import Any

from holdfast.model import Payload
from holdfast.state import EncodedState, StateEncoder, decode_state
from holdfast.state.cache import NO_CACHE
from holdfast.state.refs import children, digest_of, digest_text, expand_each, unpack_refs


def exact(value: Any) -> Any:
    """Return a form whose equality means the same types, values and order of keys all the way down."""
    if isinstance(value, dict):
        return type(value), [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [exact(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted((exact(item) for item in value), key=repr)
    if isinstance(value, (datetime, time)):
        return type(value), value.isoformat(), value.fold, repr(value.tzinfo)
    return type(value), value if type(value) is int else repr(value)


class Chunks:
    """A store's chunks. Holds every put to the contract of ``chunks`` and ``expects``."""

    def __init__(self) -> None:
        self.stored: dict[bytes, bytes] = {}
        self.reads: list[Collection[bytes]] = []

    def put(self, encoded: EncodedState) -> int:
        """Store what a put sends and return the number of new bytes."""
        for digest, data in encoded.chunks.items():
            assert digest_of(data) == digest
        for digest in encoded.expects:
            assert digest in self.stored, "relies on a chunk that was never stored"
            assert digest not in encoded.chunks
        new = {
            digest: bytes(data)
            for digest, data in encoded.chunks.items()
            if digest not in self.stored
        }
        self.stored.update(new)
        self.check_closure(encoded)
        return sum(map(len, new.values()))

    def check_closure(self, encoded: EncodedState) -> None:
        """Every chunk that can be reached is stored, and what was sent is used."""
        reached = set()
        pending = unpack_refs(encoded.refs)
        named = set(encoded.chunks) | set(encoded.expects)
        while pending:
            ref = pending.pop()
            assert ref.digest in self.stored, f"{digest_text(ref.digest)} is not stored"
            if ref.level and ref.digest not in reached:
                below = children(ref, self.stored[ref.digest])
                if ref.digest in encoded.chunks:
                    assert {child.digest for child in below} <= named
                pending += below
            reached.add(ref.digest)
        assert {ref.digest for ref in unpack_refs(encoded.refs)} <= named
        assert set(encoded.chunks) <= reached, "sent what nothing refers to"

    def read(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        self.reads.append(list(digests))
        return {digest: self.stored[digest] for digest in digests if digest in self.stored}

    def load(self, encoded: EncodedState | Payload) -> dict[str, Any]:
        return decode_state(Payload(encoded.manifest, encoded.refs), self.read).state

    def leaves(self, encoded: EncodedState) -> list[int]:
        """Return the lengths of the leaves of all sequences."""
        (leaves,) = expand_each([unpack_refs(encoded.refs)], self.read, NO_CACHE)
        return [ref.length for ref in leaves]


def save(
    encoder: StateEncoder, chunks: Chunks, state: Mapping[str, Any]
) -> tuple[EncodedState, int]:
    """Encode, store and accept, and check that it comes back exactly."""
    encoded = encoder.encode(state)
    new_bytes = chunks.put(encoded)
    encoder.accept(encoded)
    return encoded, new_bytes


def round_trip(state: Mapping[str, Any]) -> dict[str, Any]:
    chunks = Chunks()
    encoded = StateEncoder().encode(state)
    chunks.put(encoded)
    return chunks.load(encoded)


def message(number: int, size: int = 1000, seed: int = 0) -> dict[str, Any]:
    """A message of about ``size`` bytes that does not compress away."""
    content = random.Random(f"{seed}/{number}").randbytes(max(size - 50, 2) // 2).hex()
    return {"role": "user" if number % 2 else "assistant", "id": number, "content": content}
