"""How statements reach PostgreSQL: the one place that knows what a pool may be.

Four kinds of objects are taken: anything with ``query(sql, params)``, synchronous or not; psycopg's
``Connection`` and ``AsyncConnection``, used within the transaction that their owner has opened and never
committed here; and its pools. They are told apart by what they can do, so no driver is imported.

Statements use psycopg's named placeholders, ``%(name)s``, and ``params`` is a dict, or None for a script
of several statements. Rows may come back as tuples in the order of the columns or as dicts, in a list
or in the attribute or key ``rows`` of the result.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from holdfast.errors import (
    AlreadyResumed,
    CheckpointNotFound,
    ChunksMissing,
    HoldfastError,
    InvalidConfiguration,
    KeyRequired,
    MigrationChanged,
    SchemaTooNew,
    StoreNotSealed,
)
from holdfast.waiting import in_thread

Row: TypeAlias = Sequence[Any]
Poolable: TypeAlias = Any
"""A `PgQueryable`, a psycopg connection or a psycopg pool."""

_BY_SQLSTATE: Final[Mapping[str, type[HoldfastError]]] = {
    "HF001": ChunksMissing,
    "HF012": AlreadyResumed,
    "HF013": CheckpointNotFound,
    "HF010": SchemaTooNew,
    "HF011": MigrationChanged,
    "HF020": KeyRequired,
    "HF021": StoreNotSealed,
}


@runtime_checkable
class PgQueryable(Protocol):
    """Whatever runs a statement: enough for a checkpointer, and easily a stub in a test.

    class Stub:
        async def query(self, sql, params):
            return []
    """

    def query(self, sql: str, params: Mapping[str, Any] | None, /) -> Any:
        """Run ``sql`` and return its rows, or an awaitable of them."""


class Connector:
    """Sends statements through an object of the user's."""

    def __init__(self, pool: Poolable) -> None:
        self._pool = pool
        self._send: Callable[[str, Mapping[str, Any] | None], Any]
        if callable(getattr(pool, "query", None)):
            self._send = self._query
        elif callable(getattr(pool, "connection", None)):
            self._send = self._through_pool
        elif callable(getattr(pool, "execute", None)) and callable(getattr(pool, "cursor", None)):
            self._send = self._on_connection
        else:
            raise InvalidConfiguration(
                f"a {type(pool).__name__} cannot be queried: pass an object with query(sql, params), "
                f"or a connection or pool of psycopg"
            )

    @property
    def commits(self) -> bool:
        """Whether what a statement stored is certain to stay when the statement is over."""
        if self._send != self._on_connection:
            return True
        return bool(self._pool.autocommit) and self._pool.info.transaction_status == 0

    async def rows(self, sql: str, params: Mapping[str, Any]) -> Sequence[Row]:
        """Run one statement and return its rows. Driver errors become ours."""
        with _translated():
            return _rows(await self._send(sql, params))

    async def script(self, sql: str) -> None:
        """Run several statements as one transaction, or within the caller's."""
        with _translated():
            await self._send(sql, None)

    async def _query(self, sql: str, params: Mapping[str, Any] | None) -> Any:
        result = self._pool.query(sql, params)
        return await result if inspect.isawaitable(result) else result

    async def _through_pool(self, sql: str, params: Mapping[str, Any] | None) -> Any:
        lent = self._pool.connection()
        if hasattr(lent, "__aenter__"):
            async with lent as connection:
                return await _execute_async(connection, sql, params)

        def run() -> Any:
            with lent as connection:
                return _execute(connection, sql, params)

        return await in_thread(run)

    async def _on_connection(self, sql: str, params: Mapping[str, Any] | None) -> Any:
        if inspect.iscoroutinefunction(self._pool.execute):
            return await _execute_async(self._pool, sql, params)
        return await in_thread(_execute, self._pool, sql, params)


def _execute(connection: Any, sql: str, params: Mapping[str, Any] | None) -> list[Row]:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    # Not the connection's own kind of cursor, which may bind parameters or make rows differently.
    with Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(sql, params, binary=params is not None)
        return list(cursor.fetchall()) if params is not None and cursor.description else []


async def _execute_async(connection: Any, sql: str, params: Mapping[str, Any] | None) -> list[Row]:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(sql, params, binary=params is not None)
        return list(await cursor.fetchall()) if params is not None and cursor.description else []


def _rows(result: Any) -> Sequence[Row]:
    if isinstance(result, Mapping):
        result = result.get("rows")
    elif hasattr(result, "rows"):
        result = result.rows
    return [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in result or ()]


@contextmanager
def _translated() -> Iterator[None]:
    """Turn a driver's errors into ours; errors of other objects of the user's pass as they are."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        kind = _BY_SQLSTATE.get(getattr(error, "sqlstate", None) or "")
        if kind is not None:
            raise kind(_first_line(error)) from error
        if (ours := _translate(error)) is not None:
            raise ours from error
        raise


def _translate(error: Exception) -> HoldfastError | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(error, psycopg.Error):
        return None
    try:
        from holdfast.stores.postgres_errors import translate
    except ImportError:
        return None  # psycopg without its pools: the driver's own error has to do
    return translate(error, "PostgreSQL")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
