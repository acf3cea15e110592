"""Savers over a store: one implementation, a constructor for each database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.config import url_text
from holdfast.errors import CheckpointNotFound, InvalidFilter, InvalidIdentifier, StateCorrupt
from holdfast.ids import is_uuid, new_id, thread_agents
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    NewWrite,
    SessionQuery,
    Trim,
    WritePlace,
    WriteRecord,
)
from holdfast.savers.base import BaseCheckpointSaver
from holdfast.savers.memory import MemoryCheckpointSaver
from holdfast.savers.values import (
    CheckpointConfig,
    CheckpointMetadata,
    CheckpointSummary,
    CheckpointTuple,
    ThreadInfo,
    check_config,
    check_writes,
)
from holdfast.state import DecodedState, StateEncoder, decode_state
from holdfast.stores import Store, open_store
from holdfast.threads import (
    ThreadRecorders,
    check_cap,
    open_file,
    thread_checkpoint,
    thread_session,
)

_KIND: Final = "saver"
_PAGE: Final = 100
# A pending write may be any value; a state is a dict.
_VALUE: Final = "value"


class StoreCheckpointSaver(BaseCheckpointSaver):
    """A saver over any store. It closes the store when it is closed.

    ``max_checkpoints_per_thread`` bounds each thread and namespace: the oldest go, in the
    transaction of the put that goes over it. Without it everything is kept.
    """

    def __init__(self, store: Store, *, max_checkpoints_per_thread: float | None = None) -> None:
        self._store = store
        self._trim = Trim(keep=check_cap(max_checkpoints_per_thread))
        self._recorders = ThreadRecorders()

    @property
    def store(self) -> Store:
        """The store beneath, for what a saver has no words for."""
        return self._store

    def put(
        self,
        config: CheckpointConfig,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointConfig:
        """Store a checkpoint; see `BaseCheckpointSaver.put`. It is durable when this returns.

        Raises `StateNotSerializable` for a value without an exact stored form.
        """
        check_config(config)
        thread_id, namespace = config.thread_id, config.namespace
        checkpoint_id = new_id()
        session = thread_session(self._store.tenant, _KIND, thread_id)
        for attempt in self._recorders.attempts((thread_id, namespace), checkpoint):
            with attempt as encoded:
                self._store.put(
                    thread_checkpoint(
                        session,
                        encoded,
                        checkpoint_id,
                        external_id=checkpoint_id,
                        namespace=namespace,
                        parent_id=config.checkpoint_id,
                        parent_is_newest=config.checkpoint_id is None,
                        metadata=metadata,
                        trim=self._trim,
                    )
                )
        return CheckpointConfig(thread_id, checkpoint_id, namespace)

    def put_writes(
        self,
        config: CheckpointConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store pending writes; see `BaseCheckpointSaver.put_writes`."""
        check_config(config)
        if config.checkpoint_id is None:
            raise InvalidIdentifier(
                "writes belong to one checkpoint: pass the config that put gave"
            )
        pairs = check_writes(writes)
        record = self._find(config)
        # A copied checkpoint keeps its writes under the id that it was copied from.
        key = record.external_id if record is not None else None
        drafts = []
        for index, (channel, value) in enumerate(pairs):
            encoded = StateEncoder().encode({_VALUE: value})
            drafts.append(
                NewWrite(
                    task_id=task_id,
                    index=index,
                    channel=channel,
                    manifest=encoded.manifest,
                    refs=encoded.refs,
                    chunks=encoded.chunks,
                    expects=encoded.expects,
                    task_path=task_path,
                )
            )
        session = thread_session(self._store.tenant, _KIND, config.thread_id)
        self._store.put_writes(session, config.namespace, key or config.checkpoint_id, drafts)

    def get_tuple(self, config: CheckpointConfig) -> CheckpointTuple | None:
        """Return a checkpoint; see `BaseCheckpointSaver.get_tuple`.

        Raises `DigestMismatch` or `StateCorrupt` when what is stored is not what was saved.
        """
        query = _query(config)
        loaded = None if query is None else self._store.load_newest(query)
        if loaded is None:
            return None
        record, payload, content = loaded
        # The next put of the thread will probably continue from it.
        key = (record.session_id, record.namespace)
        self._recorders.adopt(key, payload, self._store.read_chunks, self._store.cache)
        return self._tuple(record, content, self._writes([record]))

    def list(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate newest first; see `BaseCheckpointSaver.list`. Contents are read as you go."""
        for records in self._pages(config, filter, before, limit):
            writes = self._writes(records)
            for record in records:
                loaded = self._store.load(record.id)
                if loaded is not None:
                    yield self._tuple(record, loaded[1], writes)

    def list_summaries(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointSummary]:
        """Iterate as `list` does; no content is read."""
        for records in self._pages(config, filter, before, limit):
            for record in records:
                yield CheckpointSummary(_config(record), _metadata(record), _parent(record))

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread, and at once the content that nothing else refers to.

        Raises `ForeignSession`, and erases nothing, where the id is that of another agent's session.
        """
        self._store.delete_session(
            CheckpointConfig(thread_id).thread_id,
            agent_prefix=thread_agents(_KIND),
        )
        self._recorders.forget_thread(thread_id)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread; see `BaseCheckpointSaver.copy_thread`. Contents are shared, not doubled."""
        target = CheckpointConfig(target_thread_id).thread_id
        draft = thread_session(self._store.tenant, _KIND, target)
        self._store.copy_session(source_thread_id, draft)

    def list_threads(self) -> Sequence[ThreadInfo]:
        """List all threads; every session of the store is one."""
        return list_threads(self._store)

    def close(self) -> None:
        """Close the store; closing twice is fine."""
        self._store.close()

    def _find(self, config: CheckpointConfig) -> CheckpointRecord | None:
        query = _query(config)
        found = [] if query is None else self._store.list_checkpoints(query)
        return found[0] if found else None

    def _pages(
        self,
        config: CheckpointConfig | None,
        wanted: Mapping[str, Any] | None,
        before: CheckpointConfig | None,
        limit: int | None,
    ) -> Iterator[Sequence[CheckpointRecord]]:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidFilter(f"limit must be a whole number, not negative: {limit!r}")
        for given in (config, before):
            if given is not None:
                check_config(given)
        if config is not None and config.checkpoint_id and not is_uuid(config.checkpoint_id):
            return
        position = None if before is None else self._position(before)
        remaining = limit
        while remaining is None or remaining > 0:
            size = _PAGE if remaining is None else min(_PAGE, remaining)
            records = self._store.list_checkpoints(
                CheckpointQuery(
                    session_id=None if config is None else config.thread_id,
                    namespace=None if config is None else config.namespace,
                    id=None if config is None else config.checkpoint_id,
                    metadata=wanted or {},
                    before_seq=position,
                    limit=size,
                )
            )
            if records:
                yield records
                position = records[-1].seq
            if len(records) < size:
                return
            remaining = None if remaining is None else remaining - size

    def _position(self, before: CheckpointConfig) -> int:
        record = self._find(before) if before.checkpoint_id is not None else None
        if record is None:
            raise CheckpointNotFound(
                f"thread {before.thread_id!r} has no checkpoint {before.checkpoint_id!r} to list from"
            )
        return record.seq

    def _writes(
        self, records: Sequence[CheckpointRecord]
    ) -> Mapping[WritePlace, Sequence[WriteRecord]]:
        """Return the pending writes of these checkpoints by place, in their order."""
        return self._store.read_writes([_place(record) for record in records])

    def _tuple(
        self,
        record: CheckpointRecord,
        content: DecodedState,
        writes: Mapping[WritePlace, Sequence[WriteRecord]],
    ) -> CheckpointTuple:
        return CheckpointTuple(
            _config(record),
            content.state,
            _metadata(record),
            _parent(record),
            self._values(writes.get(_place(record), ())),
        )

    def _values(self, writes: Iterable[WriteRecord]) -> Any:
        return [(write.task_id, write.channel, self._value(write)) for write in writes]

    def _value(self, write: WriteRecord) -> Any:
        read_chunks, cache = self._store.read_chunks, self._store.cache
        found = decode_state(write.payload, read_chunks, cache=cache).state
        if _VALUE not in found:
            raise StateCorrupt(
                f"what is stored for task {write.task_id!r} and channel {write.channel!r} is no write"
            )
        return found[_VALUE]


def list_threads(store: Store, agent_prefix: str | None = None) -> Sequence[ThreadInfo]:
    """List the threads of a store: all sessions, or those of agents whose ids begin so."""
    sessions = None
    if agent_prefix is not None:
        sessions = {one.id for one in store.list_sessions(SessionQuery(agent_prefix=agent_prefix))}
    return [
        ThreadInfo(
            thread_id=usage.session_id,
            checkpoints=usage.checkpoints,
            size_bytes=usage.size_bytes,
            stored_bytes=usage.stored_bytes,
            latest_checkpoint_id=usage.latest_id,
        )
        for usage in store.session_usage()
        if sessions is None or usage.session_id in sessions
    ]


def _query(config: CheckpointConfig) -> CheckpointQuery | None:
    """Return what finds the config's checkpoint, or None where it can name none."""
    check_config(config)
    if config.checkpoint_id is not None and not is_uuid(config.checkpoint_id):
        return None
    return CheckpointQuery(
        session_id=config.thread_id, namespace=config.namespace, id=config.checkpoint_id, limit=1
    )


def _place(record: CheckpointRecord) -> WritePlace:
    return (record.session_id, record.namespace, record.external_id or record.id)


def _config(record: CheckpointRecord) -> CheckpointConfig:
    return CheckpointConfig(record.session_id, record.id, record.namespace)


def _parent(record: CheckpointRecord) -> CheckpointConfig | None:
    if record.parent_id is None:
        return None
    return CheckpointConfig(record.session_id, record.parent_id, record.namespace)


def _metadata(record: CheckpointRecord) -> CheckpointMetadata:
    metadata = CheckpointMetadata(record.metadata or ())
    metadata.created_at = record.created_at
    return metadata


class SQLiteCheckpointSaver(StoreCheckpointSaver):
    """Keeps checkpoints in one file, which threads and processes may share.

    The file is created when it is missing, readable and writable by its owner only.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_checkpoints_per_thread: float | None = None,
        tenant: str = "default",
    ) -> None:
        super().__init__(
            open_file(path, tenant),
            max_checkpoints_per_thread=max_checkpoints_per_thread,
        )


class PostgresCheckpointSaver(StoreCheckpointSaver):
    """Keeps checkpoints in PostgreSQL: ``postgresql://…?schema=…&tenant=…``.

    Tables are created in the schema (``holdfast`` by default) when they are missing. Needs the
    extra ``postgres``.
    """

    def __init__(
        self,
        url: str,
        *,
        max_checkpoints_per_thread: float | None = None,
        tenant: str | None = None,
    ) -> None:
        if not url_text(url).startswith(("postgresql://", "postgres://")):
            raise InvalidIdentifier(
                "a PostgreSQL saver needs a URL: postgresql://user@host/database"
            )
        super().__init__(
            open_store(url, tenant=tenant),
            max_checkpoints_per_thread=max_checkpoints_per_thread,
        )


def open_saver(
    url: str | Path, *, max_checkpoints_per_thread: float | None = None, tenant: str | None = None
) -> BaseCheckpointSaver:
    """Return a saver for the store that ``url`` names, as `holdfast.stores.open_store` reads it."""
    if str(url) == "memory:":
        return MemoryCheckpointSaver(max_checkpoints_per_thread=max_checkpoints_per_thread)
    store = open_store(url, tenant=tenant)
    return StoreCheckpointSaver(store, max_checkpoints_per_thread=max_checkpoints_per_thread)
