"""Fixtures that every test may use."""

import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from psycopg import sql

from tests.postgres_server import PostgresServer

pytest_plugins = ["pytester", "tests.acceptance.plugin"]


def pytest_configure() -> None:
    # A shell starts what runs in the background with Ctrl+C ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI everything can run, so a test that was skipped has vanished: that is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _aside(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty directory: the working directory is a project whose files get captured."""
    monkeypatch.chdir(tmp_path_factory.mktemp("project"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server per test process. A test that kills or reconfigures a server makes its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def _postgres_database(postgres_server: PostgresServer) -> str:
    postgres_server.create_database("holdfast")
    return "holdfast"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, _postgres_database: str) -> Iterator[str]:
    """A store URL with a schema of its own, dropped afterwards.

    `schema` is Holdfast's parameter: to connect with psycopg itself use
    `postgres_server.url(...)`. A transaction that the test left open makes the drop fail.
    """
    schema = f"t_{uuid.uuid4().hex[:12]}"
    yield f"{postgres_server.url(_postgres_database)}&schema={schema}"
    postgres_server.execute(
        sql.SQL("SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {} CASCADE").format(
            sql.Identifier(schema)
        ),
        dbname=_postgres_database,
    )
