"""Holdfast gives AI agents save points.

    from holdfast import SessionManager

    with SessionManager.open() as manager:
        session = manager.create_session(agent_type="implementer", task_description="Move to OAuth")
        session.save_checkpoint("before-refactor", state={"step": 1})
        session.load_checkpoint("before-refactor").state

Everything public is importable from here, and nothing is imported before it is used: agent hooks start
a process on every tool call, so start-up time is a feature.
"""

from __future__ import annotations

# Spelt so rather than imported: the module `typing` alone takes longer to import than all that is here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.agent import Agent, AgentSuspended
    from holdfast.checkpointers import (
        MemoryCheckpointer,
        PostgresCheckpointer,
        SQLiteCheckpointer,
        ensure_checkpoints_schema,
    )
    from holdfast.errors import HoldfastError
    from holdfast.manager import CheckpointManager
    from holdfast.savers import (
        BaseCheckpointSaver,
        CheckpointableMixin,
        CheckpointConfig,
        CheckpointTuple,
        MemoryCheckpointSaver,
        PostgresCheckpointSaver,
        SQLiteCheckpointSaver,
    )
    from holdfast.sessions import Checkpoint, Session, SessionManager
    from holdfast.workspace import Workspace

__version__ = "0.1.0"

_HOME = {
    "Agent": "agent",
    "AgentSuspended": "errors",
    "BaseCheckpointSaver": "savers",
    "Checkpoint": "sessions",
    "CheckpointConfig": "savers",
    "CheckpointManager": "manager",
    "CheckpointTuple": "savers",
    "CheckpointableMixin": "savers",
    "HoldfastError": "errors",
    "MemoryCheckpointSaver": "savers",
    "MemoryCheckpointer": "checkpointers",
    "PostgresCheckpointSaver": "savers",
    "PostgresCheckpointer": "checkpointers",
    "SQLiteCheckpointSaver": "savers",
    "SQLiteCheckpointer": "checkpointers",
    "Session": "sessions",
    "SessionManager": "sessions",
    "Workspace": "workspace",
    "ensure_checkpoints_schema": "checkpointers",
}

__all__ = [
    "Agent",
    "AgentSuspended",
    "BaseCheckpointSaver",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointManager",
    "CheckpointTuple",
    "CheckpointableMixin",
    "HoldfastError",
    "MemoryCheckpointSaver",
    "MemoryCheckpointer",
    "PostgresCheckpointSaver",
    "PostgresCheckpointer",
    "SQLiteCheckpointSaver",
    "SQLiteCheckpointer",
    "Session",
    "SessionManager",
    "Workspace",
    "__version__",
    "ensure_checkpoints_schema",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"holdfast.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
