"""The schema of a SQLite file: created, checked and migrated in one transaction.

A database of an older schema is copied first, to ``FILE.backup-vN`` next to it, while its write lock
is held: the copy is the state that the migration started from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from holdfast.durable import sync_directory
from holdfast.errors import InvalidUrl, NotADatabase, SchemaMissing
from holdfast.model import utc_now
from holdfast.sql import Migration, migrations
from holdfast.stores.migrate import pending, require_current
from holdfast.stores.sqlite_connection import APPLICATION_ID, SQL, mark_as_new, prepare
from holdfast.stores.sqlite_file import DatabaseFile
from holdfast.stores.sqlite_rows import Row, stamp

_PARTIAL: Final = ".part"
# What SQLite takes for a part of the database that it lies beside.
_LOGS: Final = ("-wal", "-journal")
_BESIDE: Final = (*_LOGS, "-shm")


def check_schema(connection: apsw.Connection, file: DatabaseFile) -> None:
    """Raise unless the tables are there and current; change nothing."""
    if connection.pragma("application_id") != APPLICATION_ID:
        raise SchemaMissing(
            f"{file.url} is empty. Nothing was changed: run holdfast init, or open it with "
            f"ensure_schema=True",
            absent=True,
        )
    applied = _applied(connection)
    require_current(migrations("sqlite"), applied, file.url)
    _refuse_strange(connection, file, applied)
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
        applied = _applied(connection)
        missing = pending(migrations("sqlite"), applied, file.url)
        _refuse_strange(connection, file, applied)
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


def _refuse_strange(
    connection: apsw.Connection, file: DatabaseFile, applied: Mapping[int, str]
) -> None:
    """Raise for a trigger that is not ours, or a table with the name of ours that is another.

    Either could undo what a write acknowledges, or have a read find what was never written. Views and
    tables of somebody else's are none of our business.
    """
    steps = [step for step in migrations("sqlite") if step.version in applied]
    found: list[Row] = connection.execute(SQL["sqlite.objects"]).fetchall()
    # Most often every text stands in a migration as it is, and nothing has to be compared.
    if all(isinstance(text, str) and any(text in step.up for step in steps) for *_, text in found):
        return
    ours = _objects(steps)
    for kind, name, text in found:
        if ours.get(name, (kind, text)) != (kind, text) or (kind == "trigger" and name not in ours):
            raise NotADatabase(
                f"{file.url} has the {kind} {name!r:.80}, which Holdfast did not make like this. Nothing "
                f"was changed: undo that, or save what the file holds with holdfast doctor --salvage"
            )


def _objects(steps: Iterable[Migration]) -> dict[str, tuple[str, str]]:
    """Return what migrations make, by name: its kind and its text."""
    reference = apsw.Connection(":memory:")
    try:
        for step in steps:
            reference.execute(step.up)
        made: list[Row] = reference.execute(SQL["sqlite.objects"]).fetchall()
        return {name: (kind, text) for kind, name, text in made}
    finally:
        reference.close()


def _use_log(connection: apsw.Connection) -> None:
    # It is a property of the file too, but a copy may have been made without it.
    if connection.pragma("journal_mode") != "wal":
        connection.pragma("journal_mode", "WAL")


def _migrate(connection: apsw.Connection, file: DatabaseFile) -> None:
    fresh = connection.pragma("application_id") != APPLICATION_ID
    applied = {} if fresh else _applied(connection)
    steps = pending(migrations("sqlite"), applied, file.url)
    if steps and applied:
        copy = Path(f"{file.path}.backup-v{max(applied)}")
        # One that was killed has left them.
        for ending in ("", *_BESIDE):
            Path(f"{copy}{_PARTIAL}{ending}").unlink(missing_ok=True)
        check_beside(copy)
        back_up(file, copy)
    for step in steps:
        connection.execute(step.up)
        row = (step.version, step.checksum, stamp(utc_now()))
        connection.execute(SQL["migrations.insert"], row)
    if fresh:
        mark_as_new(connection)
    if steps and connection.execute(SQL["sqlite.foreign_key_check"]).get is not None:
        raise NotADatabase(
            f"{file.url} has rows that refer to nothing and cannot be migrated. Nothing was "
            f"changed: restore it from a copy, or open it with the version that wrote it"
        )


def check_beside(target: Path) -> None:
    """Raise `InvalidUrl` where a copy would have something of another database's beside it, or remove it there."""
    for ending in _LOGS:
        if os.path.lexists(f"{target}{ending}"):
            raise InvalidUrl(
                f"{target}{ending} exists already, and would be taken for a part of the copy {target}; nothing "
                f"was written. Move it away first"
            )
    for ending in ("", *_BESIDE):
        if os.path.lexists(f"{target}{_PARTIAL}{ending}"):
            raise InvalidUrl(
                f"{target}{_PARTIAL}{ending} exists already; nothing was written. A copy that was killed may "
                f"have left it: remove it if no other is being made there"
            )


def back_up(file: DatabaseFile, target: Path) -> None:
    """Copy the database as last committed, into a file for its owner only.

    Until it is whole it has a name that ends in ``.part``, which has to be free; see `check_beside`.
    """
    partial = Path(f"{target}{_PARTIAL}")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        _copy(file, partial)
        # The copy is what a failed migration is undone with: it must outlast a power cut.
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    # Not every system can open a directory; there the file system keeps its own order.
    with suppress(OSError):
        sync_directory(target.parent)


def _copy(file: DatabaseFile, target: Path) -> None:
    source = file.connect()
    try:
        copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with copy.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(-1)
            mark_as_new(copy)
            # A copy is one file: it needs no log beside it.
            copy.pragma("journal_mode", "DELETE")
        except apsw.IOError as error:
            # Of what the system said, only this connection knows.
            if number := copy.system_errno:
                raise OSError(number, os.strerror(number)) from error
            raise
        finally:
            copy.close()
    finally:
        source.close()


def _applied(connection: apsw.Connection) -> dict[int, str]:
    applied: list[Row] = connection.execute(SQL["migrations.list"]).fetchall()
    return dict(applied)
