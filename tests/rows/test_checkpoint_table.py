"""The checkpoint table: what the two databases themselves say and defend, with plain SQL."""

from __future__ import annotations

import json
import re
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import InvalidState
from holdfast.ids import is_uuid
from holdfast.sql import migrations, queries
from tests.rows.conftest import AGENT, STRANGER, Database

DOCUMENTED = {
    "conversation_history": "array",
    "variable_state": "object",
    "execution_context": "object",
}
SEVEN = {
    "id": "uuid",
    "agent_id": "uuid",
    "state_snapshot": "jsonb",
    "checkpoint_type": "character varying(50)",
    "created_at": "timestamp with time zone",
    "restored_at": "timestamp with time zone",
    "metadata": "jsonb",
}


def columns_of(database: Database, table: str) -> dict[str, str]:
    """The columns of a table with their types, from the catalogue: of a domain what it is made of."""
    if database.kind == "postgres":
        return dict(
            database.sql(
                "SELECT column_name, "
                "data_type || coalesce('(' || character_maximum_length || ')', '') "
                "FROM information_schema.columns "
                "WHERE table_schema = current_schema() AND table_name = ?",
                table,
            )
        )
    return dict(database.sql(f"SELECT name, type FROM pragma_table_xinfo('{table}')"))


def primary_key_of(database: Database, table: str) -> list[str]:
    if database.kind == "postgres":
        return [
            name
            for (name,) in database.sql(
                "SELECT u.column_name FROM information_schema.table_constraints AS c "
                "JOIN information_schema.key_column_usage AS u USING (constraint_schema, "
                "constraint_name) WHERE c.constraint_type = 'PRIMARY KEY' "
                "AND c.table_schema = current_schema() AND c.table_name = ? "
                "ORDER BY u.ordinal_position",
                table,
            )
        ]
    return [
        name
        for (name,) in database.sql(
            f"SELECT name FROM pragma_table_xinfo('{table}') WHERE pk > 0 ORDER BY pk"
        )
    ]


def index_for_the_latest(database: Database) -> list[tuple[str, bool]]:
    """The columns of the index, each with whether it descends."""
    if database.kind == "postgres":
        text = database.value(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() "
            "AND indexname = 'checkpoints_by_agent'"
        )
        inside = re.search(r"\((.*)\)$", text)
        assert inside is not None
        parts = [part.split() for part in inside[1].split(", ")]
        return [(part[0], part[1:] == ["DESC"]) for part in parts]
    found = database.sql(
        "SELECT name, [desc] FROM pragma_index_xinfo('checkpoints_by_agent') WHERE [key] = 1"
    )
    return [(name, bool(descends)) for name, descends in found]


def as_moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


@pytest.mark.row("S0-03")
def test_the_id_is_a_uuid_and_the_primary_key_with_a_default(database: Database) -> None:
    database.add_owner()
    assert columns_of(database, "session_checkpoints")["id"] == (
        "uuid" if database.kind == "postgres" else "TEXT"
    )
    assert primary_key_of(database, "session_checkpoints") == ["id"]
    for _ in range(3):
        database.add_checkpoint()
    made = [str(id_) for (id_,) in database.sql("SELECT id FROM session_checkpoints")]
    assert len(set(made)) == 3
    assert all(is_uuid(id_) for id_ in made)
    for wrong in ("not-a-uuid", "", made[0][:-1] + "g", made[0] + "0", made[0]):
        with database.refuses():
            database.add_checkpoint(id=wrong, name="other")
    assert database.value("SELECT count(*) FROM session_checkpoints") == 3


@pytest.mark.row("S0-04")
def test_an_agent_is_required_and_known(database: Database) -> None:
    database.add_owner()
    if database.kind == "sqlite":
        assert database.value("PRAGMA foreign_keys") == 1
        with database.open() as manager:
            read = manager.store._file.read  # type: ignore[attr-defined]
            assert read(lambda connection: connection.pragma("foreign_keys")) == 1
    for wrong in (None, STRANGER):
        with database.refuses():
            database.add_checkpoint(agent_id=wrong)
    database.add_checkpoint()
    with database.refuses():
        database.sql("DELETE FROM agents")


@pytest.mark.row("S0-05")
def test_agents_come_first_and_have_all_that_an_agent_has(database: Database) -> None:
    text = migrations("postgres" if database.kind == "postgres" else "sqlite")[0].up
    tables = re.findall(r'^CREATE TABLE (?:"holdfast"\.)?(\w+)', text, re.MULTILINE)
    assert tables.index("agents") < tables.index("session_checkpoints")
    assert columns_of(database, "agents").keys() >= {
        *("id", "name", "agent_type", "status", "parent_id", "depth_level", "metadata"),
        *("created_at", "updated_at", "completed_at"),
    }
    database.add_owner()
    assert database.sql("SELECT status, depth_level, completed_at FROM agents") == [
        ("idle", 0, None)
    ]
    for status in ("idle", "running", "paused", "completed", "failed", "terminated"):
        database.insert("agents", name="b", agent_type="t", status=status, depth_level=3)
    database.insert("agents", name="c", agent_type="t", parent_id=AGENT, metadata='{"k": [1]}')
    for wrong in (
        {"status": "asleep"}, {"status": ""}, {"status": None}, {"depth_level": -1},
        {"parent_id": STRANGER}, {"metadata": "{"}, {"agent_type": ""}, {"agent_type": None},
    ):  # fmt: skip
        with database.refuses():
            database.insert("agents", **({"name": "d", "agent_type": "t"} | wrong))
    assert database.value("SELECT count(*) FROM agents") == 8


@pytest.mark.row("S0-06")
def test_the_snapshot_is_a_json_document_that_holds_small_values_and_refers_to_large_ones(
    database: Database,
) -> None:
    state = {
        "nested": {"deep": [1, [2, {"three": None}]]},
        "unicode": "Grüße 🦀 \u202e",
        "large": 2**63 - 1,
        "larger": 2**64 + 1,
        "float": 0.1 + 0.2,
        "text": "many words " * 5000,
    }
    with database.open() as manager:
        saved = manager.create_session("a").save_checkpoint("one", state=state)
        assert manager.get_checkpoint(saved.id).state == state
    assert columns_of(database, "session_checkpoints")["state_snapshot"] == (
        "jsonb" if database.kind == "postgres" else "TEXT"
    )
    if database.kind == "postgres":
        found = database.value("SELECT state_snapshot -> 'state' FROM session_checkpoints")
        whole = database.value("SELECT checkpoint_state(?)", saved.id)
        assert whole == {**state, "larger": whole["larger"]}
    else:
        text = database.value("SELECT state_snapshot -> '$.state' FROM session_checkpoints")
        found = json.loads(text)
    assert found["nested"] == state["nested"]
    assert found["unicode"] == state["unicode"]
    assert (found["large"], found["float"]) == (state["large"], state["float"])
    assert found["text"] == {"$t": "ref", "v": 0}
    for wrong in (None, "{nonsense", "", "{'a': 1}"):
        with database.refuses():
            database.sql("UPDATE session_checkpoints SET state_snapshot = ?", wrong)


@pytest.mark.row("S0-07", "S0-08")
def test_a_type_is_manual_unless_said_and_one_of_three(database: Database) -> None:
    database.add_owner()
    database.add_checkpoint()
    assert database.sql("SELECT checkpoint_type FROM session_checkpoints") == [("manual",)]
    for right in ("manual", "auto", "failure"):
        database.add_checkpoint(checkpoint_type=right)
    for wrong in ("x", "", "Manual", None):
        with database.refuses():
            database.add_checkpoint(checkpoint_type=wrong)
    with database.open() as manager:
        session = manager.hold_session("s")
        for wrong in ("x", "", "Manual"):
            with pytest.raises(ValueError, match="checkpoint_type"):
                session.save_checkpoint("n", state={}, checkpoint_type=wrong)
    assert database.value("SELECT count(*) FROM session_checkpoints") == 4


@pytest.mark.row("S0-09")
def test_the_time_of_creation_is_now_and_orders_what_is_created(database: Database) -> None:
    database.add_owner()
    for number in range(5):
        database.add_checkpoint(name=f"{number}")
        time.sleep(0.003)
    names, moments = zip(
        *database.sql("SELECT name, created_at FROM session_checkpoints ORDER BY created_at"),
        strict=True,
    )
    assert names == ("0", "1", "2", "3", "4")
    for moment in map(as_moment, moments):
        assert moment.utcoffset() == timedelta(0)
        assert abs(moment - datetime.now(UTC)) < timedelta(seconds=2)


@pytest.mark.row("S0-10")
def test_restoring_and_resuming_set_restored_at_and_looking_does_not(database: Database) -> None:
    def restored_at() -> Any:
        return database.value("SELECT restored_at FROM session_checkpoints WHERE name = 'one'")

    with database.open() as manager:
        session = manager.create_session("a")
        session.save_checkpoint("one", state={"n": 1})
        assert restored_at() is None
        reader = manager.get_session(session.id)
        assert reader.get_checkpoint("one").state == {"n": 1}
        assert reader.latest_checkpoint().state == reader.state == {"n": 1}
        assert len(reader.list_checkpoints()) == 1
        assert manager.latest_checkpoint(session.agent_id) is not None
        assert restored_at() is None

        reader.load_checkpoint("one")
        moments = [as_moment(restored_at())]
        assert abs(moments[0] - datetime.now(UTC)) < timedelta(seconds=10)
        manager.resume_session(session.id)
        moments.append(as_moment(restored_at()))
        manager.resume_session(session.id, checkpoint="one")
        moments.append(as_moment(restored_at()))
        assert moments == sorted(set(moments))
        lines = [line for line in session.logs() if (line.data or {}).get("checkpoint")]
        assert len(lines) == 3
        assert {line.data["checkpoint"] for line in lines if line.data} == {
            reader.get_checkpoint("one").id
        }


@pytest.mark.row("S0-11")
def test_metadata_may_be_absent_is_any_json_and_narrows_a_listing(database: Database) -> None:
    odd = {
        "k": "v",
        "a": {"n": "nul \0", "f": 1e16, "big": 2**70, "t": [1, None, True, {"é": "😀"}]},
    }
    with database.open() as manager:
        session = manager.create_session("a")
        session.save_checkpoint("odd", state={}, metadata=odd)
        session.save_checkpoint("other", state={}, metadata={"k": "w"})
        session.save_checkpoint("bare", state={})
        assert session.get_checkpoint("odd").metadata == odd
        assert [one.name for one in session.list_checkpoints(metadata={"k": "v"})] == ["odd"]
    assert database.value("SELECT metadata FROM session_checkpoints WHERE name = 'bare'") is None
    arrow = "metadata ->> 'k'"
    assert database.sql(f"SELECT name FROM session_checkpoints WHERE {arrow} = ?", "w") == [
        ("other",)
    ]
    with database.refuses():
        database.sql("UPDATE session_checkpoints SET metadata = '{nonsense'")


def fill(database: Database, count: int) -> None:
    """Insert many checkpoints of two agents with one statement."""
    database.add_owner()
    database.sql("INSERT INTO agents (id, name, agent_type) VALUES (?, 'b', 't')", STRANGER)
    owner = f"CASE WHEN n % 10 = 0 THEN '{AGENT}' ELSE '{STRANGER}' END"
    if database.kind == "postgres":
        database.sql(
            "INSERT INTO session_checkpoints (session_id, agent_id, name, state_snapshot, manifest, "
            f"created_at) SELECT 's', ({owner.replace('%', '%%')})::uuid, n::text, '{{}}', '{{}}', "
            "now() - n * interval '1 second' FROM generate_series(1, ?::integer) AS n",
            count,
        )
        return
    database.sql(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?) "
        "INSERT INTO session_checkpoints (session_id, agent_id, seq, name, state_snapshot, "
        f"created_at) SELECT 's', {owner}, n, 'n' || n, '{{}}', "
        "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-' || n || ' seconds') FROM numbers",
        count,
    )


@pytest.mark.row("S0-12", "T13")
def test_the_latest_of_an_agent_is_found_in_the_index_among_a_hundred_thousand(
    database: Database,
) -> None:
    assert index_for_the_latest(database) == [
        ("agent_id", False),
        ("created_at", True),
        ("id", True),
    ]
    fill(database, 100_000)
    assert database.value("SELECT count(*) FROM session_checkpoints") == 100_000
    if database.kind == "postgres":
        query = queries("postgres", database.schema)["checkpoints.latest_of_agent"]
        values: Any = {"agent_id": AGENT, "tenant": "default"}
    else:
        query = queries("sqlite")["checkpoints.latest_of_agent"]
        values = (AGENT, "default", "2026-01-01T00:00:00.000000Z")
    database.sql("ANALYZE")
    if database.kind == "postgres":
        rows = database.connection.execute(f"EXPLAIN {query}".encode(), values).fetchall()
        plan = "\n".join(row[0] for row in rows)
    else:
        rows = database.connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
        plan = "\n".join(row[3] for row in rows)
    assert "checkpoints_by_agent" in plan
    assert not re.search("sort|temp b-tree|seq scan|^scan", plan, re.IGNORECASE | re.MULTILINE)
    with database.open() as manager:
        latest = manager.latest_checkpoint(AGENT)
        assert latest is not None
        assert latest.name.lstrip("n") == "10"


@pytest.mark.row("S0-13")
def test_the_keys_of_a_state_are_explained_where_the_table_is_made(database: Database) -> None:
    text = migrations("postgres" if database.kind == "postgres" else "sqlite")[0].up
    for key, kind in DOCUMENTED.items():
        assert re.search(rf"^--\s+{key}\s+{kind}\s+\w+", text, re.MULTILINE)
    if database.kind == "postgres":
        comment = database.value(
            "SELECT col_description('session_checkpoints'::regclass, attnum) FROM pg_attribute "
            "WHERE attrelid = 'session_checkpoints'::regclass AND attname = 'state_snapshot'"
        )
        for key, kind in DOCUMENTED.items():
            assert f"{key} ({kind}: " in comment
    with database.open() as manager:
        session = manager.create_session("a")
        session.save_checkpoint(
            "good",
            state={
                "conversation_history": [{"role": "user", "content": "hi"}],
                "variable_state": {"x": 1},
                "execution_context": {"node": "plan", "step": 3},
            },
        )
        for wrong, path in (
            ({"conversation_history": [{}, "hi"]}, r"\$\.conversation_history\[1\]"),
            ({"variable_state": []}, r"\$\.variable_state"),
            ({"execution_context": "x"}, r"\$\.execution_context"),
        ):
            with pytest.raises(InvalidState, match=path):
                session.save_checkpoint("bad", state=wrong)
        assert [one.name for one in session.list_checkpoints()] == ["good"]


@pytest.mark.row("S0-19")
def test_equal_times_are_told_apart_by_the_order_of_ids(database: Database) -> None:
    with database.open() as manager:
        agent = manager.create_agent("one", agent_type="a")
        sessions = [manager.create_session("a", agent_id=agent.id) for _ in range(3)]
        saved = [sessions[n % 3].save_checkpoint(state={"n": n}) for n in range(12)]
        other = manager.create_session("b").save_checkpoint(state={})
        moment = saved[0].created_at
        stamp = moment if database.kind == "postgres" else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        database.sql("UPDATE session_checkpoints SET created_at = ?", stamp)
        latest = manager.latest_checkpoint(agent.id)
        assert latest is not None
        assert latest.created_at == moment
        assert latest.id == max(one.id for one in saved) == saved[-1].id
        assert manager.latest_checkpoint(other.agent_id) == manager.get_checkpoint(other.id)
        assert manager.latest_checkpoint(str(uuid.uuid4())) is None


@pytest.mark.row("T13")
def test_the_schema_really_has_all_seven_columns_the_check_and_the_index(
    database: Database,
) -> None:
    found = columns_of(database, "session_checkpoints")
    if database.kind == "postgres":
        assert SEVEN.items() <= found.items()
    else:
        assert found.keys() >= SEVEN.keys()
    database.add_owner()
    with database.refuses():
        database.add_checkpoint(checkpoint_type="other")
    assert index_for_the_latest(database)[:2] == [("agent_id", False), ("created_at", True)]


@pytest.mark.row("S0-15")
class TestAcceptanceCriteria:
    """The six boxes of the request for this table, each by its own words."""

    def test_checkpoint_table_includes_state_snapshot_jsonb_column(
        self, database: Database
    ) -> None:
        assert "state_snapshot" in columns_of(database, "session_checkpoints")
        with database.open() as manager:
            manager.create_session("a").save_checkpoint("one", state={"step": {"number": 7}})
        path = "'$.state.step.number'" if database.kind == "sqlite" else "'{state,step,number}'"
        arrow = "->>" if database.kind == "sqlite" else "#>>"
        number = database.value(f"SELECT state_snapshot {arrow} {path} FROM session_checkpoints")
        assert int(number) == 7
        if database.kind == "postgres":
            assert columns_of(database, "session_checkpoints")["state_snapshot"] == "jsonb"
        with database.refuses():
            database.sql("UPDATE session_checkpoints SET state_snapshot = NULL")

    def test_agent_id_foreign_key_references_agent_id(self, database: Database) -> None:
        database.add_owner()
        database.add_checkpoint(agent_id=AGENT)
        with database.refuses():
            database.add_checkpoint(agent_id=STRANGER)
        if database.kind == "postgres":
            keys = [
                text
                for (text,) in database.sql(
                    "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'f' "
                    "AND conrelid = 'session_checkpoints'::regclass"
                )
            ]
            assert any(
                "agent_id) REFERENCES" in key and "agents(tenant, id)" in key for key in keys
            )
        else:
            keys = database.sql(
                "SELECT [table], [from], [to] FROM pragma_foreign_key_list('session_checkpoints')"
            )
            assert ("agents", "agent_id", "id") in keys

    def test_checkpoint_type_field_with_validation(self, database: Database) -> None:
        database.add_owner()
        for right in ("manual", "auto", "failure"):
            database.add_checkpoint(checkpoint_type=right)
        with database.refuses():
            database.add_checkpoint(checkpoint_type="x")

    def test_index_for_efficient_latest_checkpoint_queries(self, database: Database) -> None:
        assert index_for_the_latest(database)[:2] == [("agent_id", False), ("created_at", True)]
        with database.open() as manager:
            agent = manager.create_agent("one", agent_type="a")
            session = manager.create_session("a", agent_id=agent.id)
            for number in range(3):
                session.save_checkpoint(state={"n": number})
            latest = manager.latest_checkpoint(agent.id)
            assert latest is not None
            assert latest.state == {"n": 2}

    def test_restored_at_tracks_checkpoint_restoration(self, database: Database) -> None:
        with database.open() as manager:
            session = manager.create_session("a")
            session.save_checkpoint("one", state={})
            assert database.value("SELECT restored_at FROM session_checkpoints") is None
            session.load_checkpoint("one")
            assert database.value("SELECT restored_at FROM session_checkpoints") is not None

    def test_migration_includes_jsonb_schema_documentation(self, database: Database) -> None:
        text = migrations("postgres" if database.kind == "postgres" else "sqlite")[0].up
        comments = "\n".join(line for line in text.splitlines() if line.startswith("--"))
        for key, kind in DOCUMENTED.items():
            assert re.search(rf"{key}\s+{kind}\s+\w+", comments)
