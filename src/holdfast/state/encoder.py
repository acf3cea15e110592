"""From a state to its manifest and chunks, paying for what changed.

`StateEncoder` remembers the last save of a session. Of a list that only grew, which `KnownList`
recognises at the speed of C, only the new elements are looked at, serialised and stored. Other large
values are serialised and compared by hashing at the cuts of the last save.

Nothing that is remembered can be changed by the caller: digests, and immutable values.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import orjson

from holdfast.errors import StateNotSerializable
from holdfast.model import Buffer, Payload
from holdfast.state.cache import ChunkCache
from holdfast.state.codec import compact, dump, dump_items, parsed_bytes
from holdfast.state.document import seal_of, write_manifest
from holdfast.state.known import KnownList, NoRoom
from holdfast.state.plain import is_plain
from holdfast.state.reader import MAX_STATE_BYTES, UNSUSPECTED, large_values
from holdfast.state.refs import ReadChunks, Ref
from holdfast.state.screen import Screen
from holdfast.state.sequence import (
    Layout,
    Sending,
    append,
    known_layout,
    lay_out,
    tail_leaves,
)
from holdfast.state.stored import StoredList, as_plain_lists
from holdfast.state.tags import MARK, MAX_DEPTH, is_unicode, normalise, tagged
from holdfast.state.translated import TranslatedList

INLINE_BYTES: Final = 512
ROOT_INLINE_BYTES: Final = 1024
MAX_SEQUENCES: Final = 256
REMEMBERED_BYTES: Final = 8 * 1024 * 1024
# So many elements before the new ones of a list are shown to a screen.
_LOOK_BACK: Final = 32
# About the memory of a leaf's reference.
_LEAF_BYTES: Final = 200
_BYTES_TAG: Final = len('{"$t":"bytes","v":""}')

Keys: TypeAlias = tuple[str, ...]
_T = TypeVar("_T", KnownList, str)


@dataclass(slots=True)
class _Sequence:
    """A large value as it was last saved.

    ``known`` recognises a list without tags, or a text. It is None when that would take too much
    memory or was never seen.
    """

    kind: str
    layout: Layout
    json_bytes: int = 0
    known: KnownList | str | None = None


class _Memory(NamedTuple):
    """What is known of the last save: its large values by the keys that lead to them.

    ``inline`` is the size from which a value counted as large, ``seal`` names the state as a whole.
    """

    sequences: Mapping[Keys, _Sequence]
    inline: int
    seal: str


_NOTHING_KNOWN: Final = _Memory({}, INLINE_BYTES, "")


class EncodedState(NamedTuple):
    """What a put stores for a state. ``size_bytes`` is the length of the state's JSON text.

    ``continues`` is the seal of the state with which it was compared, if there was one. To recognise
    this one's large values next time takes about ``remembered_bytes`` of memory.
    """

    manifest: str
    refs: bytes
    chunks: Mapping[bytes, Buffer]
    expects: tuple[bytes, ...]
    size_bytes: int
    memory: _Memory
    remembered_bytes: int
    continues: str


class StateEncoder:
    """Encodes the successive states of one session, paying for what changed.

    `encode` changes nothing; call `accept` once the put has been acknowledged. Without that, the
    next encode compares with the last accepted state, which is always safe. A state must not be
    changed by another thread while it is encoded. What reading would refuse as larger than
    ``max_bytes`` is refused here too, before anything is stored. A ``screen`` sees what is serialised
    and may replace parts of it.
    """

    def __init__(self, *, max_bytes: int = MAX_STATE_BYTES, screen: Screen | None = None) -> None:
        self._memory = _NOTHING_KNOWN
        self._max_bytes = max_bytes
        self._screen = screen

    def encode(
        self, state: Mapping[str, Any], context: Mapping[str, Any] | None = None
    ) -> EncodedState:
        """Encode a state. Raises `StateNotSerializable` naming the path of a bad value."""
        plain = state if type(state) is dict else _as_dict(state)
        around = dict(context or {})
        try:
            return self._encode(plain, around)
        except StateNotSerializable:
            # The walk takes short cuts and knows no paths; this one finds where it is.
            tagged(as_plain_lists(plain), "$")
            tagged(around, "context")
            raise
        except _TooLarge as error:
            reason = f"has {error}, and the limit is {self._max_bytes} bytes"
            raise StateNotSerializable("$", reason) from None
        except RecursionError:
            reason = "nested too deeply for what is left of the call stack"
            raise StateNotSerializable("$", reason) from None
        except RuntimeError as error:
            raise StateNotSerializable("$", f"changed while it was being saved: {error}") from None

    def _encode(self, state: dict[str, Any], context: dict[str, Any]) -> EncodedState:
        memory = self._memory
        while True:
            try:
                return _Encoding(memory, self._max_bytes, self._screen).encode(state, context)
            except _TooManySequences:
                # Every sequence takes room in the manifest: many parts are better kept together.
                memory = memory._replace(inline=memory.inline * 8)

    def accept(self, encoded: EncodedState) -> None:
        """Remember what has been stored."""
        self._memory = encoded.memory

    def adopt(
        self, payload: Payload, read_chunks: ReadChunks, cache: ChunkCache | None = None
    ) -> None:
        """Continue from a stored checkpoint.

        Only its outline is read: index chunks, and texts that hold placeholders. The next encode
        compares by hashing its own bytes at the known cuts.
        """
        self._memory = _Memory(
            {
                keys: _Sequence(kind, known_layout(leaves))
                for keys, kind, leaves in large_values(payload, read_chunks, cache, self._max_bytes)
            },
            INLINE_BYTES,
            seal_of(payload.manifest),
        )


class _TooManySequences(Exception):
    """The state falls into more large values than a manifest should list."""


class _TooLarge(Exception):
    """The state has more bytes than reading accepts."""


class _Encoding:
    """One walk over one state."""

    def __init__(self, memory: _Memory, max_bytes: int, screen: Screen | None) -> None:
        self.screen = screen
        self.old = memory.sequences
        self.inline = memory.inline
        self.continues = memory.seal
        self.fresh: dict[Keys, _Sequence] = {}
        self.table: list[tuple[str, int]] = []
        self.top: list[Ref] = []
        self.sending = Sending()
        self.hidden = 0  # JSON bytes that placeholders stand for, less the placeholders' own
        self.budget = REMEMBERED_BYTES
        self.cut_bytes = 0  # what it takes to remember where large values were cut
        self.content_bytes = 0
        self.max_bytes = max_bytes

    def encode(self, state: dict[str, Any], context: dict[str, Any]) -> EncodedState:
        root_inline = max(self.inline, ROOT_INLINE_BYTES)
        root = self.dict_(state, ("state",), MAX_DEPTH, root_inline)[0]
        size = len(root) + self.hidden
        around = b""
        if context:
            around = self.dict_(context, ("context",), MAX_DEPTH, root_inline)[0]
        payload = write_manifest(root, around, self.table, self.top)
        sending = self.sending
        return EncodedState(
            manifest=payload.manifest,
            refs=payload.refs,
            chunks=sending.chunks,
            expects=tuple(sending.named - sending.chunks.keys()),
            size_bytes=size,
            memory=_Memory(self.fresh, self.inline, seal_of(payload.manifest)),
            remembered_bytes=REMEMBERED_BYTES - self.budget + self.cut_bytes,
            continues=self.continues,
        )

    def dict_(
        self, value: dict[str, Any], keys: Keys, room: int, inline: int
    ) -> tuple[bytes, bool]:
        """Return the text of a dict, its large parts taken out; a placeholder if still large.

        Also return whether tags or placeholders are inside, as the methods below do.
        """
        if (small := self.small(value, room)) is not None:
            return small, False
        if room <= 0 or MARK in value or not _plain_names(value):
            return self.whole(value, keys, room)
        marks = False
        parts = value.copy()
        if self.screen is not None:
            parts = self.screen.fields(parts, name=keys[-1], shorter_than=self.inline)
        for key in [key for key, item in parts.items() if not _simple(item)]:
            text, marked = self.item(parts[key], (*keys, key), room - 1)
            parts[key] = orjson.Fragment(text)
            marks |= marked
        text = orjson.dumps(parts)
        if len(text) < inline:
            return compact(text), marks
        return self.place(keys, "json+" if marks else "json", text, len(text)), True

    def small(self, value: Any, room: int) -> bytes | None:
        """Return the text of plain data that is not worth taking apart, or None."""
        if self.screen is None and is_plain(value, room, self.inline):
            try:
                text = orjson.dumps(value)
            except TypeError:
                return None  # the walk that follows says what and where
            if len(text) < self.inline:
                return compact(text)
        return None

    def item(self, value: Any, keys: Keys, room: int) -> tuple[bytes, bool]:
        if type(value) is StoredList:
            return self.stored_list(value, keys, room), True
        if type(value) is TranslatedList:
            return self.list_(value.values, keys, room, value)
        value = value if type(value) in _EXACT else normalise(value)
        kind = type(value)
        if kind is list:
            return self.list_(value, keys, room)
        if kind is dict:
            return self.dict_(value, keys, room, self.inline)
        if kind is str and len(value) >= self.inline:
            return self.text(value, keys), True
        if kind is bytes and len(value) >= self.inline:
            # Counted as the tagged form that JSON would have needed.
            value = value if self.screen is None else self.screen.raw(value)
            size = _BYTES_TAG + (len(value) + 2) // 3 * 4
            return self.place(keys, "bytes", value, size), True
        return self.whole(value, keys, room)

    def whole(self, value: object, keys: Keys, room: int) -> tuple[bytes, bool]:
        """Handle a value that is not taken apart."""
        look = None if self.screen is None else partial(self.screen.value, name=keys[-1])
        text, tags = dump(value, "", room, look=look)
        if len(text) < self.inline:
            return text, tags
        return self.place(keys, "json+" if tags else "json", text, len(text)), True

    def list_(
        self, value: list[Any], keys: Keys, room: int, source: TranslatedList | None = None
    ) -> tuple[bytes, bool]:
        if source is None and (small := self.small(value, room)) is not None:
            return small, False
        # What is remembered is taken before it is serialised, and from a copy: should another thread change
        # something after all, the next save notices the difference.
        value = value[:]
        old = self.old.get(keys)
        if old is not None and isinstance(old.known, KnownList) and old.known.begins(value):
            start = len(old.known)
            if self.screen is None or not self.screen.reaches_back(
                value[max(0, start - _LOOK_BACK) : start], value[start:]
            ):
                return self.grown_list(value, keys, room, old, old.known, source), True
        known = self.outlined(value, None, source)
        plain = value if source is None else source.run(value, 0)
        items, tags = dump_items(plain, room, screen=self.screen, name=keys[-1])
        size = len(items) + 1
        if size < self.inline:
            return b"".join((b"[", items[1:], b"]")), tags
        placeholder = self.place(keys, "list+" if tags else "list", items, size)
        if not tags:
            self.fresh[keys].known = self.remembered(known, size)
        return placeholder, True

    def grown_list(
        self,
        value: list[Any],
        keys: Keys,
        room: int,
        old: _Sequence,
        before: KnownList,
        source: TranslatedList | None,
    ) -> bytes:
        layout, size = old.layout, old.json_bytes
        if len(value) == len(before):
            return self.add(keys, _Sequence("list", layout, size, self.remembered(before, size)))
        known = self.outlined(value, before, source)
        start = len(before)
        new = value[start:] if source is None else source.run(value[start:], start)
        items, tags = dump_items(
            new, room, screen=self.screen, name=keys[-1], before=(value[start - 1],)
        )
        layout = append(layout, bytes(items), self.sending)
        size += len(items)
        if tags:
            return self.add(keys, _Sequence("list+", layout, size))
        return self.add(keys, _Sequence("list", layout, size, self.remembered(known, size)))

    def stored_list(self, value: StoredList, keys: Keys, room: int) -> bytes:
        """Refer to a list that is stored already, and add what is new."""
        layout, kind, size = known_layout(value.leaves), value.kind, value.stored_bytes + 1
        if value.new:
            # Only a text can be what a flag in front of it is about.
            asked = self.screen is not None and type(value.new[0]) is str
            before = (value.last_text() if asked else None,)
            items, tags = dump_items(
                value.new, room, screen=self.screen, name=keys[-1], before=before
            )
            layout.tail = value.read(tail_leaves(layout))
            layout = append(layout, bytes(items), self.sending)
            kind, size = "list+" if tags else kind, size + len(items)
        return self.add(keys, _Sequence(kind, layout, size))

    def text(self, value: str, keys: Keys) -> bytes:
        old = self.old.get(keys)
        if old is not None and type(old.known) is str and value.startswith(old.known):
            layout, size = old.layout, old.json_bytes
            new = self.grown_text(value, len(old.known))
            if new is not None:
                if new:
                    layout = append(layout, _utf8(new), self.sending)
                    size += len(orjson.dumps(new)) - 2
                return self.add(
                    keys,
                    _Sequence("str", layout, size, self.remembered(value, sys.getsizeof(value))),
                )
        stored = value if self.screen is None else self.screen.text(value)
        content = _utf8(stored)
        placeholder = self.place(keys, "str", content, len(orjson.dumps(stored)))
        self.fresh[keys].known = self.remembered(value, sys.getsizeof(value))
        return placeholder

    def grown_text(self, value: str, known: int) -> str | None:
        if self.screen is None or len(value) == known:
            return value[known:]
        return self.screen.tail(value, known)

    def place(self, keys: Keys, kind: str, content: Buffer, json_bytes: int) -> bytes:
        """Store ``content`` as a sequence and return its placeholder."""
        if len(content) > self.max_bytes * UNSUSPECTED and kind.startswith(("json", "list")):
            taken = parsed_bytes(bytes(content))
            if taken > 2 * self.max_bytes:
                raise _TooLarge(f"so many small values that they take {taken} bytes of memory")
        old = self.old.get(keys)
        before = None
        if old is not None and old.kind.removesuffix("+") == kind.removesuffix("+"):
            before = old.layout
        layout = lay_out(content, before, self.sending)
        return self.add(keys, _Sequence(kind, layout, json_bytes))

    def add(self, keys: Keys, sequence: _Sequence) -> bytes:
        number = len(self.fresh)
        if number == MAX_SEQUENCES:
            raise _TooManySequences
        layout = sequence.layout
        for ref in layout.top:
            self.content_bytes += ref.length
            self.sending.named.add(ref.digest)
        if self.content_bytes > self.max_bytes:
            raise _TooLarge(f"{self.content_bytes} bytes or more")
        placeholder = b'{"$t":"ref","v":%d}' % number
        self.fresh[keys] = sequence
        self.table.append((sequence.kind, len(layout.top)))
        self.top += layout.top
        self.cut_bytes += len(layout.tail or b"") + _LEAF_BYTES * len(layout.leaves)
        self.hidden += sequence.json_bytes - len(placeholder)
        return placeholder

    def remembered(self, known: _T | None, size: int) -> _T | None:
        """Return what recognises a value, as long as all of it together stays within bounds."""
        if type(known) is KnownList:
            # Its values are shared with the caller, who may drop them: they count as their text.
            size += known.cost
        if known is None or size > self.budget:
            return None
        self.budget -= size
        return known

    def outlined(
        self, value: list[Any], before: KnownList | None, source: TranslatedList | None
    ) -> KnownList | None:
        """Return what recognises a list, or None where nothing does."""
        try:
            added = value if before is None else value[len(before) :]
            return KnownList(added, before, self.budget, source.attributes if source else {})
        except (AttributeError, NoRoom, RecursionError, TypeError):
            # Too large or too deep for it, or not plain; without it the save is whole too.
            return None


def _as_dict(state: object) -> dict[str, Any]:
    """Return a mapping, or what is stored as one, as a dict; pairs are no mapping."""
    try:
        plain = dict(state) if isinstance(state, Mapping) else normalise(state)
    except StateNotSerializable as error:
        raise StateNotSerializable("$", error.reason) from error.__cause__
    if type(plain) is not dict:
        raise StateNotSerializable("$", f"a state must be a dict, not {type(state).__name__}")
    return plain


_EXACT: Final = frozenset({dict, list, str, int, float, bool, type(None), bytes})
_NAMES: Final = frozenset({str})


def _plain_names(value: dict[Any, Any]) -> bool:
    """Tell whether the keys of a dict go to orjson as they are."""
    if not _NAMES.issuperset(map(type, value)):
        return False
    names = "".join(value)
    return "\0" not in names and is_unicode(names)


def _simple(value: Any) -> bool:
    """Tell whether a scalar goes to orjson as it is and stays in the text around it."""
    kind = type(value)
    if kind is str:
        return len(value) < INLINE_BYTES and "\0" not in value and is_unicode(value)
    if kind is int:
        return bool(-(1 << 63) <= value < 1 << 64)
    if kind is float:
        return bool(value - value == 0.0)
    return kind is bool or value is None


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise StateNotSerializable("", f"a lone surrogate: {error}") from None
