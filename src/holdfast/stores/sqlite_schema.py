"""The schema of a SQLite file: created, checked and migrated in one transaction.

A database of an older schema is copied first, to ``FILE.backup-vN`` next to it, while its write lock
is held: the copy is the state that the migration started from.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import apsw

from holdfast.durable import sync_directory
from holdfast.errors import NotADatabase, SchemaMissing
from holdfast.model import utc_now
from holdfast.sql import migrations
from holdfast.stores.migrate import pending, require_current
from holdfast.stores.sqlite_file import APPLICATION_ID, SQL, DatabaseFile, prepare
from holdfast.stores.sqlite_rows import Row, stamp


def check_schema(connection: apsw.Connection, file: DatabaseFile) -> None:
    """Raise unless the tables are there and current; change nothing."""
    if connection.pragma("application_id") != APPLICATION_ID:
        raise SchemaMissing(
            f"{file.url} is empty. Nothing was changed: run holdfast init, or open it with "
            f"ensure_schema=True"
        )
    require_current(migrations("sqlite"), _applied(connection), file.url)
    _use_log(connection)
    prepare(connection)


def ensure_schema(connection: apsw.Connection, file: DatabaseFile) -> None:
    """Bring the file to the present schema, whatever other processes are doing to it."""
    fresh = connection.pragma("application_id") != APPLICATION_ID
    if fresh:
        # Somebody else may have made the file; what is written into it is for its owner.
        file.make_private()
        # A property of the file that can be chosen only before its first page.
        connection.pragma("auto_vacuum", "INCREMENTAL")
    else:
        missing = pending(migrations("sqlite"), _applied(connection), file.url)
    _use_log(connection)
    prepare(connection)
    if not fresh and not missing:
        return
    # Tables can be rebuilt only without enforcement; the whole is checked before the commit.
    connection.pragma("foreign_keys", False)
    connection.execute(SQL["sqlite.begin"])
    try:
        _migrate(connection, file)
        connection.execute(SQL["sqlite.commit"])
    except BaseException:
        if connection.in_transaction:
            connection.execute(SQL["sqlite.rollback"])
        raise
    connection.pragma("foreign_keys", True)


def _use_log(connection: apsw.Connection) -> None:
    # It is a property of the file too, but a copy may have been made without it.
    if connection.pragma("journal_mode") != "wal":
        connection.pragma("journal_mode", "WAL")


def _migrate(connection: apsw.Connection, file: DatabaseFile) -> None:
    fresh = connection.pragma("application_id") != APPLICATION_ID
    applied = {} if fresh else _applied(connection)
    steps = pending(migrations("sqlite"), applied, file.url)
    if steps and applied:
        back_up(file, Path(f"{file.path}.backup-v{max(applied)}"))
    for step in steps:
        connection.execute(step.up)
        row = (step.version, step.checksum, stamp(utc_now()))
        connection.execute(SQL["migrations.insert"], row)
    if steps and connection.execute(SQL["sqlite.foreign_key_check"]).get is not None:
        raise NotADatabase(
            f"{file.url} has rows that refer to nothing and cannot be migrated. Nothing was "
            f"changed: restore it from a copy, or open it with the version that wrote it"
        )


def back_up(file: DatabaseFile, target: Path) -> None:
    """Copy the database as last committed, into a file for its owner only."""
    partial = Path(f"{target}.part")
    with suppress(FileNotFoundError):
        partial.unlink()
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    source = file.connect()
    copy = apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(-1)
        # A copy is one file: it needs no log beside it.
        copy.pragma("journal_mode", "DELETE")
    finally:
        copy.close()
        source.close()
    # The copy is what a failed migration is undone with: it must outlast a power cut.
    with partial.open("rb+") as written:
        os.fsync(written.fileno())
    os.replace(partial, target)
    # Not every system can open a directory; there the file system keeps its own order.
    with suppress(OSError):
        sync_directory(target.parent)


def _applied(connection: apsw.Connection) -> dict[int, str]:
    applied: list[Row] = connection.execute(SQL["migrations.list"]).fetchall()
    return dict(applied)
