"""Sessions whose stored checkpoints are damaged: fail closed, and go on from the last good one."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from psycopg import sql

from holdfast import SessionManager
from holdfast.errors import CheckpointQuarantined, IntegrityError
from tests.stores.postgres_drafts import connect, schema_of
from tests.stores.postgres_roles import role_of


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[SessionManager]:
    with SessionManager.open(
        tmp_path / "sessions.db", project_dir=tmp_path, workspace=False
    ) as manager:
        yield manager


def run(tmp_path: Path, statement: str) -> None:
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    connection = apsw.Connection(str(tmp_path / "sessions.db"))
    try:
        connection.execute(statement)
    finally:
        connection.close()


def filled(manager: SessionManager, count: int = 3) -> tuple[str, list[str]]:
    with manager.create_session(agent_type="implementer") as session:
        saved = [
            session.save_checkpoint(f"n{number}", state={"n": number}) for number in range(count)
        ]
        return session.id, [one.id for one in saved]


ALTERED = "UPDATE session_checkpoints SET version = version + 1 WHERE name = '{}'"


@pytest.mark.row("B8")
def test_resuming_passes_over_what_is_damaged_and_says_so(
    manager: SessionManager, tmp_path: Path
) -> None:
    session_id, ids = filled(manager)
    run(tmp_path, ALTERED.format("n1"))
    run(tmp_path, ALTERED.format("n2"))
    session = manager.resume_session(session_id)
    assert session.state == {"n": 0}
    assert [one.split("'")[1] for one in session.notices] == ["n2", "n1"]
    warnings = [one for one in session.logs() if one.level == "warning"]
    assert [one.data for one in warnings] == [{"quarantined": ids[2]}, {"quarantined": ids[1]}]
    with pytest.raises(CheckpointQuarantined, match="'n0'") as raised:
        session.load_checkpoint("n2")
    assert raised.value.last_good == ids[0]
    assert session.latest_checkpoint().name == "n0"
    assert len(session.list_checkpoints()) == 3
    saved = session.save_checkpoint("n3", state={"n": 3})
    assert saved.parent_id == ids[0]
    session.close()
    again = manager.resume_session(session_id)
    assert (again.state, again.notices) == ({"n": 3}, ())


def test_a_session_that_continues_a_damaged_one_begins_with_nothing_and_says_so(
    manager: SessionManager, tmp_path: Path
) -> None:
    before, _ = filled(manager)
    session = manager.create_session("implementer", continues=before)
    assert session.outline() == {"n": 2}
    run(tmp_path, ALTERED.format("n2"))
    assert session.outline() == {}
    (warning,) = session.logs()
    assert (warning.level, "checkpoint n2 " in warning.message) == ("warning", True)
    session.save_checkpoint("own", state={"own": 1})
    assert session.outline() == {"own": 1}


@pytest.mark.row("B8")
def test_what_is_named_is_refused_and_the_last_good_one_named(
    manager: SessionManager, tmp_path: Path
) -> None:
    session_id, ids = filled(manager)
    run(tmp_path, ALTERED.format("n2"))
    with pytest.raises(
        IntegrityError, match="The last good checkpoint before it is 'n1'"
    ) as raised:
        manager.resume_session(session_id, checkpoint="n2")
    assert raised.value.last_good == ids[1]
    reader = manager.get_session(session_id)
    with pytest.raises(IntegrityError, match="'n1'"):
        _ = reader.latest_checkpoint().state
    with pytest.raises(IntegrityError, match="'n1'"):
        _ = reader.state
    assert manager.resume_session(session_id, checkpoint="n1").state == {"n": 1}


@pytest.mark.row("B8")
def test_what_was_found_damaged_earlier_is_passed_over_and_told_each_time(
    manager: SessionManager, tmp_path: Path
) -> None:
    session_id, ids = filled(manager, 4)
    run(tmp_path, ALTERED.format("n3"))
    run(tmp_path, ALTERED.format("n2"))
    assert set(manager.verify(deep=True).quarantined) == {ids[2], ids[3]}
    run(tmp_path, ALTERED.format("n1"))
    with manager.resume_session(session_id) as session:
        now, earlier = session.notices
        assert (session.state, "'n1'" in now) == ({"n": 0}, True)
        assert "checkpoint 'n3', like 1 before it, failed verification earlier" in earlier
        warnings = [one.data for one in session.logs() if one.level == "warning"]
        assert warnings == [{"quarantined": ids[1]}, {"quarantined": ids[3]}]
    with manager.resume_session(session_id) as session:
        [notice] = session.notices
        assert "checkpoint 'n3', like 2 before it," in notice
        session.save_checkpoint("n4", state={"n": 4})
    assert manager.resume_session(session_id).notices == ()


def test_where_all_was_found_damaged_earlier_nothing_is_resumed(
    manager: SessionManager, tmp_path: Path
) -> None:
    session_id, _ = filled(manager, 2)
    run(tmp_path, ALTERED.format("n0"))
    run(tmp_path, ALTERED.format("n1"))
    manager.verify(deep=True)
    before = manager.get_session(session_id).record
    with pytest.raises(
        CheckpointQuarantined, match="good checkpoint to go on from: checkpoint 'n1'"
    ):
        manager.resume_session(session_id)
    after = manager.get_session(session_id).record
    assert (after.status, after.resumed_at) == (before.status, before.resumed_at)
    assert after.lease_owner is None
    run(tmp_path, "UPDATE session_checkpoints SET version = version - 1")
    manager.verify(deep=True)
    assert manager.resume_session(session_id).state == {"n": 1}


def test_where_nothing_is_good_nothing_is_resumed(manager: SessionManager, tmp_path: Path) -> None:
    session_id, _ = filled(manager, 2)
    run(tmp_path, ALTERED.format("n0"))
    run(tmp_path, ALTERED.format("n1"))
    with pytest.raises(IntegrityError, match="not as it was stored"):
        manager.resume_session(session_id)
    assert [one.name for one in manager.get_session(session_id).list_checkpoints()] == ["n1", "n0"]


def test_a_history_that_is_not_whole_is_told_when_it_is_resumed(
    manager: SessionManager, tmp_path: Path
) -> None:
    session_id, _ = filled(manager)
    run(tmp_path, "DELETE FROM session_checkpoints WHERE name = 'n2'")
    session = manager.resume_session(session_id)
    assert session.state == {"n": 1}
    [notice] = session.notices
    assert "link 3 of the session was removed without a trace" in notice
    report = manager.verify(deep=True)
    assert [(one.code, one.session_id) for one in report.damaged] == [("chain_broken", session_id)]
    assert manager.verify().ok


def test_what_verifies_again_is_released(manager: SessionManager, tmp_path: Path) -> None:
    session_id, ids = filled(manager)
    run(tmp_path, ALTERED.format("n2"))
    report = manager.verify(deep=True)
    assert [one.checkpoint_id for one in report.damaged] == [ids[2]]
    assert report.quarantined == (ids[2],)
    with manager.resume_session(session_id) as session:
        assert session.state == {"n": 1}
    run(tmp_path, "UPDATE session_checkpoints SET version = version - 1 WHERE name = 'n2'")
    report = manager.verify(deep=True)
    assert (report.damaged, report.released) == ((), (ids[2],))
    assert manager.resume_session(session_id).state == {"n": 2}


def test_content_that_is_saved_again_mends_what_needs_it(
    manager: SessionManager, tmp_path: Path
) -> None:
    state = {"text": "content that is large enough to be a chunk of its own " * 100}
    with manager.create_session(agent_type="implementer") as session:
        damaged = session.save_checkpoint("one", state=state)
        session_id = session.id
    run(tmp_path, "UPDATE chunks SET data = zeroblob(length(data))")
    report = manager.verify(deep=True)
    assert {one.checkpoint_id for one in report.damaged} == {None, damaged.id}
    with manager.create_session(agent_type="implementer") as other:
        assert other.save_checkpoint("same", state=state).state == state
    report = manager.verify(deep=True)
    assert (report.ok, report.released) == (True, (damaged.id,))
    assert manager.resume_session(session_id).state == state


def test_whoever_may_only_read_is_told_all_that_deep_verification_finds(postgres_url: str) -> None:
    schema = schema_of(postgres_url)
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(f"auditor_{schema}")}
    revoked = "REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} FROM {role}"
    with (
        role_of(postgres_url, "auditor") as theirs,
        connect(postgres_url) as owner,
        SessionManager.open(postgres_url, workspace=False) as manager,
    ):
        saved = manager.create_session("tester").save_checkpoint("one", state={"n": "x" * 9000})
        owner.execute(sql.SQL(revoked).format(**names))
        with SessionManager.open(theirs, workspace=False, create=False) as auditor:
            assert auditor.verify(deep=True).ok
            owner.execute(sql.SQL("UPDATE {schema}.chunks SET data = 'x'").format(**names))
            report = auditor.verify(deep=True)
        assert {one.checkpoint_id for one in report.damaged} - {None} == {saved.id}
        assert report.quarantined == ()


def test_whoever_may_only_read_is_told_what_a_sweep_would_free(postgres_url: str) -> None:
    with SessionManager.open(postgres_url, workspace=False) as manager:
        session = manager.create_session("tester")
        session.save_checkpoint("one", state={"n": "x" * 9000})
        session.delete_checkpoint("one")
        frozen = f"{postgres_url}&options=-c%20default_transaction_read_only%3Don"
        with SessionManager.open(frozen, workspace=False, create=False) as auditor:
            assert auditor.gc(dry_run=True).chunks == 1
        assert manager.gc().chunks == 1


@pytest.mark.parametrize("verified", [False, True])
def test_a_sweep_frees_nothing_that_a_damaged_row_may_need(tmp_path: Path, verified: bool) -> None:
    with SessionManager.open(tmp_path / "sessions.db", project_dir=tmp_path) as manager:
        session = manager.create_session(agent_type="implementer")
        for number in range(3):
            (tmp_path / "notes").write_text(str(number))
            session.save_checkpoint(f"n{number}", state={"text": f"{number} of many words " * 400})
        session.delete_checkpoint("n0")
        good = session.list_checkpoints()[1]
        kept = manager.store.read_payload(good.id)
        assert kept is not None
        assert good.workspace_commit is not None
        wrong = (
            bytes([*kept.refs[:20], kept.refs[20] ^ 1, *kept.refs[21:]]),
            good.workspace_commit[::-1],
        )
        row = (
            "UPDATE session_checkpoints SET refs = x'{}', workspace_commit = '{}' WHERE name = 'n1'"
        )
        run(tmp_path, row.format(wrong[0].hex(), wrong[1]))
        if verified:
            assert not manager.verify(deep=True).ok
        for dry_run in (True, False):
            report = manager.gc(dry_run=dry_run)
            assert (report.in_quarantine, report.chunks, report.snapshots) == (1, 0, 0)
        run(tmp_path, row.format(kept.refs.hex(), good.workspace_commit))
        assert manager.verify(deep=True).ok
        report = manager.gc()
        assert (report.in_quarantine, report.chunks, report.snapshots) == (0, 1, 1)
        assert manager.verify(deep=True).ok


@pytest.mark.parametrize("content", [False, True])
def test_a_fork_of_what_is_damaged_is_refused_and_the_last_good_one_named(
    manager: SessionManager, tmp_path: Path, content: bool
) -> None:
    with manager.create_session(agent_type="implementer") as session:
        good, _ = (
            session.save_checkpoint(f"n{number}", state={"text": f"{number} of many words " * 400})
            for number in range(2)
        )
        newest = "DELETE FROM chunks WHERE rowid = (SELECT max(rowid) FROM chunks)"
        run(tmp_path, newest if content else ALTERED.format("n1"))
        with pytest.raises(
            IntegrityError, match="The last good checkpoint before it is 'n0'"
        ) as raised:
            session.fork("n1")
        assert raised.value.last_good == good.id
        assert [one.id for one in manager.list_sessions()] == [session.id]
        assert session.fork("n0").state == session.load_checkpoint("n0").state


def test_damaged_objects_of_files_are_stored_again_after_a_deep_verification(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("the same all along\n")
    with SessionManager.open(tmp_path / "s.db", project_dir=tmp_path) as manager:
        session = manager.create_session("implementer")
        session.save_checkpoint("one", state={})
        objects = manager.workspace.store_dir / "objects"
        for path in objects.rglob("*"):
            if path.is_file() and b"the same" in zlib.decompress(path.read_bytes()):
                path.chmod(0o600)
                path.write_bytes(b"damaged")
        # It needs the same object, and finds one of that name.
        session.save_checkpoint("two", state={})
        assert manager.verify().damaged_checkpoints == 2
        session.save_checkpoint("three", state={})
        assert manager.verify().damaged_checkpoints == 3
        assert manager.verify(deep=True).damaged_checkpoints == 3
        session.save_checkpoint("four", state={})
        assert manager.verify(deep=True).ok
