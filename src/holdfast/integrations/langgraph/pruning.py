"""What may go when a thread is pruned: a pure decision over records.

A delta channel stores the whole of its value now and then only; in between, a checkpoint needs its
ancestors, their writes included, back to the last whole one. LangGraph counts in the metadata how long
that is ago: a channel that is counted needs the parent, and one that is not counted there ends the walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.model import CheckpointRecord

DELTA_COUNTERS: Final = "counters_since_delta_snapshot"


def surplus(records: Sequence[CheckpointRecord], *, keep: Iterable[CheckpointRecord]) -> list[str]:
    """Return the ids of those records of one thread that neither are kept nor needed by the kept."""
    by_name = {(one.namespace, one.external_id): one for one in records}
    needed: set[str] = set()
    for one in keep:
        needed.add(one.id)
        channels = _unsaved(one)
        while channels:
            parent = by_name.get((one.namespace, one.parent_id))
            if parent is None:
                break
            needed.add(parent.id)
            channels &= _unsaved(parent)
            one = parent
    return [one.id for one in records if one.id not in needed]


def newest_of_each(records: Sequence[CheckpointRecord], count: int) -> list[CheckpointRecord]:
    """Return the newest ``count`` records of each namespace; ``records`` are newest first."""
    kept: dict[str, int] = {}
    found = []
    for one in records:
        kept[one.namespace] = kept.get(one.namespace, 0) + 1
        if kept[one.namespace] <= count:
            found.append(one)
    return found


def has_delta_channels(metadata: Any, values: Mapping[str, Any]) -> bool:
    """Tell whether a checkpoint with this metadata and these values is of a graph with delta channels.

    One that stores the whole value counts nothing. It needs no ancestors, but those before it do.
    """
    return bool(metadata.get(DELTA_COUNTERS)) or any(
        isinstance(value, _DeltaSnapshot) for value in values.values()
    )


def _unsaved(record: CheckpointRecord) -> set[str]:
    counters = (record.metadata or {}).get(DELTA_COUNTERS)
    return set(counters) if isinstance(counters, dict) else set()
