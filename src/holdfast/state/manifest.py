"""A state as a manifest and chunks, and back.

The manifest is a small JSON document. What is small in a state stands in it; what is large is a
*sequence* of chunks, for which a placeholder stands in its place:

    {"v": 1,
     "seqs": [["list", 3], ["str", 1]],
     "state": {"messages": {"$t": "ref", "v": 0}, "page": {"$t": "ref", "v": 1}, "step": 7},
     "sum": "…"}

Each sequence says what it is and how many records of ``refs`` are its own, in order:

    list   JSON array text without its closing bracket, so that an append only adds bytes
    json   JSON text of a dict that stayed large after its own large parts were taken out
    str    UTF-8 text
    bytes  bytes

A trailing ``+`` on ``list`` or ``json`` says that tags or placeholders are inside; without it the text
needs no second look after parsing. Placeholders number the sequences in the order of the walk, so the
text around them stays the same while what they stand for grows. ``sum`` is the first half of the
SHA-256 of the document before it was added and of ``refs``: a manifest that was damaged or parted from
its references is refused.

`StateEncoder` remembers the last save of a session. A list that only grew is recognised by comparing
its marshalled bytes with the remembered ones (marshal, written and never read here, tells exact types
apart at memory speed), and only its new elements are looked at, serialised and stored.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

from holdfast.errors import StateCorrupt, StateNotSerializable, StateTooLarge
from holdfast.model import Buffer, Payload
from holdfast.state.codec import (
    MARK,
    MAX_DEPTH,
    dump,
    load_json,
    member,
    normalise,
    untagged,
)
from holdfast.state.refs import Ref, check_chunk, expand, pack_refs, unpack_refs
from holdfast.state.sequence import Layout, append, known_layout, lay_out

ReadChunks: TypeAlias = Callable[[Collection[bytes]], dict[bytes, bytes]]

FORMAT: Final = 1
INLINE_BYTES: Final = 512
ROOT_INLINE_BYTES: Final = 1024
REMEMBERED_BYTES: Final = 8 * 1024 * 1024
MAX_STATE_BYTES: Final = 1 << 30
_SUM_BYTES: Final = 16
_SUM_START: Final = b',"sum":"'
_LIST_HEADER: Final = 5  # marshal: a type byte and the count


@dataclass(frozen=True, slots=True)
class EncodedState:
    """What a put stores for a state. ``size_bytes`` is the length of the state's JSON text."""

    manifest: str
    refs: bytes
    chunks: Mapping[bytes, Buffer]
    expects: tuple[bytes, ...]
    size_bytes: int
    memory: Mapping[tuple[str, ...], _Sequence]


@dataclass(frozen=True, slots=True)
class DecodedState:
    """A state as it was saved, and the context that was captured with it."""

    state: dict[str, Any]
    context: dict[str, Any]


@dataclass(slots=True)
class _Sequence:
    """A large value as it was last saved.

    ``known`` recognises the value: marshalled elements of a plain list, or the text or bytes
    themselves. It is None when that would take too much memory or was never seen.
    """

    kind: str
    layout: Layout
    json_bytes: int
    known: bytes | str | None = None
    count: int = 0


class StateEncoder:
    """Encodes the successive states of one session, paying for what changed.

    `encode` changes nothing; call `accept` once the put has been acknowledged. Without that, the
    next encode compares with the last accepted state, which is always safe.
    """

    def __init__(self) -> None:
        self._memory: Mapping[tuple[str, ...], _Sequence] = {}

    def encode(
        self, state: Mapping[str, Any], context: Mapping[str, Any] | None = None
    ) -> EncodedState:
        """Encode a state. Raises `StateNotSerializable` naming the path of a bad value."""
        plain = normalise(state)
        if type(plain) is not dict:
            raise StateNotSerializable("$", f"a state must be a dict, not {type(state).__name__}")
        return _Encoding(self._memory).encode(plain, dict(context or {}))

    def accept(self, encoded: EncodedState) -> None:
        """Remember what has been stored."""
        self._memory = encoded.memory

    def adopt(self, payload: Payload, read_chunks: ReadChunks) -> None:
        """Continue from a stored checkpoint.

        Only its outline is read: index chunks, and texts that hold placeholders. The next encode
        compares by hashing its own bytes at the known cuts.
        """
        reading = _Reading(payload, read_chunks, MAX_STATE_BYTES)
        self._memory = {
            keys: _Sequence(kind, known_layout(leaves), 0)
            for keys, kind, leaves in reading.large_values()
        }

    def forget(self) -> None:
        """Encode the next state in full."""
        self._memory = {}


class _Encoding:
    """One walk over one state."""

    def __init__(self, memory: Mapping[tuple[str, ...], _Sequence]) -> None:
        self.memory = memory
        self.fresh: dict[tuple[str, ...], _Sequence] = {}
        self.order: list[_Sequence] = []
        self.hidden = 0  # JSON bytes that placeholders stand for, less the placeholders' own

    def encode(self, state: dict[str, Any], context: dict[str, Any]) -> EncodedState:
        root = self.dict_(state, ("state",), "$", MAX_DEPTH, ROOT_INLINE_BYTES)
        size = len(root) + self.hidden
        around = b""
        if context:
            around = b',"context":' + self.dict_(
                context, ("context",), "context", MAX_DEPTH, ROOT_INLINE_BYTES
            )
        chunks: dict[bytes, Buffer] = {}
        expects: set[bytes] = set()
        top: list[Ref] = []
        for sequence in self.order:
            chunks.update(sequence.layout.new_chunks)
            expects |= sequence.layout.expects
            top += sequence.layout.top
        refs = pack_refs(top)
        table = orjson.dumps([[seq.kind, len(seq.layout.top)] for seq in self.order])
        text = b'{"v":%d,"seqs":%s,"state":%s%s}' % (FORMAT, table, root, around)
        return EncodedState(
            manifest=_sealed(text, refs).decode(),
            refs=refs,
            chunks=chunks,
            expects=tuple(expects - chunks.keys()),
            size_bytes=size,
            memory=self.fresh,
        )

    def dict_(
        self, value: dict[str, Any], keys: tuple[str, ...], path: str, room: int, inline: int
    ) -> bytes:
        """Return the text of a dict, its large parts taken out; a placeholder if still large."""
        if room == 0 or MARK in value or not all(map(_simple, value)):
            return self.whole(value, keys, path, room)[0]
        parts: dict[str, Any] = {}
        marks = False
        for key, item in value.items():
            if _simple(item):
                parts[key] = item
                continue
            text, marked = self.item(item, (*keys, key), member(path, key), room - 1)
            marks |= marked
            parts[key] = orjson.Fragment(text)
        text = orjson.dumps(parts)
        if len(text) < inline:
            return text
        return self.place(keys, "json+" if marks else "json", text, len(text))

    def item(
        self, value: object, keys: tuple[str, ...], path: str, room: int
    ) -> tuple[bytes, bool]:
        """Return the text of a dict's item and whether it contains tags or placeholders."""
        value = value if type(value) in _EXACT else normalise(value)
        if type(value) is list:
            return self.list_(value, keys, path, room)
        if type(value) is dict:
            text = self.dict_(value, keys, path, room, INLINE_BYTES)
            return text, b'"$t"' in text
        if type(value) is str and len(value) >= INLINE_BYTES:
            return self.text(value, keys, path), True
        if type(value) is bytes and len(value) >= INLINE_BYTES:
            # The size of the tagged form, {"$t":"bytes","v":"…"}, that JSON would have needed.
            size = 23 + (len(value) + 2) // 3 * 4
            return self.place(keys, "bytes", value, size), True
        return self.whole(value, keys, path, room)

    def whole(
        self, value: object, keys: tuple[str, ...], path: str, room: int
    ) -> tuple[bytes, bool]:
        """Return the text of a value that is not taken apart, or its placeholder."""
        text, tags = dump(value, path, room)
        if len(text) < INLINE_BYTES:
            return text, tags
        return self.place(keys, "json+" if tags else "json", text, len(text)), True

    def list_(
        self, value: list[Any], keys: tuple[str, ...], path: str, room: int
    ) -> tuple[bytes, bool]:
        old = self.memory.get(keys)
        known = None
        if old is not None and old.kind == "list" and type(old.known) is bytes:
            known = _marshalled(value)
            if known is not None and known.startswith(old.known) and len(value) >= old.count:
                return self.grown_list(value, keys, path, room, old, known)
        text, tags = dump(value, path, room)
        if len(text) < INLINE_BYTES:
            return text, tags
        kind = "list+" if tags else "list"
        if not tags and known is None and len(text) <= REMEMBERED_BYTES:
            known = _marshalled(value)
        placeholder = self.place(keys, kind, text[:-1], len(text))
        self.order[-1].known, self.order[-1].count = known, len(value)
        return placeholder, True

    def grown_list(
        self,
        value: list[Any],
        keys: tuple[str, ...],
        path: str,
        room: int,
        old: _Sequence,
        known: bytes,
    ) -> tuple[bytes, bool]:
        new = value[old.count :]
        kind, layout, size = "list", old.layout.settled(), old.json_bytes
        if new:
            text, tags = dump(new, path, room)
            kind = "list+" if tags else "list"
            layout = append(layout, b"," + text[1:-1])
            size += len(text) - 1
        remember = known if kind == "list" and len(known) <= REMEMBERED_BYTES else None
        return self.add(keys, _Sequence(kind, layout, size, remember, len(value))), True

    def text(self, value: str, keys: tuple[str, ...], path: str) -> bytes:
        old = self.memory.get(keys)
        if old is not None and type(old.known) is str and value.startswith(old.known):
            content = _utf8(value[len(old.known) :], path)
            layout = append(old.layout, content) if content else old.layout.settled()
            size = old.json_bytes + len(orjson.dumps(value[len(old.known) :])) - 2
            return self.add(keys, _Sequence("str", layout, size, value))
        content = _utf8(value, path)
        placeholder = self.place(keys, "str", content, len(orjson.dumps(value)))
        self.order[-1].known = value if len(value) <= REMEMBERED_BYTES else None
        return placeholder

    def place(self, keys: tuple[str, ...], kind: str, content: bytes, json_bytes: int) -> bytes:
        """Store ``content`` as a sequence and return its placeholder."""
        old = self.memory.get(keys)
        before = old.layout if old is not None and _family(old.kind) == _family(kind) else None
        return self.add(keys, _Sequence(kind, lay_out(content, before), json_bytes))

    def add(self, keys: tuple[str, ...], sequence: _Sequence) -> bytes:
        placeholder = b'{"$t":"ref","v":%d}' % len(self.order)
        self.order.append(sequence)
        self.fresh[keys] = sequence
        self.hidden += sequence.json_bytes - len(placeholder)
        return placeholder


_EXACT: Final = frozenset({dict, list, str, int, float, bool, type(None), bytes})


def _family(kind: str) -> str:
    return kind.removesuffix("+")


def _simple(value: object) -> bool:
    """Tell whether a scalar goes to orjson as it is and stays in the text around it."""
    kind = type(value)
    if kind is str:
        return (
            len(value) < INLINE_BYTES
            and (value.isascii() or _encodable(value))
            and "\0" not in value
        )
    if kind is int:
        return -(1 << 63) <= value < 1 << 64
    return kind is bool or value is None


def _encodable(text: str) -> bool:
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def _marshalled(value: list[Any]) -> bytes | None:
    """Return a list's elements in a form whose equality means equal values of equal types.

    Version 2 is the last without references to shared objects, which would depend on more than the
    value. None when an element is no plain builtin or is nested too deeply.
    """
    try:
        return marshal.dumps(value, 2)[_LIST_HEADER:]
    except ValueError:
        return None


def _utf8(value: str, path: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        reason = f"text with a lone surrogate at {error.start} has no stored form"
        raise StateNotSerializable(path, reason) from None


def _sealed(text: bytes, refs: bytes) -> bytes:
    return text[:-1] + _SUM_START + _sum(text, refs) + b'"}'


def _sum(text: bytes, refs: bytes) -> bytes:
    return hashlib.sha256(text + refs).digest()[:_SUM_BYTES].hex().encode()


def decode_state(
    payload: Payload, read_chunks: ReadChunks, *, max_bytes: int = MAX_STATE_BYTES
) -> DecodedState:
    """Return the state that a checkpoint holds, every chunk verified by its digest.

    Raises `DigestMismatch` or `StateCorrupt` when what is stored is not what was saved, and
    `StateTooLarge` before reading anything when the content would exceed ``max_bytes``.
    """
    return _Reading(payload, read_chunks, max_bytes).decode()


class _Reading:
    """One manifest, verified together with its references, and the content behind it."""

    def __init__(self, payload: Payload, read_chunks: ReadChunks, max_bytes: int) -> None:
        sealed = payload.manifest.encode()
        text = sealed[: -len(_SUM_START) - 2 * _SUM_BYTES - 2] + b"}"
        if _sealed(text, payload.refs) != sealed:
            raise StateCorrupt("the manifest is damaged: its sum does not fit")
        self.document = load_json(text, "the manifest")
        version = self.document.get("v")
        if version != FORMAT:
            raise StateCorrupt(f"the manifest has format {version!r}, this version reads {FORMAT}")
        refs = unpack_refs(payload.refs)
        if (total := sum(ref.length for ref in refs)) > max_bytes:
            raise StateTooLarge(f"the state has {total} bytes, the limit is {max_bytes}")
        self.sequences: list[tuple[str, list[Ref]]] = []
        for kind, count in self.document["seqs"]:
            self.sequences.append((kind, refs[:count]))
            del refs[:count]
        if refs:
            raise StateCorrupt("the manifest and its references do not fit each other")
        self.read_chunks = read_chunks
        self.cache: dict[bytes, bytes] = {}
        self.used: set[int] = set()

    def decode(self) -> DecodedState:
        # One read for each level of index chunks and one for all content, however many sequences.
        leaves = expand([ref for _, refs in self.sequences for ref in refs], self.cached)
        self.cached({ref.digest for ref in leaves})
        state = self.resolve(self.document["state"])
        context = self.resolve(self.document.get("context", {}))
        if type(state) is not dict or type(context) is not dict:
            raise StateCorrupt("the stored state is not a dict")
        return DecodedState(state, context)

    def cached(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        if missing := [digest for digest in digests if digest not in self.cache]:
            self.cache.update(self.read_chunks(missing))
        return self.cache

    def leaves(self, number: object) -> tuple[str, list[Ref]]:
        """Return the kind and the leaves of a sequence, each of which is used once."""
        if type(number) is not int or not 0 <= number < len(self.sequences) or number in self.used:
            raise StateCorrupt(f"the manifest refers to the sequence {number!r} wrongly")
        self.used.add(number)
        kind, refs = self.sequences[number]
        return kind, expand(refs, self.cached)

    def content(self, leaves: list[Ref], ending: bytes = b"") -> bytes:
        found = self.cached({ref.digest for ref in leaves})
        return b"".join([*(check_chunk(ref, found.get(ref.digest)) for ref in leaves), ending])

    def resolve(self, value: Any, room: int = MAX_DEPTH + 8) -> Any:
        """Return a skeleton with its placeholders and tags replaced by what they stand for."""
        if room == 0:
            raise StateCorrupt("the stored state is nested too deeply")
        if type(value) is not dict:
            return untagged(value, room)
        if value.get(MARK) == "ref":
            kind, leaves = self.leaves(value.get("v"))
            return self.value(kind, leaves, room)
        if MARK in value:
            return untagged(value, room)
        return {key: self.resolve(item, room - 1) for key, item in value.items()}

    def value(self, kind: str, leaves: list[Ref], room: int) -> Any:
        if kind == "bytes":
            return self.content(leaves)
        if kind == "str":
            try:
                return self.content(leaves).decode()
            except UnicodeDecodeError:
                raise StateCorrupt("a stored text is not UTF-8") from None
        if kind in ("list", "list+"):
            items = load_json(self.content(leaves, b"]"), "a stored list")
            return untagged(items, room) if kind == "list+" else items
        if kind in ("json", "json+"):
            document = load_json(self.content(leaves), "a stored value")
            return self.resolve(document, room) if kind == "json+" else document
        raise StateCorrupt(f"the manifest has a sequence of the unknown kind {kind!r:.80}")

    def large_values(self) -> Iterator[tuple[tuple[str, ...], str, list[Ref]]]:
        """Yield where each sequence stands in the state, its kind and its leaves."""
        pending: list[tuple[tuple[str, ...], Any]] = [
            (("state",), self.document["state"]),
            (("context",), self.document.get("context")),
        ]
        while pending:
            keys, value = pending.pop()
            if type(value) is not dict:
                continue
            if value.get(MARK) == "ref":
                kind, leaves = self.leaves(value.get("v"))
                yield keys, kind, leaves
                if kind == "json+":
                    pending.append((keys, load_json(self.content(leaves), "a stored value")))
            elif MARK not in value:
                pending.extend(((*keys, key), item) for key, item in value.items())
