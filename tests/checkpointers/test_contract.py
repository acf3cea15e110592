"""Every checkpointer keeps the contract, with the same results on every backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from holdfast import MemoryCheckpointer, PostgresCheckpointer, SQLiteCheckpointer
from holdfast.checkpointers import BaseCheckpointer, StoreCheckpointer
from holdfast.stores import open_store
from holdfast.testing.checkpointers import CheckpointerContract, Connect, run

ALIKE = pytest.mark.row(
    "S3-02", "S3-06", "S3-07", "S3-08", "S3-31", "S3-32", "S3-33", "S3-35", "S3-37"
)


@ALIKE
@pytest.mark.row("S3-16", "S3-17")
class TestMemoryCheckpointer(CheckpointerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        store = open_store("memory:")

        def connect(**options: Any) -> BaseCheckpointer:
            checkpointer = MemoryCheckpointer(**options)
            # Memory belongs to one object; the suite wants to see it from two.
            checkpointer._store = store
            return checkpointer

        return connect


class TestCheckpointerOverAStore(CheckpointerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return partial(StoreCheckpointer, open_store("memory:"))


@ALIKE
@pytest.mark.row("S3-16", "S3-17")
class TestSQLiteCheckpointer(CheckpointerContract):
    @pytest.fixture
    def connect(self, tmp_path: Path) -> Iterator[Connect]:
        made: list[SQLiteCheckpointer] = []

        def connect(**options: Any) -> BaseCheckpointer:
            made.append(SQLiteCheckpointer(tmp_path / "agent.db", **options))
            return made[-1]

        yield connect
        for checkpointer in made:
            run(checkpointer.close())


@ALIKE
@pytest.mark.row("S3-15", "S3-16", "S3-17", "T8", "T9")
class TestPostgresCheckpointer(CheckpointerContract):
    @pytest.fixture
    def connect(self, pool: ConnectionPool, table: str) -> Connect:
        return partial(PostgresCheckpointer, pool, table=table)


class Queryable:
    """A driver of the user's own: another shape of rows and of results."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool

    async def query(self, sql: str, params: Mapping[str, Any] | None) -> Any:
        with self.pool.connection() as connection:
            cursor = connection.cursor(row_factory=dict_row).execute(sql, params)
            return {"rows": cursor.fetchall() if cursor.description else []}


@pytest.mark.row("S3-20")
class TestThroughAnObjectOfTheUsers(CheckpointerContract):
    @pytest.fixture
    def connect(self, pool: ConnectionPool, table: str) -> Connect:
        return partial(PostgresCheckpointer, Queryable(pool), table=table)
