"""LangGraph's own suite for checkpointers, on every backend, async and through a sync shim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from holdfast.integrations.langgraph import HoldfastSaver

TESTS = 81


class Sync(BaseCheckpointSaver[Any]):
    """Answers the async suite with the sync methods of a saver, called in the loop's own thread."""

    def __init__(self, saver: HoldfastSaver) -> None:
        super().__init__()
        self._saver = saver

    async def aput(self, *args: Any) -> Any:
        return self._saver.put(*args)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        self._saver.put_writes(*args, **kwargs)

    async def aget_tuple(self, config: Any) -> Any:
        return self._saver.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for found in self._saver.list(config, **options):
            yield found

    async def adelete_thread(self, thread_id: str) -> None:
        self._saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self._saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self._saver.prune(thread_ids, strategy=strategy)


@pytest.mark.row("S2-01", "S2-14", "S2-23")
@pytest.mark.parametrize("way", ["async", "sync"])
def test_the_whole_suite_passes_with_every_capability(url: str, way: str) -> None:
    @checkpointer_test(name="HoldfastSaver")
    async def opened() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        async with HoldfastSaver(url) as saver:
            yield saver if way == "async" else Sync(saver)

    report = asyncio.run(validate(opened))
    failures = [name for result in report.results.values() for name in result.failures]
    assert not failures, "\n".join(failures)
    detected = {name for name, result in report.results.items() if result.detected}
    assert detected == {capability.value for capability in ALL_CAPABILITIES}
    assert {"delete_for_runs", "copy_thread", "prune"} <= detected
    assert sum(result.tests_passed for result in report.results.values()) == TESTS
