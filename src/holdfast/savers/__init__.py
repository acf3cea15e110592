"""Savers: checkpoints with the interface that LangGraph made familiar.

    from holdfast import CheckpointConfig, SQLiteCheckpointSaver

    saver = SQLiteCheckpointSaver("checkpoints.db")
    config = CheckpointConfig(thread_id="session-123")
    saver.put(config, {"messages": ["hello"]}, {"step": 1})
    saver.get_tuple(config).checkpoint
    history = list(saver.list(config))

A thread is a session of the store, so `SessionManager` and the command line see the same data. Every
method has an async twin whose name begins with ``a``.
"""

from holdfast.savers.backed import (
    PostgresCheckpointSaver,
    SQLiteCheckpointSaver,
    StoreCheckpointSaver,
    open_saver,
)
from holdfast.savers.base import BaseCheckpointSaver
from holdfast.savers.memory import MemoryCheckpointSaver
from holdfast.savers.mixin import CheckpointableMixin
from holdfast.savers.values import (
    CheckpointConfig,
    CheckpointMetadata,
    CheckpointSummary,
    CheckpointTuple,
    ThreadInfo,
)

__all__ = [
    "BaseCheckpointSaver",
    "CheckpointConfig",
    "CheckpointMetadata",
    "CheckpointSummary",
    "CheckpointTuple",
    "CheckpointableMixin",
    "MemoryCheckpointSaver",
    "PostgresCheckpointSaver",
    "SQLiteCheckpointSaver",
    "StoreCheckpointSaver",
    "ThreadInfo",
    "open_saver",
]
