"""Building many objects without Python's garbage collector looking at each of them on the way.

The collector runs after every few hundred new containers and visits the young ones, sometimes all that the
process has. While a long list of messages is made or taken apart it can find nothing: all of them are in use.
In a program with a large heap, visiting them takes longer than making them.
"""

from __future__ import annotations

import gc
import os
from contextlib import AbstractContextManager

_paused = False


def collection_paused() -> AbstractContextManager[None]:
    """Leave the collector alone for the length of the block, which should be short.

    Blocks may be nested and may run in several threads: whoever found the collector at work lets it go on. Garbage
    that arises meanwhile is collected afterwards.
    """
    return _Pause()


class _Pause:
    # Every save has several: a class takes half the time of a generator.
    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        global _paused
        self._mine = gc.isenabled()
        if self._mine:
            _paused = True
            gc.disable()

    def __exit__(self, *error: object) -> None:
        global _paused
        if self._mine:
            gc.enable()
            _paused = False


def _go_on() -> None:
    # A fork copies only the thread that forked: the one whose block is to end may not be in the child.
    if _paused:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on)
