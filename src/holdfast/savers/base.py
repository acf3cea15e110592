"""The interface of a saver: six methods to write, the rest follows from them.

`holdfast.testing.SaverContract` checks an implementation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from holdfast.closing import Closing
from holdfast.errors import SessionExists, SessionNotFound
from holdfast.savers.values import (
    CheckpointConfig,
    CheckpointSummary,
    CheckpointTuple,
    ThreadInfo,
)
from holdfast.waiting import in_thread, iterate_in_thread


class BaseCheckpointSaver(Closing):
    """A place for the checkpoints of threads.

    Subclasses write the abstract methods. The others have defaults that work on top of those, the
    async ones by running their twin in a worker thread.
    """

    @abstractmethod
    def put(
        self,
        config: CheckpointConfig,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointConfig:
        """Store a checkpoint and return the config that names it.

        Its parent is the config's checkpoint if it names one, else the thread's latest. What is
        stored is a copy: changing the caller's objects later changes nothing.
        """

    @abstractmethod
    def put_writes(
        self,
        config: CheckpointConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote at the config's checkpoint, as ``(channel, value)`` pairs.

        A pair that the task has stored at this checkpoint before, counted by position, is kept as
        it was, so a retry is safe.
        """

    @abstractmethod
    def get_tuple(self, config: CheckpointConfig) -> CheckpointTuple | None:
        """Return the config's checkpoint, the thread's latest if it names none, or None."""

    @abstractmethod
    def list(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over a thread's checkpoints, newest first; without a config over all threads'.

        ``filter`` compares metadata (top-level keys, scalar values), ``before`` names the
        checkpoint to continue after, and a config with a ``checkpoint_id`` means that one alone.
        Raises `InvalidFilter`, and `CheckpointNotFound` for an unknown ``before``.
        """

    @abstractmethod
    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread in all its namespaces. An unknown thread is no error."""

    @abstractmethod
    def list_threads(self) -> Sequence[ThreadInfo]:
        """List all threads with what they hold, most recently created first."""

    def get(self, config: CheckpointConfig) -> dict[str, Any] | None:
        """Return only the content of the config's checkpoint, or None."""
        found = self.get_tuple(config)
        return None if found is None else found.checkpoint

    def list_summaries(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointSummary]:
        """Iterate as `list` does, without the contents."""
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield CheckpointSummary(found.config, found.metadata, found.parent_config)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, its pending writes too, into a new one; the copies have new ids.

        Raises `SessionNotFound` without a source and `SessionExists` for a taken target.
        """
        threads = {thread.thread_id for thread in self.list_threads()}
        if source_thread_id not in threads:
            raise SessionNotFound(f"there is no thread {source_thread_id!r}")
        if target_thread_id in threads:
            raise SessionExists(f"a thread {target_thread_id!r} exists already")
        copies: dict[str | None, str | None] = {}
        everything = [
            found for found in self.list(None) if found.config.thread_id == source_thread_id
        ]
        for found in reversed(everything):
            parent = found.parent_config.checkpoint_id if found.parent_config else None
            at = CheckpointConfig(
                target_thread_id, copies.get(parent, parent), found.config.namespace
            )
            copy = self.put(at, found.checkpoint, found.metadata)
            copies[found.config.checkpoint_id] = copy.checkpoint_id
            by_task: dict[str, Any] = {}
            for task_id, channel, value in found.pending_writes:
                by_task.setdefault(task_id, []).append((channel, value))
            for task_id, writes in by_task.items():
                self.put_writes(copy, writes, task_id)

    def close(self) -> None:
        """Release what the saver holds; a saver is also a context manager."""

    # The async twins, each one call --------------------------------------------------------------

    async def aput(
        self,
        config: CheckpointConfig,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointConfig:
        """Async twin of `put`."""
        return await in_thread(self.put, config, checkpoint, metadata)

    async def aput_writes(
        self,
        config: CheckpointConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async twin of `put_writes`."""
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: CheckpointConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        return await in_thread(self.get_tuple, config)

    async def aget(self, config: CheckpointConfig) -> dict[str, Any] | None:
        """Async twin of `get`."""
        return await in_thread(self.get, config)

    async def alist(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`."""
        found = await in_thread(self.list, config, filter=filter, before=before, limit=limit)
        async for item in iterate_in_thread(found):
            yield item

    async def alist_summaries(
        self,
        config: CheckpointConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, the name that callers know
        before: CheckpointConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointSummary]:
        """Async twin of `list_summaries`."""
        found = await in_thread(
            self.list_summaries, config, filter=filter, before=before, limit=limit
        )
        async for item in iterate_in_thread(found):
            yield item

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await in_thread(self.delete_thread, thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def alist_threads(self) -> Sequence[ThreadInfo]:
        """Async twin of `list_threads`."""
        return await in_thread(self.list_threads)
