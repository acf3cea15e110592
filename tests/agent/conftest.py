"""Every promise of an agent is tested on every checkpointer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from psycopg_pool import ConnectionPool

from holdfast import (
    MemoryCheckpointer,
    PostgresCheckpointer,
    SQLiteCheckpointer,
    ensure_checkpoints_schema,
)
from holdfast.checkpointers import BaseCheckpointer
from tests.agent.scripts import Traces
from tests.checkpointers.test_contract import Queryable
from tests.postgres_server import PostgresServer

Connect: TypeAlias = Callable[..., BaseCheckpointer]


@pytest.fixture(scope="session")
def agents_url(postgres_server: PostgresServer) -> str:
    """A database with Holdfast's schema in it, for psycopg itself."""
    url = postgres_server.create_database()
    with ConnectionPool(url, min_size=1, open=True) as pool:
        asyncio.run(ensure_checkpoints_schema(pool))
    return url


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    return Traces(tmp_path / "traces")


@pytest.fixture(params=["memory", "sqlite", "postgres", "queryable"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Makes checkpointers over one empty database, as different processes would."""
    made: list[BaseCheckpointer] = []
    if request.param in ("memory", "sqlite"):
        memory = MemoryCheckpointer()

        def connect(**options: Any) -> BaseCheckpointer:
            if request.param == "memory":
                one = MemoryCheckpointer(**options)
                one._store = memory.store
                return one
            made.append(SQLiteCheckpointer(tmp_path / "agent.db", **options))
            return made[-1]

        yield connect
        for one in made:
            asyncio.run(one.close())
        return
    url = request.getfixturevalue("agents_url")
    table = f"t_{uuid.uuid4().hex[:12]}"
    with ConnectionPool(url, min_size=1, max_size=4, open=True) as pool:
        driver = pool if request.param == "postgres" else Queryable(pool)
        yield lambda **options: PostgresCheckpointer(driver, table=table, **options)


@pytest.fixture
def checkpointer(connect: Connect) -> BaseCheckpointer:
    return connect()
