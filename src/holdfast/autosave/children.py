"""Processes that are not to outlive the block: asked to end, then made to.

A process is known by its id *and* the moment it started. An id is given to another process as soon as its
owner is gone, and that one is none of ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from holdfast import processes
from holdfast.errors import InvalidFilter

_POLL: Final = 0.02
# A process that was killed is gone at once, unless the system itself holds it.
_AFTER_KILL: Final = 2.0
_KILL: Final[int] = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Child:
    """A registered process; ``process`` is what the program holds of it, if anything."""

    pid: int
    started: str
    process: Any = None

    def is_running(self) -> bool:
        """Tell whether this very process still runs."""
        return started_at(self.pid) == self.started

    def signal(self, signum: int) -> None:
        """Send a signal, unless the process is gone."""
        if self.is_running():
            os.kill(self.pid, signum)

    def reap(self) -> None:
        """Let the object that the program holds notice the end."""
        poll = getattr(self.process, "poll", None)
        if callable(poll):
            poll()


def find_child(process: Any) -> Child | None:
    """Return the process behind a process object or id; None when it has ended already."""
    pid = process if isinstance(process, int) else getattr(process, "pid", None)
    if type(pid) is not int or pid <= 1 or pid == os.getpid():
        raise InvalidFilter(
            f"a child is a started process or the id of one, other than this one: {process!r}"
        )
    started = started_at(pid)
    if started is None:
        return None
    return Child(pid, started, None if process is pid else process)


def started_at(pid: int) -> str | None:
    """Return a text that is the same as long as the process runs; None when it does not."""
    if os.path.exists("/proc/self/stat"):
        return processes.started_at(pid)
    if os.name != "posix":
        # Nobody knows there; what is not known to run is not signalled either.
        return None
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    state, _, started = shown.partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def end_children(children: Iterable[Child], *, grace: float) -> list[str]:
    """End processes: SIGTERM, and SIGKILL for those that still run after ``grace`` seconds.

    Returns what could not be done, one text for each process that may still run.
    """
    problems: list[str] = []
    all_of_them = list(children)
    rest = all_of_them
    for signum, patience in ((signal.SIGTERM, grace), (_KILL, _AFTER_KILL)):
        rest = _signalled(rest, signum, patience, problems)
    for child in all_of_them:
        child.reap()
    problems += [f"process {child.pid} did not end, even killed" for child in rest]
    return problems


def _signalled(
    children: list[Child], signum: int, patience: float, problems: list[str]
) -> list[Child]:
    """Signal processes and return those that still run after a while."""
    waiting = []
    for child in children:
        try:
            child.signal(signum)
            waiting.append(child)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            problems.append(f"process {child.pid} may not be ended: {error}")
    deadline = time.monotonic() + patience
    while waiting := [child for child in waiting if child.is_running()]:
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL)
    return waiting
