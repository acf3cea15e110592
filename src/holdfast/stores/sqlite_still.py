"""A database in a directory that cannot be written: a read-only file system, or somebody else's.

With a write-ahead log even a reader needs a file with shared memory beside the database. Where it is there
already, SQLite manages. Where it cannot be made, the database is taken to be still: it is read without
locks, together with its log if one was left. Nobody here can write to it; whether somebody elsewhere did
is seen by the *mark* of the files, which is compared after each read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

import apsw

Mark: TypeAlias = tuple[tuple[int, int, int] | None, ...]

_NO_LOCKS: Final = "unix-none"


def is_still(path: Path) -> bool:
    """Tell whether a file that is there can be read only like this."""
    real = os.path.realpath(path)
    return (
        _NO_LOCKS in apsw.vfs_names()
        and os.path.isfile(real)
        and not os.access(os.path.dirname(real), os.W_OK)
        and not (os.path.exists(f"{real}-wal") and os.path.exists(f"{real}-shm"))
    )


def connect_to_read(path: Path) -> apsw.Connection:
    """Open a connection that only reads, whatever the place."""
    if is_still(path):
        return connect_still(path)
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


def connect_still(path: Path, *, cached_statements: int = 0) -> apsw.Connection:
    """Open a connection to a still database."""
    real = os.path.realpath(path)
    has_log = os.path.exists(f"{real}-wal") and os.path.getsize(f"{real}-wal") > 0
    option = "mode=ro" if has_log else "immutable=1"
    connection = apsw.Connection(
        f"file:{quote(os.fsencode(real))}?{option}",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        vfs=_NO_LOCKS,
        statementcachesize=cached_statements,
    )
    if has_log:
        # Alone with the file, SQLite keeps in its own memory what it would share.
        connection.pragma("locking_mode", "EXCLUSIVE")
    return connection


def mark_of(path: Path) -> Mark:
    """Return what changes when somebody writes to the database or its log."""
    real = os.path.realpath(path)
    return tuple(_mark(f"{real}{ending}") for ending in ("", "-wal"))


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
