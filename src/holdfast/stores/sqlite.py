"""Checkpoints in one SQLite file: embedded, durable, shared by any number of local processes.

Every change is one ``BEGIN IMMEDIATE`` transaction with ``synchronous=FULL`` in WAL mode: a method
that returned cannot be taken back by a power cut. What can be done before the file's only write lock
is taken (checking, compressing, serialising) is done before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from holdfast.errors import InvalidUrl
from holdfast.ids import check_tenant
from holdfast.model import utc_now
from holdfast.processes import Uptime, uptime
from holdfast.stores.rules import key_required
from holdfast.stores.sqlite_errors import translated
from holdfast.stores.sqlite_file import DatabaseFile
from holdfast.stores.sqlite_schema import back_up, check_beside, check_schema, ensure_schema
from holdfast.stores.sqlite_sealing import SqliteSealing
from holdfast.stores.sqlite_transfer import SqliteTransfer
from holdfast.stores.sqlite_writes import SqliteWrites

BUSY_TIMEOUT: Final = 30.0


class SqliteStore(SqliteTransfer, SqliteWrites, SqliteSealing):
    """A store in the file ``path``, which is created, private to its owner, when it is missing.

    ``busy_timeout`` is how many seconds a write waits for others before it raises `StoreBusy`.
    With ``ensure_schema=False`` nothing is created or migrated: a missing or older schema raises
    `SchemaMissing`. ``sealed`` is for `holdfast.stores.sealed`; without it a sealed file raises
    `KeyRequired`.

        with SqliteStore("sessions.db") as store:
            store.create_agent(...)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tenant: str = "default",
        ensure_schema: bool = True,
        busy_timeout: float = BUSY_TIMEOUT,
        compress: bool = True,
        sealed: bool = False,
        now: Callable[[], datetime] = utc_now,
        uptime: Callable[[], Uptime] = uptime,
    ) -> None:
        self.tenant = check_tenant(tenant)
        self.path = Path(path).absolute()
        try:
            self.url = f"sqlite:///{quote(str(self.path))}"
        except UnicodeEncodeError:
            raise InvalidUrl(
                f"SQLite opens no file whose path is not UTF-8: {str(self.path)!a}. Nothing was opened; "
                "rename it, or name a store elsewhere (--url, HOLDFAST_URL)"
            ) from None
        self._compress = compress
        self._now = now
        self._uptime = uptime
        self._drawn_for = set()
        self._file = DatabaseFile(self.path, self.url, busy_timeout=busy_timeout)
        self._file.open(self._ensure_schema if ensure_schema else self._check_schema)
        try:
            if not sealed and self.read_seal() is not None:
                raise key_required(self.url)
        except BaseException:
            self.close()
            raise

    def back_up(self, target: Path) -> None:
        if os.path.lexists(target):
            raise InvalidUrl(f"{target} exists already; nothing was written")
        check_beside(target)
        try:
            back_up(self._file, target)
        except ValueError:
            # Python could open it, but SQLite takes text in UTF-8 only, and nobody a NUL.
            raise InvalidUrl(f"{target!a} cannot be a database; nothing was written") from None
        except (apsw.Error, OSError) as error:
            raise translated(error, target, str(target)) from error

    def _ensure_schema(self, connection: apsw.Connection) -> None:
        ensure_schema(connection, self._file)

    def _check_schema(self, connection: apsw.Connection) -> None:
        check_schema(connection, self._file)

    def close(self) -> None:
        self._file.close()
