"""What sessions share: the state of an app or a user, with the place in the store of each key's last word.

Events say what it is, and may be late with that, or say it twice: of each key, what the event at the
latest place said stays. A place that is not before the version it is kept in comes from another database,
from which this was copied, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from holdfast.conversations import Conversations, Draft, Version
from holdfast.errors import ForeignSession
from holdfast.stores import Store
from holdfast.threads import refuse_foreign

_KIND: Final = "google-adk-state"

Words: TypeAlias = dict[str, tuple[Any, int]]
"""The last word on each key: its value, and the place of the event that said it."""


class SharedState:
    """The state of apps and users, each in a thread of its own."""

    def __init__(self, store: Store, *, max_versions: float | None) -> None:
        self._threads = Conversations(store, _KIND, max_versions=max_versions)

    def read(self, thread: str) -> Words:
        """Return the last words on each key; there are none in a thread that something else has made."""
        try:
            return _last_words(self._threads.read(thread))
        except ForeignSession:
            return {}

    def refuse_foreign(self, thread: str) -> None:
        """Raise `ForeignSession` where nothing can be told, since something else has made that thread."""
        refuse_foreign(self._threads.store, _KIND, thread)

    def tell(self, thread: str, words: Words) -> None:
        """Store those words that are later than what is there."""

        def add(last: Version | None) -> Draft | None:
            known = _last_words(last)
            told = latest(known, words)
            return None if told == known else Draft(to_document(told))

        self._threads.change(thread, add)


def latest(known: Words, others: Words) -> Words:
    """Return of each key the word that was said at the later place."""
    return known | {
        key: word for key, word in others.items() if key not in known or word[1] > known[key][1]
    }


def to_document(words: Words, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return words as they are stored, and over them values that have no place yet."""
    said = values or {}
    return {
        "values": {key: value for key, (value, _) in words.items()} | dict(said),
        "at": {key: place for key, (_, place) in words.items() if key not in said},
    }


def from_document(document: Mapping[str, Any], before: int, otherwise: int) -> Words:
    """Return what `to_document` made; words without a place before that one have another."""
    at = {key: place for key, place in document.get("at", {}).items() if place < before}
    return {key: (value, at.get(key, otherwise)) for key, value in document["values"].items()}


def _last_words(version: Version | None) -> Words:
    return {} if version is None else from_document(version.state, version.record.seq, 0)
