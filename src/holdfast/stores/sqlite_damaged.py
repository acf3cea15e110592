"""A connection to the copy of a damaged database, whose list of tables is put right first.

That list has the text of every table and index of ours, which we know, and the page where each begins. A
text or a name that was altered is written anew, so what lies on the pages is not lost with it. Of a file that
was cut off before its end the list itself may be gone: it is that of a new database, page for page. An
entry that makes no sense even so, and a file that is shorter than it says, do not stop SQLite from reading the
rest. Only the copy is written to.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from holdfast.errors import NotADatabase
from holdfast.sql import migrations
from holdfast.stores.sqlite_connection import APPLICATION_ID, SQL, distrust

# In the order in which they refer to each other.
TABLES: Final = (
    "agents",
    "sessions",
    "session_checkpoints",
    "chunks",
    "checkpoint_writes",
    "effects",
    "session_logs",
    "workspace_packs",
)
# What SQLite keeps of a database as a whole, at its very beginning.
_HEAD_BYTES: Final = 100


class _Entry(NamedTuple):
    kind: str
    name: str
    table: str
    text: str


def open_damaged(copy: Path, name: str) -> apsw.Connection:
    """Open a copy; a log that cannot be used is left aside, since the file before it may be whole."""
    for attempt in ("with its log", "without"):
        connection = None
        try:
            _give_list(copy)
            _put_right(copy)
            connection = _connect(copy)
            if connection.pragma("application_id") != APPLICATION_ID:
                raise NotADatabase(f"{name} is no database of Holdfast; nothing was written")
            found = {table for (table,) in connection.execute(SQL["sqlite.tables"])}
            if found.isdisjoint(TABLES):
                raise NotADatabase(
                    f"{name} lacks the tables that Holdfast has; nothing was written"
                )
            return connection
        except (apsw.Error, UnicodeDecodeError) as error:
            _close(connection)
            if attempt == "without":
                raise NotADatabase(
                    f"{name}: not even the list of tables can be read ({error}). Nothing was written; "
                    "restore the file from a backup"
                ) from error
            for ending in ("-wal", "-shm"):
                Path(f"{copy}{ending}").unlink(missing_ok=True)
        except NotADatabase:
            _close(connection)
            raise
    raise AssertionError("unreachable")


def _close(connection: apsw.Connection | None) -> None:
    if connection is not None:
        connection.close()


def _connect(copy: Path) -> apsw.Connection:
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    distrust(connection)
    # Both belong together: what is defended cannot be written to, nor read past its errors.
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", True)
    connection.pragma("cell_size_check", True)
    return connection


def _give_list(copy: Path) -> None:
    """Give a file in which pages of the list of tables are missing those that a new database has."""
    new = _new_database()
    try:
        whole = new.serialize("main")
        page_size = int(new.pragma("page_size"))
        with copy.open("rb+") as file:
            head = file.read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES or head[:18] != whole[:18]:
                return
            # Other pages stay empty: a table that seems to have no rows would hide what is lost.
            for (page,) in new.execute(SQL["sqlite.salvage.schema_pages"]).fetchall():
                at = (int(str(page)) - 1) * page_size
                file.seek(at)
                if not any(file.read(page_size)):
                    file.seek(at)
                    file.write(whole[at : at + page_size])
    finally:
        new.close()


def _put_right(copy: Path) -> None:
    """Write the texts and names of ours over those that were altered."""
    steps = migrations("sqlite")
    ours = _entries_of_ours()
    by_text = {one.text: one for one in ours}
    by_name = {(one.kind, one.name): one for one in ours}
    connection = _connect(copy)
    try:
        # What cannot be put right is read as far as it goes.
        with suppress(apsw.Error):
            rows: list[Any] = connection.execute(SQL["sqlite.salvage.schema"]).fetchall()
            for row, *values in rows:
                found = _Entry(*(_text(one) for one in values))
                is_ours = any(found.text in step.up for step in steps)
                by = None if is_ours else by_name.get((found.kind, found.name))
                wanted = by_text.get(found.text, by)
                if wanted is not None and wanted != found:
                    connection.execute(SQL["sqlite.salvage.put_right"], (*wanted, row))
    finally:
        connection.close()


def _entries_of_ours() -> list[_Entry]:
    new = _new_database()
    try:
        found: list[Any] = new.execute(SQL["sqlite.salvage.schema"]).fetchall()
        return [_Entry(*(_text(one) for one in values)) for _, *values in found]
    finally:
        new.close()


def _new_database() -> apsw.Connection:
    """Return an empty database, made with the settings that decide on which pages its tables begin."""
    new = apsw.Connection(":memory:")
    new.pragma("auto_vacuum", "INCREMENTAL")
    new.pragma("secure_delete", True)
    new.execute(SQL["sqlite.begin"])
    for step in migrations("sqlite"):
        new.execute(step.up)
    new.execute(SQL["sqlite.commit"])
    return new


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode(errors="replace")
