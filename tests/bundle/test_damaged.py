"""A session with a damaged checkpoint does not leave whole: that is said, with the way for what is good."""

from __future__ import annotations

import zlib
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.errors import (
    CheckpointQuarantined,
    DigestMismatch,
    IntegrityError,
    SnapshotCorrupt,
    WorkspaceRefused,
)
from holdfast.model import SessionQuery
from holdfast.sessions import Session
from holdfast.sessions.portable import CopyReport
from holdfast.state.refs import digests_in
from tests.bundle.conftest import Open, work
from tests.workspace.pictures import git

LEFT_OUT = "--checkpoint NAME, or --latest"


def three_saves(manager: SessionManager) -> Session:
    """Save three times, and spoil the content of the second as a bad disk would."""
    session = manager.create_session("tester", session_id="the session")
    known: list[set[bytes]] = []
    for number in range(1, 4):
        known.append(set(manager.store.iter_digests()))
        (manager.project_dir / "code.py").write_text(f"print({number})\n")
        session.save_checkpoint(f"save {number}", state={"text": f"{number} " * 20_000})
    digest = max(known[2] - known[1])
    database = apsw.Connection(str(manager.project_dir / ".agents" / "sessions.db"))
    [(stored,)] = database.execute("SELECT data FROM chunks WHERE digest = ?", (digest,))
    turned = stored[:-1] + bytes([stored[-1] ^ 1])
    database.execute("UPDATE chunks SET data = ? WHERE digest = ?", (turned, digest))
    database.close()
    return session


@pytest.fixture(params=["found", "not-found-yet"])
def damaged(request: pytest.FixtureRequest, open_at: Open) -> tuple[Session, SessionManager]:
    """A session whose second checkpoint is damaged; verification has found that, or not yet."""
    manager = open_at("a")
    session = three_saves(manager)
    if request.param == "found":
        assert len(manager.verify(deep=True).quarantined) == 1
    return session, manager


def test_a_refused_export_writes_nothing_and_says_how_to_leave_the_damaged_one_out(
    damaged: tuple[Session, SessionManager], tmp_path: Path, open_at: Open
) -> None:
    session, manager = damaged
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises((CheckpointQuarantined, DigestMismatch)) as refused:
        manager.export_session(session.id, folder / "all.tar")
    assert str(refused.value).startswith("session the session was not exported: ")
    assert "Nothing was written, and nothing is lost here" in str(refused.value)
    assert LEFT_OUT in str(refused.value)
    assert list(folder.iterdir()) == []

    (folder / "all.tar").write_bytes(b"an earlier one")
    with pytest.raises(IntegrityError):
        manager.export_session(session.id, folder / "all.tar", overwrite=True)
    assert [one.name for one in folder.iterdir()] == ["all.tar"]
    assert (folder / "all.tar").read_bytes() == b"an earlier one"

    latest = session.latest_checkpoint().id
    manager.export_session(session.id, folder / "one.tar", checkpoint=latest)
    theirs = open_at("b")
    theirs.import_bundle(folder / "one.tar")
    assert theirs.get_session(session.id).state == {"text": "3 " * 20_000}


def outcomes(reports: list[CopyReport]) -> dict[str, str]:
    return {one.session_id: one.outcome for one in reports}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_of_a_damaged_session_nothing_arrives_and_all_others_do(
    damaged: tuple[Session, SessionManager],
    open_at: Open,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    session, manager = damaged
    manager.create_session("tester", session_id="after").save_checkpoint("one", state={"n": 1})
    theirs = open_at("b", request.getfixturevalue("postgres_url") if kind == "postgres" else None)
    target = theirs.store.url if kind == "sqlite" else request.getfixturevalue("postgres_url")
    expected = {"the session": "damaged", "after": "copied"}
    assert outcomes(manager.copy_to(target, dry_run=True)) == expected
    assert theirs.store.list_sessions(SessionQuery()) == []
    reports = manager.copy_to(target)
    assert outcomes(reports) == expected
    [found] = reports[0].damaged
    assert (found.checkpoint_id, found.code) == (
        session.get_checkpoint("save 2").id,
        DigestMismatch.code,
    )
    assert (reports[0].checkpoints, reports[1].damaged) == (3, ())
    # Not a row, not an agent, not a chunk, not a file.
    [arrived] = theirs.store.list_sessions(SessionQuery())
    assert theirs.get_session(arrived.id).state == {"n": 1}
    assert [one.id for one in theirs.store.list_agents()] == [arrived.agent_id]
    assert theirs.store.gc(dry_run=True).chunks == 0
    assert theirs.store.sweep_packs(dry_run=True).packs == 0
    assert outcomes(manager.copy_to(target)) == {"the session": "damaged", "after": "present"}


@pytest.mark.parametrize("what", ["write", "effect", "chain", "row"])
def test_whatever_of_a_session_is_damaged_it_stays_behind(open_at: Open, what: str) -> None:
    manager = open_at("a")
    session = work(manager)
    path = manager.project_dir / ".agents" / "sessions.db"
    database = apsw.Connection(str(path))
    if what == "chain":
        # As if somebody had taken out a checkpoint that a later one still names.
        database.execute("DELETE FROM session_checkpoints WHERE name = 'save 2'")
    elif what == "row":
        database.execute("UPDATE session_checkpoints SET description = 'x' WHERE name = 'save 2'")
    else:
        table = {"write": "checkpoint_writes", "effect": "effects"}[what]
        [(refs,)] = database.execute(f"SELECT refs FROM {table} WHERE length(refs) > 0")
        [(digest, _), *_] = digests_in(refs)
        database.execute("UPDATE chunks SET data = zeroblob(9) WHERE digest = ?", (digest,))
    database.close()
    target = open_at("b")
    reports = manager.copy_to(target.store.url)
    assert outcomes(reports) == {"the plan": "copied", session.id: "damaged"}
    assert [one.id for one in target.store.list_sessions(SessionQuery())] == ["the plan"]
    assert target.store.gc(dry_run=True).chunks == 0


def test_damage_in_the_target_holds_up_no_other_session(open_at: Open) -> None:
    manager = open_at("a")
    for name in ("first", "second"):
        manager.create_session("tester", session_id=name).save_checkpoint("one", state={"n": name})
    target = open_at("b")
    manager.copy_to(target.store.url, ["first"])
    database = apsw.Connection(str(target.project_dir / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET state_snapshot = state_snapshot || ' '")
    database.close()
    reports = manager.copy_to(target.store.url)
    assert outcomes(reports) == {"first": "damaged", "second": "copied"}
    assert "has it already, damaged" in reports[0].damaged[0].reason


def test_a_session_whose_own_row_is_damaged_holds_up_no_other(tmp_path: Path) -> None:
    source, ring = tmp_path / "source.db", KeyRing.new()
    with SessionManager.open(source, workspace=False, keys=ring) as manager:
        for name in ("first", "second"):
            session = manager.create_session("tester", session_id=name, task_description="a task")
            session.save_checkpoint("one", state={"n": name})
        database = apsw.Connection(str(source))
        database.execute("UPDATE sessions SET task_description = 'x' WHERE id = 'first'")
        database.close()
        reports = manager.copy_to(tmp_path / "target.db", keys=ring)
    assert outcomes(reports) == {"first": "damaged", "second": "copied"}


def test_files_that_cannot_come_along_are_refused_before_anything_is_copied(open_at: Open) -> None:
    manager = open_at("a", workspace=False)
    manager.create_session("tester", session_id="without").save_checkpoint("one", state={})
    manager.close()
    with_files = open_at("a")
    (with_files.project_dir / "code.py").write_text("print(1)\n")
    with_files.create_session("tester", session_id="with").save_checkpoint("one", state={})
    with_files.close()
    target = open_at("b")
    with pytest.raises(WorkspaceRefused, match=r"session with has files.*Nothing was changed"):
        open_at("a", workspace=False).copy_to(target.store.url)
    assert target.store.list_sessions(SessionQuery()) == []


def test_a_session_that_is_erased_meanwhile_is_passed_over(open_at: Open) -> None:
    manager = open_at("a")
    for name in ("first", "second"):
        manager.create_session("tester", session_id=name).save_checkpoint("one", state={"n": name})
    target = open_at("b")

    def erase_second(done: int, total: int) -> None:
        if manager.store.find_session("second") is not None:
            manager.store.delete_session("second")

    assert outcomes(manager.copy_to(target.store.url, progress=erase_second)) == {"first": "copied"}


@pytest.mark.parametrize(
    "wrong", [None, zlib.compress(b"blob 9\0print(2)\n")], ids=["gone", "other"]
)
def test_damaged_files_stay_behind_and_the_states_may_go_alone(
    open_at: Open, tmp_path: Path, postgres_url: str, wrong: bytes | None
) -> None:
    manager = open_at("a")
    session = manager.create_session("tester", session_id="the session")
    (manager.project_dir / "code.py").write_text("print(1)\n")
    session.save_checkpoint("one", state={"n": 1})
    blob = git(manager.project_dir, "hash-object", "--stdin", stdin=b"print(1)\n")
    stored = manager.project_dir / ".agents" / "workspace.git" / "objects" / blob[:2] / blob[2:]
    stored.unlink()
    if wrong is not None:
        stored.write_bytes(wrong)
    target = tmp_path / "all.tar"
    with pytest.raises(SnapshotCorrupt, match=r"not exported: .*files=False \(--no-files\)"):
        manager.export_session(session.id, target)
    for dry_run in (True, False):
        [left] = manager.copy_to(postgres_url, dry_run=dry_run)
        assert (left.outcome, left.damaged[0].code) == ("damaged", SnapshotCorrupt.code)
    assert not target.exists()
    theirs = open_at("b", postgres_url)
    assert theirs.store.list_sessions(SessionQuery()) == []

    manager.export_session(session.id, target, files=False)
    [copied] = manager.copy_to(postgres_url, files=False)
    assert (copied.outcome, copied.snapshots) == ("copied", 0)
