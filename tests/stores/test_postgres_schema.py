"""The schema: what the migration makes, and how it gets into a database."""

import multiprocessing
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import psycopg
import pytest

from holdfast.errors import InvalidIdentifier, MigrationChanged, SchemaMissing, SchemaTooNew
from holdfast.sql import in_schema, migrations, queries, schema_sql
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sealed_tables import CHECKPOINTS, TABLES
from tests.stores.postgres_drafts import AGENT, connect, one_value, schema_of

CATALOG = {
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
            a.attidentity::text, a.attstorage::text, a.attcompression::text, a.attstattarget, co.collname,
            pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        LEFT JOIN pg_collation co ON co.oid = a.attcollation
        WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind = 'r'""",
    "tables": """
        SELECT c.relname, c.reloptions::text, obj_description(c.oid) FROM pg_class c
        WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'S', 'v')""",
    "constraints": """
        SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = %(schema)s::regnamespace""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = %(schema)s",
    "functions": """
        SELECT pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = %(schema)s::regnamespace""",
    "policies": """
        SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check
        FROM pg_policies WHERE schemaname = %(schema)s""",
}


def catalog(connection: "psycopg.Connection[Any]", schema: str) -> dict[str, list[str]]:
    """Everything that a schema holds, as text without its name."""
    connection.execute("SET search_path = pg_catalog")
    return {
        part: sorted(
            repr(row).replace(f'"{schema}"', "S").replace(schema, "S")
            for row in connection.execute(query.encode(), {"schema": schema}).fetchall()
        )
        for part, query in CATALOG.items()
    }


@pytest.fixture
def connection(postgres_url: str) -> Iterator["psycopg.Connection[Any]"]:
    """A connection to a database in which the schema was just made."""
    PostgresStore(postgres_url).close()
    with connect(postgres_url) as connection:
        connection.execute(
            "INSERT INTO agents (id, name, agent_type) VALUES (%s, 'a', 't')", [AGENT]
        )
        connection.execute(
            "INSERT INTO sessions (id, agent_id, agent_type) VALUES ('s', %s, 't')", [AGENT]
        )
        yield connection


def insert(connection: "psycopg.Connection[Any]", **values: object) -> tuple[Any, ...]:
    """Insert a row with plain SQL, as a stranger's tool would, and return it."""
    row = {
        "session_id": "s",
        "agent_id": AGENT,
        "name": str(datetime.now(UTC)),
        "state_snapshot": "{}",
        "manifest": "{}",
    } | values
    names = ", ".join(row)
    marks = ", ".join(f"%({name})s" for name in row)
    query = (
        f"INSERT INTO session_checkpoints ({names}) VALUES ({marks}) "
        "RETURNING id, checkpoint_type, created_at, restored_at, metadata, state_snapshot"
    )
    stored = connection.execute(query.encode(), row).fetchone()
    assert stored is not None
    return tuple(stored)


def test_schema_and_migrations_give_the_same_database(
    connection: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    schema = schema_of(postgres_url)
    migrated = catalog(connection, schema)
    other = f"{schema}_whole"
    try:
        connection.execute(schema_sql("postgres", other).encode())
        assert catalog(connection, other) == migrated
        applied = connection.execute(queries("postgres", other)["migrations.list"].encode())
        expected = [(m.version, m.checksum) for m in migrations("postgres")]
        assert applied.fetchall() == expected
        PostgresStore(postgres_url.replace(schema, other)).close()
    finally:
        connection.execute(f'DROP SCHEMA IF EXISTS "{other}" CASCADE'.encode())


@pytest.mark.row("S0-02")
def test_the_migration_ships_in_the_package_and_applies_once(postgres_url: str) -> None:
    shipped = files("holdfast.sql") / "postgres" / "migrations" / "001_initial_schema.sql"
    assert "CREATE TABLE holdfast.session_checkpoints" in shipped.read_text()
    PostgresStore(postgres_url).close()
    with connect(postgres_url) as connection:
        first = connection.execute("SELECT * FROM schema_migrations").fetchall()
        PostgresStore(postgres_url).close()
        assert connection.execute("SELECT * FROM schema_migrations").fetchall() == first
    assert [row[0] for row in first] == [m.version for m in migrations("postgres")]


def test_the_migration_can_be_taken_back(
    connection: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    schema = schema_of(postgres_url)
    for migration in reversed(migrations("postgres", schema)):
        connection.execute(migration.down.encode())
    assert catalog(connection, schema) == {part: [] for part in CATALOG}


def test_threads_can_be_erased_where_only_a_store_made_the_schema(
    connection: "psycopg.Connection[Any]",
) -> None:
    insert(connection, namespace="public.saved")
    insert(connection, namespace="public.other")
    erase = "SELECT erase_threads('default', ARRAY['s'], %s, %s)"
    insert(connection, namespace="")
    for nobody in (None, ""):
        with pytest.raises(psycopg.Error, match="belongs to another agent"):
            one_value(connection, erase, "", nobody)
    assert one_value(connection, erase, "", AGENT) == 1
    assert one_value(connection, erase, "public.saved", AGENT) == 1
    assert one_value(connection, "SELECT count(*) FROM sessions") == 1
    assert one_value(connection, erase, "public.other", AGENT) == 1
    assert one_value(connection, "SELECT count(*) FROM sessions") == 0


@pytest.mark.row("S0-03")
def test_a_checkpoints_id_is_a_uuid_and_the_primary_key(
    connection: "psycopg.Connection[Any]",
) -> None:
    key = one_value(
        connection,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE conrelid = 'session_checkpoints'::regclass AND contype = 'p'",
    )
    assert key == "PRIMARY KEY (id)"
    column = one_value(
        connection,
        "SELECT data_type FROM information_schema.columns WHERE table_schema = current_schema() "
        "AND table_name = 'session_checkpoints' AND column_name = 'id'",
    )
    assert column == "uuid"
    assert insert(connection)[0] is not None
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        insert(connection, id="not-a-uuid")


@pytest.mark.row("S0-04")
def test_a_checkpoint_needs_an_agent_that_exists(connection: "psycopg.Connection[Any]") -> None:
    with pytest.raises(psycopg.errors.NotNullViolation):
        insert(connection, agent_id=None)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        insert(connection, agent_id="01900000-0000-7000-8000-00000000ffff")


def test_no_row_can_hang_on_another_tenants(connection: "psycopg.Connection[Any]") -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        insert(connection, tenant="other")
    without = connection.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint "
        "WHERE connamespace = current_schema()::regnamespace AND contype = 'f' "
        "AND pg_get_constraintdef(oid) NOT LIKE 'FOREIGN KEY (tenant,%'"
    ).fetchall()
    assert without == []


@pytest.mark.row("S0-05")
def test_agents_have_the_statuses_and_depths_that_make_sense(
    connection: "psycopg.Connection[Any]",
) -> None:
    text = migrations("postgres")[0].up
    assert text.index('CREATE TABLE "holdfast".agents') < text.index(
        'CREATE TABLE "holdfast".session_checkpoints'
    )
    for status in ("idle", "running", "paused", "completed", "failed", "terminated"):
        connection.execute(
            "INSERT INTO agents (name, agent_type, status, parent_id, depth_level, metadata, "
            "completed_at) VALUES ('b', 't', %s, %s, 1, '{}', now())",
            [status, AGENT],
        )
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("INSERT INTO agents (name, agent_type, status) VALUES ('b', 't', 'x')")
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            "INSERT INTO agents (name, agent_type, depth_level) VALUES ('b', 't', -1)"
        )
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        connection.execute(
            "INSERT INTO agents (name, agent_type, parent_id) VALUES ('b', 't', gen_random_uuid())"
        )


@pytest.mark.row("S0-06")
def test_the_snapshot_is_json_and_never_null(connection: "psycopg.Connection[Any]") -> None:
    kind = one_value(
        connection,
        "SELECT pg_typeof(state_snapshot)::text FROM session_checkpoints "
        "RIGHT JOIN (SELECT 1) AS one ON true LIMIT 1",
    )
    assert kind == "jsonb"
    with pytest.raises(psycopg.errors.NotNullViolation):
        insert(connection, state_snapshot=None)
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        insert(connection, state_snapshot="{nonsense")


@pytest.mark.row("S0-07")
def test_the_type_of_a_checkpoint_is_manual_unless_said(
    connection: "psycopg.Connection[Any]",
) -> None:
    assert insert(connection)[1] == "manual"


@pytest.mark.row("S0-08", "T13")
def test_the_database_knows_the_three_types(connection: "psycopg.Connection[Any]") -> None:
    for checkpoint_type in ("manual", "auto", "failure"):
        assert insert(connection, checkpoint_type=checkpoint_type)[1] == checkpoint_type
    for wrong in ("x", "", "Manual"):
        with pytest.raises(psycopg.IntegrityError):
            insert(connection, checkpoint_type=wrong)


@pytest.mark.row("S0-09")
def test_the_time_of_creation_is_filled_in(connection: "psycopg.Connection[Any]") -> None:
    moments = [insert(connection)[2] for _ in range(3)]
    assert moments == sorted(moments)
    assert abs(moments[-1] - datetime.now(UTC)) < timedelta(seconds=2)


@pytest.mark.row("S0-11")
def test_restored_at_and_metadata_may_be_empty(connection: "psycopg.Connection[Any]") -> None:
    _, _, _, restored_at, metadata, _ = insert(connection)
    assert restored_at is None
    assert metadata is None
    assert insert(connection, metadata='{"k": [1, {"é": null}]}')[4] == {"k": [1, {"é": None}]}


@pytest.mark.row("T13")
def test_the_checkpoint_table_has_the_columns_of_the_first_request(
    connection: "psycopg.Connection[Any]",
) -> None:
    # What a domain is made of is what the standard's own catalog says.
    found = connection.execute(
        "SELECT column_name, data_type || coalesce('(' || character_maximum_length || ')', '') "
        "FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND table_name = 'session_checkpoints'"
    ).fetchall()
    assert {
        "id": "uuid",
        "agent_id": "uuid",
        "state_snapshot": "jsonb",
        "checkpoint_type": "character varying(50)",
        "created_at": "timestamp with time zone",
        "restored_at": "timestamp with time zone",
        "metadata": "jsonb",
    }.items() <= dict(found).items()


def test_both_dialects_have_the_same_tables_and_columns(
    connection: "psycopg.Connection[Any]",
) -> None:
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = current_schema()"
    ):
        found.setdefault(table, set()).add(column)
    sqlite: dict[str, set[str]] = {}
    for migration in migrations("sqlite"):
        for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\) STRICT", migration.up, re.S):
            names = re.findall(r"^    ([a-z_]+) +[A-Z]", body, re.M)
            sqlite[table] = set(names)
    # PostgreSQL has sequences of its own, and a short cut that SQLite does not need.
    del sqlite["sequences"]
    found["sessions"].remove("newest_id")
    assert found == sqlite


@pytest.mark.row("S0-12", "T13")
def test_the_latest_checkpoint_of_an_agent_and_quarantine_come_from_an_index(
    connection: "psycopg.Connection[Any]", postgres_url: str
) -> None:
    index = one_value(
        connection,
        "SELECT indexdef FROM pg_indexes WHERE indexname = 'checkpoints_by_agent' "
        "AND schemaname = current_schema()",
    )
    assert index.endswith("(agent_id, created_at DESC, id DESC)")
    connection.execute(
        "INSERT INTO session_checkpoints (session_id, agent_id, name, state_snapshot, manifest, "
        "created_at) SELECT 's', %s, n::text, '{}', '{}', now() - n * interval '1 second' "
        "FROM generate_series(1, 100000) AS n",
        [AGENT],
    )
    connection.execute("ANALYZE session_checkpoints")
    query = queries("postgres", schema_of(postgres_url))["checkpoints.latest_of_agent"]
    rows = connection.execute(
        f"EXPLAIN {query}".encode(), {"agent_id": AGENT, "tenant": "default"}
    ).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "checkpoints_by_agent" in plan
    assert "Sort" not in plan

    named = queries("postgres", schema_of(postgres_url))
    query = named["checkpoints.list"] + named["checkpoints.where.quarantined.yes"]
    rows = connection.execute(f"EXPLAIN {query}".encode(), {"tenant": "default"}).fetchall()
    assert "checkpoints_in_quarantine" in "\n".join(row[0] for row in rows)


@pytest.mark.row("S0-13")
def test_the_documented_keys_stand_in_the_migration_and_in_the_database(
    connection: "psycopg.Connection[Any]",
) -> None:
    comment = one_value(
        connection,
        "SELECT col_description(attrelid, attnum) FROM pg_attribute "
        "WHERE attrelid = 'session_checkpoints'::regclass AND attname = 'state_snapshot'",
    )
    notes = [line for line in migrations("postgres")[0].up.splitlines() if line.startswith("--")]
    for key, kind in (
        ("conversation_history", "array"),
        ("variable_state", "object"),
        ("execution_context", "object"),
    ):
        assert f"{key} ({kind}: " in comment
        assert any(re.match(rf"--\s+{key}\s+{kind}\s+\w+", line) for line in notes)


def test_no_statistics_are_kept_of_content_and_all_of_what_indexes_need(
    connection: "psycopg.Connection[Any]",
) -> None:
    columns = connection.execute(
        "SELECT c.relname, a.attname, a.attstattarget = 0, EXISTS (SELECT FROM pg_index i "
        "WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)) "
        "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"
    ).fetchall()
    without = {(table, column) for table, column, none, _ in columns if none}
    sealed = {(table.name, name) for table in (*TABLES, CHECKPOINTS) for name in table.sealed}
    assert sealed <= without
    assert ("session_checkpoints", "state_snapshot") in without
    assert without & {(table, column) for table, column, _, indexed in columns if indexed} == set()


def test_chunks_are_compressed_with_the_best_that_the_server_has(
    connection: "psycopg.Connection[Any]",
) -> None:
    methods = one_value(
        connection, "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"
    )
    used = one_value(
        connection,
        "SELECT attcompression::text FROM pg_attribute "
        "WHERE attrelid = 'chunks'::regclass AND attname = 'data'",
    )
    assert used == ("l" if "lz4" in methods else "p")


def test_a_newer_schema_is_refused_untouched(postgres_url: str) -> None:
    PostgresStore(postgres_url).close()
    with connect(postgres_url) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (999, 'sha256:00', now())")
        for ensure_schema in (True, False):
            with pytest.raises(SchemaTooNew, match="999"):
                PostgresStore(postgres_url, ensure_schema=ensure_schema)
        assert one_value(connection, "SELECT count(*) FROM schema_migrations") == 2


def test_a_migration_that_was_changed_afterwards_is_refused(postgres_url: str) -> None:
    PostgresStore(postgres_url).close()
    with connect(postgres_url) as connection:
        connection.execute("UPDATE schema_migrations SET checksum = 'sha256:00'")
        with pytest.raises(MigrationChanged, match="001_initial_schema"):
            PostgresStore(postgres_url)


def test_nothing_is_created_when_that_was_not_asked_for(postgres_url: str) -> None:
    with pytest.raises(SchemaMissing, match="ensure_schema=True"):
        PostgresStore(postgres_url, ensure_schema=False)
    with connect(postgres_url) as connection:
        schema = schema_of(postgres_url)
        assert one_value(connection, "SELECT to_regnamespace(%s) IS NULL", schema)


def open_store(url: str) -> None:
    PostgresStore(url).close()


def test_many_processes_may_make_the_schema_at_once(postgres_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=open_store, args=(postgres_url,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    for _ in range(3):
        open_store(postgres_url)
    with connect(postgres_url) as connection:
        assert one_value(connection, "SELECT count(*) FROM schema_migrations") == 1


def test_a_schema_has_a_name_that_needs_no_trust(postgres_url: str) -> None:
    elsewhere = postgres_url.partition("&schema")[0]
    with pytest.raises(InvalidIdentifier, match="schema must match"):
        PostgresStore(f"{elsewhere}&schema=a%22;drop")
    with pytest.raises(InvalidIdentifier, match="schema must match"):
        PostgresStore(elsewhere, schema='a"b')
    assert in_schema("holdfast.put", "Mixed") == '"Mixed".put'
