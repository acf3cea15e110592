"""Forms: what objects of one kind are made of, and how they are made again from that.

No constructor, validator or other code of a class runs: what comes back is what was saved, and a forged
row can start nothing.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from operator import itemgetter
from types import MemberDescriptorType
from typing import Any, Final, Protocol

from pydantic import BaseModel

from holdfast.integrations.langgraph.misplaced import Misplaced, walked, walked_field

Walk = Callable[[Any], Any]
"""Turns a value inside an object into its stored form, or back."""

# Where a model keeps which of its fields were given, what was given beyond them, and its private attributes.
GIVEN: Final = "__pydantic_fields_set__"
_EXTRA: Final = "__pydantic_extra__"
_PRIVATE: Final = "__pydantic_private__"

_set: Final = object.__setattr__
# A model's own way to set its attributes would validate them.
_set_dict, _set_given, _set_extra, _set_private = (
    vars(BaseModel)[name].__set__ for name in ("__dict__", GIVEN, _EXTRA, _PRIVATE)
)


class Form(Protocol):
    """How objects of one class are stored.

    ``attributes`` are those that `parts` looks at, none where it looks at something else.
    """

    tag: str
    made_of: type
    attributes: tuple[str, ...]

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return what the object is made of, as plain values."""

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return the object again. Raises ValueError, TypeError or LookupError for other parts."""


class ModelForm:
    """A pydantic model: its fields, which of them were given, what was given beyond them, private attributes.

    ``silent`` are values that the stored form leaves out, and with them which fields were given. A message
    mostly says nothing but its content and its id, and there may be thousands of them: those take a shorter way.
    """

    __slots__ = (
        *("_blank", "_brief", "_defaults", "_dicts", "_fields", "_keeps_given", "_lists"),
        *("_open", "_silent"),
        *("attributes", "made_of", "tag"),
    )

    def __init__(
        self, tag: str, made_of: type[BaseModel], *, silent: Mapping[str, Any] | None = None
    ) -> None:
        self.tag = tag
        self.made_of = made_of
        self._keeps_given = silent is None
        given = (GIVEN,) if self._keeps_given else ()
        self.attributes: tuple[str, ...] = ("__dict__", _EXTRA, _PRIVATE, *given)
        fields: Mapping[str, Any] = made_of.model_fields
        self._fields = tuple(fields)
        self._silent = {name: value for name, value in (silent or {}).items() if name in fields}
        if silent is not None:
            # A message's type says once more what its tag says.
            self._silent["type"] = fields["type"].get_default()
        self._defaults = {
            name: field
            for name, field in fields.items()
            if not field.is_required() and name not in self._silent
        }
        self._blank = {name: self._silent.get(name) for name in fields}
        # Every object has containers of its own.
        self._dicts = [name for name, usual in self._silent.items() if type(usual) is dict]
        self._lists = [name for name, usual in self._silent.items() if type(usual) is list]
        # What all but content and id are in a message that says nothing else.
        self._brief: tuple[Callable[[Any], Any], tuple[Any, ...]] | None = None
        usual = [name for name in self._silent if name != "id"]
        if self._silent.keys() | {"content", "id"} == fields.keys():
            self._brief = (itemgetter(*usual), tuple(self._silent[name] for name in usual))
        self._open = made_of.model_config.get("extra") == "allow"

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return the fields that say something, under their names."""
        attributes = value.__dict__
        extra, private = value.__pydantic_extra__, value.__pydantic_private__
        if self._brief is not None and not extra and not private:
            names, usual = self._brief
            if len(attributes) == len(usual) + 2 and names(attributes) == usual:
                content, name = attributes["content"], attributes["id"]
                if type(content) is str and type(name) is str:
                    return {"content": content, "id": name}
        silent = self._silent
        parts: dict[str, Any] = {}
        name = ""
        try:
            for name in self._fields:
                if name not in attributes:
                    continue
                item = attributes[name]
                if name in silent:
                    usual = silent[name]
                    if item == usual and type(item) is type(usual):
                        continue
                parts[name] = item if type(item) is str else freeze(item)
        except Misplaced as wrong:
            wrong.inside(f".{name}")
            raise
        given = value.__pydantic_fields_set__
        usual_given = not self._keeps_given or given == {*parts, *(extra or ())}
        if usual_given and not extra and not private:
            return parts
        beside = [walked_field(_EXTRA, extra, freeze), walked_field(_PRIVATE, private, freeze)]
        return [parts, *beside] if usual_given else [parts, *beside, sorted(given)]

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return a model with exactly these fields; what a newer class adds has its default."""
        if self._brief is not None and len(parts) == 2:
            # What follows, for the message that says nothing else: histories are full of it.
            content, name = parts.get("content"), parts.get("id")
            if type(content) is str and type(name) is str:
                attributes = self._blank.copy()
                attributes["content"] = content
                attributes["id"] = name
                for field in self._dicts:
                    attributes[field] = {}
                for field in self._lists:
                    attributes[field] = []
                made = object.__new__(self.made_of)
                _set_dict(made, attributes)
                _set_given(made, {"content", "id"})
                _set_extra(made, {} if self._open else None)
                _set_private(made, None)
                return made
        extra = private = None
        said: Sequence[Any] = ()
        if type(parts) is list:
            parts, extra, private, *said = parts
            extra = walked_field(_EXTRA, extra, thaw)
            private = walked_field(_PRIVATE, private, thaw)
        if type(parts) is not dict:
            raise ValueError("its parts are not named")
        attributes = self._blank.copy()
        for name in self._dicts:
            attributes[name] = {}
        for name in self._lists:
            attributes[name] = []
        name = ""
        try:
            for name, item in parts.items():
                if name in attributes:
                    attributes[name] = item if type(item) is str else thaw(item)
        except Misplaced as wrong:
            wrong.inside(f".{name}")
            raise
        if len(parts) + len(self._silent) < len(attributes):
            self._complete(attributes, parts)
        given = _names_in(*said) if said else {*parts, *(extra or ())}
        made = object.__new__(self.made_of)
        _set_dict(made, attributes)
        _set_given(made, given)
        _set_extra(made, {} if extra is None and self._open else extra)
        _set_private(made, private)
        return made

    def _complete(self, attributes: dict[str, Any], parts: Mapping[str, Any]) -> None:
        for name in attributes:
            if name in parts or name in self._silent:
                continue
            if name not in self._defaults:
                raise ValueError(f"the field {name!r} is missing and has no default")
            attributes[name] = self._defaults[name].get_default(call_default_factory=True)


def _names_in(names: Any) -> set[str]:
    if type(names) is not list or any(type(name) is not str for name in names):
        raise ValueError("what it was given is not named")
    return set(names)


class RecordForm:
    """A dataclass, or a class with slots: its attributes by name, and what its objects have beside those.

    A cached property is left out: whoever asks for it next computes it again.
    """

    __slots__ = ("_defaults", "_has_dict", "_names", "_required", "attributes", "made_of", "tag")

    def __init__(self, tag: str, made_of: type, names: Sequence[str] | None = None) -> None:
        self.tag = tag
        self.made_of = made_of
        self._defaults: dict[str, Callable[[], Any]] = {}
        if names is None:
            fields = dataclasses.fields(made_of)
            names = [field.name for field in fields]
            for field in fields:
                if field.default is not dataclasses.MISSING:
                    self._defaults[field.name] = lambda value=field.default: value  # type: ignore[misc]
                elif field.default_factory is not dataclasses.MISSING:
                    self._defaults[field.name] = field.default_factory
        self._required = frozenset(names) - self._defaults.keys()
        # A slot that is no field may be empty, and was not stored at first.
        self._names = tuple(dict.fromkeys((*names, *sorted(slots_of(made_of)))))
        self._has_dict = made_of.__dictoffset__ != 0
        self.attributes = self._names
        if self._has_dict:
            kept_elsewhere = [
                name
                for name in self._names
                if hasattr(inspect.getattr_static(made_of, name, None), "__set__")
            ]
            self.attributes = ("__dict__", *kept_elsewhere)

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return the attributes; where there is more to say, with what stands beside them and which are empty."""
        parts: dict[str, Any] = {}
        beside: dict[str, Any] = {}
        empty: list[str] = []
        for name in self._names:
            try:
                item = getattr(value, name)
            except AttributeError:
                empty.append(name)
            else:
                parts[name] = walked_field(name, item, freeze)
        if self._has_dict:
            for name, item in value.__dict__.items():
                if name not in self._names and not self._computes(name):
                    beside[name] = walked_field(name, item, freeze)
        return [parts, beside, empty] if beside or empty else parts

    def _computes(self, name: str) -> bool:
        return type(getattr(self.made_of, name, None)) is cached_property

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return an object with these attributes; what a newer class adds has its default."""
        beside: Mapping[str, Any] = {}
        empty: Sequence[str] = ()
        if type(parts) is list:
            parts, beside, empty = parts
        made: Any = object.__new__(self.made_of)
        for name in self._names:
            if name in parts:
                _set(made, name, walked_field(name, parts[name], thaw))
            elif name in empty:
                continue
            elif name in self._defaults:
                _set(made, name, self._defaults[name]())
            elif name in self._required:
                raise ValueError(f"the attribute {name!r} is missing and has no default")
        for name, item in beside.items():
            made.__dict__[name] = walked_field(name, item, thaw)
        return made


def slots_of(kind: type) -> set[str]:
    """Return the names that the slots of a class have in its objects."""
    return {
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, one in vars(base).items()
        if type(one) is MemberDescriptorType
    }


class TupleForm:
    """A named tuple: its items in order."""

    __slots__ = ("made_of", "tag")
    attributes: tuple[str, ...] = ()

    def __init__(self, tag: str, made_of: type) -> None:
        self.tag = tag
        self.made_of = made_of

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return the items."""
        return walked(value, freeze)

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return the tuple; a class of another length refuses."""
        if len(parts) != len(self.made_of._fields):  # type: ignore[attr-defined]
            raise ValueError(f"it was saved with {len(parts)} items")
        return tuple.__new__(self.made_of, walked(parts, thaw))


class EnumForm:
    """A member of an enumeration, by its name."""

    __slots__ = ("made_of", "tag")
    attributes: tuple[str, ...] = ()

    def __init__(self, tag: str, made_of: type[Enum]) -> None:
        self.tag = tag
        self.made_of: type[Enum] = made_of

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return the name; a combination of flags has none and is kept by its value."""
        name = value.name
        return name if name in self.made_of.__members__ else [value.value]

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return the member."""
        return self.made_of.__members__[parts] if type(parts) is str else self.made_of(parts[0])


class TextForm:
    """A value of the standard library that a text says completely."""

    __slots__ = ("_read", "_write", "made_of", "tag")
    attributes: tuple[str, ...] = ()

    def __init__(
        self, tag: str, made_of: type, read: Callable[[str], Any], write: Callable[[Any], str] = str
    ) -> None:
        self.tag = tag
        self.made_of = made_of
        self._read = read
        self._write = write

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return the text."""
        return self._write(value)

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return the value."""
        return self._read(parts)


class DequeForm:
    """A deque with its bound."""

    __slots__ = ("made_of", "tag")
    attributes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.tag = "deque"
        self.made_of: type = deque

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return the bound and the items."""
        return [value.maxlen, walked(value, freeze)]

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return the deque."""
        most, items = parts
        return deque(walked(items, thaw), most)


class PatternForm:
    """A compiled pattern: its text and flags. Compiling one again runs no code of anybody's."""

    __slots__ = ("made_of", "tag")
    attributes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.tag = "pattern"
        self.made_of: type = re.Pattern

    def parts(self, value: Any, freeze: Walk) -> Any:
        """Return text and flags."""
        return [value.pattern, value.flags]

    def build(self, parts: Any, thaw: Walk) -> Any:
        """Return the pattern."""
        text, flags = parts
        # All but the one that has the compiler print what it does.
        return re.compile(text, flags & ~re.DEBUG)
