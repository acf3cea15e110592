"""Locks that a forked child can use.

A fork copies every lock as it stands and only the one thread that forked. A lock that another thread
held at that moment has nobody in the child who would ever release it, so the child gets a new one.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock for ``with`` that is free in a forked child, unless the thread that forked holds it.

    ``reset`` is a method that is called in the child: what the lock guards may have been copied half
    changed, or may be something that two processes must not share. It keeps nothing alive.
    """

    __slots__ = ("__weakref__", "_depth", "_lock", "_owner", "_reset")

    _new: Callable[[], Any] = staticmethod(threading.Lock)

    def __init__(self, reset: Callable[[], None] | None = None) -> None:
        self._lock = self._new()
        self._owner: int | None = None
        self._depth = 0
        self._reset = weakref.WeakMethod(reset) if reset is not None else None
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *exc_info: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    def _renew(self) -> None:
        if self._owner == threading.get_ident():
            # The fork happened inside the block, whose end is still to come in the child too.
            return
        self._lock = self._new()
        self._owner = None
        self._depth = 0
        reset = self._reset() if self._reset is not None else None
        if reset is not None:
            reset()


class RLock(Lock):
    """A `Lock` that the thread which holds it may take again."""

    __slots__ = ()

    _new = staticmethod(threading.RLock)


def _renew_all() -> None:
    for lock in list(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
