"""Checkpoints in the memory of this process: for tests, and for agents that need no tomorrow.

It keeps the same contract as the databases, and the property tests hold those against it: where a
statement and this plain Python disagree, one of them is wrong. One lock guards everything, since
nothing here takes longer than a few microseconds.
"""

from __future__ import annotations

from holdfast.stores.memory_checkpoints import MemoryCheckpoints
from holdfast.stores.memory_transfer import MemoryTransfer
from holdfast.stores.memory_writes import MemoryWrites


class MemoryStore(MemoryCheckpoints, MemoryTransfer, MemoryWrites):
    """A store that lives and dies with its process."""
