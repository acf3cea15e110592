"""Save points with rollback for safe experimentation: `CheckpointManager` and what it hands out."""

from holdfast.manager.blocking import SyncCheckpointManager
from holdfast.manager.documents import SavePoint, read_schema
from holdfast.manager.facade import CheckpointManager
from holdfast.manager.guards import Guard
from holdfast.manager.reports import Rollback, SessionStart
from holdfast.manager.snapshots import capture_git_state, capture_state

__all__ = [
    "CheckpointManager",
    "Guard",
    "Rollback",
    "SavePoint",
    "SessionStart",
    "SyncCheckpointManager",
    "capture_git_state",
    "capture_state",
    "read_schema",
]
