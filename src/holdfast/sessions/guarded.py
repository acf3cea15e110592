"""What a guard may have to go back to, kept for as long as its block runs.

A guard's checkpoint is an automatic one, and few of those are kept: saves within the block would have it
trimmed, and the next sweep would take its files. So it counts as being restored until the block has ended.
If the process is killed in it, that ends by itself.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.stores.base import Store

# Longer than any block runs.
_LONGEST: Final = timedelta(days=30)
# The checkpoints of blocks that run in this process.
_RUNNING: Final[set[str]] = set()


def keep_for_guard(store: Store, checkpoint_id: str, *, fence: int) -> None:
    """Keep a checkpoint from being trimmed or pruned until `end_guard`."""
    store.mark_restoring(checkpoint_id, seconds=_LONGEST.total_seconds(), fence=fence)
    _RUNNING.add(checkpoint_id)


def is_kept_for_guard(checkpoint_id: str) -> bool:
    """Whether a block of this process may have to go back to a checkpoint."""
    return checkpoint_id in _RUNNING


def end_guard(store: Store, checkpoint_id: str) -> None:
    """Let a checkpoint go the way of all others; whoever has lost the session since may do that."""
    _RUNNING.discard(checkpoint_id)
    # It may have been deleted. Where the store cannot be reached, the mark ends later.
    with suppress(HoldfastError):
        store.mark_restoring(checkpoint_id, seconds=0)
