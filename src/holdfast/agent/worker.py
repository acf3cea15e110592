"""Who runs a run, and whether they still can.

A snapshot that says "running" was left by a process that is at work, or by one that was killed. A
process of the same kernel and process-id namespace can be looked up, and its start time tells it from
a later one with the same number. About a process elsewhere nothing can be known from here.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from holdfast.errors import AlreadyResumed
from holdfast.processes import started_at

_PROC: Final = Path("/proc")
_active: Final[set[str]] = set()


@contextmanager
def at_work(run_id: str) -> Iterator[None]:
    """Mark a run as one that this process is working on."""
    if run_id in _active:
        raise AlreadyResumed(f"this process is working on run {run_id} already")
    _active.add(run_id)
    try:
        yield
    finally:
        _active.discard(run_id)


def this_worker() -> dict[str, Any]:
    """Return what identifies this process."""
    pid = os.getpid()
    return {"host": platform.node(), "place": _place(), "pid": pid, "started": started_at(pid)}


def is_at_work(worker: Mapping[str, Any] | None, run_id: str) -> bool | None:
    """Tell whether a worker is still working on a run; None means that it cannot be known here."""
    if worker is None:
        return False
    if worker == this_worker():
        return run_id in _active
    if worker.get("place") != _place() or type(worker.get("pid")) is not int:
        return None
    if worker.get("started") is not None:
        return bool(started_at(worker["pid"]) == worker["started"])
    return _answers(worker["pid"])


def _place() -> str:
    """Name what makes a process id unique: the boot of a kernel, and the namespace in it."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return platform.node()


def _answers(pid: int) -> bool | None:
    if os.name != "posix":
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
