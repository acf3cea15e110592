"""What a run took for the newest checkpoint of a thread: how a second writer is noticed.

A run begins by reading its thread's newest checkpoint and then goes on from it. If somebody else did so
meanwhile, the run's next put would fork the thread without a word. So what was read as the newest is
remembered, and a put that goes on from just that has to find it still the newest. A put on any other
checkpoint is time travel, and free.

A run is told by the object that LangGraph makes for it and puts into all its configs, which is the same from
the first read to the last put, in whatever threads, tasks and contexts the run is stepped through. A read or an
update outside of runs has none: what that saw is remembered in its context.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from langchain_core.runnables import RunnableConfig

from holdfast.state.cache import Cache

Line = tuple[object, str, str]
"""A thread and a namespace, as a run or a saver sees them."""

Cell = list[str]
"""The checkpoint that was seen there last, an empty text for none. All contexts of one run share it."""

# Where LangGraph keeps a run's own object.
_RUN: Final = "__pregel_runtime"
# Nobody says when a run is over. The latest ones matter, some ten thousand.
_OF_RUNS: Final = 8 * 1024 * 1024
_CELL_BYTES: Final = 512
# A program may read any number of threads in one context.
_OF_A_CONTEXT: Final = 64
_NOTHING: Final[Mapping[Line, Cell]] = MappingProxyType({})
_seen: ContextVar[Mapping[Line, Cell]] = ContextVar("holdfast_langgraph_newest")


class Runs:
    """What the runs of one saver took for the newest checkpoints of their lines."""

    def __init__(self) -> None:
        self._of_runs: Cache[Line, Cell] = Cache(_OF_RUNS)

    def saw(self, config: RunnableConfig, line: tuple[str, str], checkpoint_id: str | None) -> None:
        """Remember that this run read that checkpoint, or none, as the newest."""
        cell = [checkpoint_id or ""]
        if (run := _run_of(config)) is not None:
            self._of_runs.put((run, *line), cell, _CELL_BYTES)
            return
        known = self._others(line)
        while len(known) >= _OF_A_CONTEXT:
            del known[next(iter(known))]
        # A cell of its own: contexts that were copied from this one before keep what they saw.
        _seen.set({**known, (self, *line): cell})

    def travelled(self, config: RunnableConfig, line: tuple[str, str]) -> None:
        """Forget it: this run named the checkpoint that it goes on from."""
        if (run := _run_of(config)) is not None:
            self._of_runs.remove((run, *line))
        else:
            _seen.set(self._others(line))

    def follows(
        self, config: RunnableConfig, line: tuple[str, str], parent_id: str | None
    ) -> str | None:
        """Return what has to be the newest for a put on ``parent_id``, or None where anything may."""
        cell = self._cell(config, line)
        return cell[0] if cell is not None and cell[0] == (parent_id or "") else None

    def went_on(self, config: RunnableConfig, line: tuple[str, str], checkpoint_id: str) -> None:
        """Remember the run's own put as the newest."""
        cell = self._cell(config, line)
        if cell is not None:
            cell[0] = checkpoint_id

    def _cell(self, config: RunnableConfig, line: tuple[str, str]) -> Cell | None:
        if (run := _run_of(config)) is not None:
            return self._of_runs.get((run, *line))
        return _seen.get(_NOTHING).get((self, *line))

    def _others(self, line: tuple[str, str]) -> dict[Line, Cell]:
        """Return what this context saw in all lines but one."""
        return {key: cell for key, cell in _seen.get(_NOTHING).items() if key != (self, *line)}


def _run_of(config: RunnableConfig) -> int | None:
    run = config["configurable"].get(_RUN)
    # The address will do: a run begins with a read, which replaces what an earlier one left under it.
    return None if run is None else id(run)
