"""Nothing is lost in silence: removed links, times, pending writes, tables, sealed texts that do not open."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.doctor import salvage
from holdfast.model import NewWrite
from holdfast.state import StateEncoder
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import session as session_draft
from holdfast.testing.drafts import write
from holdfast.verification import verify_store
from tests.doctor.test_salvage import SAVES, check, fill, pages_of, ruin
from tests.doctor.test_salvaged_logs import stored


def change(path: Path, *statements: str) -> None:
    """Change a file past Holdfast, its list of tables too."""
    connection = apsw.Connection(str(path))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.pragma("writable_schema", True)
        for statement in statements:
            connection.execute(statement)
            assert connection.changes()
    finally:
        connection.close()


# Links of a chain


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        ("chain_number IN (3, 4)", "links 3 to 4 of the session were removed without a trace"),
        ("chain_number = 30", "link 30 of the session was removed without a trace"),
    ],
)
def test_a_link_that_was_removed_without_a_trace_is_named(
    tmp_path: Path, removed: str, said: str
) -> None:
    path = tmp_path / "damaged.db"
    fill(path)
    change(path, f"DELETE FROM session_checkpoints WHERE session_id = 'second' AND {removed}")
    report = salvage(path, tmp_path / "saved.db")
    assert not report.complete
    [lost] = report.lost
    assert (lost.checkpoint_id, lost.session_id) == (None, "second")
    assert lost.reason.startswith(said)
    stored(report.target)


def test_links_that_went_in_the_course_of_things_are_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "sound.db"
    fill(path)
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        for one in manager.get_session("second").list_checkpoints()[4:9]:
            manager.store.delete_checkpoints([one.id])
    report = salvage(path, tmp_path / "saved.db")
    assert report.complete
    assert len(stored(report.target)) == 3 * SAVES - 5


# Times


@pytest.mark.parametrize(
    ("table", "column", "instead"),
    [
        ("effects", "started_at", "finished_at"),
        ("effects", "finished_at", None),
        ("session_checkpoints", "restored_at", None),
        ("session_checkpoints", "restoring_until", None),
        ("session_checkpoints", "consumed_at", "created_at"),
        ("session_checkpoints", "quarantined_at", "created_at"),
        ("sessions", "resumed_at", None),
        ("sessions", "paused_until", None),
        ("sessions", "updated_at", "created_at"),
        ("agents", "created_at", "updated_at"),
        ("session_logs", "created_at", "now"),
    ],
)
def test_a_time_that_cannot_be_read_costs_no_row(
    tmp_path: Path, table: str, column: str, instead: str | None
) -> None:
    path = tmp_path / "damaged.db"
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="one", task_description="Pay")
        session.step("pay", lambda: {"receipt": 1})
        session.save_checkpoint("paid", state={"paid": True})
        session.log("info", "paid")
    change(path, f"UPDATE {table} SET {column} = '2026-11-1x'")
    report = salvage(path, tmp_path / "saved.db")
    assert not report.lost_rows
    assert not report.remade_sessions
    [lost] = report.lost
    assert f"{column} of a row of {table} cannot be read" in lost.reason
    assert "one" in lost.what or table == "agents"
    expected = "NULL" if instead is None else instead
    if instead != "now":
        assert values(report.target, f"SELECT {column} IS {expected} FROM {table}") == [(1,)]
    assert list(stored(report.target).values()) == [{"paid": True}]
    with SessionManager.open(report.target, project_dir=tmp_path, workspace=False) as manager:
        resumed = manager.resume_session("one", take_over=True)
        assert resumed.record.task_description == "Pay"
        assert resumed.step("pay", pytest.fail) == {"receipt": 1}
        assert "paid" in [one.message for one in resumed.logs()]


def test_a_time_that_a_link_proves_costs_the_row(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    fill(path)
    change(path, "UPDATE session_checkpoints SET created_at = '2026-11-1x' WHERE chain_number = 3")
    report = salvage(path, tmp_path / "saved.db")
    assert report.lost_rows == {"session_checkpoints": 3}
    assert len(stored(report.target)) == 3 * SAVES - 3


def values(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


# Pending writes


def pending(number: int) -> NewWrite:
    value = StateEncoder().encode({"value": number})
    return write(f"task-{number}", 0, manifest=value.manifest, refs=value.refs)


def test_a_pending_write_that_does_not_verify_is_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    with SqliteStore(path) as store:
        owner = store.create_session(session_draft())
        place = session_draft(id=owner.id, agent_id=owner.agent_id)
        store.put_writes(place, "", "e1", [pending(1), pending(2), pending(3)])
    change(path, "UPDATE checkpoint_writes SET manifest = '{}' WHERE task_id = 'task-2'")
    report = salvage(path, tmp_path / "saved.db")
    assert not report.complete
    [lost] = report.lost
    assert lost.session_id == owner.id
    assert lost.reason.startswith("a pending write of task task-2: ")
    with SqliteStore(report.target) as store:
        assert verify_store(store, deep=True).ok
        tasks = [one.task_id for one in store.list_writes(owner.id, "", ["e1"])]
    assert tasks == ["task-1", "task-3"]


# The list of tables


@pytest.mark.parametrize(
    "altered",
    [
        "sql = replace(sql, 'state_snapshot', 'state_snapshpt') WHERE name = 'session_checkpoints'",
        "sql = replace(sql, 'state_snapshot', 'state_sn(pshot') WHERE name = 'session_checkpoints'",
        "sql = CAST(replace(CAST(sql AS BLOB), 'tenant', x'ff656e616e74') AS TEXT) WHERE name = 'effects'",
        "name = 'sessionr', tbl_name = 'sessionr' WHERE name = 'sessions'",
        "tbl_name = 'bgents' WHERE name = 'agents'",
        "type = 'uable' WHERE name = 'session_logs'",
        "sql = replace(sql, 'ON chunks', 'ON chunkt') WHERE name = 'checkpoints_by_seq'",
    ],
    ids=["column", "syntax", "no text", "name", "table", "kind", "index"],
)
def test_a_letter_in_the_list_of_tables_costs_nothing(tmp_path: Path, altered: str) -> None:
    path = tmp_path / "damaged.db"
    states = fill(path)
    change(path, f"UPDATE sqlite_schema SET {altered}")
    report = salvage(path, tmp_path / "saved.db")
    assert report.complete, (report.lost, report.lost_rows)
    assert (report.effects, report.logs) == (3 * SAVES, 3 * SAVES)
    check(report, states)


def test_a_table_that_is_gone_is_counted_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    states = fill(path)
    change(path, "DELETE FROM sqlite_schema WHERE name = 'effects'")
    report = salvage(path, tmp_path / "saved.db")
    assert not report.complete
    assert report.lost_rows == {"effects": 1}
    assert report.effects == 0
    check(report, states)


def test_a_table_without_a_page_that_can_be_read_is_counted_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        manager.create_session("worker", session_id="one").log("info", "line")
    ruin(path, *pages_of(path, "session_logs", "logs_by_session"))
    report = salvage(path, tmp_path / "saved.db")
    assert not report.complete
    assert report.lost_rows == {"session_logs": 1}


# Tenants


@pytest.mark.parametrize("table", ["agents", "sessions", "session_checkpoints"])
def test_a_row_whose_tenant_was_altered_costs_no_other(tmp_path: Path, table: str) -> None:
    path = tmp_path / "damaged.db"
    states = fill(path)
    row = f"(SELECT min(rowid) FROM {table})"
    change(path, f"UPDATE {table} SET tenant = 'defbult' WHERE rowid = {row}")
    report = salvage(path, tmp_path / "saved.db")
    assert report.complete is (table == "agents")
    assert report.lost_rows == ({} if table == "agents" else {table: 1})
    assert len(report.remade_sessions) == (table == "sessions")
    assert report.checkpoints == len(states) - (table == "session_checkpoints")
    check(report, states)


# Sealed texts

DAMAGED = "{column} = substr({column}, 1, 60) || 'AAAA' || substr({column}, 65)"


@pytest.mark.parametrize(
    ("table", "column", "what"),
    [
        ("sessions", "task_description", "something of session a"),
        ("sessions", "pause_reason", "something of session a"),
        ("sessions", "metadata", "something of session a"),
        ("session_logs", "message", "something of session a"),
        ("session_logs", "data", "something of session a"),
        ("agents", "metadata", "something of agent"),
        ("effects", "error", "result of fails"),
        ("checkpoint_writes", "manifest", "something of session a"),
    ],
)
@pytest.mark.parametrize("how", ["damaged", "plain"])
def test_a_sealed_text_that_does_not_open_is_left_out_and_the_rest_can_be_read(
    tmp_path: Path, table: str, column: str, what: str, how: str
) -> None:
    path, ring = tmp_path / "damaged.db", KeyRing.new()
    lines = fill_sealed(path, ring)
    value = """{column} = '{{"k": "forged"}}'""" if how == "plain" else DAMAGED
    agent = "(SELECT agent_id FROM sessions WHERE id = 'a')"
    of = (
        f"id = {agent}"
        if table == "agents"
        else "id = 'a'"
        if table == "sessions"
        else "session_id = 'a'"
    )
    row = f"rowid = (SELECT max(rowid) FROM {table} WHERE {column} IS NOT NULL AND {of})"
    change(path, f"UPDATE {table} SET {value.format(column=column)} WHERE {row}")
    report = salvage(path, tmp_path / "saved.db", keys=ring)
    assert not report.complete
    [lost] = report.lost
    assert lost.what.startswith(what)
    assert report.logs == 2 * lines - (table == "session_logs")
    with SessionManager.open(report.target, workspace=False, keys=ring) as manager:
        assert manager.verify(deep=True).ok
        assert sorted(one.id for one in manager.list_sessions()) == ["a", "b"]
        assert len(manager.store.list_agents()) == 2
        for name in ("a", "b"):
            session = manager.get_session(name)
            assert session.state == {"of": name}
            assert len(session.logs()) == lines - ((table, name) == ("session_logs", "a"))
            statuses = {one.name: one.status for one in session.effects()}
            ended = "unknown" if (table, name) == ("effects", "a") else "failed"
            assert statuses == {"pays": "done", "fails": ended}
            assert manager.resume_session(name).save_checkpoint("after", state={}).id


def fill_sealed(path: Path, ring: KeyRing) -> int:
    """Fill a sealed database with two sessions that have a little of everything.

    Returns how many lines the log of each has.
    """
    with SessionManager.open(path, workspace=False, keys=ring) as manager:
        for name in ("a", "b"):
            session = manager.create_session(
                "worker", session_id=name, task_description="task", metadata={"k": "v" * 60}
            )
            session.save_checkpoint("one", state={"of": name})
            session.step("pays", lambda: random.Random(1).random())
            with pytest.raises(ZeroDivisionError):
                session.step("fails", lambda: 1 // 0)
            for number in range(3):
                session.log("info", f"line {number}", data={"k": "v" * 60})
            session.pause(reason="a reason of some length, so that it can be damaged")
            record = manager.store.find_session(name)
            assert record is not None
            value = StateEncoder().encode({"value": name})
            draft = session_draft(id=name, agent_id=record.agent_id)
            pending_write = write("task", 0, manifest=value.manifest, refs=value.refs)
            manager.store.put_writes(draft, "", "e1", [pending_write])
        for agent in manager.store.list_agents():
            manager.store.update_agent(agent.id, metadata={"k": "v" * 60})
        return len(manager.get_session("a").logs())
