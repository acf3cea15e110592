"""One connection to SQLite: how long it waits, what it believes, and the settings that everything relies on."""

from __future__ import annotations

import secrets
import time
from typing import Final

import apsw

from holdfast.errors import NotADatabase
from holdfast.sql import queries
from holdfast.stores.sqlite_errors import ADVICE

APPLICATION_ID: Final = int.from_bytes(b"Hold", "big")
SQL: Final = queries("sqlite")
# A write-ahead log that one large put blew up is cut back to this when it starts over.
_LOG_BYTES: Final = 16 << 20
# Room for the rows of ten thousand checkpoints; the default of 2 MiB reads them anew each time.
_CACHE_KIBIBYTES: Final = 16 << 10
# What SQLite keeps of a database as a whole, at its very beginning.
_HEAD_BYTES: Final = 100
# Seconds between two looks at a lock that another process holds: at first, and later.
_POLL_OFTEN: Final = 0.001
_POLL_SELDOM: Final = 0.01
_OFTEN: Final = 0.5


def wait_for_locks(connection: apsw.Connection, seconds: float) -> None:
    """Let a connection wait so long for locks that others hold.

    SQLite's own way is to sleep longer each time, up to a tenth of a second. Among many writers most
    sleep while the lock is free, and some for seconds; asking often, all get it in a while. Only
    who has waited for long asks less often, so that a crowd does not spend its time with asking.
    """
    began = 0.0

    def is_worth_asking_again(times: int) -> bool:
        nonlocal began
        now = time.monotonic()
        if not times:
            began = now
        waited = now - began
        if waited >= seconds:
            return False
        time.sleep(min(_POLL_OFTEN if waited < _OFTEN else _POLL_SELDOM, seconds - waited))
        return True

    connection.set_busy_handler(is_worth_asking_again)


def mark_as_new(connection: apsw.Connection) -> None:
    """Give a database a number that no other has, so that the log of another one is told from its own."""
    connection.pragma("user_version", 1 + secrets.randbelow(0x7FFFFFFF))


def is_log_of_another(connection: apsw.Connection) -> bool:
    """Tell whether the number in a file is not the one that SQLite sees with the log beside it. Only reads."""
    seen = connection.pragma("user_version")
    whole, head = connection.read("main", 0, 0, _HEAD_BYTES)
    # A new one is in its log only, but for an empty page.
    ours = whole and head[68:72] == APPLICATION_ID.to_bytes(4, "big")
    return ours and int.from_bytes(head[60:64], "big", signed=True) != seen


def refuse_foreign(connection: apsw.Connection, url: str) -> None:
    """Raise `NotADatabase` unless the file is ours or empty. Only reads."""
    # One look at all three: between two looks another process may make the file one of ours.
    connection.execute(SQL["sqlite.begin_read"])
    try:
        found = connection.pragma("application_id")
        strange = found or connection.pragma("user_version")
        strange = strange or connection.execute(SQL["sqlite.tables"]).get
    finally:
        if connection.in_transaction:
            connection.execute(SQL["sqlite.rollback"])
    if strange and found != APPLICATION_ID:
        raise NotADatabase(f"{url}: the file belongs to another program. {ADVICE[NotADatabase]}")


def distrust(connection: apsw.Connection) -> None:
    """Let nothing that stands in the file decide what a statement does: it may come from strangers."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    # We have none. One with the name of a table of ours could compute without end.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)


def prepare(connection: apsw.Connection) -> None:
    """Give a connection to one of our databases the settings that everything relies on."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    # Otherwise SQLite looks at the values of parameters and plans many statements at every use.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # What is deleted is overwritten: also what was trimmed long before somebody erases its session.
    connection.pragma("secure_delete", True)
    connection.pragma("synchronous", "FULL")
    # On macOS a plain fsync ends in the drive's own cache; elsewhere these change nothing.
    connection.pragma("fullfsync", True)
    connection.pragma("checkpoint_fullfsync", True)
    connection.pragma("journal_size_limit", _LOG_BYTES)
    connection.pragma("cache_size", -_CACHE_KIBIBYTES)
