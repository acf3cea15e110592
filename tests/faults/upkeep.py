"""Upkeep of a project that kills itself: `python -m tests.faults.upkeep PROJECT STEP [SESSION]`.

It prunes and sweeps, or erases a session. Just before its n-th step that could change something it ends by SIGKILL: before
and after each transaction, and before each file that is written or removed and each git command that is started.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast import SessionManager
from holdfast.stores.sqlite_file import DatabaseFile
from tests.workspace.killing import is_step

T = TypeVar("T")
KEPT: Final = 2


class _Fuse:
    """Counts steps down to the last one."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def tidy(project: Path) -> None:
    """Remove what the rules do not keep, and free what nothing needs then."""
    with SessionManager.open(project_dir=project) as manager:
        manager.prune(keep=KEPT)
        manager.gc()


def erase(project: Path, session_id: str) -> None:
    """Erase a session."""
    with SessionManager.open(project_dir=project) as manager:
        manager.delete_session(session_id)


def _arm(fuse: _Fuse) -> None:
    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if is_step(event, arguments):
            fuse.step()

    transact = DatabaseFile._write

    def write(self: DatabaseFile, work: Callable[[Any], T], *, alone: bool) -> T:
        fuse.step()
        done = transact(self, work, alone=alone)
        fuse.step()
        return done

    DatabaseFile._write = write  # type: ignore[method-assign]
    sys.addaudithook(heard)


if __name__ == "__main__":
    _arm(_Fuse(int(sys.argv[2])))
    if sys.argv[3:]:
        erase(Path(sys.argv[1]), sys.argv[3])
    else:
        tidy(Path(sys.argv[1]))
