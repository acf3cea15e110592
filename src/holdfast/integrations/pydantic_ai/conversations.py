"""A store for conversations.

Each one is a thread that holds its record and all its entries, those of branches it left too. A fork
gets a copy of the entries that it builds on, which takes no room, since equal content is stored once: so
every conversation stands on its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from holdfast.conversations import Conversations, Draft, Version
from holdfast.errors import StateNotSerializable
from holdfast.stores import Store
from holdfast.waiting import in_thread

_KIND: Final = "pydantic-ai"
_REMEMBERED: Final = 8
_RECORD: Final[TypeAdapter[ConversationRecord]] = TypeAdapter(ConversationRecord)
_ENTRIES: Final[TypeAdapter[list[ConversationEntry]]] = TypeAdapter(list[ConversationEntry])


class HoldfastConversationStore(ConversationStore):
    """Keeps conversations in a store, which is given, or opened from its URL and closed by `close`.

    A save that others overtook raises ``ConversationConflict`` and stores nothing. Deleting a
    conversation deletes its entries; forks have their own. What only it used is freed by the store's
    next sweep.
    """

    def __init__(self, where: Store | str | Path) -> None:
        self._conversations = Conversations(where, _KIND)
        # The histories that were read last, by the conversation that they are of.
        self._seen: OrderedDict[str, dict[str, ConversationEntry]] = OrderedDict()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        found = await in_thread(self._conversations.read, conversation_id)
        if found is None or found.state.get("record") is None:
            return None
        self._see(conversation_id, found)
        return _RECORD.validate_python(found.state["record"])

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return records, or those of a scope, the last saved ones first; no message is read."""
        documents = await in_thread(self._records)
        records = [_RECORD.validate_python(document) for document in documents]
        found = [one for one in records if scope is None or one.scope == scope]
        return sorted(found, key=lambda one: one.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one transaction, or raise ``ConversationConflict``.

        Raises `StateNotSerializable` for what has no JSON form; nothing is stored then either.
        """
        try:
            document = _RECORD.dump_python(record, mode="json")
            added = _ENTRIES.dump_python(list(new_entries), mode="json")
        except ValueError as error:
            raise StateNotSerializable("$.entries", str(error)) from None
        copied: list[Any] = []
        if record.forked_from is not None and expected_revision is None:
            try:
                copied = _ENTRIES.dump_python(await self.read_history(record.head_id), mode="json")
            except LookupError:
                raise ConversationConflict(record.conversation_id) from None

        def write(last: Version | None) -> Draft:
            known = [] if last is None else last.state.get("entries", [])
            entries = [*known, *copied, *added]
            head = record.head_id
            if _revision(last) != expected_revision or (
                head is not None and all(entry["id"] != head for entry in reversed(entries))
            ):
                raise ConversationConflict(record.conversation_id)
            return Draft({"record": document, "entries": entries}, {"record": document})

        await in_thread(self._conversations.change, record.conversation_id, write)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with its entries, or raise ``ConversationConflict``."""

        def empty(last: Version | None) -> Draft:
            if _revision(last) != expected_revision:
                raise ConversationConflict(conversation_id)
            return Draft({"record": None, "entries": []}, {"record": None})

        def delete() -> None:
            version = self._conversations.change(conversation_id, empty)
            self._conversations.forget_before(version)

        await in_thread(delete)
        self._seen.pop(conversation_id, None)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises LookupError. One of a conversation not read lately is searched for."""
        return (await self._history_with(entry_id))[entry_id]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to ``head_id``, or the last ``limit`` of them. Raises LookupError."""
        known = {} if head_id is None else await self._history_with(head_id)
        entries: list[ConversationEntry] = []
        while head_id is not None and (limit is None or len(entries) < limit):
            entries.append(known[head_id])
            head_id = known[head_id].parent_id
        return entries[::-1]

    async def close(self) -> None:
        """Close the store if it was opened here."""
        await in_thread(self._conversations.close)

    async def _history_with(self, entry_id: str) -> dict[str, ConversationEntry]:
        for known in tuple(self._seen.values()):
            if entry_id in known:
                return known
        for thread in await in_thread(self._conversations.threads):
            found = await in_thread(self._conversations.read, thread.id)
            if found is not None and entry_id in (known := self._see(thread.id, found)):
                return known
        raise LookupError(f"no conversation has an entry {entry_id!r}")

    def _see(self, conversation_id: str, version: Version) -> dict[str, ConversationEntry]:
        entries = _ENTRIES.validate_python(version.state.get("entries", []))
        self._seen[conversation_id] = known = {entry.id: entry for entry in entries}
        self._seen.move_to_end(conversation_id)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return known

    def _records(self) -> list[Any]:
        found = [self._record_of(thread.id) for thread in self._conversations.threads()]
        return [document for document in found if document is not None]

    def _record_of(self, thread_id: str) -> Any:
        head = self._conversations.head(thread_id)
        if head is None or (head.metadata is not None and "record" in head.metadata):
            return None if head is None else (head.metadata or {})["record"]
        # A rollback, say, stored it.
        version = self._conversations.read(thread_id)
        return None if version is None else version.state.get("record")


def _revision(version: Version | None) -> str | None:
    record = None if version is None else version.state.get("record")
    return None if record is None else record["revision"]
