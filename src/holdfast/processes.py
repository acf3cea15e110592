"""Which process this is, whether another one still lives, and a clock that nobody sets.

A process id alone says little: it is handed out again, and means something else on another machine, after
a reboot or in another container. Here a process is named by its machine, by the *place* in which its id
counts (one boot of one kernel, one namespace of process ids), by the id and by the time at which it
started. Whether such a process lives is known in the same place only; elsewhere nobody can tell.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_NAMESPACE: Final = "/proc/self/ns/pid"
# The name of a program may contain anything, a parenthesis too; what follows the last one does not.
_STAT: Final = re.compile(rb".*\) (\S)(?: \S+){18} (\d+) ", re.DOTALL)
RUN: Final = "agent:run:"
"""What stands before the process in the name of an owner that gives way to commands: a wrapper's."""

COMMAND: Final = "command:"
"""What stands there in the name of an owner that holds a session for moments only: a command's."""

_OWNER: Final = re.compile(
    f"(?:{RUN}|{COMMAND})?process:(.*):([^:]*):([0-9]{{1,18}}):([^:]*)", re.DOTALL
)
_is_command = False
# What stands between an agent and the programs that it starts.
SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "timeout", "holdfast"}
)
_UNKNOWN: Final = "-"
_LOCKS: Final = "/proc/locks"
# "1: POSIX  ADVISORY  WRITE 4711 fe:00:3286718 120 120"; with an arrow it is somebody who waits.
_LOCK: Final = re.compile(
    r"\d+: \w+ +\w+ +WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) (\d+) (\d+|EOF)"
)


class Uptime(NamedTuple):
    """How long a boot has lasted. Moments of different boots cannot be compared."""

    boot: str
    seconds: float


class Process(NamedTuple):
    """A process, as precisely as the system can name it."""

    host: str
    place: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process:{self.host}:{self.place}:{self.pid}:{self.started}"


def process_in(owner: str) -> Process | None:
    """Read the text of a process, or of an owner that is one; None if it says something else."""
    found = _OWNER.fullmatch(owner)
    return None if found is None else Process(found[1], found[2], int(found[3]), found[4])


def owner_name(owner: str) -> str:
    """Return the owner of a lease as a person would say it."""
    process = process_in(owner)
    return owner if process is None else f"process {process.pid} on {process.host}"


def uptime() -> Uptime:
    """Return the present boot and a time in it that no change of the wall clock touches."""
    return Uptime(_boot(), time.monotonic())


def this_process() -> Process:
    """Return the process that asks; in a forked child that is the child."""
    return process_at(os.getpid())


def process_at(pid: int) -> Process:
    """Return the process that has an id now."""
    return Process(socket.gethostname(), _place(), pid, started_at(pid) or _UNKNOWN)


def be_command() -> None:
    """Say for all of this process that it is a command, which gives back in moments what it holds."""
    global _is_command
    _is_command = True


def own_name() -> str:
    """Return the owner of what this process holds under no other name."""
    return f"{COMMAND if _is_command else ''}{this_process()}"


def ancestor(skip: Collection[str]) -> Process | None:
    """Return the process that started this one, passing over programs of these names.

    None where the system does not tell.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                text = file.read()
        except OSError:
            return None
        name = text[text.index(b"(") + 1 : text.rindex(b")")].decode("utf-8", "replace")
        if name not in skip:
            return process_at(pid)
        pid = int(text[text.rindex(b")") + 2 :].split()[1])
    return None


def is_gone(process: Process) -> bool:
    """Tell whether a process has surely ended; one of another place may always be alive.

    A process that has ended and only waits for its parent to notice is gone too. One with the same id
    that started at another time is somebody else. Where the system does not tell when processes
    started (it is Linux that does), no process is known to be gone.
    """
    return _can_be_judged(process) and started_at(process.pid) != process.started


def is_running(process: Process) -> bool:
    """Tell whether a process surely lives; of one of another place nobody can say so."""
    return _can_be_judged(process) and started_at(process.pid) == process.started


def _can_be_judged(process: Process) -> bool:
    known = _boot() != _UNKNOWN and process.started != _UNKNOWN
    return known and process.place == _place() and process.host == socket.gethostname()


def started_at(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            found = _STAT.match(file.read())
    except OSError:
        return None
    if found is None or found[1] in b"ZX":
        return None
    return found[2].decode()


def program_of(pid: int) -> str:
    """Return a process as a person would say it, with the name of its program where that is known."""
    name = _read(f"/proc/{pid}/comm")
    return f"process {pid}" if name is None else f"process {pid} ({name})"


def holders_of(path: Path, *, byte: int | None = None) -> list[int]:
    """Return the processes that have locked a file, or one byte of it, for themselves.

    The file is not opened. Empty where the system does not tell (it is Linux that does).
    """
    if not hasattr(os, "makedev"):
        return []
    try:
        looked = os.stat(path)
    except OSError:
        return []
    found = set()
    for pid, major, minor, inode, first, last in _LOCK.findall(_read(_LOCKS) or ""):
        place = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
        covers = byte is None or int(first) <= byte <= (byte if last == "EOF" else int(last))
        if place == (looked.st_dev, looked.st_ino) and covers:
            found.add(int(pid))
    return sorted(found - {0})


@cache
def _boot() -> str:
    return _read(_BOOT_ID) or _UNKNOWN


@cache
def _place() -> str:
    try:
        namespace = os.readlink(_NAMESPACE).strip("pid:[]")
    except OSError:
        namespace = _UNKNOWN
    return f"{_boot()}.{namespace}"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
