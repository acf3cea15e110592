"""The newest checkpoint of each thread, kept to hand it out again.

A graph begins every run by reading what the run before has stored, mostly in the same process. Its content is
known then. The store is asked for the row, whose digests say whether it still is, and the rest is
neither read nor parsed. Of a list of messages that grew only the new ones are made. What is handed out is
always the graph's own, so whatever it does with its messages changes nothing here. Those that came back as they were
are handed out again, if nobody else has them any more.

Only plain data is kept from a put: that is the same after a round through the store. Anything else is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.collector import collection_paused
from holdfast.errors import HoldfastError
from holdfast.integrations.langgraph.values import Values
from holdfast.model import Payload
from holdfast.state import EncodedState, TranslatedList
from holdfast.state.cache import Cache
from holdfast.state.document import seal_of
from holdfast.state.known import KnownList
from holdfast.state.plain import is_plain

Line: TypeAlias = tuple[str, str]
"""A thread and a namespace."""

_CHANNELS = "channel_values"
# How objects say that more than attributes makes them up.
_MORE = (AttributeError, RecursionError, TypeError)


@dataclass(frozen=True, slots=True)
class _Objects:
    """A list of objects, and those that were handed out last for it."""

    known: KnownList
    spares: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Content:
    """What a checkpoint holds, as plain data; `_Objects` may stand for lists among the channels."""

    fields: Mapping[str, Any]
    channels: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prototype:
    """The content of a checkpoint, and the row by which it is known to be that."""

    payload: Payload
    content: Content


class Prototypes:
    """What was last put or read in each line, as far as the memory for it reaches."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._known: Cache[Line, Prototype] = Cache()

    def get(self, line: Line) -> Prototype | None:
        """Return what is known of a line."""
        return self._known.get(line)

    def forget_thread(self, thread_id: str) -> None:
        """Forget a thread in all its namespaces."""
        self._known.remove_where(lambda line: line[0] == thread_id)

    def handed_out(self, content: Content, thread_id: str) -> dict[str, Any]:
        """Return a checkpoint that is the caller's own. Raises as `Values.thawed` does."""
        thawed = self._values.thawed
        with collection_paused():
            checkpoint = {
                name: value if name == _CHANNELS else thawed(value, thread_id, name)
                for name, value in content.fields.items()
            }
            checkpoint[_CHANNELS] = {
                channel: value.known.built(value.spares)
                if type(value) is _Objects
                else thawed(value, thread_id, channel)
                for channel, value in content.channels.items()
            }
        return checkpoint

    def read(self, line: Line, payload: Payload, stored: Content, size: int) -> Prototype:
        """Keep and return what was read from the store, its lists of objects as outlines."""
        channels = {
            channel: self._of_stored(value, line[0], channel)
            for channel, value in stored.channels.items()
        }
        return self._keep(line, Prototype(payload, Content(stored.fields, channels)), size)

    def _keep(self, line: Line, known: Prototype, size: int) -> Prototype:
        lists = [one.known for one in known.content.channels.values() if type(one) is _Objects]
        # What was handed out for an outline takes about as much memory as that.
        self._known.put(line, known, size + 2 * sum(one.cost for one in lists))
        return known

    def _of_stored(self, value: Any, thread_id: str, channel: str) -> Any:
        if type(value) is not list:
            return value
        with collection_paused():
            made = self._values.thawed(value, thread_id, channel)
            with suppress(*_MORE):
                return _Objects(self._values.known(made))
        return value

    def stored(self, line: Line, encoded: EncodedState, state: Mapping[str, Any]) -> None:
        """Keep what was put, if it is plain and goes on from what is kept; forget the line otherwise."""
        known = self._known.get(line)
        if known is not None and seal_of(known.payload.manifest) != encoded.continues:
            known = None
        before = {} if known is None else known.content.channels
        try:
            channels = {
                channel: self._of_put(value, before.get(channel), line[0], channel)
                for channel, value in state[_CHANNELS].items()
            }
            fields = {**state, _CHANNELS: None}
            if not is_plain(fields):
                raise _Unknown
        except (_Unknown, HoldfastError, *_MORE):
            # It is stored all the same. Whoever wants it reads it.
            self._known.remove(line)
            return
        payload = Payload(encoded.manifest, encoded.refs)
        self._keep(line, Prototype(payload, Content(fields, channels)), encoded.size_bytes)

    def _of_put(self, value: Any, before: Any, thread_id: str, channel: str) -> Any:
        if type(value) is not TranslatedList:
            if not is_plain(value):
                raise _Unknown
            return value
        start, new = value.translated or (len(value.values), [])
        goes_on = type(before) is _Objects and start == len(before.known)
        if not (goes_on or start == 0) or not is_plain(new):
            raise _Unknown
        with collection_paused():
            added = self._values.thawed(new, thread_id, channel)
            if goes_on:
                return _Objects(self._values.known(added, before.known), before.spares)
            return _Objects(self._values.known(added))


class _Unknown(Exception):
    """What was put cannot be told without reading it."""
