"""A large list of a stored state that is not read: saved again as it is, or with more at its end.

A process that lives for a moment, such as a hook, wants to add a few messages to a conversation of
thousands. It reads the outline of the last state (`outline_state`), in which large lists are objects of this
class, adds to them, and saves. Of what was there before only the references are looked at, and the last few
small chunks, which the addition may be merged with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.state.codec import array_of, load_json
from holdfast.state.refs import Ref
from holdfast.state.tags import MAX_DEPTH, untagged
from holdfast.state.translated import TranslatedList

# Within a text each quote has a backslash before it, so this one opens the last item.
_LAST_TEXT: Final = re.compile(rb'[,\[]"([^"\\]{1,200})"\Z')


class StoredList:
    """A list of a stored state: its leaves, and the items that are added to them."""

    __slots__ = ("_read", "kind", "leaves", "new")

    def __init__(
        self,
        kind: str,
        leaves: list[Ref],
        read: Callable[[list[Ref]], bytes],
        new: Sequence[Any] = (),
    ) -> None:
        self.kind = kind
        self.leaves = leaves
        self.new = list(new)
        self._read = read

    def plus(self, items: Sequence[Any]) -> StoredList:
        """Return the same list with more items at its end."""
        return StoredList(self.kind, self.leaves, self._read, [*self.new, *items])

    @property
    def stored_bytes(self) -> int:
        """How long the stored part is: its JSON text without one of the brackets."""
        return sum(ref.length for ref in self.leaves)

    def read(self, leaves: list[Ref]) -> bytes:
        """Return the verified content of some of the leaves."""
        return self._read(leaves)

    def last_text(self) -> str | None:
        """Return the last stored item if it is a short text without escapes, such as a flag."""
        # It may be cut in two.
        match = _LAST_TEXT.search(self._read(self.leaves[-2:])[-210:])
        return None if match is None else match[1].decode()

    def whole(self) -> list[Any]:
        """Read all of it after all."""
        items = load_json(array_of([self._read(self.leaves)]), "a stored list")
        stored: list[Any] = untagged(items) if self.kind == "list+" else items
        return [*stored, *self.new]

    def __repr__(self) -> str:
        return f"<StoredList of {self.stored_bytes} bytes and {len(self.new)} more items>"


def read_stored_lists(value: Any) -> Any:
    """Return a state, or a part of one, with every stored list in it read."""
    return _replaced(value, {StoredList: StoredList.whole})


def as_plain_lists(value: Any) -> Any:
    """Return a state with plain lists in it: of the stored ones nothing but the new items."""
    return _replaced(value, {StoredList: lambda one: one.new, TranslatedList: TranslatedList.whole})


def _replaced(value: Any, by: dict[type, Callable[[Any], Any]], room: int = MAX_DEPTH) -> Any:
    kind = type(value)
    if kind in by:
        return by[kind](value)
    # No stored state is deeper; a value that contains itself has no end.
    if kind is dict and room > 0:
        parts = {key: _replaced(item, by, room - 1) for key, item in value.items()}
        return value if all(parts[key] is item for key, item in value.items()) else parts
    return value
