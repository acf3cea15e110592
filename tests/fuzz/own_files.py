"""A database of ours as somebody else left it: read, looked after, and salvaged.

It is damaged in two ways: as bytes, and value by value. For the second an input has changes behind `PART`: a byte
each for the table, the column and the type, then the value. Such a file is sound, and has in its rows what no
column of ours can hold. The log beside it is damaged frame by frame.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import apsw

from holdfast import SessionManager
from holdfast.doctor import salvage
from holdfast.errors import HoldfastError
from holdfast.model import CheckpointQuery
from holdfast.stores import sqlite_salvage
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_log import HEADER, checksum_of
from tests.fuzz.contract import Target
from tests.fuzz.stored import PART, file_of

SESSION: Final = "session"
# In which forms a value is bound; the last is a text that need not be UTF-8.
_FORMS: Final = ("NULL", "CAST(? AS INTEGER)", "CAST(? AS REAL)", "?", "CAST(? AS TEXT)")


@cache
def own_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ours.db")
        with SessionManager.open(path, project_dir=folder, workspace=False) as manager:
            session = manager.create_session("implementer", session_id=SESSION, metadata={"a": 1})
            session.save_checkpoint("one", state={"page": "x" * 3000, "step": 1})
            session.step("pay", lambda: {"paid": 1})
            session.log("info", "line", data={"k": 1})
            for commit, needs in (("a" * 40, []), ("b" * 40, ["a" * 40])):
                manager.store.put_pack(commit, needs=needs, data=b"pack")
        # In small pages, or it would be larger than an input may be.
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", "DELETE")
        connection.pragma("page_size", 512)
        connection.execute("VACUUM")
        connection.close()
        return path.read_bytes()


def own_file(data: bytes) -> Path:
    path = file_of("ours.db", data)
    for ending in ("-wal", "-shm", "-journal"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    return path


def read_own_database(data: bytes) -> None:
    with SqliteStore(own_file(data), ensure_schema=False, busy_timeout=0.05) as store:
        store.list_agents()
        for session in store.list_sessions():
            store.list_logs(session.id)
        for record in store.list_checkpoints(CheckpointQuery()):
            with suppress(HoldfastError):
                store.load(record.id)


def keep_own_database(data: bytes) -> None:
    """Look at everything, and let go of what nobody needs: each goes on whatever the one before met."""
    path = own_file(data)
    with SessionManager.open(
        path, project_dir=path.parent, workspace=False, create=False, busy_timeout=0.05
    ) as manager:
        store = manager.store
        for work in (
            lambda: manager.verify(deep=True),
            lambda: list(store.read_packs("b" * 40)),
            lambda: manager.prune(max_age=timedelta(), max_bytes=0),
            lambda: store.delete_packs(store.find_packs(["b" * 40])),
            manager.gc,
            manager.storage,
            lambda: manager.resume_session(SESSION).save_checkpoint(
                "two", state={"page": "y" * 3000}
            ),
            lambda: manager.delete_session(SESSION),
        ):
            with suppress(HoldfastError):
                work()


def new_file() -> Path:
    path = file_of("salvaged/new.db", b"")
    path.unlink()
    return path


def salvage_file(path: Path) -> None:
    # A few seconds for each table are all right, and more than an input may take.
    with patch.object(sqlite_salvage, "_MOST_FAILURES", 500):
        salvage(path, new_file())


def salvage_database(data: bytes) -> None:
    salvage_file(own_file(data))


# Value by value -----------------------------------------------------------------------------------


@cache
def lenient_database() -> tuple[bytes, list[Any], list[tuple[str, list[str]]]]:
    """Return a database that takes any value, the texts that make it strict again, and its columns."""
    path = own_file(own_database())
    connection = apsw.Connection(str(path))
    _disarm(connection)
    tables = "SELECT sql, name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%STRICT%'"
    strict: list[Any] = connection.execute(tables).fetchall()
    for text, name in strict:
        lenient = text.replace("STRICT", "").replace("NOT NULL", "")
        connection.execute(_SCHEMA, (lenient, name))
    columns = [
        (name, [row[1] for row in connection.execute(f"PRAGMA table_info({name})")])
        for _, name in sorted(strict, key=lambda one: str(one[1]))
    ]
    connection.close()
    return path.read_bytes(), strict, columns


_SCHEMA: Final = "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?"


def _disarm(connection: apsw.Connection) -> None:
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.pragma("ignore_check_constraints", True)
    connection.pragma("writable_schema", True)
    connection.pragma("synchronous", "OFF")


def changed_database(data: bytes) -> bytes:
    """Return the database with the changes of an input."""
    lenient, strict, tables = lenient_database()
    path = own_file(lenient)
    connection = apsw.Connection(str(path))
    _disarm(connection)
    with connection:
        for change in data.split(PART):
            table, column, form, value = *change[:3].ljust(3, b"\0"), change[3:]
            name, columns = tables[table % len(tables)]
            bound = _FORMS[form % len(_FORMS)]
            # What cannot be, such as an id that is there twice, is left out.
            with suppress(apsw.Error):
                connection.execute(
                    f"UPDATE {name} SET {columns[column % len(columns)]} = {bound}"
                    f" WHERE rowid = (SELECT max(rowid) FROM {name})",
                    () if bound == "NULL" else (value,),
                )
        connection.executemany(_SCHEMA, strict)
    connection.close()
    return path.read_bytes()


def read_changed_database(data: bytes) -> None:
    changed = changed_database(data)
    for work in (read_own_database, keep_own_database):
        with suppress(HoldfastError):
            work(changed)


def change_seeds() -> Iterator[bytes]:
    """Yield a change of every column: none, a number, bytes, and a text."""
    yield b""
    for table, (_, columns) in enumerate(lenient_database()[2]):
        for form, value in enumerate((b"", b"7", b"1.5", b"\xff", b"{}")):
            yield PART.join(bytes((table, column, form)) + value for column in range(len(columns)))


# The log --------------------------------------------------------------------------------------------

_PAGE: Final = 512
# Checksums are what takes the time, so a log of large pages has few of them.
_LARGEST_LOG: Final = 16 << 10
_SALTS: Final = b"saltsalt"


def log_of(data: bytes) -> bytes:
    """Return the write-ahead log that an input stands for, with checksums that fit.

    The first three bits say how large its pages are, and the next one whether its header is damaged. Behind each `PART` is a frame: a byte that is odd where
    its checksum is to be wrong, the page's number and that of all pages in four bytes each, and the page.
    """
    size = _PAGE << (data[0] >> 5 if data else 0)
    head = HEADER.pack(0x377F0682, 3007000, size, 0, _SALTS, 0, 0)[:24]
    checksum = checksum_of(head, "<", (0, 0))
    parts = [head, struct.pack(">2I", *checksum)]
    for frame in data.split(PART)[: max(1, _LARGEST_LOG // size)]:
        numbers, page = frame[1:9].ljust(8, b"\0"), frame[9 : 9 + size].ljust(size, b"\0")
        checksum = checksum_of(page, "<", checksum_of(numbers, "<", checksum))
        if frame[:1] and frame[0] & 1:
            checksum = (checksum[0] ^ 1, checksum[1])
        parts += [numbers, _SALTS, struct.pack(">2I", *checksum), page]
    if data and data[0] & 0x10:
        parts[0] = bytes(8) + head[8:]
    return b"".join(parts)


def read_log(data: bytes) -> None:
    for work in (
        lambda path: SqliteStore(path, ensure_schema=False, busy_timeout=0.05).close(),
        salvage_file,
    ):
        # The two bytes say that there is a log.
        whole = bytearray(own_database())
        whole[18:20] = b"\2\2"
        path = own_file(bytes(whole))
        Path(f"{path}-wal").write_bytes(log_of(data))
        with suppress(HoldfastError):
            work(path)


def log_seeds() -> Iterator[bytes]:
    """Yield the log that writes the first pages again: whole, damaged, without its header, and of a database
    larger than any."""
    pages = [own_database()[at : at + _PAGE] for at in range(0, 4 * _PAGE, _PAGE)]
    count = len(own_database()) // _PAGE
    for first, all_pages in ((0, count), (1, count), (0x10, count), (0xE1, 0xFFFFFFFF)):
        yield PART.join(
            bytes((0 if number else first,)) + struct.pack(">2I", number + 1, all_pages) + page
            for number, page in enumerate(pages)
        )


TARGETS: Final = (
    Target("own-database", read_own_database, lambda: [own_database()]),
    Target("own-database-upkeep", keep_own_database, lambda: [own_database()]),
    Target("own-database-salvage", salvage_database, lambda: [own_database()]),
    Target("own-rows", read_changed_database, change_seeds),
    Target("own-rows-salvage", lambda data: salvage_database(changed_database(data)), change_seeds),
    Target("own-log", read_log, log_seeds),
)
