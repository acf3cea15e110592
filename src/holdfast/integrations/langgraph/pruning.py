"""What may go when a thread is pruned: a pure decision over records.

What is kept keeps the ancestors that its delta channels are computed from; `holdfast.retention` knows which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.model import CheckpointRecord
from holdfast.retention import DELTA_COUNTERS, Needs


def plan(
    records: Sequence[CheckpointRecord], *, keep: Iterable[CheckpointRecord]
) -> tuple[list[str], list[str]]:
    """Return the ids of those records of one thread that go, and of those that are kept or needed by the kept."""
    needs = Needs(records)
    needed: set[str] = set()
    for one in keep:
        needed.add(one.id)
        needed.update(ancestor.id for ancestor in needs.of(one))
    return [one.id for one in records if one.id not in needed], list(needed)


def newest_of_each(
    records: Sequence[CheckpointRecord], count: int, damaged: Iterable[CheckpointRecord] = ()
) -> list[CheckpointRecord]:
    """Return the newest ``count`` records of each namespace, and the newest that is not damaged.

    ``records`` are newest first.
    """
    bad = {one.id for one in damaged}
    kept: Counter[str] = Counter()
    anchored = set()
    found = []
    for one in records:
        kept[one.namespace] += 1
        anchor = one.id not in bad and one.namespace not in anchored
        if anchor:
            anchored.add(one.namespace)
        if anchor or kept[one.namespace] <= count:
            found.append(one)
    return found


def has_delta_channels(metadata: Any, values: Mapping[str, Any]) -> bool:
    """Tell whether a checkpoint with this metadata and these values is of a graph with delta channels.

    One that stores the whole value counts nothing. It needs no ancestors, but those before it do.
    """
    return bool(metadata.get(DELTA_COUNTERS)) or any(
        isinstance(value, _DeltaSnapshot) for value in values.values()
    )
