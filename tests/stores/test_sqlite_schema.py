"""The tables of the SQLite dialect, as the database itself describes and defends them."""

import json
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import apsw
import pytest

from holdfast.ids import is_uuid, new_id
from holdfast.model import CheckpointQuery
from holdfast.sql import migrations, queries, schema_sql
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import checkpoint, session, write

# What the seed documents ask for, by the names that the design keeps.
SEED_COLUMNS = {
    "agents": "id name agent_type status parent_id depth_level metadata created_at updated_at "
    "completed_at",
    "sessions": "id agent_type task_description status created_at updated_at metadata",
    "session_checkpoints": "id agent_id session_id name description state_snapshot "
    "checkpoint_type git_branch git_uncommitted created_at restored_at metadata",
    "session_logs": "id session_id level message created_at",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "sessions.db") as store:
        yield store


@pytest.fixture
def database(store: SqliteStore) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(store.path))
    connection.pragma("foreign_keys", True)
    yield connection
    connection.close()


@pytest.fixture
def owner(database: apsw.Connection) -> str:
    agent_id = new_id()
    database.execute("INSERT INTO agents (id, name, agent_type) VALUES (?, 'a', 't')", (agent_id,))
    database.execute(
        "INSERT INTO sessions (id, agent_id, agent_type) VALUES ('s', ?, 't')", (agent_id,)
    )
    return agent_id


def insert(database: apsw.Connection, table: str, **values: object) -> None:
    names = ", ".join(values)
    marks = ", ".join("?" * len(values))
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))


def insert_checkpoint(database: apsw.Connection, owner: str, **values: object) -> None:
    row: dict[str, object] = {
        "session_id": "s",
        "agent_id": owner,
        "seq": 1,
        "name": "n",
        "state_snapshot": "{}",
    }
    insert(database, "session_checkpoints", **(row | values))


def describe(connection: apsw.Connection) -> dict[str, object]:
    described: dict[str, object] = {"application_id": connection.pragma("application_id")}
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (table,) in tables:
        for pragma in ("table_xinfo", "foreign_key_list"):
            described[f"{pragma} {table}"] = connection.execute(
                f"SELECT * FROM pragma_{pragma}('{table}')"
            ).fetchall()
        indexes = connection.execute(
            f"SELECT name, [unique], origin, partial FROM pragma_index_list('{table}') ORDER BY 1"
        ).fetchall()
        described[f"indexes {table}"] = [
            (
                *index,
                connection.execute(
                    f"SELECT name, [desc], [key] FROM pragma_index_xinfo('{index[0]}')"
                ).fetchall(),
            )
            for index in indexes
        ]
    described["text"] = {
        (kind, name): " ".join((sql or "").split())
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema")
    }
    described["sequences"] = connection.execute("SELECT * FROM sequences").fetchall()
    return described


@pytest.mark.row("S0-02")
def test_the_first_migration_ships_with_the_package_and_applies_to_an_empty_database() -> None:
    file = files("holdfast.sql") / "sqlite" / "migrations" / "001_initial_schema.sql"
    assert "CREATE TABLE session_checkpoints" in file.read_text(encoding="utf-8")
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(migrations("sqlite")[0].up)
    finally:
        connection.close()


@pytest.mark.row("S0-02")
def test_opening_twice_applies_nothing_twice(store: SqliteStore, database: apsw.Connection) -> None:
    before = database.execute("SELECT * FROM schema_migrations").fetchall()
    SqliteStore(store.path).close()
    assert database.execute("SELECT * FROM schema_migrations").fetchall() == before


def test_the_schema_equals_all_migrations() -> None:
    by_migrations, by_schema = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    for migration in migrations("sqlite"):
        by_migrations.execute(migration.up)
    by_schema.execute(schema_sql("sqlite"))
    assert describe(by_migrations) == describe(by_schema)


@pytest.mark.row("S0-17")
def test_the_down_sections_take_everything_back() -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrations("sqlite"):
        connection.execute(migration.up)
    for migration in reversed(migrations("sqlite")):
        connection.execute(migration.down)
    left = connection.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
    assert left.fetchall() == []


@pytest.mark.row("S1-17", "S1-80", "T13")
def test_the_tables_have_the_columns_that_the_seeds_name(database: apsw.Connection) -> None:
    for table, columns in SEED_COLUMNS.items():
        found = {
            name for (name,) in database.execute(f"SELECT name FROM pragma_table_xinfo('{table}')")
        }
        assert set(columns.split()) <= found


@pytest.mark.row("S0-03")
def test_checkpoint_ids_are_uuids_with_a_default(database: apsw.Connection, owner: str) -> None:
    insert_checkpoint(database, owner)
    id_ = str(database.execute("SELECT id FROM session_checkpoints").get)
    assert is_uuid(id_)
    for bad in ("not-a-uuid", "", id_.upper(), id_[:-1] + "g"):
        with pytest.raises(apsw.ConstraintError):
            insert_checkpoint(database, owner, id=bad, name="m", seq=2)
    with pytest.raises(apsw.ConstraintError):
        insert_checkpoint(database, owner, id=id_, name="m", seq=2)


@pytest.mark.row("S0-04", "S1-66")
def test_a_checkpoint_needs_an_agent_and_a_session(database: apsw.Connection, owner: str) -> None:
    for bad in ({"agent_id": None}, {"agent_id": new_id()}, {"session_id": None}):
        with pytest.raises(apsw.ConstraintError):
            insert_checkpoint(database, owner, **bad)
    with pytest.raises(apsw.ConstraintError):
        insert_checkpoint(database, owner, session_id="unknown")


@pytest.mark.row("S0-04")
def test_a_row_cannot_hang_on_another_tenants_session(
    database: apsw.Connection, owner: str
) -> None:
    with pytest.raises(apsw.ConstraintError):
        insert_checkpoint(database, owner, tenant="another")


@pytest.mark.row("S0-05")
def test_the_database_defends_agents(database: apsw.Connection, owner: str) -> None:
    text = migrations("sqlite")[0].up
    assert text.index("CREATE TABLE agents") < text.index("CREATE TABLE session_checkpoints")
    for status in ("idle", "running", "paused", "completed", "failed", "terminated"):
        insert(database, "agents", id=new_id(), name="a", agent_type="t", status=status)
    for bad in (
        {"status": "asleep"},
        {"depth_level": -1},
        {"parent_id": new_id()},
        {"metadata": "{"},
        {"agent_type": ""},
    ):
        with pytest.raises(apsw.ConstraintError):
            insert(database, "agents", **({"id": new_id(), "name": "a", "agent_type": "t"} | bad))


@pytest.mark.row("S0-06", "S1-68")
def test_state_is_json_text_that_plain_sqlite_can_read(store: SqliteStore) -> None:
    owner = session()
    text = (
        '{"conversation_history":[{"role":"user","content":"ü🦀"}],"n":12345678901234567,"f":0.1}'
    )
    store.put(checkpoint(owner.id, session=owner, manifest=text))
    connection = sqlite3.connect(store.path)
    try:
        ((snapshot, manifest),) = connection.execute(
            "SELECT state_snapshot, manifest FROM session_checkpoints"
        ).fetchall()
    finally:
        connection.close()
    assert snapshot == manifest == text
    assert json.loads(snapshot)["conversation_history"][0]["content"] == "ü🦀"


@pytest.mark.row("S0-06")
def test_a_state_that_is_not_json_is_refused(database: apsw.Connection, owner: str) -> None:
    for bad in (None, "{", "", "{'a': 1}"):
        with pytest.raises(apsw.ConstraintError):
            insert_checkpoint(database, owner, state_snapshot=bad)


@pytest.mark.row("S0-07", "S0-08")
def test_checkpoint_types_are_three_and_manual_by_default(
    database: apsw.Connection, owner: str
) -> None:
    insert_checkpoint(database, owner)
    types = database.execute("SELECT checkpoint_type FROM session_checkpoints").fetchall()
    assert types == [("manual",)]
    for seq, good in enumerate(("manual", "auto", "failure"), start=2):
        insert_checkpoint(database, owner, name=good, seq=seq, checkpoint_type=good)
    for bad in ("x", "", "Manual", None):
        with pytest.raises(apsw.ConstraintError):
            insert_checkpoint(database, owner, name="m", seq=9, checkpoint_type=bad)


@pytest.mark.row("S0-09", "S1-64", "S1-70")
def test_times_are_filled_in_as_iso_8601_in_utc(database: apsw.Connection, owner: str) -> None:
    insert_checkpoint(database, owner)
    for query in (
        "SELECT created_at FROM session_checkpoints",
        "SELECT created_at FROM sessions",
        "SELECT updated_at FROM sessions",
        "SELECT created_at FROM agents",
    ):
        text = str(database.execute(query).get)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
        assert abs(datetime.fromisoformat(text) - datetime.now(UTC)) < timedelta(seconds=2)


@pytest.mark.row("S1-64")
def test_the_store_writes_times_in_the_same_form(store: SqliteStore) -> None:
    owner = store.create_session(session())
    store.put(checkpoint(owner.id, created_at=datetime(2026, 1, 2, tzinfo=UTC)))
    database = apsw.Connection(str(store.path))
    ((text,),) = database.execute("SELECT created_at FROM session_checkpoints").fetchall()
    assert text == "2026-01-02T00:00:00.000000Z"


@pytest.mark.row("S0-10", "S0-11")
def test_restored_at_and_metadata_are_empty_at_first(database: apsw.Connection, owner: str) -> None:
    insert_checkpoint(database, owner)
    row = database.execute("SELECT restored_at, metadata FROM session_checkpoints").fetchall()
    assert row == [(None, None)]
    with pytest.raises(apsw.ConstraintError):
        insert_checkpoint(database, owner, name="m", seq=2, metadata="not json")


@pytest.mark.row("S0-12", "T13")
def test_the_index_for_the_latest_of_an_agent_has_its_order(database: apsw.Connection) -> None:
    columns = database.execute(
        "SELECT name, [desc] FROM pragma_index_xinfo('checkpoints_by_agent') WHERE [key] = 1"
    ).fetchall()
    assert columns == [("agent_id", 0), ("created_at", 1), ("id", 1)]


@pytest.mark.row("S0-12")
def test_the_latest_of_an_agent_is_read_from_the_index_without_a_sort(
    database: apsw.Connection, owner: str
) -> None:
    rows = (
        (f"{number:08x}-0000-7000-8000-{number:012x}", owner, number, f"n{number}")
        for number in range(100_000)
    )
    with database:
        database.executemany(
            "INSERT INTO session_checkpoints (id, session_id, agent_id, seq, name, state_snapshot)"
            " VALUES (?, 's', ?, ?, ?, '{}')",
            rows,
        )
    statement = queries("sqlite")["checkpoints.latest_of_agent"]
    values = (owner, "default", "2026-01-01T00:00:00.000000Z")
    for analyzed in (False, True):
        if analyzed:
            database.execute("ANALYZE")
        plan = [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + statement, values)]
        assert len(plan) == 1, plan
        assert "USING INDEX checkpoints_by_agent (agent_id=?)" in plan[0]


def test_what_is_in_quarantine_comes_from_an_index(database: apsw.Connection) -> None:
    named = queries("sqlite")
    statement = named["checkpoints.list"] + named["checkpoints.where.quarantined.yes"]
    values = ("default", "2026-01-01T00:00:00.000000Z", -1)
    plan = [
        row[3]
        for row in database.execute(
            f"EXPLAIN QUERY PLAN {statement} {named['checkpoints.order']}", values
        )
    ]
    assert "USING INDEX checkpoints_in_quarantine (tenant=?)" in plan[0], plan


@pytest.mark.row("S0-13")
def test_the_documented_keys_of_a_state_stand_in_the_migration() -> None:
    text = migrations("sqlite")[0].up
    for key, kind in (
        ("conversation_history", "array"),
        ("variable_state", "object"),
        ("execution_context", "object"),
    ):
        assert re.search(rf"^--\s+{key}\s+{kind}\s+\w+", text, re.MULTILINE)


@pytest.mark.row("S1-60", "S1-61", "S1-62", "S1-63", "S1-65")
def test_the_database_defends_sessions(database: apsw.Connection, owner: str) -> None:
    row = database.execute("SELECT status, task_description, metadata FROM sessions").fetchall()
    assert row == [("active", None, None)]
    with pytest.raises(apsw.ConstraintError):
        insert(database, "sessions", id="s", agent_id=owner, agent_type="t")
    for bad in (
        {"agent_type": None},
        {"agent_type": ""},
        {"status": "asleep"},
        {"status": None},
        {"metadata": "{"},
        {"id": None},
    ):
        with pytest.raises(apsw.ConstraintError):
            insert(
                database,
                "sessions",
                **({"id": "other", "agent_id": owner, "agent_type": "t"} | bad),
            )
    for status in ("active", "paused", "interrupted", "completed", "failed", "stopped"):
        insert(database, "sessions", id=status, agent_id=owner, agent_type="t", status=status)


@pytest.mark.row("S1-67", "S1-69")
def test_names_are_unique_in_a_session_and_git_columns_have_defaults(
    database: apsw.Connection, owner: str
) -> None:
    insert_checkpoint(database, owner)
    row = database.execute("SELECT git_branch, git_uncommitted FROM session_checkpoints")
    assert row.fetchall() == [(None, 0)]
    for bad in ({"name": "n"}, {"name": None}):
        with pytest.raises(apsw.ConstraintError):
            insert_checkpoint(database, owner, seq=2, **bad)
    insert(database, "sessions", id="other", agent_id=owner, agent_type="t")
    insert_checkpoint(database, owner, session_id="other")


@pytest.mark.row("S1-71")
def test_the_database_defends_logs(database: apsw.Connection, owner: str) -> None:
    for level in ("debug", "info", "warning", "error"):
        insert(database, "session_logs", session_id="s", level=level, message="m")
    ids = [id_ for (id_,) in database.execute("SELECT id FROM session_logs")]
    database.execute("DELETE FROM session_logs WHERE id = ?", (ids[-1],))
    insert(database, "session_logs", session_id="s", level="info", message="m")
    ((last,),) = database.execute("SELECT max(id) FROM session_logs").fetchall()
    assert last > ids[-1], "an id is never used again"
    for bad in ({"level": "shout"}, {"message": None}, {"session_id": "x"}, {"session_id": None}):
        with pytest.raises(apsw.ConstraintError):
            insert(
                database,
                "session_logs",
                **({"session_id": "s", "level": "info", "message": "m"} | bad),
            )


@pytest.mark.row("S1-39")
def test_an_erased_session_leaves_no_row_in_any_table(store: SqliteStore) -> None:
    owner = session()
    store.put(checkpoint(owner.id, session=owner, external_id="e", contents=[b"content"]))
    store.put_writes(owner, "", "e", [write(contents=[b"written"])])
    store.append_log(owner.id, "info", "hello")
    assert store.delete_session(owner.id)
    database = apsw.Connection(str(store.path))
    for table in ("sessions", "session_checkpoints", "session_logs", "checkpoint_writes", "chunks"):
        ((count,),) = database.execute(f"SELECT count(*) FROM {table}").fetchall()
        assert count == 0, table


@pytest.mark.row("S1-91")
def test_listing_many_checkpoints_does_not_read_their_payload(store: SqliteStore) -> None:
    owner = store.create_session(session())
    for number in range(50):
        store.put(checkpoint(owner.id, f"n{number}", manifest='"' + "x" * 100_000 + '"'))
    query = CheckpointQuery(session_id=owner.id, namespace="")
    store.close()
    with SqliteStore(store.path) as fresh:

        def pages_read(connection: apsw.Connection) -> int:
            return connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]

        before = fresh._file.read(pages_read)
        assert len(fresh.list_checkpoints(query)) == 50
        assert fresh._file.read(pages_read) - before < 150, "25 pages hold one payload"
