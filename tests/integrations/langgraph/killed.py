"""A graph of ten nodes that is killed at a chosen write of its checkpointer.

Run as ``python -m tests.integrations.langgraph.killed URL THREAD DONE AT``: nodes write their number into
the file DONE as the last thing they do; the process kills itself with SIGKILL right before the write number
AT of its saver, counted over put and put_writes. A number that is never reached lets it end. The nodes whose
results the saver has acknowledged stand in a file beside DONE.
"""

from __future__ import annotations

import operator
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from holdfast.integrations.langgraph import HoldfastSaver

NODES = 10


class State(TypedDict, total=False):
    done: Annotated[list[int], operator.add]


class Doomed(HoldfastSaver):
    """Dies before one of its writes, and after all that were begun before it."""

    def __init__(self, url: str, at: int, acknowledged: Path) -> None:
        super().__init__(url)
        self._acknowledged = acknowledged
        self._left = at
        self._running = 0
        self._changed = Condition()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            self._left -= 1
            if self._left == 0:
                # A graph stores the writes of a node in the background.
                self._changed.wait_for(lambda: self._running == 0)
                os.kill(os.getpid(), signal.SIGKILL)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _acknowledge(self, numbers: list[int]) -> None:
        # Written while the call still counts as running: nobody dies between its return and this.
        with self._acknowledged.open("a") as file:
            print(*numbers, file=file)

    def put(self, config: Any, checkpoint: Any, *args: Any, **kwargs: Any) -> Any:
        with self._counted():
            stored = super().put(config, checkpoint, *args, **kwargs)
            self._acknowledge(checkpoint["channel_values"].get("done", []))
            return stored

    def put_writes(self, config: Any, writes: Any, *args: Any, **kwargs: Any) -> None:
        with self._counted():
            super().put_writes(config, writes, *args, **kwargs)
            for channel, value in writes:
                self._acknowledge(value if channel == "done" else [])


def acknowledgements_of(log: Path) -> Path:
    """Return the file with the nodes whose results were acknowledged."""
    return log.with_name(f"{log.name}.acknowledged")


def build(saver: HoldfastSaver, log: Path) -> Any:
    def node(number: int) -> Any:
        def run(state: State) -> State:
            with log.open("a") as file:
                print(number, file=file)
            return {"done": [number]}

        return run

    builder = StateGraph(State)
    before = START
    for number in range(1, NODES + 1):
        builder.add_node(f"n{number}", node(number))
        builder.add_edge(before, f"n{number}")
        before = f"n{number}"
    builder.add_edge(before, END)
    return builder.compile(checkpointer=saver)


def main(url: str, thread_id: str, log: str, at: str) -> None:
    path = Path(log)
    with Doomed(url, int(at), acknowledgements_of(path)) as saver:
        graph = build(saver, path)
        thread: Any = {"configurable": {"thread_id": thread_id}}
        begun = saver.get_tuple(thread) is not None
        # Durable before the next step begins: what ran and was not stored would run again.
        graph.invoke(None if begun else {"done": []}, thread, durability="sync")


if __name__ == "__main__":
    main(*sys.argv[1:])
