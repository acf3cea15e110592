"""Checkpoints and small graphs to put into a saver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6

from holdfast.stores import Store


def at(
    thread_id: str = "t", checkpoint_id: str | None = None, namespace: str = ""
) -> RunnableConfig:
    names: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
    if checkpoint_id is not None:
        names["checkpoint_id"] = checkpoint_id
    return {"configurable": names}


def checkpoint(
    values: dict[str, Any] | None = None, checkpoint_id: str | None = None
) -> Checkpoint:
    return Checkpoint(
        v=4,
        id=checkpoint_id or str(uuid6()),
        ts="2026-01-01T00:00:00+00:00",
        channel_values=values or {},
        channel_versions=dict.fromkeys(values or {}, 1),
        versions_seen={"node": {"channel": 1}},
        updated_channels=None,
    )


def id_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


class Questions:
    """Counts what a store is asked while it reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        names = (
            "list_checkpoints",
            "read_payload",
            "read_payloads",
            "read_newest",
            "read_chunks",
            "read_writes",
        )
        self.asked.clear()
        for name in names:
            setattr(self._store, name, self._counting(name, getattr(self._store, name)))
        try:
            yield self.asked
        finally:
            for name in names:
                delattr(self._store, name)

    def _counting(self, name: str, method: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            return method(*args, **kwargs)

        return counted
