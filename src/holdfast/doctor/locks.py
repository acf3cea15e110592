"""The locks of a project: of its store, and of its snapshots.

A save takes a lock for moments. Whoever keeps one for longer, hung or stopped, keeps all others waiting, and is
named where the system tells. Every look is a short one, and gives back at once what it got.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.doctor.finding import Finding
from holdfast.processes import program_of
from holdfast.stores import Store
from holdfast.workspace.store_locks import PATIENCE, look_at_locks

NAME: Final = "locks"
# Seconds. A writer that is at work lets go sooner.
_SOON: Final = 0.5
_SHOWN: Final = 5
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def look_at_write_lock(path: Path) -> Finding:
    """Tell whether the write lock of a SQLite file can be had, and else who has it."""
    import apsw

    from holdfast.stores.sqlite_locks import is_held, writers_of
    from holdfast.stores.sqlite_still import is_still

    if is_still(path):
        return Finding(NAME, "ok", "none are needed: nothing can be written here")
    try:
        held = is_held(path, seconds=_SOON)
    except apsw.Error as error:
        return Finding(NAME, "warning", f"the write lock of {path} cannot be had: {error}")
    if not held:
        return Finding(NAME, "ok", "the store's write lock is free")
    pids = writers_of(path)
    return Finding(
        NAME,
        "warning",
        f"{_named(pids)} has kept the write lock of {path} for more than {_SOON:g} seconds: saves wait",
        f"wait for it; if it hangs, {_ending(pids)}. What was saved stays",
    )


def look_at_waits(store: Store) -> Finding:
    """Tell who waits at the tables of a server, and for whom."""
    waits = store.list_waits()
    if not waits:
        return Finding(NAME, "ok", "nobody waits for another one at the server")
    told = [
        f"backend {one.pid} has waited {age_text(one.seconds)} for {', '.join(map(str, one.blockers))}"
        for one in waits[:_SHOWN]
    ]
    first = next((pid for one in waits for pid in one.blockers), waits[0].pid)
    return Finding(
        NAME,
        "warning",
        "; ".join(told),
        f"wait; if the other one hangs: SELECT pg_terminate_backend({first})",
    )


def look_at_snapshot_locks(home: Path) -> Finding | None:
    """Tell who works on the snapshots, or what lock files of git were left there."""
    standing = look_at_locks(home)
    if standing is None:
        return None
    name = "file locks"
    if standing.seconds is not None:
        pids = standing.workers
        text = f"{_named(pids)} has worked on the snapshots for {age_text(standing.seconds)}"
        if standing.seconds < PATIENCE:
            return Finding(name, "ok", text)
        return Finding(
            name, "warning", text, f"wait for it; if it hangs, {_ending(pids)}. Snapshots stay"
        )
    if not standing.left:
        return Finding(name, "ok", "nobody works on the snapshots")
    told = ", ".join(f"{path} ({_age(path)})" for path in standing.left[:_SHOWN])
    remove = " ".join(["rm", *(shlex.quote(str(path)) for path in standing.left[:_SHOWN])])
    return Finding(
        name,
        "warning",
        f"a git that was interrupted left {told}",
        "the next save clears it away" if standing.tidied else f"nobody uses it: {remove}",
    )


def age_text(seconds: float) -> str:
    """Return a length of time as a person would say it."""
    for size, unit in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than a second"


def _age(path: Path) -> str:
    try:
        return f"{age_text(time.time() - os.lstat(path).st_mtime)} old"
    except OSError:
        return "gone meanwhile"


def _named(pids: Sequence[int]) -> str:
    return " and ".join(map(program_of, pids)) or "another process"


def _ending(pids: Sequence[int]) -> str:
    return f"end it: kill {' '.join(map(str, pids))}" if pids else "end it"
