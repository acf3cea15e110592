"""The async twin of each method of `HoldfastSaver`: the call in a thread, waited for to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from holdfast.savers.values import ThreadInfo
from holdfast.waiting import in_thread, iterate_in_thread


class AsyncTwins:
    """What `HoldfastSaver` adds to its methods for asyncio."""

    async def aget(self: Any, config: RunnableConfig) -> Checkpoint | None:
        """Async twin of `get`."""
        found = await self.aget_tuple(config)
        return None if found is None else found.checkpoint

    async def aget_tuple(self: Any, config: RunnableConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        found: CheckpointTuple | None = await in_thread(self._read, config)
        # Here and not in the thread: it is this task that goes on from what was read.
        self._remember(config, found)
        return found

    async def alist(
        self: Any,
        config: RunnableConfig | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002, LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`."""
        async for found in iterate_in_thread(
            self.list(config, filter=filter, before=before, limit=limit)
        ):
            yield found

    async def aput(
        self: Any,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async twin of `put`."""
        stored: RunnableConfig = await in_thread(
            self.put, config, checkpoint, metadata, new_versions
        )
        return stored

    async def aput_writes(
        self: Any,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async twin of `put_writes`."""
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_delta_channel_history(
        self: Any, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async twin of `get_delta_channel_history`."""
        found: Mapping[str, DeltaChannelHistory] = await in_thread(
            self.get_delta_channel_history, config=config, channels=channels
        )
        return found

    async def alist_threads(self: Any) -> Sequence[ThreadInfo]:
        """Async twin of `list_threads`."""
        found: Sequence[ThreadInfo] = await in_thread(self.list_threads)
        return found

    async def adelete_thread(self: Any, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self: Any, run_ids: Sequence[str]) -> None:
        """Async twin of `delete_for_runs`."""
        await in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self: Any, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(
        self: Any,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
    ) -> None:
        """Async twin of `prune`."""
        await in_thread(self.prune, thread_ids, strategy=strategy, keep_last=keep_last)

    async def aclose(self: Any) -> None:
        """Async twin of `close`."""
        await in_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
