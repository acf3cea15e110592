"""What a run took for the newest checkpoint of a thread: how a second writer is noticed.

A run begins by reading its thread's newest checkpoint and then goes on from it. If somebody else did so
meanwhile, the run's next put would fork the thread without a word. So what was read as the newest is
remembered, and a put that goes on from just that has to find it still the newest. A put on any other
checkpoint is time travel, and free.

It is remembered in the context of the run, which LangGraph carries into the threads and tasks that put:
two runs of one process are as different as two processes. Runs that take turns in one context, as generators
do, are told apart by the object that LangGraph makes for each of them and puts into all its configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from langchain_core.runnables import RunnableConfig

Line = tuple[object, str, str, int]
"""A saver, a thread, a namespace and a run."""

# A program may read any number of threads in one context; only its latest runs matter.
_REMEMBERED: Final = 64
# Where LangGraph keeps a run's own object; a read or an update outside of runs has none.
_RUN: Final = "__pregel_runtime"
_NOTHING: Final[Mapping[Line, list[str]]] = MappingProxyType({})
_seen: ContextVar[Mapping[Line, list[str]]] = ContextVar("holdfast_langgraph_newest")


class Runs:
    """What the runs of one saver took for the newest checkpoints of their lines."""

    def saw(self, config: RunnableConfig, line: tuple[str, str], checkpoint_id: str | None) -> None:
        """Remember that this run read that checkpoint, or none, as the newest."""
        key = self._key(config, line)
        known = dict(_seen.get(_NOTHING))
        known.pop(key, None)
        while len(known) >= _REMEMBERED:
            del known[next(iter(known))]
        # A cell of its own: contexts that were copied from this one before keep what they saw.
        known[key] = [checkpoint_id or ""]
        _seen.set(known)

    def travelled(self, config: RunnableConfig, line: tuple[str, str]) -> None:
        """Forget it: this run named the checkpoint that it goes on from."""
        key = self._key(config, line)
        known = _seen.get(_NOTHING)
        if key in known:
            _seen.set({other: cell for other, cell in known.items() if other != key})

    def follows(
        self, config: RunnableConfig, line: tuple[str, str], parent_id: str | None
    ) -> str | None:
        """Return what has to be the newest for a put on ``parent_id``, or None where anything may."""
        cell = _seen.get(_NOTHING).get(self._key(config, line))
        return cell[0] if cell is not None and cell[0] == (parent_id or "") else None

    def went_on(self, config: RunnableConfig, line: tuple[str, str], checkpoint_id: str) -> None:
        """Remember the run's own put as the newest, in all the contexts that the run uses."""
        cell = _seen.get(_NOTHING).get(self._key(config, line))
        if cell is not None:
            cell[0] = checkpoint_id

    def _key(self, config: RunnableConfig, line: tuple[str, str]) -> Line:
        # The address will do: a run begins with a read, which replaces what an earlier one left under it.
        return (self, *line, id(config["configurable"].get(_RUN)))
