"""Rows that cannot be read: each is named, and hides none of the others."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.config import load_config
from holdfast.crypto import KeyRing
from holdfast.doctor import examine
from holdfast.errors import CheckpointQuarantined, SealBroken, SessionNotFound, StateCorrupt
from holdfast.model import CheckpointQuery, SessionQuery
from holdfast.stores.readable import list_readable, read_rows
from tests.stores.postgres_drafts import connect

JUNK = "UPDATE sessions SET created_at = 'junk' WHERE id = 'bad'"


@pytest.fixture
def keys() -> KeyRing:
    return KeyRing.new()


def fill(project: Path, keys: KeyRing | None = None) -> None:
    with SessionManager.open(project_dir=project, workspace=False, keys=keys) as manager:
        for session_id, agent_type in (("bad", "x"), ("badly", "x"), ("other", "y")):
            with manager.create_session(
                agent_type,
                session_id=session_id,
                task_description="task",
                metadata={"of": agent_type},
            ) as session:
                session.save_checkpoint("one", state={"of": session_id})
                session.log("info", "hello")
                session.step("charge", lambda order: order, "order-1")


def damage(project: Path, *statements: str) -> None:
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    connection = apsw.Connection(str(project / ".agents" / "sessions.db"))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def opened(project: Path, keys: KeyRing | None = None) -> SessionManager:
    return SessionManager.open(project_dir=project, workspace=False, keys=keys)


def test_a_session_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    fill(tmp_path)
    damage(tmp_path, JUNK)
    with opened(tmp_path) as manager:
        assert [one.id for one in manager.list_sessions()] == ["other", "badly"]
        assert [one.id for one in manager.list_sessions(limit=1)] == ["other"]
        assert [one.id for one in manager.list_sessions(agent_type="x")] == ["badly"]
        assert [one.id for one in manager.list_sessions(metadata={"of": "x"})] == ["badly"]
        assert [one.id for one in manager.list_sessions(status="completed")] == []
        [(named, error)] = manager.unreadable_sessions().items()
        assert named == "bad"
        assert isinstance(error, StateCorrupt)
        assert "the row of session 'bad' cannot be understood" in str(error)
        assert manager.latest_unfinished_session().id == "other"
        with pytest.raises(SessionNotFound, match="other"):
            manager.get_session("othr")
        later = manager.create_session("z", continues="other")
        for continued, found in ((True, ["other"]), (False, [later.id, "badly"])):
            query = SessionQuery(continued=continued)
            assert [one.id for one in list_readable(manager.store, query)] == found


def take_the_id(project: Path, name: str) -> None:
    """Leave a checkpoint of the session 'bad' without an id, as no strict table would."""
    connection = apsw.Connection(str(project / ".agents" / "sessions.db"))
    connection.pragma("writable_schema", True)
    connection.pragma("ignore_check_constraints", True)
    where = "WHERE name = 'session_checkpoints'"
    [(strict,)] = connection.execute(f"SELECT sql FROM sqlite_schema {where}")
    lenient = strict.replace("NOT NULL", "").replace("STRICT", "")
    connection.execute(f"UPDATE sqlite_schema SET sql = ? {where}", (lenient,))
    connection.close()
    damage(
        project,
        f"UPDATE session_checkpoints SET id = NULL WHERE session_id = 'bad' AND name = '{name}'",
    )
    connection = apsw.Connection(str(project / ".agents" / "sessions.db"))
    connection.pragma("writable_schema", True)
    connection.execute(f"UPDATE sqlite_schema SET sql = ? {where}", (strict,))
    connection.close()


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_checkpoint_without_an_id_is_told_and_hides_no_other(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    with opened(tmp_path) as manager:
        manager.resume_session("bad").save_checkpoint("two", state={"of": "two"})
    take_the_id(tmp_path, name)
    with opened(tmp_path) as manager:
        session = manager.get_session("bad")
        assert list(session.unreadable_checkpoints()) == ["without an id"]
        [other] = {"one", "two"} - {name}
        assert [one.name for one in session.list_checkpoints()] == [other]
        assert session.load_checkpoint(other).name == other
        assert not manager.verify(deep=True).ok
        if name == "two":
            # Nobody can set it aside, and it stands before what could be gone on from.
            with pytest.raises(StateCorrupt, match=r"checkpoint None .* doctor --salvage"):
                manager.resume_session("bad")
        else:
            assert manager.resume_session("bad").state == {"of": "two"}


@pytest.mark.parametrize("deep", [False, True])
def test_verification_names_the_session(tmp_path: Path, deep: bool) -> None:
    fill(tmp_path)
    damage(tmp_path, JUNK)
    with opened(tmp_path) as manager:
        report = manager.verify(deep=deep)
    assert [one.what for one in report.damaged] == ["session bad"]
    assert report.checked == 3


@pytest.mark.parametrize("deep", [False, True])
def test_verification_names_an_effect_and_goes_on(tmp_path: Path, deep: bool) -> None:
    fill(tmp_path)
    damage(
        tmp_path,
        "UPDATE effects SET started_at = 'junk' WHERE session_id = 'bad'",
        "UPDATE session_checkpoints SET description = 'forged' WHERE session_id = 'other'",
    )
    with opened(tmp_path) as manager:
        report = manager.verify(deep=deep)
    kinds = {(one.kind, one.session_id) for one in report.damaged if one.checkpoint_id is None}
    assert ("effect", "bad") in kinds
    assert report.damaged_checkpoints == 1
    assert report.effects == 3
    assert len(report.quarantined) == deep
    assert any("the row of effect 'charge" in one.reason for one in report.damaged)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE session_logs SET created_at = 'junk' WHERE session_id = 'bad'", "of the log of"),
        ("UPDATE agents SET created_at = 'junk'", "the row of agent"),
    ],
)
def test_deep_verification_names_other_rows(tmp_path: Path, statement: str, named: str) -> None:
    fill(tmp_path)
    damage(tmp_path, statement)
    with opened(tmp_path) as manager:
        damaged = manager.verify(deep=True).damaged
    assert damaged
    assert all(named in one.reason for one in damaged)


NO_JSON = ("PRAGMA ignore_check_constraints = 1", "UPDATE {} WHERE {} = 'bad'")


def test_a_line_of_a_log_that_is_no_json_is_named_by_whoever_meets_it(tmp_path: Path) -> None:
    fill(tmp_path)
    damage(tmp_path, *(one.format("session_logs SET data = '{'", "session_id") for one in NO_JSON))
    with opened(tmp_path) as manager:
        session = manager.get_session("bad")
        for read in (
            session.brief,
            lambda: manager.export_session("bad", tmp_path / "b.tar", checkpoint="one"),
            lambda: manager.store.list_logs("bad", key="any"),
        ):
            with pytest.raises(StateCorrupt, match=r"line [0-9]+ of the log of session 'bad'"):
                read()
        assert manager.store.list_logs("other", key="any") == []


def test_metadata_that_are_no_json_hide_no_other_session_or_checkpoint(tmp_path: Path) -> None:
    fill(tmp_path)
    damage(
        tmp_path,
        *(one.format("sessions SET metadata = '{'", "id") for one in NO_JSON),
        NO_JSON[1].format("session_checkpoints SET metadata = '{'", "session_id"),
    )
    with opened(tmp_path) as manager:
        assert [one.id for one in manager.list_sessions(metadata={"of": "x"})] == ["badly"]
        with pytest.raises(StateCorrupt, match="the row of checkpoint"):
            manager.store.list_checkpoints(CheckpointQuery(metadata={"a": 1}))


def test_a_row_of_a_server_is_named_with_what_helps_there(
    tmp_path: Path, postgres_url: str
) -> None:
    with SessionManager.open(postgres_url, project_dir=tmp_path, workspace=False) as manager:
        for session_id in ("bad", "good"):
            session = manager.create_session("x", session_id=session_id)
            session.save_checkpoint("one", state={})
            session.log("info", "hello")
        with connect(postgres_url) as beside:
            beside.execute("UPDATE sessions SET metadata = '[1]' WHERE id = 'bad'")
            beside.execute("UPDATE session_logs SET data = '[1]' WHERE session_id = 'good'")
        advice = "back from a copy of the database; holdfast copy takes"
        with pytest.raises(StateCorrupt, match=f"the row of session 'bad' .*{advice}"):
            manager.get_session("bad")
        with pytest.raises(StateCorrupt, match=f"of the log of session 'good' .*{advice}"):
            manager.get_session("good").logs()
    found = examine(
        load_config(tmp_path, url=postgres_url),
        lambda: SessionManager.open(postgres_url, project_dir=tmp_path, workspace=False),
    )
    [bad] = [one for one in found if one.name == "sessions"]
    assert (bad.level, "bad" in bad.text) == ("bad", True)
    assert "holdfast copy" in str(bad.advice)
    assert not any("--salvage" in f"{one.text} {one.advice}" for one in found)


@pytest.mark.parametrize("column", ["task_description", "metadata"])
def test_a_sealed_session_that_does_not_open_hides_no_other(
    tmp_path: Path, keys: KeyRing, column: str
) -> None:
    fill(tmp_path, keys)
    flipped = (
        f"substr({column}, 1, 40) || CASE substr({column}, 41, 1) WHEN 'A' THEN 'B' ELSE 'A' END"
    )
    damage(
        tmp_path,
        f"UPDATE sessions SET {column} = {flipped} || substr({column}, 42) WHERE id = 'bad'",
    )
    with opened(tmp_path, keys) as manager:
        assert [one.id for one in manager.list_sessions()] == ["other", "badly"]
        [(named, error)] = manager.unreadable_sessions().items()
        assert (named, type(error)) == ("bad", SealBroken)
        assert [one.what for one in manager.verify().damaged] == ["session bad"]
        assert manager.resume_session("other").state == {"of": "other"}


def test_the_doctor_names_the_session(tmp_path: Path) -> None:
    fill(tmp_path)
    damage(tmp_path, JUNK)
    found = {one.name: one for one in examine(load_config(tmp_path), lambda: opened(tmp_path))}
    assert found["sessions"].level == "bad"
    assert found["sessions"].text.endswith(": bad")
    assert "2 sessions" in found["store"].text


# Checkpoints

GARBLED = "UPDATE session_checkpoints SET created_at = '2026-11-1x' WHERE name = 'two'"


def save_two(project: Path) -> str:
    """Let the session ``other`` have two checkpoints, and return the id of the newer one."""
    fill(project)
    with opened(project) as manager:
        return manager.resume_session("other").save_checkpoint("two", state={"of": "two"}).id


def test_a_checkpoint_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    newer = save_two(tmp_path)
    damage(tmp_path, GARBLED)
    with opened(tmp_path) as manager:
        session = manager.get_session("other")
        assert [one.name for one in session.list_checkpoints()] == ["one"]
        [(named, error)] = session.unreadable_checkpoints().items()
        assert named == newer
        assert f"'{newer}' ('two') of session 'other' cannot be understood" in str(error)
        assert session.unreadable_checkpoints("two").keys() == {newer}
        assert session.unreadable_checkpoints("one") == {}
        assert len(manager.prune(dry_run=True)) == 3
        assert [one.checkpoint_id for one in manager.verify().damaged] == [newer]
        codes = [(one.code, one.subject) for one in session.preflight().reasons]
        assert codes == [("checkpoint_unreadable", newer)]
        with pytest.raises(StateCorrupt):
            session.get_checkpoint("two")
        assert session.latest_checkpoint().name == "one"


def test_a_resume_passes_over_what_cannot_be_read_and_says_so(tmp_path: Path) -> None:
    newer = save_two(tmp_path)
    damage(tmp_path, GARBLED)
    with opened(tmp_path) as manager:
        for saved in ("one", "three"):
            with manager.resume_session("other") as session:
                assert session.latest_checkpoint().name == saved
                [notice] = session.notices
                assert f"checkpoint {newer} cannot be read and was passed over" in notice
                session.save_checkpoint("three", state={}, overwrite=True)
        with manager.hold_session("other") as session:
            session.delete_checkpoint("two")
            assert session.unreadable_checkpoints() == {}
        with manager.resume_session("other") as session:
            assert "cannot be read" not in "".join(session.notices)
        assert manager.verify().ok


def test_nothing_is_gone_on_from_where_all_cannot_be_read(tmp_path: Path) -> None:
    fill(tmp_path)
    damage(tmp_path, "UPDATE session_checkpoints SET created_at = '2026-11-1x'")
    with opened(tmp_path) as manager:
        with pytest.raises(StateCorrupt):
            manager.resume_session("other")
        manager.verify(deep=True)
        with pytest.raises(CheckpointQuarantined):
            manager.resume_session("other")


def test_a_time_of_restoring_that_cannot_be_read_costs_nothing(tmp_path: Path) -> None:
    save_two(tmp_path)
    damage(tmp_path, "UPDATE session_checkpoints SET restored_at = 'x' WHERE name = 'two'")
    with opened(tmp_path) as manager:
        newest = manager.get_session("other").list_checkpoints()[0]
        assert (newest.name, newest.restored_at) == ("two", None)
        with manager.resume_session("other") as session:
            assert session.state == {"of": "two"}
            assert session.latest_checkpoint().restored_at is not None


def test_a_checkpoint_that_a_server_cannot_show_hides_no_other(postgres_url: str) -> None:
    with SessionManager.open(postgres_url, workspace=False) as manager:
        with manager.create_session("x", session_id="s") as session:
            session.save_checkpoint("one", state={"of": "one"})
            newer = session.save_checkpoint("two", state={"of": "two"}).id
        with connect(postgres_url) as connection:
            connection.execute(
                "UPDATE session_checkpoints SET created_at = 'infinity' WHERE name = 'two'"
            )
            connection.commit()
        assert [one.checkpoint_id for one in manager.verify().damaged] == [newer]
        with manager.resume_session("s") as session:
            assert session.state == {"of": "one"}
            assert f"checkpoint {newer} cannot be read" in session.notices[0]
            session.delete_checkpoint(newer)
        assert manager.verify().ok


@pytest.mark.parametrize("kind", ["sealed", "postgres"])
def test_all_rows_beside_one_that_cannot_be_read_are_read(
    kind: str, tmp_path: Path, keys: KeyRing, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "sessions.db")
    if kind == "postgres":
        url = str(request.getfixturevalue("postgres_url"))
    ring = keys if kind == "sealed" else None
    with SessionManager.open(url, workspace=False, keys=ring) as manager:
        with manager.create_session("x", session_id="s") as session:
            for number in range(4):
                session.save_checkpoint(f"c{number}", state={"n": number})
                session.log("info", f"line {number}")
                session.step(f"step {number}", lambda: 1)
        statements = (
            "UPDATE session_logs SET created_at = 'infinity' WHERE level = 'info' AND id % 4 = 2",
            "UPDATE effects SET started_at = 'infinity' WHERE name = 'step 3'",
            "UPDATE session_checkpoints SET created_at = 'infinity' WHERE name = 'c1'",
        )
        if kind == "postgres":
            with connect(url) as connection:
                for statement in statements:
                    connection.execute(statement)
        else:
            database = apsw.Connection(url)
            for statement in statements:
                database.execute(statement)
            database.close()
        rows = read_rows(manager.store, "s")
        assert rows is not None
        assert [one.name for one in rows.checkpoints] == ["c0", "c2", "c3"]
        assert [one.name for one in rows.effects] == ["step 0", "step 1", "step 2"]
        assert len(rows.logs) == 3
        assert [one.table for one in rows.damaged] == [
            "session_checkpoints",
            "effects",
            "session_logs",
        ]
        assert read_rows(manager.store, "nobody") is None
