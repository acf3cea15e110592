"""Locks that a forked child can use.

A fork copies every lock as it stands and only the one thread that forked. A lock that another thread
held at that moment has nobody in the child who would ever release it, so the child finds it free.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary, ref

# With each lock what it guards, and how that is reset. Not a WeakMethod, which the end of a program disturbs.
_locks: WeakKeyDictionary[RLock, tuple[ref[Any], Callable[[Any], Any]] | None] = WeakKeyDictionary()


def new_lock(reset: Callable[[], None] | None = None) -> RLock:
    """Return a lock that is free in a forked child, unless the thread that forked holds it.

    Who holds it may take it again, a handler of signals in the same thread among them.
    ``reset`` is a method that is called in the child: what the lock guards may have been copied half changed,
    or may be something that two processes must not share. It keeps nothing alive.
    """
    lock = RLock()
    method: Any = reset
    _locks[lock] = None if method is None else (ref(method.__self__), method.__func__)
    return lock


def _renew_all() -> None:
    for lock, guarded in list(_locks.items()):
        if lock._is_owned():  # type: ignore[attr-defined]
            # The fork happened inside the block, whose end is still to come in the child too.
            continue
        lock._at_fork_reinit()  # type: ignore[attr-defined]
        if guarded is not None and (owner := guarded[0]()) is not None:
            guarded[1](owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
