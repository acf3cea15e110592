"""Channel values as plain data, and back.

    {"$o": "HumanMessage", "v": {"content": "hello", "id": "…"}}

stands for an object: its tag, and its parts. Everything else is what the state's own format has: JSON
values, tuples, bytes, datetimes and so on. A dict that could be mistaken for an object, or whose keys are
not all texts, is written as pairs under the tag ``dict``. A list of messages is thus a list of plain
dicts, and a save pays for the messages that were added.

A class that is not in the table is refused when it is put and again when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from uuid import UUID

from holdfast.collector import collection_paused
from holdfast.errors import ClassNotAllowed, StateCorrupt, StateNotSerializable
from holdfast.integrations.langgraph.classes import Classes
from holdfast.integrations.langgraph.forms import Form
from holdfast.integrations.langgraph.misplaced import Damaged, Misplaced, Refused, key_step
from holdfast.state import TranslatedList
from holdfast.state.known import KnownList

MARK: Final = "$o"
_PAIRS: Final = "dict"
_SET: Final = "set"
_FROZENSET: Final = "frozenset"

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
# What the format of states writes exactly by itself.
_EXACT: Final = _PLAIN | {
    *(bytes, datetime, date, time, timedelta, UUID, Decimal),
    *(type(Path()), PurePosixPath, PureWindowsPath),
}
# A subclass of these says no more than its base, for every saver of LangGraph too.
_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, bytes),
)


# How forms fail on parts that are not theirs.
_UNUSABLE: Final = (
    *(ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError),
    re.error,
)


class Values:
    """Translates the values of one saver's graphs by its table of classes."""

    def __init__(self, classes: Classes) -> None:
        self._by_class = classes.by_class
        self._by_tag = classes.by_tag
        self._attributes = classes.attributes
        self._held = classes.held

    def frozen(self, value: Any, thread_id: str, channel: str) -> Any:
        """Return a value as plain data.

        Raises `ClassNotAllowed`, or `StateNotSerializable` for a value that contains itself.
        """
        if type(value) in _EXACT:
            return value
        return self._frozen(thread_id, channel, self._freeze, value)

    def frozen_later(self, value: Any, thread_id: str, channel: str) -> Any:
        """Return a value as plain data, a list as one whose new elements are translated when it is saved."""
        if type(value) is not list:
            return self.frozen(value, thread_id, channel)

        def translate(values: list[Any], start: int) -> Any:
            with collection_paused():
                return self._frozen(thread_id, channel, self._items, values, start)

        return TranslatedList(value, translate, self._attributes)

    def _frozen(
        self, thread_id: str, channel: str, freeze: Callable[..., Any], *values: Any
    ) -> Any:
        try:
            return freeze(*values)
        except Refused as refused:
            name = refused.name
            raise ClassNotAllowed(
                name,
                thread_id=thread_id,
                channel=channel,
                path=refused.path,
                what=f"an object of the class {name} is not stored; nothing of this step was",
            ) from None
        except RecursionError:
            raise StateNotSerializable(
                f"thread {thread_id!r}, channel {channel!r}, $", "nested too deeply, or in itself"
            ) from None

    def thawed(self, value: Any, thread_id: str, channel: str) -> Any:
        """Return the value that plain data stands for, with containers of its own.

        Raises `ClassNotAllowed` for a class that is not in the table, and `StateCorrupt`.
        """
        try:
            return self._thaw(value)
        except Refused as refused:
            name = refused.name
            raise ClassNotAllowed(
                name,
                thread_id=thread_id,
                channel=channel,
                path=refused.path,
                what=f"what is stored there is an object of the class {name}, which is not allowed "
                f"here and was not made; it is still stored",
            ) from None
        except Damaged as damaged:
            raise StateCorrupt(
                f"thread {thread_id!r}, channel {channel!r}, {damaged.path}: {damaged}"
            ) from None
        except RecursionError:
            raise StateCorrupt(
                f"thread {thread_id!r}, channel {channel!r}: nested too deeply"
            ) from None

    def known(self, made: list[Any], before: KnownList | None = None) -> KnownList:
        """Return what objects can be built from again, after those that are known before.

        Raises TypeError, AttributeError and RecursionError where more than attributes makes them up.
        """
        known = KnownList(made, attributes=self._held)
        known.built([])
        return known if before is None else KnownList(made, before, attributes=self._held)

    def _freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind in _EXACT:
            return value
        if kind is list:
            return self._items(value)
        if kind is dict:
            return self._dict(value)
        if kind is tuple:
            return tuple(self._items(value))
        form = self._by_class.get(kind)
        if form is not None:
            return {MARK: form.tag, "v": form.parts(value, self._freeze)}
        return self._other(value, kind)

    def _items(self, value: Any, start: int = 0) -> list[Any]:
        items: list[Any] = []
        add, freeze, form_of = items.append, self._freeze, self._by_class.get
        try:
            for item in value:
                # Most long lists are messages: they need no look at everything else first.
                if (form := form_of(type(item))) is not None:
                    add({MARK: form.tag, "v": form.parts(item, freeze)})
                else:
                    add(freeze(item))
        except Refused as refused:
            refused.inside(f"[{start + len(items)}]")
            raise
        return items

    def _dict(self, value: Mapping[Any, Any]) -> Any:
        key: Any = None
        plain = {}
        odd = MARK in value
        try:
            for key, item in value.items():
                plain[key] = item if type(item) in _PLAIN else self._freeze(item)
                odd = odd or type(key) is not str
            if not odd:
                return plain
            pairs = []
            for key, item in plain.items():
                pairs.append([self._freeze(key), item])
        except Refused as refused:
            refused.inside(key_step(key))
            raise
        return {MARK: _PAIRS, "v": pairs}

    def _other(self, value: Any, kind: type) -> Any:
        if isinstance(value, BaseException):
            # An error is kept for people to read; LangGraph raises it as text too.
            return _shown(value)
        if kind is set or kind is frozenset:
            if all(type(item) in _EXACT for item in value):
                return value.copy()
            return {MARK: _SET if kind is set else _FROZENSET, "v": self._items(value)}
        if not isinstance(value, Enum):
            for base, convert in _BASES:
                if isinstance(value, base):
                    return convert(value)
            if isinstance(value, Mapping) and isinstance(value, dict):
                return self._dict(value)
            if isinstance(value, list):
                return self._items(value)
        raise Refused(f"{kind.__module__}.{kind.__qualname__}")

    def _thaw(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return self._made(value) if MARK in value else self._thaw_dict(value)
        if kind is list:
            return self._thaw_items(value)
        if kind is tuple:
            return tuple(self._thaw_items(value))
        if kind is set:
            return value.copy()
        return value

    def _thaw_items(self, value: Any) -> list[Any]:
        items: list[Any] = []
        add, thaw, form_of = items.append, self._thaw, self._by_tag.get
        tag: Any = ""
        try:
            for item in value:
                if (
                    type(item) is dict
                    and type(tag := item.get(MARK)) is str
                    and (form := form_of(tag)) is not None
                ):
                    add(form.build(item.get("v"), thaw))
                else:
                    add(thaw(item))
        except Misplaced as wrong:
            wrong.inside(f"[{len(items)}]")
            raise
        except _UNUSABLE as error:
            damaged = _unusable(str(tag), error)
            damaged.inside(f"[{len(items)}]")
            raise damaged from None
        return items

    def _thaw_dict(self, value: dict[str, Any]) -> dict[str, Any]:
        key = ""
        plain = {}
        try:
            for key, item in value.items():
                plain[key] = item if type(item) in _PLAIN else self._thaw(item)
        except Misplaced as wrong:
            wrong.inside(key_step(key))
            raise
        return plain

    def _made(self, value: dict[str, Any]) -> Any:
        tag, parts = value[MARK], value.get("v")
        form = self._by_tag.get(tag) if type(tag) is str else None
        if form is not None:
            return self._built(form, tag, parts)
        try:
            if tag == _PAIRS:
                return self._thaw_pairs(parts or ())
            if tag == _SET:
                return set(self._thaw_items(parts))
            if tag == _FROZENSET:
                return frozenset(self._thaw_items(parts))
        except _UNUSABLE as error:
            raise _unusable(tag, error) from None
        raise Refused(f"{tag!a:.200}".strip("'"))

    def _thaw_pairs(self, pairs: Any) -> dict[Any, Any]:
        key: Any = None
        plain = {}
        try:
            for key, item in pairs:
                plain[self._thaw(key)] = self._thaw(item)
        except Misplaced as wrong:
            wrong.inside(key_step(key))
            raise
        return plain

    def _built(self, form: Form, tag: str, parts: Any) -> Any:
        try:
            return form.build(parts, self._thaw)
        except _UNUSABLE as error:
            raise _unusable(tag, error) from None


def _unusable(tag: str, error: Exception) -> Damaged:
    return Damaged(f"the stored {tag} cannot be made again: {type(error).__name__}: {error}")


def _shown(error: BaseException) -> str:
    try:
        return repr(error)
    except Exception:
        return f"{type(error).__name__}()"
