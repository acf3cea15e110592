"""The saver that keeps everything in this process.

It is the one saver without a store beneath it: a put and a get together take some ten microseconds,
where a store's records and checks alone take longer. A small state is kept as its exact JSON text. A
large one is kept as a manifest and chunks, as everywhere, so a thread that grows does not cost its
whole history at every step. Which of the two it will be is guessed from the thread's last state: only
when that was small is a large one serialised in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final

from holdfast.errors import (
    CheckpointNotFound,
    ChunksMissing,
    InvalidIdentifier,
    SessionExists,
    SessionNotFound,
    StateNotSerializable,
)
from holdfast.ids import check_text, new_id
from holdfast.locks import new_lock
from holdfast.model import Payload, utc_now
from holdfast.savers.base import BaseCheckpointSaver
from holdfast.savers.values import (
    CheckpointConfig,
    CheckpointMetadata,
    CheckpointSummary,
    CheckpointTuple,
    ThreadInfo,
    check_config,
    check_writes,
)
from holdfast.state import decode_state
from holdfast.state.codec import dump, load_document, load_json
from holdfast.stores.checks import FREE_TEXT_BYTES, check_limit, metadata_filter
from holdfast.stores.rules import reachable
from holdfast.threads import ThreadRecorders, check_cap

_LARGE: Final = 8 * 1024
# A pending write may be any value; what is stored is a dict.
_VALUE: Final = "value"
# A sweep looks at everything that is stored, so it waits until it can free something.
_REMOVED_BEFORE_SWEEP: Final = 64


@dataclass(slots=True)
class _Document:
    """A dict as exact JSON text; ``tags`` says that reading takes a second look."""

    text: bytes
    tags: bool

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> _Document:
        if type(document) is not dict:
            if not isinstance(document, Mapping):
                raise StateNotSerializable(path, f"must be a dict, not {type(document).__name__}")
            document = dict(document)
        return cls(*dump(document, path))

    def read(self) -> dict[str, Any]:
        if self.tags:
            return load_document(self.text)
        document: dict[str, Any] = load_json(self.text, "a stored document")
        return document


@dataclass(slots=True)
class _Entry:
    """A checkpoint; ``seq`` orders all of the saver's."""

    config: CheckpointConfig
    seq: int
    parent_id: str | None
    content: _Document | Payload
    size_bytes: int
    stored_bytes: int
    metadata: _Document
    created_at: datetime


@dataclass(slots=True)
class _Line:
    """The checkpoints of one thread and namespace, oldest first, and what tasks wrote there.

    ``writes`` leads from a checkpoint's id to task and index, and from there to the write.
    """

    entries: dict[str, _Entry] = field(default_factory=dict)
    writes: dict[str, dict[tuple[str, int], tuple[str, str, _Document]]] = field(
        default_factory=dict
    )


class MemoryCheckpointSaver(BaseCheckpointSaver):
    """Keeps checkpoints in this process; they are gone when it ends.

    ``max_checkpoints_per_thread`` bounds each thread and namespace: the oldest go.
    """

    def __init__(self, *, max_checkpoints_per_thread: float | None = None) -> None:
        self._cap = check_cap(max_checkpoints_per_thread)
        self._threads: dict[str, dict[str, _Line]] = {}
        self._recorders = ThreadRecorders()
        self._chunks: dict[bytes, bytes] = {}
        self._seq = 0
        self._removed = 0
        self._lock = new_lock()

    def put(
        self,
        config: CheckpointConfig,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointConfig:
        """Store a checkpoint; see `BaseCheckpointSaver.put`.

        Raises `StateNotSerializable` for a value without an exact stored form.
        """
        check_config(config)
        kept = _Document.of({} if metadata is None else metadata, "metadata")
        saved = CheckpointConfig(config.thread_id, new_id(), config.namespace)
        if type(checkpoint) is dict and not self._was_large(saved):
            small = _Document.of(checkpoint, "$")
            if len(small.text) <= _LARGE:
                with self._lock:
                    self._add(saved, config.checkpoint_id, small, len(small.text), kept, ())
                return saved
        key = (config.thread_id, config.namespace)
        for attempt in self._recorders.attempts(key, checkpoint):
            with attempt as encoded, self._lock:
                if any(digest not in self._chunks for digest in encoded.expects):
                    raise ChunksMissing("chunks of the last checkpoint were swept")
                new = {
                    digest: bytes(data)
                    for digest, data in encoded.chunks.items()
                    if digest not in self._chunks
                }
                self._chunks.update(new)
                content = Payload(encoded.manifest, encoded.refs)
                size = encoded.size_bytes
                self._add(saved, config.checkpoint_id, content, size, kept, new.values())
        return saved

    def _was_large(self, config: CheckpointConfig) -> bool:
        with self._lock:
            line = self._threads.get(config.thread_id, {}).get(config.namespace)
            if line is None or not line.entries:
                return False
            return next(reversed(line.entries.values())).size_bytes > _LARGE

    def _add(
        self,
        config: CheckpointConfig,
        parent_id: str | None,
        content: _Document | Payload,
        size_bytes: int,
        metadata: _Document,
        new: Collection[bytes],
    ) -> None:
        line = self._line(config)
        entries = line.entries
        if parent_id is None and entries:
            parent_id = next(reversed(entries))
        if isinstance(content, Payload):
            stored = len(content.manifest.encode()) + len(content.refs) + sum(map(len, new))
        else:
            stored = size_bytes
        self._seq += 1
        entries[str(config.checkpoint_id)] = _Entry(
            config, self._seq, parent_id, content, size_bytes, stored, metadata, utc_now()
        )
        while self._cap is not None and len(entries) > self._cap:
            oldest = next(iter(entries))
            self._removed += isinstance(entries.pop(oldest).content, Payload)
            line.writes.pop(oldest, None)
        if self._removed >= _REMOVED_BEFORE_SWEEP:
            self._sweep()

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
        for text, what in ((task_id, "task id"), (task_path, "task path")):
            check_text(text, what, FREE_TEXT_BYTES, empty=True)
        pairs = check_writes(writes)
        for channel, _ in pairs:
            check_text(channel, "channel", FREE_TEXT_BYTES, empty=True)
        values = [(channel, _Document.of({_VALUE: value}, "$")) for channel, value in pairs]
        with self._lock:
            stored = self._line(config).writes.setdefault(config.checkpoint_id, {})
            for index, (channel, value) in enumerate(values):
                stored.setdefault((task_id, index), (task_path, channel, value))

    def get_tuple(self, config: CheckpointConfig) -> CheckpointTuple | None:
        """Return a checkpoint; see `BaseCheckpointSaver.get_tuple`."""
        check_config(config)
        with self._lock:
            line = self._threads.get(config.thread_id, {}).get(config.namespace)
            if line is None or not line.entries:
                return None
            entry = line.entries.get(config.checkpoint_id or next(reversed(line.entries)))
            return None if entry is None else self._read(entry, line)

    def list(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate newest first; see `BaseCheckpointSaver.list`."""
        for entry in self._find(config, filter, before, limit):
            # None means that it was removed while somebody was looking at a newer one.
            if (found := self.get_tuple(entry.config)) is not None:
                yield found

    def list_summaries(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointSummary]:
        """Iterate as `list` does; no content is read."""
        for entry in self._find(config, filter, before, limit):
            yield CheckpointSummary(entry.config, _metadata(entry), _parent(entry))

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread, and at once the content that nothing else refers to."""
        CheckpointConfig(thread_id)
        with self._lock:
            if self._threads.pop(thread_id, None) is not None:
                self._sweep()
        self._recorders.forget_thread(thread_id)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread; see `BaseCheckpointSaver.copy_thread`. Contents are shared, not doubled."""
        CheckpointConfig(source_thread_id)
        CheckpointConfig(target_thread_id)
        with self._lock:
            if source_thread_id not in self._threads:
                raise SessionNotFound(f"there is no thread {source_thread_id!r}")
            if target_thread_id in self._threads:
                raise SessionExists(f"a thread {target_thread_id!r} exists already")
            lines = self._threads[source_thread_id]
            self._threads[target_thread_id] = {namespace: _Line() for namespace in lines}
            copies: dict[str | None, str] = {}
            for entry in sorted(_entries(lines), key=lambda entry: entry.seq):
                config = CheckpointConfig(target_thread_id, new_id(), entry.config.namespace)
                parent_id = copies.get(entry.parent_id, entry.parent_id)
                copies[entry.config.checkpoint_id] = str(config.checkpoint_id)
                self._seq += 1
                line = self._threads[target_thread_id][config.namespace]
                line.entries[str(config.checkpoint_id)] = _Entry(
                    config,
                    self._seq,
                    parent_id,
                    entry.content,
                    entry.size_bytes,
                    0,
                    entry.metadata,
                    entry.created_at,
                )
            for namespace, line in lines.items():
                self._threads[target_thread_id][namespace].writes = {
                    copies.get(checkpoint_id, checkpoint_id): dict(writes)
                    for checkpoint_id, writes in line.writes.items()
                }

    def list_threads(self) -> Sequence[ThreadInfo]:
        """List all threads, most recently created first."""
        with self._lock:
            return [
                _thread_info(thread_id, [*_entries(lines)])
                for thread_id, lines in reversed(self._threads.items())
            ]

    def _line(self, config: CheckpointConfig) -> _Line:
        lines = self._threads.get(config.thread_id)
        if lines is None:
            lines = self._threads[config.thread_id] = {}
        line = lines.get(config.namespace)
        if line is None:
            line = lines[config.namespace] = _Line()
        return line

    def _read(self, entry: _Entry, line: _Line) -> CheckpointTuple:
        content = entry.content
        if isinstance(content, Payload):
            checkpoint = decode_state(content, self._read_chunks).state
        else:
            checkpoint = content.read()
        writes: Iterable[Any] = ()
        if line.writes and (stored := line.writes.get(str(entry.config.checkpoint_id))):
            ordered = sorted((path, task, at) for (task, at), (path, _, _) in stored.items())
            writes = [(task, *stored[task, at][1:]) for _, task, at in ordered]
        return CheckpointTuple(
            entry.config,
            checkpoint,
            _metadata(entry),
            _parent(entry),
            [(task_id, channel, value.read()[_VALUE]) for task_id, channel, value in writes],
        )

    def _read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        return {digest: self._chunks[digest] for digest in digests if digest in self._chunks}

    def _find(
        self,
        config: CheckpointConfig | None,
        wanted: Mapping[str, Any] | None,
        before: CheckpointConfig | None,
        limit: int | None,
    ) -> Iterator[_Entry]:
        limit = check_limit(limit)
        for given in (config, before):
            if given is not None:
                check_config(given)
        if wanted:
            metadata_filter(wanted)
        with self._lock:
            if config is None:
                found = [entry for lines in self._threads.values() for entry in _entries(lines)]
                found.sort(key=lambda entry: entry.seq)
            else:
                line = self._threads.get(config.thread_id, {}).get(config.namespace, _Line())
                found = [*line.entries.values()]
                if config.checkpoint_id is not None:
                    found = [
                        line.entries[key] for key in line.entries if key == config.checkpoint_id
                    ]
            position = self._seq + 1 if before is None else self._position(before)
        fitting = (
            entry
            for entry in reversed(found)
            if entry.seq < position and (not wanted or _has(entry.metadata.read(), wanted))
        )
        return islice(fitting, limit)

    def _position(self, before: CheckpointConfig) -> int:
        line = self._threads.get(before.thread_id, {}).get(before.namespace, _Line())
        entry = line.entries.get(before.checkpoint_id or "")
        if entry is None:
            raise CheckpointNotFound(
                f"thread {before.thread_id!r} has no checkpoint {before.checkpoint_id!r} to list from"
            )
        return entry.seq

    def _sweep(self) -> None:
        """Drop chunks that no checkpoint needs."""
        self._removed = 0
        if not self._chunks:
            return
        roots = (
            entry.content.refs
            for lines in self._threads.values()
            for entry in _entries(lines)
            if isinstance(entry.content, Payload)
        )
        live, _ = reachable(roots, self._read_chunks)
        self._chunks = {digest: self._chunks[digest] for digest in live}


def _entries(lines: Mapping[str, _Line]) -> Iterator[_Entry]:
    for line in lines.values():
        yield from line.entries.values()


def _metadata(entry: _Entry) -> CheckpointMetadata:
    metadata = CheckpointMetadata(entry.metadata.read())
    metadata.created_at = entry.created_at
    return metadata


def _parent(entry: _Entry) -> CheckpointConfig | None:
    if entry.parent_id is None:
        return None
    return CheckpointConfig(entry.config.thread_id, entry.parent_id, entry.config.namespace)


def _has(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Compare as stores do: True is not 1, and 1 is 1.0."""
    return all(
        key in metadata
        and metadata[key] == value
        and (type(metadata[key]) is bool) is (type(value) is bool)
        for key, value in wanted.items()
    )


def _thread_info(thread_id: str, entries: Sequence[_Entry]) -> ThreadInfo:
    latest = max(entries, key=lambda entry: entry.seq, default=None)
    return ThreadInfo(
        thread_id=thread_id,
        checkpoints=len(entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
        stored_bytes=sum(entry.stored_bytes for entry in entries),
        latest_checkpoint_id=None if latest is None else latest.config.checkpoint_id,
    )
