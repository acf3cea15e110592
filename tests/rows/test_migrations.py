"""Migrations: shipped, recorded, applied once, taken back, and never half done, in both databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import SessionManager
from holdfast.errors import MigrationChanged, SchemaTooNew, StoreError
from holdfast.sql import Dialect, Migration, migrations
from holdfast.stores import postgres_connection, sqlite_schema
from holdfast.stores.postgres_connection import parse_url
from tests.cli.conftest import run_process
from tests.rows.conftest import Database
from tests.stores.postgres_drafts import connect, schema_of

NEXT = len(migrations("sqlite")) + 1


def dialect_of(database: Database) -> Dialect:
    return "postgres" if database.kind == "postgres" else "sqlite"


def shipped(database: Database) -> tuple[Migration, ...]:
    if database.kind == "postgres":
        return migrations("postgres", database.schema)
    return migrations("sqlite")


def tables_of(database: Database) -> set[str]:
    query = (
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        if database.kind == "postgres"
        else "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return {name for (name,) in database.sql(query)}


def objects_of(database: Database) -> list[tuple[Any, ...]]:
    """Everything that has a name: tables, indexes, sequences, functions."""
    if database.kind == "postgres":
        return database.sql(
            "SELECT relname::text FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
            "UNION ALL SELECT proname::text FROM pg_proc "
            "WHERE pronamespace = current_schema()::regnamespace ORDER BY 1"
        )
    return database.sql(
        "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    )


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the package have other migrations than it has."""

    def ship(*found: Migration) -> None:
        monkeypatch.setattr(sqlite_schema, "migrations", lambda *_: found)
        monkeypatch.setattr(postgres_connection, "migrations", lambda *_: found)

    return ship


def following(database: Database, up: str) -> Migration:
    """A migration that a later release might bring."""
    return Migration(NEXT, f"{NEXT:03}_next.sql", up, "DROP TABLE next", "sha256:next")


def table(database: Database, name: str) -> str:
    return f'"{database.schema}".{name}' if database.kind == "postgres" else name


def save_something(database: Database) -> str:
    with database.open() as manager:
        session = manager.create_session("a", metadata={"kept": True})
        session.save_checkpoint("one", state={"text": "word " * 3000, "n": 1}, metadata={"k": 1})
        session.log("info", "hello")
        return session.id


def check_something(manager: SessionManager, session_id: str) -> None:
    session = manager.get_session(session_id)
    assert session.metadata == {"kept": True}
    assert session.get_checkpoint("one").state == {"text": "word " * 3000, "n": 1}
    assert session.get_checkpoint("one").metadata == {"k": 1}
    assert [line.message for line in session.logs()] == ["hello"]
    assert manager.verify().ok


@pytest.mark.row("S0-02")
def test_the_first_migration_ships_in_the_package_and_a_second_time_changes_nothing(
    database: Database,
) -> None:
    folder = files("holdfast.sql") / dialect_of(database) / "migrations"
    text = (folder / "001_initial_schema.sql").read_text(encoding="utf-8")
    assert ".session_checkpoints (" in text or "TABLE session_checkpoints (" in text
    session_id = save_something(database)
    applied = database.sql("SELECT * FROM schema_migrations")
    objects = objects_of(database)
    assert [row[0] for row in applied] == [one.version for one in migrations(dialect_of(database))]
    for _ in range(2):
        with database.open() as manager:
            check_something(manager, session_id)
    assert database.sql("SELECT * FROM schema_migrations") == applied
    assert objects_of(database) == objects


@pytest.mark.row("S0-17")
def test_a_migration_is_recorded_by_its_checksum_and_an_edited_one_is_reported(
    database: Database, ship: Callable[..., None]
) -> None:
    session_id = save_something(database)
    known = {one.version: one.checksum for one in shipped(database)}
    recorded = database.sql("SELECT version, checksum FROM schema_migrations")
    assert dict(recorded) == known
    first = shipped(database)[0]
    edited = replace(first, up=first.up + "\n-- a comment", checksum="sha256:edited")
    ship(edited, *shipped(database)[1:])
    objects = objects_of(database)
    with pytest.raises(MigrationChanged, match="001_initial_schema"):
        database.open()
    assert objects_of(database) == objects
    ship(*shipped(database))
    with database.open() as manager:
        check_something(manager, session_id)


@pytest.mark.row("S0-17")
def test_the_down_section_drops_everything_that_the_migration_made(database: Database) -> None:
    save_something(database)
    assert tables_of(database) >= {"agents", "sessions", "session_checkpoints", "chunks"}
    for migration in reversed(shipped(database)):
        assert migration.down.strip()
        if database.kind == "postgres":
            database.connection.execute(migration.down.encode())
        else:
            database.connection.execute(migration.down)
    assert objects_of(database) == []
    for migration in shipped(database):
        if database.kind == "postgres":
            database.connection.execute(migration.up.encode())
        else:
            database.connection.execute(migration.up)
    assert tables_of(database) >= {"agents", "sessions", "session_checkpoints", "chunks"}


@pytest.mark.row("S1-40", "T24")
@pytest.mark.parametrize("version", [one.version for one in migrations("sqlite")])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_of_every_older_schema_opens_with_its_data(
    kind: str,
    version: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = str(tmp_path / "s.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    module = sqlite_schema if kind == "sqlite" else postgres_connection
    found = migrations("sqlite") if kind == "sqlite" else migrations("postgres", schema_of(url))
    older = tuple(one for one in found if one.version <= version)
    monkeypatch.setattr(module, "migrations", lambda *_: older)
    if kind == "postgres":
        SessionManager.open(url, workspace=False).close()
        with connect(url) as connection:
            database = Database(kind, url, connection)
            session_id = save_something(database)
            monkeypatch.undo()
            with database.open() as manager:
                check_something(manager, session_id)
            assert len(database.sql("SELECT * FROM schema_migrations")) == len(found)
        return
    SessionManager.open(url, workspace=False).close()
    database = Database(kind, url, apsw.Connection(url))
    session_id = save_something(database)
    monkeypatch.undo()
    with database.open() as manager:
        check_something(manager, session_id)
    assert len(database.sql("SELECT * FROM schema_migrations")) == len(found)
    database.connection.close()


@pytest.mark.row("S1-40")
def test_an_upgrade_keeps_the_data_and_is_recorded(
    database: Database, ship: Callable[..., None]
) -> None:
    session_id = save_something(database)
    ship(
        *shipped(database),
        following(
            database,
            f"CREATE TABLE {table(database, 'next')} (id integer PRIMARY KEY); "
            f"INSERT INTO {table(database, 'next')} VALUES (7);",
        ),
    )
    with database.open() as manager:
        check_something(manager, session_id)
    assert database.sql("SELECT id FROM next") == [(7,)]
    assert database.value("SELECT max(version) FROM schema_migrations") == NEXT
    if database.kind == "sqlite":
        copy = apsw.Connection(f"{database.url}.backup-v{NEXT - 1}")
        assert copy.execute("SELECT count(*) FROM session_checkpoints").get == 1
        assert copy.execute("SELECT max(version) FROM schema_migrations").get == NEXT - 1
        copy.close()


@pytest.mark.row("S1-40")
def test_an_interrupted_upgrade_leaves_the_older_database_whole(
    database: Database, ship: Callable[..., None]
) -> None:
    session_id = save_something(database)
    objects = objects_of(database)
    ship(
        *shipped(database),
        following(
            database,
            f"CREATE TABLE {table(database, 'half')} (id integer); "
            f"DROP TABLE {table(database, 'session_logs')}; SELECT * FROM nowhere_at_all;",
        ),
    )
    with pytest.raises(StoreError):
        database.open()
    assert objects_of(database) == objects
    assert database.value("SELECT max(version) FROM schema_migrations") == NEXT - 1
    ship(*shipped(database))
    with database.open() as manager:
        check_something(manager, session_id)


@pytest.mark.row("S1-40")
def test_a_newer_database_is_refused_with_advice_and_left_alone(database: Database) -> None:
    save_something(database)
    database.sql("INSERT INTO schema_migrations VALUES (999, 'sha256:x', '2099-01-01T00:00:00Z')")
    before = [database.sql(f"SELECT count(*) FROM {name}") for name in sorted(tables_of(database))]
    objects = objects_of(database)
    for options in ({}, {"create": False}):
        with pytest.raises(SchemaTooNew, match=r"999.*Nothing was changed.*pip install -U"):
            database.open(**options)
    after = [database.sql(f"SELECT count(*) FROM {name}") for name in sorted(tables_of(database))]
    assert (after, objects_of(database)) == (before, objects)


@pytest.mark.row("S3-13")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_printed_schema_makes_a_database_that_needs_no_migration(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        options = ["--schema", schema_of(url)]
    else:
        url, options = str(tmp_path / "s.db"), []
    printed = run_process("schema", "--dialect", kind, *options, cwd=tmp_path)
    assert (printed.returncode, printed.stderr) == (0, b"")
    if kind == "postgres":
        with psycopg.connect(parse_url(url).conninfo, autocommit=True) as connection:
            connection.execute(printed.stdout)
    else:
        with closing(sqlite3.connect(url)) as database:
            database.executescript(printed.stdout.decode())
    with SessionManager.open(url, workspace=False, create=False) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("one", state={"n": 1})
        assert manager.resume_session(session.id).state == {"n": 1}
