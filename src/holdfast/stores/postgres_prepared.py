"""A statement that is sent again and again, past what the driver does for any statement.

For every call psycopg finds out anew how each parameter is written and each column read. For puts and steps that
took longer than all else on this side of the connection, so here both are said once:

    put = Prepared(queries("postgres", schema)["postgres.put"])
    [row] = put.rows(connection, {"tenant": "…", "data": [b"…"], …})

Parameters are texts for ``%(name)s``, bytes or lists of bytes for ``%(name)b``, or None; columns are what
`_READERS` knows. The connection is in autocommit mode, speaks UTF-8 and is used by nobody else meanwhile.
"""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final

from psycopg import Connection, DataError
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from holdfast.errors import StateCorrupt

_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)([sb])")
_TEXT, _BINARY = 0, 1
_ROWS, _DONE = ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK
_BYTEA: Final = 17
# What follows a DEALLOCATE ALL, which the driver sends after some errors.
_NO_SUCH_STATEMENT: Final = b"26000"
_PREPARED_ALREADY: Final = b"42P05"
_ARRAY: Final = Struct("!iiIii")
_LENGTH: Final = Struct("!i")
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Prepared:
    """One statement with named placeholders, prepared once on every connection that it is sent on."""

    def __init__(self, sql: str) -> None:
        order: dict[str, int] = {}
        formats: list[int] = []

        def number(found: re.Match[str]) -> str:
            if found[1] not in order:
                order[found[1]] = len(order) + 1
                formats.append(_BINARY if found[2] == "b" else _TEXT)
            return f"${order[found[1]]}"

        self._sql = _PLACEHOLDER.sub(number, sql).encode()
        # Behind a pooler others may have prepared the very same on this connection, and no other.
        self._name = b"holdfast_" + hashlib.sha256(self._sql).hexdigest()[:32].encode()
        self._order = tuple(order)
        self._formats = formats
        # The connections that know it, by their place in memory while they are there.
        self._known: set[int] = set()

    def rows(self, connection: Connection[Any], params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Send it and return its rows. Raises `psycopg.Error`, as a cursor does."""
        written: list[bytes | None] = []
        for name in self._order:
            value = params[name]
            if isinstance(value, str):
                if "\0" in value:
                    # libpq would take the text for ending there.
                    raise DataError("PostgreSQL has no text with a NUL in it")
                value = value.encode()
            elif isinstance(value, list):
                value = _array(value)
            written.append(value)
        if id(connection) not in self._known:
            self._prepare(connection)
        result = self._send(connection, written)
        if result.status != _ROWS and _sqlstate(result) == _NO_SUCH_STATEMENT:
            self._prepare(connection)
            result = self._send(connection, written)
        if result.status != _ROWS:
            raise error_from_result(result)
        return _read(result)

    def _prepare(self, connection: Connection[Any]) -> None:
        connection.pgconn.send_prepare(self._name, self._sql)
        [result] = connection.wait(execute(connection.pgconn))
        if result.status != _DONE and _sqlstate(result) != _PREPARED_ALREADY:
            raise error_from_result(result)
        if id(connection) not in self._known:
            self._known.add(id(connection))
            weakref.finalize(connection, self._known.discard, id(connection)).atexit = False

    def _send(self, connection: Connection[Any], written: list[bytes | None]) -> PGresult:
        connection.pgconn.send_query_prepared(
            self._name, written, param_formats=self._formats, result_format=_BINARY
        )
        results: list[PGresult] = connection.wait(execute(connection.pgconn))
        return results[-1]


def _sqlstate(result: PGresult) -> bytes | None:
    return result.error_field(DiagnosticField.SQLSTATE)


def _array(value: list[bytes]) -> bytes:
    parts = [_ARRAY.pack(1, 0, _BYTEA, len(value), 1)]
    for one in value:
        parts += (_LENGTH.pack(len(one)), one)
    return b"".join(parts)


def _read(result: PGresult) -> list[tuple[Any, ...]]:
    try:
        found: list[tuple[Any, ...]] = []
        for row in range(result.ntuples):
            values: list[Any] = []
            for column in range(result.nfields):
                data = result.get_value(row, column)
                values.append(None if data is None else _READERS[result.ftype(column)](data))
            found.append(tuple(values))
        return found
    except (KeyError, ValueError, OverflowError) as error:
        raise StateCorrupt(f"the database's answer cannot be understood ({error})") from error


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _moment(data: bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=_integer(data))


# By the type's number in PostgreSQL's catalog, which never changes.
_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    20: _integer,
    23: _integer,
    25: bytes.decode,
    1184: _moment,
}
