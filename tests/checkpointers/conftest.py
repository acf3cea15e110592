"""A database of its own for the tests of PostgreSQL checkpointers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from psycopg_pool import ConnectionPool

from holdfast import ensure_checkpoints_schema
from tests.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def checkpoints_url(postgres_server: PostgresServer) -> str:
    """A database with Holdfast's schema in it, for psycopg itself."""
    url = postgres_server.create_database()
    with ConnectionPool(url, min_size=1, open=True) as pool:
        asyncio.run(ensure_checkpoints_schema(pool))
    return url


@pytest.fixture
def pool(checkpoints_url: str) -> Iterator[ConnectionPool]:
    with ConnectionPool(checkpoints_url, min_size=1, max_size=8, open=True) as pool:
        yield pool


@pytest.fixture
def table(pool: ConnectionPool) -> str:
    """A table that no other test knows."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    asyncio.run(ensure_checkpoints_schema(pool, table=name))
    return name
