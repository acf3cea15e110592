"""Conversations: threads that grow by any number of writers, of whom none overwrites another.

The adapters of agent frameworks keep one state for each conversation, mostly a list of items that grows.
Each version of it is a checkpoint of a thread, whole and yet stored at the cost of what was added. It
consumes the version before it in the transaction that stores it, so of two writers who go on from one
version exactly one does; the other looks again and repeats its change on what is there then:

    def add(last: Version | None) -> Draft:
        items = [] if last is None else last.state["items"]
        return Draft({"items": [*items, "hello"]})

    conversations.change("thread-7", add)

The first version has no other to consume. A fixed external id, which a thread has once, takes that
part; such a version is pinned, since trimming it would make room for a second first one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from holdfast.errors import AlreadyResumed, CheckpointExists, CheckpointNotFound
from holdfast.ids import check_namespace, check_session_id, new_id
from holdfast.locks import Lock
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    NewCheckpoint,
    SessionQuery,
    SessionRecord,
    Trim,
)
from holdfast.stores import Store, open_store
from holdfast.threads import (
    REMEMBERED_BYTES,
    ThreadKey,
    ThreadRecorders,
    check_cap,
    thread_agent,
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


class Conversations:
    """The conversations of one kind of face in a store. It may be used from several threads."""

    def __init__(
        self, where: Store | str | Path, kind: str, *, max_versions: float | None = DEFAULT_CAP
    ) -> None:
        """``where`` is a store, which its owner closes, or the URL of one, which `close` does."""
        self._owned = not isinstance(where, Store)
        self._store = where if isinstance(where, Store) else open_store(where)
        self._kind = kind
        self._trim = Trim(keep=check_cap(max_versions))
        self._recorders = ThreadRecorders()
        self._latest = _Latest()

    @property
    def store(self) -> Store:
        """The store beneath."""
        return self._store

    def head(self, thread_id: str, namespace: str = "") -> CheckpointRecord | None:
        """Return the last version without its state, or None when there is none."""
        query = CheckpointQuery(
            session_id=check_session_id(thread_id), namespace=check_namespace(namespace), limit=1
        )
        found = self._store.list_checkpoints(query)
        return found[0] if found else None

    def read(self, thread_id: str, namespace: str = "") -> Version | None:
        """Return the last version, or None when there is none. Its state belongs to the caller."""
        while (record := self.head(thread_id, namespace)) is not None:
            loaded = self._store.load(record.id)
            if loaded is not None:
                payload, content = loaded
                key = (thread_id, namespace)
                self._recorders.adopt(key, payload, self._store.read_chunks, self._store.cache)
                return Version(record, content.state)
            # It was trimmed between the two questions: there is a newer one.
        return None

    def change(
        self,
        thread_id: str,
        change: Change,
        *,
        namespace: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Version | None:
        """Store what ``change`` makes of the last version; return the last one then.

        It is durable when this returns. ``about`` is the metadata of a session that is new.
        """
        key = (thread_id, namespace)
        while True:
            last = self._last(key)
            draft = change(last)
            if draft is None:
                return last
            with suppress(AlreadyResumed):
                return self._go_on(key, draft, last, about)
            # Somebody else was faster: what they stored is the last version now.

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

        Raises `AlreadyResumed`, and stores nothing, when another one came after it, when it is gone,
        or when the conversation has begun already.
        """
        head = self.head(thread_id, namespace)
        if (None if head is None else head.id) != (None if after is None else after.id):
            raise _overtaken(thread_id)
        return self._go_on((thread_id, namespace), draft, after, about)

    def threads(self, about: Mapping[str, Any] | None = None) -> list[SessionRecord]:
        """List the sessions of this kind of face, those with that metadata, newest first."""
        agent = thread_agent(self._store.tenant, self._kind)
        return self._store.list_sessions(SessionQuery(agent_id=agent.id, metadata=about or {}))

    def namespaces(self, thread_id: str) -> list[str]:
        """List the namespaces of a thread that have a version, by name."""
        query = CheckpointQuery(session_id=thread_id)
        return sorted({record.namespace for record in self._store.list_checkpoints(query)})

    def erase(self, thread_id: str, namespace: str | None = None) -> None:
        """Erase a conversation, all namespaces or one, and content that nothing else refers to."""
        if namespace is None:
            self._store.delete_session(thread_id)
        else:
            agent = thread_agent(self._store.tenant, self._kind)
            self._store.erase_threads([thread_id], namespace=namespace, agent_id=agent.id)
        self._recorders.forget_thread(thread_id)

    def close(self) -> None:
        """Close the store if it was opened here; closing twice is fine."""
        if self._owned:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _last(self, key: ThreadKey) -> Version | None:
        """Return the last version, with a state that is shared with later ones."""
        record = self.head(*key)
        if record is None:
            return None
        known = self._latest.find(key, record.id)
        return self.read(*key) if known is None else Version(record, known)

    def _go_on(
        self,
        key: ThreadKey,
        draft: Draft,
        last: Version | None,
        about: Mapping[str, Any] | None,
    ) -> Version:
        try:
            return self._put(key, draft, last, about, alone=last is None)
        except (CheckpointExists, CheckpointNotFound):
            raise _overtaken(key[0]) from None
        except AlreadyResumed:
            head = self.head(*key)
            if head is None or last is None or head.id != last.id:
                raise _overtaken(key[0]) from None
        # It is the last one and consumed all the same: what came after it was deleted, or it is a copy.
        try:
            return self._put(key, draft, last, about, alone=True)
        except CheckpointExists:
            raise _overtaken(key[0]) from None

    def _put(
        self,
        key: ThreadKey,
        draft: Draft,
        last: Version | None,
        about: Mapping[str, Any] | None,
        *,
        alone: bool,
    ) -> Version:
        thread_id, namespace = key
        checkpoint_id = new_id()
        parent = None if last is None else last.id
        session = thread_session(self._store.tenant, self._kind, thread_id)
        for attempt in self._recorders.attempts(key, draft.state):
            with attempt as encoded:
                stored = self._store.put(
                    NewCheckpoint(
                        id=checkpoint_id,
                        session_id=thread_id,
                        namespace=namespace,
                        name=checkpoint_id,
                        external_id=f"after:{parent or 'nothing'}" if alone else None,
                        pinned=alone,
                        parent_id=parent,
                        consumes=None if alone else parent,
                        manifest=encoded.manifest,
                        refs=encoded.refs,
                        chunks=encoded.chunks,
                        expects=encoded.expects,
                        size_bytes=encoded.size_bytes,
                        checkpoint_type="auto",
                        retention_class="step",
                        metadata=draft.metadata,
                        trim=self._trim,
                        session=replace(session, metadata=about),
                    )
                )
                self._latest.remember(key, checkpoint_id, draft.state, encoded.size_bytes)
        return Version(stored.record, draft.state)


class _Latest:
    """The states of the last versions, as far as the memory for them reaches."""

    def __init__(self) -> None:
        self._lock = Lock(reset=self._forget)
        self._forget()

    def _forget(self) -> None:
        self._known: OrderedDict[ThreadKey, tuple[str, dict[str, Any], int]] = OrderedDict()
        self._bytes = 0

    def find(self, key: ThreadKey, version: str) -> dict[str, Any] | None:
        known = self._known.get(key)
        return known[1] if known is not None and known[0] == version else None

    def remember(self, key: ThreadKey, version: str, state: dict[str, Any], size: int) -> None:
        with self._lock:
            self._bytes -= self._known.pop(key, ("", {}, 0))[2]
            self._known[key] = (version, state, size)
            self._bytes += size
            while self._bytes > REMEMBERED_BYTES:
                self._bytes -= self._known.popitem(last=False)[1][2]


def joined(*parts: str) -> str:
    """Return one thread id for the several names that a framework gives a conversation."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _overtaken(thread_id: str) -> AlreadyResumed:
    return AlreadyResumed(
        f"somebody else has changed the conversation {thread_id!r} since it was read. Nothing was "
        f"stored: read it again and repeat the change"
    )
