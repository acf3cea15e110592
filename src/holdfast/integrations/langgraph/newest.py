"""What a run took for the newest checkpoint of a thread: how a second writer is noticed.

A run begins by reading its thread's newest checkpoint and then goes on from it. If somebody else did so
meanwhile, the run's next put would fork the thread without a word. So what was read as the newest is
remembered, and a put that goes on from just that has to find it still the newest. A put on any other
checkpoint is time travel, and free.

It is remembered in the context of the run, which LangGraph carries into the threads and tasks that put:
two runs of one process are as different as two processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

Line = tuple[object, str, str]
"""A saver, a thread and a namespace."""

# A program may read any number of threads in one context; only its latest runs matter.
_REMEMBERED: Final = 64
_NOTHING: Final[Mapping[Line, list[str]]] = MappingProxyType({})
_seen: ContextVar[Mapping[Line, list[str]]] = ContextVar("holdfast_langgraph_newest")


def saw(saver: object, thread_id: str, namespace: str, checkpoint_id: str | None) -> None:
    """Remember that this run read that checkpoint, or none, as the newest."""
    line = (saver, thread_id, namespace)
    known = {other: cell for other, cell in _seen.get(_NOTHING).items() if other != line}
    while len(known) >= _REMEMBERED:
        del known[next(iter(known))]
    # A cell of its own: contexts that were copied from this one before keep what they saw.
    _seen.set({**known, line: [checkpoint_id or ""]})


def travelled(saver: object, thread_id: str, namespace: str) -> None:
    """Forget it: this run named the checkpoint that it goes on from."""
    line = (saver, thread_id, namespace)
    known = _seen.get(_NOTHING)
    if line in known:
        _seen.set({other: cell for other, cell in known.items() if other != line})


def follows(saver: object, thread_id: str, namespace: str, parent_id: str | None) -> str | None:
    """Return what has to be the newest for a put on ``parent_id``, or None where anything may."""
    cell = _seen.get(_NOTHING).get((saver, thread_id, namespace))
    return cell[0] if cell is not None and cell[0] == (parent_id or "") else None


def went_on(saver: object, thread_id: str, namespace: str, checkpoint_id: str) -> None:
    """Remember the run's own put as the newest, in all the contexts that the run uses."""
    cell = _seen.get(_NOTHING).get((saver, thread_id, namespace))
    if cell is not None:
        cell[0] = checkpoint_id
