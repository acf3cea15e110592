import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests import postgres_server as module
from tests.postgres_server import PostgresServer, PostgresUnavailable


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(tcp=True) as server:
        yield server


def one_value(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def test_the_server_is_the_chosen_version_and_keeps_fsync_on(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.url()
    assert str(one_value(url, "SHOW server_version")).startswith(f"{postgres_server.version}.")
    assert one_value(url, "SHOW fsync") == "on"
    assert one_value(url, "SHOW data_checksums") == "on"


def test_committed_rows_survive_kill_and_restart(own_server: PostgresServer) -> None:
    url = own_server.create_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept SELECT generate_series(1, 100)")
    open_transaction = psycopg.connect(url)
    open_transaction.execute("INSERT INTO kept VALUES (101)")

    own_server.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    open_transaction.close()

    own_server.start()
    assert one_value(url, "SELECT count(*) FROM kept") == 100
    own_server.restart()
    assert one_value(url, "SELECT count(*) FROM kept") == 100


def test_the_server_can_be_reached_by_a_port(own_server: PostgresServer) -> None:
    assert one_value(own_server.url(tcp=True), "SELECT 1") == 1


def test_a_server_without_a_port_says_so(postgres_server: PostgresServer) -> None:
    with pytest.raises(RuntimeError, match="tcp=True"):
        postgres_server.url(tcp=True)


def test_closing_removes_the_process_and_the_files() -> None:
    with PostgresServer() as server:
        pid, directory = server.pid, server.socket_directory
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_missing_version_is_an_error() -> None:
    with pytest.raises(PostgresUnavailable, match="no PostgreSQL 9"):
        PostgresServer(version="9")


def test_a_private_installation_runs_from_a_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = module._find_installation("18")
    copy = module._copy_installation(source, tmp_path / "copy")
    assert module._open_to_everyone(copy) == all(
        stat.S_IMODE(directory.stat().st_mode) & 0o001 for directory in copy.parents
    )
    monkeypatch.setattr(module, "_find_installation", lambda _version: copy)
    with PostgresServer() as server:
        assert one_value(server.url(), "SELECT 1") == 1


def test_each_test_gets_a_schema_name_of_its_own(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    parts = urlsplit(postgres_url)
    (schema,) = parse_qs(parts.query)["schema"]
    assert schema.startswith("t_")
    count = f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'"
    assert one_value(postgres_server.url(parts.path[1:]), count) == 0
