"""From manifest and chunks back to the state, every byte verified on the way.

What is stored may be damaged or written by somebody hostile: whatever it says, reading ends with the
state that was saved or with one of the typed errors, in bounded depth and memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias, cast

from holdfast.collector import collection_paused
from holdfast.errors import StateCorrupt, StateTooLarge
from holdfast.model import Payload
from holdfast.state.cache import NO_CACHE, ChunkCache
from holdfast.state.codec import array_of, load_json, parsed_bytes
from holdfast.state.document import read_manifest
from holdfast.state.refs import (
    ReadChunks,
    Ref,
    digest_text,
    expand_each,
    pack_refs,
    read_verified,
)
from holdfast.state.stored import StoredList
from holdfast.state.tags import MARK, MAX_DEPTH, untagged

MAX_STATE_BYTES: Final = 1 << 30
# Parsed, a text may take many times its bytes. What has fewer than this part of the limit cannot take more than
# twice the limit, and is not looked at.
UNSUSPECTED: Final = 1 / 64
_BEGINNING: Final = 64

# Lists that were parsed, by their kind, how deep they may go and how they begin: the leaves of their texts, and
# the items.
_Lists: TypeAlias = dict[tuple[str, int, bytes], tuple[list[Ref], list[Any]]]


@dataclass(frozen=True, slots=True)
class DecodedState:
    """A state as it was saved, and the context that was captured with it."""

    state: dict[str, Any]
    context: dict[str, Any]


def decode_state(
    payload: Payload,
    read_chunks: ReadChunks,
    *,
    cache: ChunkCache | None = None,
    max_bytes: int = MAX_STATE_BYTES,
) -> DecodedState:
    """Return the state that a checkpoint holds, every chunk verified by its digest.

    Chunks that ``cache`` holds were verified before and are not read again.

    Raises `DigestMismatch` or `StateCorrupt` when what is stored is not what was saved, and
    `StateTooLarge` before reading anything when the content would exceed ``max_bytes``.
    """
    return _Reading(payload, read_chunks, cache, max_bytes).decode()


def outline_state(
    payload: Payload,
    read_chunks: ReadChunks,
    *,
    cache: ChunkCache | None = None,
    whole: Collection[str] = (),
    max_bytes: int = MAX_STATE_BYTES,
) -> DecodedState:
    """Return a state whose large lists are not read: a `StoredList` stands for each.

    The values of the keys in ``whole`` are read all the same, and so is the context.
    """
    return _Outline(payload, read_chunks, cache, max_bytes, frozenset(whole)).decode()


def decode_states(
    payloads: Sequence[Payload],
    read_chunks: ReadChunks,
    *,
    cache: ChunkCache | None = None,
    max_bytes: int = MAX_STATE_BYTES,
) -> list[DecodedState]:
    """Return what several checkpoints hold, with one read a level of references for all of them.

    Oldest first is quickest: of a list that only grew, only what was added is parsed again. So the
    states share what they have in common, and must not be changed. Raises as `decode_state` does.
    """
    readings = [_Reading(payload, read_chunks, cache, max_bytes) for payload in payloads]
    runs = [refs for reading in readings for _, refs in reading.manifest.sequences]
    expanded = iter(expand_each(runs, read_chunks, cache or NO_CACHE))
    for reading in readings:
        reading.leaves = [next(expanded) for _ in reading.kinds]
    leaves = {ref.digest: ref for reading in readings for run in reading.leaves for ref in run}
    chunks = read_verified(leaves.values(), read_chunks, cache or NO_CACHE)
    lists: _Lists = {}
    states = []
    with collection_paused():
        for reading in readings:
            reading.share(chunks, lists)
            states.append(reading.resolved())
    return states


def large_values(
    payload: Payload,
    read_chunks: ReadChunks,
    cache: ChunkCache | None = None,
    max_bytes: int = MAX_STATE_BYTES,
) -> Iterator[tuple[tuple[str, ...], str, list[Ref]]]:
    """Yield where each sequence stands in a stored state, its kind and its leaves.

    Only the outline is read: index chunks, and texts that hold placeholders.
    """
    reading = _Reading(payload, read_chunks, cache, max_bytes)
    reading.expand()
    pending: list[tuple[tuple[str, ...], Any]] = [
        (("state",), reading.manifest.state),
        (("context",), reading.manifest.context),
    ]
    while pending:
        keys, value = pending.pop()
        if type(value) is not dict:
            continue
        if value.get(MARK) == "ref":
            number = reading.sequence(value.get("v"))
            kind = reading.kinds[number]
            yield keys, kind, reading.leaves[number]
            if kind == "json+":
                pending.append((keys, reading.parsed(number, "a stored value")))
        elif MARK not in value:
            pending.extend(((*keys, key), item) for key, item in value.items())


class _Reading:
    """One manifest and the content behind it."""

    def __init__(
        self, payload: Payload, read_chunks: ReadChunks, cache: ChunkCache | None, max_bytes: int
    ) -> None:
        self.manifest = read_manifest(payload)
        sequences = self.manifest.sequences
        total = sum(ref.length for _, refs in sequences for ref in refs)
        if total > max_bytes:
            raise StateTooLarge(f"the state has {total} bytes, the limit is {max_bytes}")
        self.max_bytes = max_bytes
        self.memory_left = 2 * max_bytes
        self.is_suspect = total > max_bytes * UNSUSPECTED
        if cache is None or total > cache.max_bytes // 2:
            # What would push itself out again is not worth keeping.
            cache = NO_CACHE
        self.cache = cache
        self.read_chunks = read_chunks
        self.kinds = [kind for kind, _ in sequences]
        self.names = [kind.encode() + pack_refs(refs) for kind, refs in sequences]
        self.whole: list[bytes | None] = [None] * len(sequences)
        self.leaves: list[list[Ref]] = []
        self.chunks: dict[bytes, bytes] = {}
        # By how many leaves a chunk is still needed; one that others use too is not counted.
        self.needed: dict[bytes, int] = {}
        self.used: set[int] = set()
        self.lists: _Lists | None = None

    def expand(self) -> None:
        """Find the leaves of all sequences whose whole content is not known."""
        runs = [
            refs if content is None else []
            for (_, refs), content in zip(self.manifest.sequences, self.whole, strict=True)
        ]
        self.leaves = expand_each(runs, self.read_chunks, self.cache)

    def decode(self) -> DecodedState:
        # Whole contents are kept beside their chunks: the same state is often read again.
        self.whole = [self.cache.get(name) for name in self.names]
        self.expand()
        if any(self.leaves):
            # One read for all content, however many sequences there are.
            leaves = [ref for leaves in self.leaves for ref in leaves]
            self.needed = Counter(ref.digest for ref in leaves)
            self.chunks = read_verified(leaves, self.read_chunks, self.cache)
        with collection_paused():
            return self.resolved()

    def share(self, chunks: dict[bytes, bytes], lists: _Lists) -> None:
        """Work with chunks and parsed lists that other readings use too."""
        self.cache = NO_CACHE
        self.chunks = chunks
        self.lists = lists

    def resolved(self) -> DecodedState:
        """Return the state; the chunks are at hand."""
        state = self.resolve(self.manifest.state, MAX_DEPTH + 8)
        context = self.resolve(self.manifest.context, MAX_DEPTH + 8)
        if type(state) is not dict or type(context) is not dict:
            raise StateCorrupt("the stored state is not a dict")
        if len(self.used) != len(self.kinds):
            raise StateCorrupt("the manifest has sequences that it does not refer to")
        return DecodedState(state, context)

    def sequence(self, number: object) -> int:
        """Return the number of a sequence if a placeholder may name it; each is used once."""
        if type(number) is not int or not 0 <= number < len(self.kinds) or number in self.used:
            raise StateCorrupt(f"the manifest refers to the sequence {number!r:.80} wrongly")
        self.used.add(number)
        return number

    def content(self, number: int) -> bytes:
        """Return the content of a sequence; that of a list as a JSON array."""
        content = self.whole[number]
        if content is None:
            parts = self.parts(self.leaves[number])
            is_list = self.kinds[number][:4] == "list"
            content = array_of(parts) if is_list else b"".join(parts)
            self.cache.add(self.names[number], content)
        return content

    def parts(self, leaves: list[Ref]) -> list[bytes]:
        """Return the chunks of leaves."""
        if missing := [ref for ref in leaves if ref.digest not in self.chunks]:
            self.chunks |= read_verified(missing, self.read_chunks, self.cache)
            # One chunk may stand in several places.
            self.needed |= Counter(ref.digest for ref in leaves)
        parts = []
        for ref in leaves:
            parts.append(data := self.chunks[ref.digest])
            if len(data) != ref.length:
                raise StateCorrupt(
                    f"chunk {digest_text(ref.digest)} is not {ref.length} bytes long"
                )
            if ref.digest in self.needed:
                self.needed[ref.digest] -= 1
                if not self.needed[ref.digest]:
                    # It makes room for what is built from it.
                    del self.chunks[ref.digest]
        return parts

    def resolve(self, value: Any, room: int) -> Any:
        """Return a skeleton with its placeholders and tags replaced by what they stand for."""
        if type(value) is not dict:
            return untagged(value, room)
        if room <= 0:
            raise StateCorrupt("the stored state is nested too deeply")
        if MARK in value:
            if value[MARK] != "ref":
                return untagged(value, room)
            number = self.sequence(value.get("v"))
            return self.value(number, room)
        plain = {}
        for key, item in value.items():
            kind = type(item)
            plain[key] = self.resolve(item, room - 1) if kind is dict or kind is list else item
        return plain

    def list_(self, number: int, kind: str, room: int) -> list[Any]:
        if self.lists is None or not self.leaves[number]:
            return self.items(self.content(number), kind, room)
        leaves = self.leaves[number]
        beginning = (kind, room, self.chunks[leaves[0].digest][:_BEGINNING])
        items = self.grown(leaves, kind, room, self.lists.get(beginning))
        if items is None:
            items = self.items(self.content(number), kind, room)
        self.lists[beginning] = (leaves, items)
        return items

    def parsed(self, number: int, what: str) -> Any:
        """Return the values of a sequence's text."""
        return self.parse(self.content(number), what)

    def parse(self, text: bytes, what: str) -> Any:
        if self.is_suspect:
            self.memory_left -= parsed_bytes(text)
            if self.memory_left < 0:
                raise StateTooLarge(
                    f"the state would take more than {2 * self.max_bytes} bytes of memory: it is made of very "
                    f"many small values, and the limit is {self.max_bytes} bytes"
                )
        return load_json(text, what)

    def items(self, text: bytes, kind: str, room: int) -> list[Any]:
        items = self.parse(text, "a stored list")
        return cast("list[Any]", untagged(items, room) if kind == "list+" else items)

    def grown(
        self, leaves: list[Ref], kind: str, room: int, known: tuple[list[Ref], list[Any]] | None
    ) -> list[Any] | None:
        """Return a list of which another one that was parsed is the beginning, or None.

        Where the leaves are the same, so are the texts: only the last ones are looked at.
        """
        if known is None:
            return None
        old, items = known
        pairs = zip(old, leaves, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        before, text = b"".join(self.parts(old[same:])), b"".join(self.parts(leaves[same:]))
        if text == before:
            return items
        if not items or not text.startswith(before + b","):
            return None
        new = self.items(b"[%b]" % text[len(before) + 1 :], kind, room)
        # A comma with nothing on one of its sides is damage, which shows when all is parsed as one.
        return items + new if new else None

    def value(self, number: int, room: int) -> Any:
        kind = self.kinds[number]
        if kind == "bytes":
            return self.content(number)
        if kind == "str":
            try:
                return self.content(number).decode()
            except UnicodeDecodeError:
                raise StateCorrupt("a stored text is not UTF-8") from None
        if kind in ("list", "list+"):
            return self.list_(number, kind, room)
        if kind == "json":
            return self.parsed(number, "a stored value")
        if kind == "json+":
            document = self.parsed(number, "a stored value")
            if type(document) is dict and document.get(MARK) == "ref":
                raise StateCorrupt("a stored value is nothing but a reference to another")
            return self.resolve(document, room)
        raise StateCorrupt(f"the manifest has a sequence of the unknown kind {kind!r:.80}")


class _Outline(_Reading):
    """A reading that leaves large lists alone."""

    def __init__(
        self,
        payload: Payload,
        read_chunks: ReadChunks,
        cache: ChunkCache | None,
        max_bytes: int,
        whole: frozenset[str],
    ) -> None:
        super().__init__(payload, read_chunks, cache, max_bytes)
        self.wanted = whole
        self.leave_lists = False

    def decode(self) -> DecodedState:
        self.expand()
        if type(self.manifest.state) is not dict:
            raise StateCorrupt("the stored state is not a dict")
        state: dict[str, Any] = {}
        skeleton = self.manifest.state
        if skeleton.get(MARK) == "ref":
            # The state as a whole was large even without its large parts.
            skeleton = self.parsed(self.sequence(skeleton.get("v")), "a stored state")
            if type(skeleton) is not dict:
                raise StateCorrupt("the stored state is not a dict")
        for key, item in skeleton.items():
            self.leave_lists = key not in self.wanted
            state[key] = self.resolve(item, MAX_DEPTH + 7)
        self.leave_lists = False
        context = self.resolve(self.manifest.context, MAX_DEPTH + 8)
        if type(context) is not dict:
            raise StateCorrupt("the stored context is not a dict")
        return DecodedState(state, context)

    def value(self, number: int, room: int) -> Any:
        if self.leave_lists and self.kinds[number] in ("list", "list+"):
            return StoredList(self.kinds[number], self.leaves[number], self._read_leaves)
        return super().value(number, room)

    def _read_leaves(self, leaves: list[Ref]) -> bytes:
        return b"".join(self.parts(leaves))
