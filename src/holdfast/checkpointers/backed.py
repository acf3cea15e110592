"""Checkpointers over a store: in memory, and in a SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.checkpointers.base import (
    DEFAULT_CAP,
    DEFAULT_NAMESPACE,
    BaseCheckpointer,
)
from holdfast.ids import CHECKPOINTER, check_namespace, thread_agents
from holdfast.model import CheckpointQuery, CheckpointRecord, NewCheckpoint
from holdfast.stores import Store, open_store
from holdfast.threads import open_file
from holdfast.waiting import in_thread

if TYPE_CHECKING:
    from holdfast.sessions import SessionManager

T = TypeVar("T")


class StoreCheckpointer(BaseCheckpointer):
    """A checkpointer over any store. It closes the store when it is closed.

    ``namespace`` keeps the checkpoints of different faces of one store apart.
    """

    def __init__(
        self,
        store: Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        max_checkpoints_per_thread: float | None = DEFAULT_CAP,
        now: Callable[[], float | datetime] | None = None,
        ttl_seconds: float | None = None,
    ) -> None:
        super().__init__(
            tenant=store.tenant,
            namespace=check_namespace(namespace),
            max_checkpoints_per_thread=max_checkpoints_per_thread,
            now=now,
            ttl_seconds=ttl_seconds,
        )
        self._store = store

    @staticmethod
    def of(manager: SessionManager) -> StoreCheckpointer:
        """Keep snapshots in the store of a session manager, beside its sessions; one closes both."""
        return StoreCheckpointer(manager.store)

    @property
    def store(self) -> Store:
        """The store beneath, for what a checkpointer has no words for."""
        return self._store

    async def close(self) -> None:
        """Close the store; closing twice is fine."""
        await self._run(self._store.close)

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(function, *args)

    async def _send(self, draft: NewCheckpoint) -> None:
        def send() -> None:
            self._store.put(draft)
            if draft.expires_at is not None:
                self._store.purge_expired()

        await self._run(send)

    async def _load(self, query: CheckpointQuery) -> tuple[CheckpointRecord, dict[str, Any]] | None:
        return await self._run(self._read, query)

    async def _list(self, query: CheckpointQuery) -> Sequence[CheckpointRecord]:
        return await self._run(self._store.list_checkpoints, query)

    async def _delete(self, thread_id: str, checkpoint_id: str) -> int:
        def delete() -> int:
            query = CheckpointQuery(
                session_id=thread_id, namespace=self._namespace, id=checkpoint_id
            )
            found = self._store.list_checkpoints(query)
            return self._store.delete_checkpoints([record.id for record in found])

        return await self._run(delete)

    async def _erase(self, thread_ids: Sequence[str]) -> int:
        return await self._run(self._erase_now, thread_ids)

    async def _purge(self) -> int:
        return await self._run(self._store.purge_expired)

    def _read(self, query: CheckpointQuery) -> tuple[CheckpointRecord, dict[str, Any]] | None:
        loaded = self._store.load_newest(query)
        if loaded is None:
            return None
        record, payload, content = loaded
        key = (record.session_id, record.namespace)
        self._recorders.adopt(key, payload, self._store.read_chunks, self._store.cache)
        return record, content.state

    def _erase_now(self, thread_ids: Sequence[str]) -> int:
        """Delete this namespace's checkpoints; a thread that is left empty goes with them."""
        return self._store.erase_threads(
            thread_ids,
            namespace=self._namespace,
            agent_prefix=thread_agents(CHECKPOINTER),
        )


class MemoryCheckpointer(StoreCheckpointer):
    """Keeps snapshots in this process; they are gone when it ends."""

    def __init__(
        self,
        *,
        max_checkpoints_per_thread: float | None = DEFAULT_CAP,
        now: Callable[[], float | datetime] | None = None,
        ttl_seconds: float | None = None,
        tenant: str = "default",
    ) -> None:
        super().__init__(
            open_store("memory:", tenant=tenant),
            max_checkpoints_per_thread=max_checkpoints_per_thread,
            now=now,
            ttl_seconds=ttl_seconds,
        )

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        # Nothing blocks here for longer than the change to another thread would take.
        return function(*args)


class SQLiteCheckpointer(StoreCheckpointer):
    """Keeps snapshots in one file, which threads and processes may share.

    The file is created when it is missing, readable and writable by its owner only.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_checkpoints_per_thread: float | None = DEFAULT_CAP,
        now: Callable[[], float | datetime] | None = None,
        ttl_seconds: float | None = None,
        tenant: str = "default",
    ) -> None:
        super().__init__(
            open_file(path, tenant),
            max_checkpoints_per_thread=max_checkpoints_per_thread,
            now=now,
            ttl_seconds=ttl_seconds,
        )
