"""Locks of open files, by which processes take turns for a moment and never for ever.

Whoever may read a file can lock it, and keep the lock as long as he likes, so nobody here waits without an end.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_NAP: Final = 0.005


@contextmanager
def locked(handle: int, path: str | os.PathLike[str], *, seconds: float) -> Iterator[None]:
    """Be the only one who has an open file locked, during a block.

    Raises `TimeoutError` when others had it for that many seconds. Where there are no locks, nobody waits: not
    every system and not every file system has them. Over NFS there are some for files open for writing only.
    """
    end = time.monotonic() + seconds
    while not _has_locked(handle):
        if time.monotonic() >= end:
            raise TimeoutError(
                errno.ETIMEDOUT,
                f"somebody else has kept it locked for {seconds:g} seconds",
                os.fspath(path),
            )
        time.sleep(_NAP)
    try:
        yield
    finally:
        # Whoever was forked meanwhile has a copy of the handle, and would keep the lock.
        with suppress(OSError):
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)


def _has_locked(handle: int) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
