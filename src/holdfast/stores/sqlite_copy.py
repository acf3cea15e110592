"""A copy of a damaged database that SQLite can open, made without a change to the original.

One that somebody has open is copied through SQLite, as of one moment: copied by itself, file and log would be
of two. That it may be open shows in the index of its log (``-shm``), which SQLite makes with the first
connection and removes with the last. Where nobody has it open, or SQLite cannot, the files are copied. A log
that SQLite would not read to its end is read here.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from holdfast.stores.sqlite_connection import distrust, wait_for_locks
from holdfast.stores.sqlite_log import fold_log, lost_commits, read_header

# Seconds to wait for whoever reads the log after a crash.
_PATIENCE: Final = 5.0


def copy_database(source: Path, copy: Path) -> None:
    """Copy a database with its log, or with what is in the log."""
    if _log_of(source).exists() and _is_log_damaged(source, copy):
        shutil.copyfile(source, copy)
        fold_log(_log_of(copy), copy)
        _log_of(copy).unlink()
        return
    if _copied_by_sqlite(source, copy):
        return
    _copy_files(source, copy)
    # Somebody may have begun meanwhile.
    _copied_by_sqlite(source, copy)


def _is_log_damaged(source: Path, copy: Path) -> bool:
    """Whether a log has commits that SQLite does not see; the copy has it then as it was looked at."""
    log = _log_of(copy)
    shutil.copyfile(_log_of(source), log)
    with log.open("rb") as copied, _log_of(source).open("rb") as present:
        # While others write, it may have been started over under the copy.
        if lost_commits(log) and read_header(copied) == read_header(present):
            return True
    log.unlink()
    return False


def _copied_by_sqlite(source: Path, copy: Path) -> bool:
    """Copy a database that may be in use; false when it is not, or cannot be copied like this."""
    if not Path(f"{source}-shm").exists() or not source.stat().st_size:
        return False
    fresh = Path(f"{copy}.fresh")
    try:
        _back_up(source, fresh)
    except apsw.Error:
        # Too damaged for SQLite to tell how many pages it has.
        fresh.unlink(missing_ok=True)
        return False
    fresh.replace(copy)
    _log_of(copy).unlink(missing_ok=True)
    return True


def _back_up(source: Path, fresh: Path) -> None:
    reading = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    writing = apsw.Connection(str(fresh))
    try:
        # The last one to leave would fold the log into the file.
        reading.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        distrust(reading)
        wait_for_locks(reading, _PATIENCE)
        with writing.backup("main", reading, "main") as backup:
            backup.step(-1)
    finally:
        writing.close()
        reading.close()


def _copy_files(source: Path, copy: Path) -> None:
    log = _log_of(copy)
    shutil.copyfile(source, copy)
    with suppress(FileNotFoundError):
        shutil.copyfile(_log_of(source), log)
        if not copy.stat().st_size:
            # Beside an empty file SQLite would delete the log.
            fold_log(log, copy)
            log.unlink()


def _log_of(database: Path) -> Path:
    return Path(f"{database}-wal")
