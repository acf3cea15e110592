"""Which objects may stand in a graph's state.

An object is stored as a tag and its parts, and made again by a table that this process filled: the
messages of langchain_core, LangGraph's own types, and the classes that the user registered. A tag is
looked up in that table and nowhere else; nothing is ever imported by name.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable, Mapping
from datetime import timedelta, timezone
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

from holdfast.errors import InvalidConfiguration
from holdfast.integrations.langgraph.forms import (
    GIVEN,
    DequeForm,
    EnumForm,
    Form,
    ModelForm,
    PatternForm,
    RecordForm,
    TextForm,
    TupleForm,
    slots_of,
)

# What most messages have nothing to say in. The format leaves these out, whatever the defaults of the
# class become one day.
_SILENT: Final[Mapping[str, Any]] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "tool_calls": [],
    "invalid_tool_calls": [],
    "tool_call_chunks": [],
    "name": None,
    "id": None,
    "usage_metadata": None,
    "artifact": None,
    "chunk_position": None,
}


class Classes:
    """The classes that may be stored and made again, by class and by tag."""

    def __init__(self, registered: Iterable[type] = ()) -> None:
        self.by_class: dict[type, Form] = {}
        self.by_tag: dict[str, Form] = {}
        # What objects consist of, as far as that can be told by looking at attributes.
        self.attributes: dict[type, tuple[str, ...]] = {}
        # All that they hold, of those that hold nothing else.
        self.held: dict[type, tuple[str, ...]] = {}
        for form in (*_standard(), *_messages(), *_of_langgraph()):
            self._add(form)
        if isinstance(registered, type) or not isinstance(registered, Iterable):
            raise InvalidConfiguration(
                f"classes are registered as a list, types=[Order, …]: {registered!r:.80}"
            )
        for one in registered:
            self._add(_form_of(one))

    def _add(self, form: Form) -> None:
        self.by_class[form.made_of] = form
        self.by_tag[form.tag] = form
        if form.attributes:
            self.attributes[form.made_of] = form.attributes
            given = (GIVEN,) if isinstance(form, ModelForm) else ()
            held = tuple(dict.fromkeys((*form.attributes, *given)))
            if slots_of(form.made_of) <= set(held):
                self.held[form.made_of] = held


def _form_of(registered: type) -> Form:
    if not isinstance(registered, type):
        raise InvalidConfiguration(f"types must be classes: {registered!r:.80}")
    tag = f"{registered.__module__}:{registered.__qualname__}"
    if issubclass(registered, Enum):
        return EnumForm(tag, registered)
    if issubclass(registered, BaseModel):
        return ModelForm(tag, registered)
    if dataclasses.is_dataclass(registered):
        return RecordForm(tag, registered)
    if issubclass(registered, tuple) and hasattr(registered, "_fields"):
        return TupleForm(tag, registered)
    raise InvalidConfiguration(
        f"{registered.__name__} is none of what can be stored as an object: a pydantic model, a "
        f"dataclass, a named tuple or an Enum"
    )


def _standard() -> Iterable[Form]:
    from zoneinfo import ZoneInfo

    yield DequeForm()
    yield PatternForm()
    yield TextForm("zone", ZoneInfo, ZoneInfo)
    yield TextForm("timezone", timezone, _timezone, _timezone_text)
    yield TextForm("bytearray", bytearray, bytearray.fromhex, bytearray.hex)
    for kind in ("Address", "Interface", "Network"):
        for family in ("IPv4", "IPv6"):
            made_of = getattr(ipaddress, family + kind)
            yield TextForm(family + kind, made_of, made_of)


def _timezone_text(zone: timezone) -> str:
    return f"{zone.utcoffset(None) // timedelta(microseconds=1)} {zone.tzname(None)}"


def _timezone(text: str) -> timezone:
    microseconds, _, name = text.partition(" ")
    offset = timedelta(microseconds=int(microseconds))
    unnamed = timezone(offset)
    return unnamed if unnamed.tzname(None) == name else timezone(offset, name)


def _messages() -> Iterable[Form]:
    from langchain_core import messages
    from langchain_core.documents import Document

    for role in ("Human", "AI", "System", "Tool", "Function", "Chat"):
        for name in (f"{role}Message", f"{role}MessageChunk"):
            yield ModelForm(name, getattr(messages, name), silent=_SILENT)
    yield ModelForm("RemoveMessage", messages.RemoveMessage, silent=_SILENT)
    yield ModelForm("Document", Document)


def _of_langgraph() -> Iterable[Form]:
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
    from langgraph.store.base import Item

    yield TupleForm("DeltaSnapshot", _DeltaSnapshot)
    yield RecordForm("Item", Item, Item.__slots__)
    try:
        from langgraph import types
    except ImportError:
        # A process that only reads checkpoints needs langgraph-checkpoint alone.
        return
    yield RecordForm("Send", types.Send, types.Send.__slots__)
    for name in ("Interrupt", "Command", "Overwrite", "TimeoutPolicy"):
        if made_of := getattr(types, name, None):
            names = [one.name for one in dataclasses.fields(made_of)]
            yield RecordForm(name, made_of, names)
