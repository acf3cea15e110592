"""The write lock of a SQLite file: whether it can be had, and who has it.

SQLite keeps its locks as locks of the system on ranges of bytes. With a write-ahead log the writer holds one
byte of the file with the shared memory; without one, or alone with the file, it holds bytes of the database
itself. Linux lists all such locks with their processes. Nothing here opens these files but SQLite: closing
any handle of them would take away the locks that this process has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from holdfast.processes import holders_of
from holdfast.stores.sqlite_connection import SQL, distrust, wait_for_locks

# Fixed by the format of the shared memory, so that all versions understand each other.
_WRITER: Final = 120


def is_held(path: Path, *, seconds: float) -> bool:
    """Tell whether somebody else keeps the write lock for so long. Writes nothing.

    Raises the driver's errors for a file that cannot be written at all.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # Who only looks does not fold the log into the file.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        distrust(connection)
        wait_for_locks(connection, seconds)
        connection.execute(SQL["sqlite.begin"])
        connection.execute(SQL["sqlite.rollback"])
    except apsw.BusyError:
        return True
    finally:
        connection.close()
    return False


def writers_of(path: Path) -> list[int]:
    """Return the processes that hold the write lock, as far as the system tells."""
    found = holders_of(path.with_name(f"{path.name}-shm"), byte=_WRITER)
    return sorted({*found, *holders_of(path)})
