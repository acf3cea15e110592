import sqlite3

import pytest

from tests.cli.conftest import CommandLine


def test_the_sqlite_schema_can_be_applied_as_it_is(cli: CommandLine) -> None:
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(cli.ok("schema"))
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    finally:
        database.close()
    assert {"agents", "sessions", "session_checkpoints", "chunks"} <= tables


def test_the_postgres_schema_takes_a_name(cli: CommandLine) -> None:
    document = cli.json("schema", "--dialect", "postgres", "--schema", "mine")["schema"]
    assert (document["dialect"], document["schema"]) == ("postgres", "mine")
    assert '"mine".session_checkpoints' in document["sql"]
    assert "holdfast." not in document["sql"]


def test_the_dialect_is_that_of_the_store_and_nothing_is_opened(cli: CommandLine) -> None:
    document = cli.json("schema", "--url", "postgresql://nowhere.invalid/x")["schema"]
    assert (document["dialect"], document["schema"]) == ("postgres", "holdfast")
    assert cli.json("schema")["schema"]["schema"] is None
    assert not (cli.project / ".agents").exists()


def test_the_schema_is_the_one_that_the_url_names(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://nowhere.invalid/x?schema=agents")
    for options in ((), ("--dialect", "postgres"), ("--role", "app")):
        assert cli.json("schema", *options)["schema"]["schema"] == "agents"
        assert cli.json("schema", *options, "--schema", "mine")["schema"]["schema"] == "mine"
    assert 'GRANT USAGE ON SCHEMA "agents" TO "app";' in cli.ok("schema", "--role", "app")
    odd = cli("schema", "--url", "postgresql://nowhere.invalid/x?schema=a%22b")
    assert odd.code == 2
    monkeypatch.delenv("HOLDFAST_URL")
    assert cli.json("schema", "--role", "app")["schema"]["schema"] == "holdfast"


def test_a_name_that_is_not_one_is_refused(cli: CommandLine) -> None:
    answer = cli("schema", "--dialect", "postgres", "--schema", 'x"; DROP SCHEMA public; --')
    assert answer.code == 2
    assert answer.err.startswith("error: schema must match")
    assert cli("schema", "--schema", "x").code == 2


def test_the_rights_of_a_role_are_printed_for_any_store(cli: CommandLine) -> None:
    document = cli.json("schema", "--role", "app", "--schema", "mine")["schema"]
    assert (document["dialect"], document["schema"], document["role"]) == (
        "postgres",
        "mine",
        "app",
    )
    assert 'GRANT USAGE ON SCHEMA "mine" TO "app";' in document["sql"]
    assert "CREATE POLICY" not in document["sql"]
    bound = cli.ok("schema", "--role", "app", "--tenant", "it's")
    assert "AS RESTRICTIVE TO \"app\" USING (tenant = E'it''s');" in bound
    assert not (cli.project / ".agents").exists()


def test_a_role_must_have_a_name_that_is_one(cli: CommandLine) -> None:
    answer = cli("schema", "--role", "a; DROP SCHEMA public")
    assert answer.code == 2
    assert answer.err.startswith("error: role must match")
    assert cli("schema", "--role", "app", "--dialect", "sqlite").code == 2
