"""Rules that every store keeps alike: final states, the age of orphans, what a reference reaches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Final

from holdfast.state.refs import RECORD_BYTES, digests_in

FINAL_AGENT_STATUSES: Final = frozenset({"completed", "failed", "terminated"})
ORPHAN_AGE: Final = timedelta(days=1)
_BATCH: Final = 500


def reachable(
    roots: Iterable[bytes], read_chunks: Callable[[Collection[bytes]], dict[bytes, bytes]]
) -> tuple[set[bytes], bool]:
    """Return the digests that packed references reach, and whether every index could be read.

    What lies below an unreadable index is unknown: nobody may remove chunks then.
    """
    live: set[bytes] = set()
    whole = True
    frontier = _enter(roots, live)
    while frontier:
        below: list[bytes] = []
        for at in range(0, len(frontier), _BATCH):
            batch = frontier[at : at + _BATCH]
            found = read_chunks(batch)
            whole = whole and len(found) == len(batch)
            below.extend(found.values())
        whole = whole and all(len(data) % RECORD_BYTES == 0 for data in below)
        frontier = _enter(below, live)
    return live, whole


def _enter(packed: Iterable[bytes], live: set[bytes]) -> list[bytes]:
    indexes = []
    for refs in packed:
        for digest, is_index in digests_in(refs):
            if digest not in live:
                live.add(digest)
                if is_index:
                    indexes.append(digest)
    return indexes
