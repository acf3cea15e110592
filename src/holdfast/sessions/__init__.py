"""Sessions: what an agent's program talks to.

A `SessionManager` opens a store and finds sessions in it; a `Session` saves, loads and lists the
checkpoints of one line of work; a `Checkpoint` is one of them, its state read when it is asked for.
"""

from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.comparison import Comparison
from holdfast.sessions.erasing import Erasure
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.rollback import RollbackReport
from holdfast.sessions.session import Session
from holdfast.sessions.upkeep import StorageReport

__all__ = [
    "Checkpoint",
    "Comparison",
    "Erasure",
    "RollbackReport",
    "Session",
    "SessionManager",
    "StorageReport",
]
