"""How the parts of the SQLite store reach its file, and how they build statements.

Each part is a class for one kind of row. A part inherits from the parts that its rows refer to, so
that one transaction can do the work of several; `holdfast.stores.sqlite.SqliteStore` is all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw
import orjson

from holdfast.model import CheckpointQuery, SessionQuery
from holdfast.processes import Uptime
from holdfast.stores.base import Store
from holdfast.stores.checks import check_filter, check_limit, metadata_filter
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_file import DatabaseFile
from holdfast.stores.sqlite_rows import Row, stamp

T = TypeVar("T")

# Ids are stored in lower case; whoever asks may not know.
_CANONICAL: Final = frozenset({"id", "agent_id"})


class SqliteAccess(Store):
    """A file and what every part needs of it."""

    path: Path
    _file: DatabaseFile
    _now: Callable[[], datetime]
    _uptime: Callable[[], Uptime]
    _compress: bool
    # The lines, by session and namespace, that places were drawn for.
    _drawn_for: set[tuple[str, str]]

    def _clock(self) -> str:
        return stamp(self._now())

    def _rows(self, name: str, values: tuple[Any, ...]) -> list[Row]:
        return self._file.read(lambda connection: all_rows(connection, name, values))

    def _erase(self, work: Callable[[apsw.Connection], T]) -> T:
        with self._forgetting():
            self._drawn_for.clear()
            return self._file.erase(work)

    def _list(
        self,
        convert: Callable[[Row], T],
        statement: list[str],
        values: list[Any],
        order: str,
        limit: int | None,
    ) -> list[T]:
        limit = check_limit(limit)
        text = "\n".join((*statement, order))
        values.append(-1 if limit is None else limit)
        # As `all_rows` does: a row that cannot be converted must not leave the cursor half-way.
        found = self._file.read(lambda connection: connection.execute(text, values).fetchall())
        return [convert(row) for row in found]


def all_rows(connection: apsw.Connection, name: str, values: tuple[Any, ...]) -> list[Row]:
    """Run a named statement and return its rows."""
    # All rows at once: a cursor that is left half-way would hold on to its snapshot.
    return connection.execute(SQL[name], values).fetchall()


def narrow(
    prefix: str,
    query: CheckpointQuery | SessionQuery,
    filters: tuple[tuple[str, type], ...],
    statement: list[str],
    values: list[Any],
) -> None:
    """Add to a listing the conditions that a query names."""
    for field, kind in filters:
        value = getattr(query, field)
        if value is not None:
            check_filter(value, field, kind)
            if kind is bool:
                # A condition without a value, so that an index on what fulfils it can be used.
                statement.append(SQL[f"{prefix}{field}.{'yes' if value else 'no'}"])
                continue
            statement.append(SQL[prefix + field])
            if field == "agent_prefix":
                # From the first to the last that begins so, which an index on the ids finds: f comes before g.
                values += (value.lower(), value.lower() + "g")
            else:
                values.append(value.lower() if field in _CANONICAL else value)
    if query.metadata:
        statement.append(SQL[prefix + "metadata"])
        values.append(metadata_filter(query.metadata))


def hex_list(digests: Collection[bytes]) -> str:
    """Return digests as JSON, in the form that ``unhex`` of `json_each` reads."""
    return '["' + '","'.join([digest.hex() for digest in digests]) + '"]'


def text_list(values: Collection[str], what: str = "id") -> str:
    """Return texts as JSON, each checked as a filter is."""
    for value in values:
        check_filter(value, what, str)
    return orjson.dumps(list(values)).decode()


def number_list(values: Collection[int]) -> str:
    """Return numbers as JSON."""
    return orjson.dumps(list(values)).decode()
