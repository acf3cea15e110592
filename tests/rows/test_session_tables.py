"""Sessions, their checkpoints and their logs as tables: names, defaults, rules, erasure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from holdfast.errors import IllegalTransition, InvalidFilter
from holdfast.model import SESSION_STATUSES, SESSION_TRANSITIONS
from holdfast.testing.drafts import session as session_draft
from tests.rows.conftest import AGENT, STRANGER, Database
from tests.rows.test_checkpoint_table import as_moment, columns_of, primary_key_of

# The tables of the first proposal; its checkpoint_data is called state_snapshot here.
PROPOSED = {
    "sessions": "id agent_type task_description status created_at updated_at metadata",
    "session_checkpoints": "id session_id name state_snapshot git_branch git_uncommitted created_at",
    "session_logs": "id session_id level message created_at",
}


@pytest.mark.row("S1-17", "S1-80")
def test_the_three_tables_have_the_columns_that_were_proposed(database: Database) -> None:
    if database.kind == "sqlite":
        listed = {name for (name,) in database.sql("SELECT name FROM sqlite_master")}
        assert listed >= PROPOSED.keys()
    for table, columns in PROPOSED.items():
        assert columns_of(database, table).keys() >= set(columns.split()), table


@pytest.mark.row("S1-80")
def test_the_types_and_nullability_are_those_that_were_proposed(database: Database) -> None:
    required = {
        "sessions": "id agent_type status created_at updated_at",
        "session_checkpoints": "id session_id name state_snapshot created_at",
        "session_logs": "id session_id level message created_at",
    }
    for table, columns in required.items():
        if database.kind == "postgres":
            rows = database.sql(
                "SELECT attname FROM pg_attribute WHERE attrelid = ?::regclass AND attnotnull",
                table,
            )
        else:
            rows = database.sql(
                f"SELECT name FROM pragma_table_xinfo('{table}') WHERE [notnull] OR pk"
            )
        assert {name for (name,) in rows} >= set(columns.split()), table
    if database.kind == "sqlite":
        assert columns_of(database, "sessions")["id"] == "TEXT"
        assert columns_of(database, "session_checkpoints")["git_uncommitted"] == "INTEGER"
        assert columns_of(database, "session_logs")["id"] == "INTEGER"


@pytest.mark.row("S1-60", "S1-61", "S1-62", "S1-63", "S1-65")
def test_the_database_defends_sessions(database: Database) -> None:
    assert primary_key_of(database, "sessions") == ["tenant", "id"]
    assert columns_of(database, "sessions")["id"].lower() == "text"
    database.add_owner()
    row = database.sql("SELECT status, task_description, metadata FROM sessions")
    assert row == [("active", None, None)]
    with database.refuses():
        database.insert("sessions", id="s", agent_id=AGENT, agent_type="t")
    for wrong in (
        {"id": None}, {"agent_type": None}, {"agent_type": ""}, {"status": "asleep"},
        {"status": ""}, {"status": None}, {"metadata": "{"}, {"agent_id": STRANGER},
        {"created_at": None}, {"updated_at": None},
    ):  # fmt: skip
        with database.refuses():
            database.insert(
                "sessions", **({"id": "other", "agent_id": AGENT, "agent_type": "t"} | wrong)
            )
    for status in SESSION_STATUSES:
        database.insert("sessions", id=status, agent_id=AGENT, agent_type="t", status=status)
    database.insert(
        "sessions", id="j", agent_id=AGENT, agent_type="t", metadata='{"team": {"n": [1]}}'
    )
    found = database.value("SELECT metadata FROM sessions WHERE id = 'j'")
    assert (found if isinstance(found, dict) else json.loads(found)) == {"team": {"n": [1]}}


@pytest.mark.row("S1-63")
def test_a_session_goes_only_where_it_may(database: Database) -> None:
    with database.open() as manager:
        for start in SESSION_STATUSES:
            for target in SESSION_STATUSES:
                created = manager.store.create_session(session_draft())
                manager.store.update_session(created.id, status=start)
                session = manager.hold_session(created.id)
                steps: dict[str, Callable[[], object]] = {
                    "active": partial(manager.resume_session, created.id),
                    "completed": session.complete,
                    "failed": session.fail,
                }
                if target not in steps:
                    continue
                # Resuming what is active already is no step, and therefore no error.
                if target in SESSION_TRANSITIONS[start] or start == target == "active":
                    steps[target]()
                    assert manager.get_session(created.id).status == target
                else:
                    with pytest.raises(IllegalTransition):
                        steps[target]()
                    assert manager.get_session(created.id).status == start


@pytest.mark.row("S1-63")
def test_every_illegal_step_is_refused_by_the_store(database: Database) -> None:
    with database.open() as manager:
        store = manager.store
        for start, allowed in SESSION_TRANSITIONS.items():
            for target in SESSION_STATUSES:
                created = store.create_session(session_draft())
                placed = store.update_session(created.id, status=start)
                sources = [one for one, to in SESSION_TRANSITIONS.items() if target in to]
                if target in allowed:
                    moved = store.update_session(created.id, status=target, expected=sources)
                    assert moved.status == target
                else:
                    with pytest.raises(IllegalTransition):
                        store.update_session(created.id, status=target, expected=sources)
                    assert store.find_session(created.id) == placed


@pytest.mark.row("S1-64", "S1-70")
def test_times_are_required_in_utc_and_updated_at_moves_with_every_change(
    database: Database,
) -> None:
    with database.open() as manager:
        session = manager.create_session("a")
        seen = [session.record.updated_at]
        changes = (
            lambda: session.save_checkpoint("one", state={}),
            lambda: session.save_checkpoint("one", state={"n": 1}, overwrite=True),
            lambda: session.update_metadata({"k": "v"}),
            lambda: session.fail("no"),
            lambda: manager.resume_session(session.id),
            session.complete,
        )
        for change in changes:
            change()
            seen.append(session.refresh().record.updated_at)
        assert seen == sorted(set(seen))
    for table, columns in {
        "sessions": ("created_at", "updated_at"),
        "session_checkpoints": ("created_at",),
        "session_logs": ("created_at",),
    }.items():
        for column in columns:
            found = database.sql(f"SELECT {column} FROM {table}")
            assert found
            for (value,) in found:
                if database.kind == "sqlite":
                    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value)
                assert abs(as_moment(value) - datetime.now(UTC)) < timedelta(minutes=1)
            with database.refuses():
                database.sql(f"UPDATE {table} SET {column} = NULL")


@pytest.mark.row("S1-66", "S1-67", "S1-69")
def test_the_database_defends_checkpoints(database: Database) -> None:
    database.add_owner()
    database.insert("sessions", id="other", agent_id=AGENT, agent_type="t")
    assert primary_key_of(database, "session_checkpoints") == ["id"]
    database.add_checkpoint(name="same")
    row = database.sql("SELECT git_branch, git_uncommitted FROM session_checkpoints")
    assert [(branch, bool(dirty)) for branch, dirty in row] == [(None, False)]
    for wrong in (
        {"session_id": None}, {"session_id": "unknown"}, {"name": None}, {"name": "same"},
    ):  # fmt: skip
        with database.refuses():
            database.add_checkpoint(**wrong)
    database.add_checkpoint(name="same", session_id="other")
    assert database.value("SELECT count(*) FROM session_checkpoints") == 2


@pytest.mark.row("S1-71")
def test_logs_only_grow_and_come_in_the_order_of_the_calls(database: Database) -> None:
    levels = ("debug", "info", "warning", "error")
    with database.open() as manager:
        session, other = manager.create_session("a"), manager.create_session("b")
        for number in range(12):
            session.log(levels[number % 4], f"line {number}")
            other.log("info", "not mine")
        # Nothing that a session does to its checkpoints touches what was logged.
        for _ in range(7):
            session.save_checkpoint(state={}, retention_class="automatic")
        manager.prune(keep=1)
        manager.gc()
        lines = session.logs()
        assert [line.message for line in lines] == [f"line {number}" for number in range(12)]
        assert [line.id for line in lines] == sorted({line.id for line in lines})
        assert [one.message for one in session.logs(limit=2, offset=3)] == ["line 3", "line 4"]
        assert [one.message for one in session.logs(level="error", limit=2, offset=1)] == [
            "line 7",
            "line 11",
        ]
        with pytest.raises(InvalidFilter):
            session.log("loud", "no such level")
        session_id = session.id
    for wrong in (
        {"session_id": None}, {"session_id": "x"}, {"level": None}, {"level": "loud"},
        {"message": None},
    ):  # fmt: skip
        with database.refuses():
            row = {"session_id": session_id, "level": "info", "message": "m"}
            database.insert("session_logs", **(row | wrong))
    last = database.value("SELECT max(id) FROM session_logs")
    database.sql("DELETE FROM session_logs WHERE id = ?", last)
    database.insert("session_logs", session_id=session_id, level="info", message="m")
    assert database.value("SELECT max(id) FROM session_logs") > last, "an id is never used again"


@pytest.mark.row("S1-39")
def test_sessions_and_checkpoints_are_created_read_updated_and_erased_without_orphans(
    database: Database,
) -> None:
    shared = "shared words " * 500
    with database.open() as manager:
        doomed, kept = manager.create_session("a"), manager.create_session("a")
        for session in (doomed, kept):
            session.save_checkpoint("one", state={"shared": shared, "own": session.id * 200})
            session.save_checkpoint("two", state={"shared": shared}, metadata={"k": 1})
            session.log("info", "hello")
        assert manager.get_session(doomed.id).get_checkpoint("one").state["shared"] == shared
        doomed.update_metadata({"k": "v"})
        doomed.save_checkpoint("two", state={"n": 2}, overwrite=True)
        assert doomed.get_checkpoint("two").state == {"n": 2}
        doomed.delete_checkpoint("two")
        assert [one.name for one in doomed.list_checkpoints()] == ["one"]
        manager.delete_session(doomed.id)
        assert kept.get_checkpoint("one").state["shared"] == shared
    for table, column in {
        "sessions": "id",
        "session_checkpoints": "session_id",
        "session_logs": "session_id",
        "checkpoint_writes": "session_id",
    }.items():
        count = f"SELECT count(*) FROM {table} WHERE {column} = ?"
        assert database.value(count, doomed.id) == 0, table
    with database.open() as manager:
        assert manager.gc(dry_run=True).chunks == 0
        manager.delete_session(kept.id)
    assert database.value("SELECT count(*) FROM chunks") == 0
