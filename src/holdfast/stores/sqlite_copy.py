"""A copy of a damaged database that SQLite can open, made without a change to the original."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from holdfast.stores.sqlite_log import fold_log


def copy_database(source: Path, copy: Path) -> None:
    """Copy a database with its log."""
    log = Path(f"{copy}-wal")
    shutil.copyfile(source, copy)
    with suppress(FileNotFoundError):
        shutil.copyfile(f"{source}-wal", log)
        if not copy.stat().st_size:
            # Beside an empty file SQLite would delete the log.
            fold_log(log, copy)
            log.unlink()
