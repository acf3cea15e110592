"""Building many objects without Python's garbage collector looking at each of them on the way.

The collector runs after every few hundred new containers and visits the young ones, sometimes all that the
process has. While a long list of messages is made or taken apart it can find nothing: all of them are in use.
In a program with a large heap, visiting them takes longer than making them.
"""

from __future__ import annotations

import gc
import os
import weakref
from contextlib import AbstractContextManager

# Whoever has stopped the collector and is to let it go on.
_pausing: weakref.ref[_Pause] | None = None


def collection_paused() -> AbstractContextManager[None]:
    """Leave the collector alone for the length of the block, which should be short.

    Blocks may be nested and may run in several threads: whoever found the collector at work lets it go on. An
    interrupt may come just when a block begins or ends, and keep it from doing so: the next block does it
    instead. Garbage that arises meanwhile is collected afterwards.
    """
    return _Pause()


class _Pause:
    # Every save has several: a class takes half the time of a generator.
    __slots__ = ("__weakref__", "_mine")

    def __enter__(self) -> None:
        global _pausing
        before = _pausing
        self._mine = gc.isenabled() or (before is not None and before() is None)
        if self._mine:
            _pausing = weakref.ref(self)
            gc.disable()

    def __exit__(self, *error: object) -> None:
        global _pausing
        if self._mine:
            gc.enable()
            _pausing = None


def _go_on() -> None:
    # A fork copies only the thread that forked: the one whose block is to end may not be in the child.
    if _pausing is not None:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on)
