"""Conversations: threads that grow by any number of writers, of whom none overwrites another.

The adapters of agent frameworks keep one state for each conversation, mostly a list of items that grows.
Each version of it is a checkpoint of a thread, whole and yet stored at the cost of what was added. It is
stored only if the version that it goes on from is still the newest, which is checked in the same
transaction. Of two writers who go on from one version exactly one does; the other reads again and
repeats its change on what is there then:

    def add(last: Version | None) -> Draft:
        items = [] if last is None else last.state["items"]
        return Draft({"items": [*items, "hello"]})

    conversations.change("thread-7", add)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.closing import Closing
from holdfast.errors import StaleWriter, StateNotSerializable
from holdfast.ids import check_namespace, check_session_id, new_id, thread_agents
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    SessionQuery,
    SessionRecord,
    Trim,
)
from holdfast.state.cache import Cache
from holdfast.stores import Store, open_store
from holdfast.threads import (
    REMEMBERED_BYTES,
    ThreadKey,
    ThreadRecorders,
    check_cap,
    refuse_foreign,
    thread_checkpoint,
    thread_session,
)

DEFAULT_CAP: Final = 100
"""How many versions of a conversation are kept, unless somebody says otherwise."""


@dataclass(frozen=True, slots=True)
class Version:
    """A stored version of a conversation."""

    record: CheckpointRecord
    state: dict[str, Any]

    @property
    def id(self) -> str:
        """What the next version goes on from."""
        return self.record.id

    @property
    def created_at(self) -> datetime:
        """When it was stored."""
        return self.record.created_at

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What can be read of it without reading the state."""
        return self.record.metadata or {}


@dataclass(frozen=True, slots=True)
class Draft:
    """The next version of a conversation."""

    state: dict[str, Any]
    metadata: Mapping[str, Any] | None = None


Change: TypeAlias = Callable[[Version | None], Draft | None]
"""From the last version, if there is one, to the next, or to None when there is nothing to do.

It may be called several times. It must not change what it is given, and what it returns belongs to the
conversation from then on.
"""


class Conversations(Closing):
    """The conversations of one kind of face in a store. It may be used from several threads."""

    def __init__(
        self, where: Store | str | Path, kind: str, *, max_versions: float | None = DEFAULT_CAP
    ) -> None:
        """``where`` is a store, which its owner closes, or the URL of one, which `close` does."""
        self._owned = not isinstance(where, Store)
        self._store = where if isinstance(where, Store) else open_store(where)
        self._kind = kind
        self._agents = thread_agents(kind)
        self._trim = Trim(keep=check_cap(max_versions))
        self._recorders = ThreadRecorders()
        # The versions that were stored last.
        self._latest: Cache[ThreadKey, Version] = Cache(REMEMBERED_BYTES)

    @property
    def store(self) -> Store:
        """The store beneath."""
        return self._store

    def head(self, thread_id: str, namespace: str = "") -> CheckpointRecord | None:
        """Return the last version without its state, or None when there is none."""
        found = self._store.list_checkpoints(_newest(thread_id, namespace))
        return found[0] if found else None

    def read(self, thread_id: str, namespace: str = "") -> Version | None:
        """Return the last version, or None when there is none. Its state belongs to the caller.

        Raises `ForeignSession` where the id is that of a session that something else has made.
        """
        loaded = self._store.load_newest(_newest(thread_id, namespace))
        if loaded is None:
            return None
        record, payload, content = loaded
        if not namespace:
            refuse_foreign(self._store, self._kind, thread_id, record)
        key = (thread_id, namespace)
        self._recorders.adopt(key, payload, self._store.read_chunks, self._store.cache)
        return Version(record, content.state)

    def change(
        self,
        thread_id: str,
        change: Change,
        *,
        namespace: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Version | None:
        """Store what ``change`` makes of the last version; return the last one then.

        It is durable when this returns. What ``change`` raises goes on, once it was said of the newest
        version. ``about`` is the metadata of a session that is new. Raises `ForeignSession`, and stores nothing,
        where the id is that of a session that something else has made.
        """
        key = (thread_id, namespace)
        # What this process stored last is the newest as a rule; the store says when it is not.
        last = self._latest.get(key) or self.read(*key)
        while True:
            draft = refusal = None
            try:
                draft = change(last)
            except Exception as error:
                refusal = error
            if draft is not None:
                try:
                    return self._put(key, draft, last, about)
                except StaleWriter:
                    pass  # somebody else was faster
            elif self._is_newest(key, last):
                if refusal is not None:
                    raise refusal
                return last
            last = self.read(*key)

    def replace(
        self,
        thread_id: str,
        draft: Draft,
        *,
        after: Version | None,
        namespace: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Version:
        """Store the version that comes after that one, or the first.

        Raises `StaleWriter`, and stores nothing, when that is not the newest one, or the first and the
        conversation has begun already.
        """
        return self._put((thread_id, namespace), draft, after, about)

    def threads(self, about: Mapping[str, Any] | None = None) -> list[SessionRecord]:
        """List the sessions of this kind of face, those with that metadata, newest first."""
        query = SessionQuery(agent_prefix=self._agents, metadata=about or {})
        return self._store.list_sessions(query)

    def namespaces(self, thread_id: str) -> list[str]:
        """List the namespaces of a thread that have a version, by name."""
        query = CheckpointQuery(session_id=thread_id)
        return sorted({record.namespace for record in self._store.list_checkpoints(query)})

    def erase(self, thread_id: str, namespace: str | None = None) -> None:
        """Erase a conversation, all namespaces or one, and content that nothing else refers to.

        Raises `ForeignSession`, and erases nothing, where the id is that of another agent's session.
        """
        if namespace is None:
            self._store.delete_session(thread_id, agent_prefix=self._agents)
        else:
            self._store.erase_threads([thread_id], namespace=namespace, agent_prefix=self._agents)
        self._recorders.forget_thread(thread_id)
        self._latest.remove_where(lambda key: key[0] == thread_id)

    def forget_before(self, version: Version | None) -> None:
        """Remove the versions before this one, which others may have gone on from meanwhile."""
        if version is None:
            return
        record = version.record
        query = CheckpointQuery(
            session_id=record.session_id, namespace=record.namespace, before_seq=record.seq
        )
        self._store.delete_checkpoints([one.id for one in self._store.list_checkpoints(query)])

    def close(self) -> None:
        """Close the store if it was opened here; closing twice is fine."""
        if self._owned:
            self._store.close()

    def _is_newest(self, key: ThreadKey, version: Version | None) -> bool:
        head = self.head(*key)
        return (None if head is None else head.id) == (None if version is None else version.id)

    def _put(
        self,
        key: ThreadKey,
        draft: Draft,
        last: Version | None,
        about: Mapping[str, Any] | None,
    ) -> Version:
        thread_id, namespace = key
        if last is None and not namespace:
            refuse_foreign(self._store, self._kind, check_session_id(thread_id))
        checkpoint_id = new_id()
        session = thread_session(self._store.tenant, self._kind, thread_id)
        for attempt in self._recorders.attempts(key, draft.state):
            with attempt as encoded:
                stored = self._store.put(
                    thread_checkpoint(
                        replace(session, metadata=about),
                        encoded,
                        checkpoint_id,
                        namespace=namespace,
                        parent_id=None if last is None else last.id,
                        follows="" if last is None else last.record.external_id or last.id,
                        metadata=draft.metadata,
                        trim=self._trim,
                    )
                )
                size = encoded.size_bytes
        version = Version(stored.record, draft.state)
        self._latest.put(key, version, size)
        return version


def documents(given: object, path: str) -> list[Any]:
    """Return a copy of a list of dicts. Raises `StateNotSerializable` for what is none, or has no copy."""
    if not isinstance(given, Sequence) or not all(isinstance(one, dict) for one in given):
        raise StateNotSerializable(path, f"a list of dicts is what can be added, not {given!r:.80}")
    try:
        return deepcopy(list(given))
    except Exception as error:
        raise StateNotSerializable(path, str(error)) from error


def joined(*parts: str) -> str:
    """Return one thread id for the several names that a framework gives a conversation."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _newest(thread_id: str, namespace: str) -> CheckpointQuery:
    return CheckpointQuery(
        session_id=check_session_id(thread_id), namespace=check_namespace(namespace), limit=1
    )
