"""What leaves one place in a bundle arrives in another as it was, whatever the database there."""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import SessionManager
from holdfast.errors import (
    BundleExists,
    CheckpointExists,
    CheckpointNotFound,
    HoldfastError,
    InvalidIdentifier,
    NotABundle,
    SessionExists,
    SessionNotFound,
    SnapshotNotFound,
    StoreUnavailable,
    WorkspaceRefused,
)
from holdfast.model import SessionCopy
from holdfast.sessions import Session
from tests.bundle.conftest import Open, state_digest, tree_digest, work, write_files

BACKENDS = ("sqlite", "postgres")


def store_url(backend: str, fixture: str, request: pytest.FixtureRequest) -> str | None:
    return cast("str", request.getfixturevalue(fixture)) if backend == "postgres" else None


def rows_of(manager: SessionManager, session_id: str) -> SessionCopy:
    """Return all rows, without what belongs to the store or the machine."""
    found = manager.store.read_session(session_id)
    assert found is not None
    session = replace(
        found.session, project_dir=None, lease_owner=None, lease_token=0, lease_since=None,
        lease_expires_at=None,
    )  # fmt: skip
    return replace(
        found,
        session=session,
        checkpoints=tuple(replace(one, seq=0) for one in found.checkpoints),
        logs=tuple(replace(one, id=0) for one in found.logs),
    )


def digests(manager: SessionManager, session: Session) -> dict[str, str]:
    return {one.name: state_digest(one.state) for one in session.list_checkpoints()}


@pytest.mark.row("B7", "T4")
@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
def test_a_session_exported_here_is_the_same_elsewhere(
    source: str, target: str, open_at: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ours = open_at("a/project", store_url(source, "postgres_url", request))
    theirs = open_at("elsewhere/b", store_url(target, "other_postgres_url", request))
    session = work(ours)
    trees = {}
    for name in ("save 1", "save 2", "save 3"):
        session.rollback(name)
        trees[name] = tree_digest(ours.project_dir)
    session.close()
    bundle = tmp_path / "session.tar"
    exported = ours.export_session(session.id, bundle)
    imported = theirs.import_bundle(bundle)
    assert imported.outcome == "imported"
    assert rows_of(theirs, session.id) == rows_of(ours, session.id)
    there = theirs.get_session(session.id)
    assert digests(theirs, there) == digests(ours, ours.get_session(session.id))
    assert exported.states == imported.bundle.states
    assert [one.name for one in there.list_checkpoints()] == [
        one.name for one in session.list_checkpoints()
    ]
    assert theirs.verify().ok
    held = theirs.resume_session(session.id)
    for name, tree in trees.items():
        held.rollback(name)
        assert tree_digest(theirs.project_dir) == tree
    assert held.step("pay", lambda: pytest.fail("it was paid already")) == {"paid": "x" * 40_000}


def test_the_same_session_gives_the_same_bytes_wherever_it_is(
    open_at: Open, tmp_path: Path, postgres_url: str
) -> None:
    ours, theirs = open_at("a"), open_at("b", postgres_url)
    session = work(ours)
    files = [tmp_path / f"{number}.tar" for number in range(4)]
    ours.export_session(session.id, files[0])
    ours.export_session(session.id, files[1])
    theirs.import_bundle(files[0])
    theirs.export_session(session.id, files[2])
    third = open_at("c")
    third.import_bundle(files[2])
    third.gc()
    third.export_session(session.id, files[3])
    assert len({one.read_bytes() for one in files}) == 1


def test_anybody_can_read_what_is_inside(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    report = ours.export_session(session.id, tmp_path / "session.tar")
    assert stat.S_IMODE(report.path.stat().st_mode) == 0o600
    assert report.bytes == report.path.stat().st_size
    with tarfile.open(report.path) as archive:
        found = archive.getnames()
        text = archive.extractfile("BRIEF.md")
        assert text is not None
        brief = text.read().decode()
    assert found[:3] == ["holdfast-bundle", "manifest.json", "BRIEF.md"]
    for expected in ("# Resume: Move auth to OAuth", "Use OAuth 2.1", "it failed once"):
        assert expected in brief
    assert list(tmp_path.glob(".*")) == []


def test_importing_again_changes_nothing_and_says_so(open_at: Open, tmp_path: Path) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    theirs.import_bundle(bundle)
    before = rows_of(theirs, session.id)
    assert theirs.import_bundle(bundle).outcome == "present"
    assert rows_of(theirs, session.id) == before
    # At home it is there as well.
    assert ours.import_bundle(bundle).outcome == "present"


def test_a_session_with_other_content_is_left_alone_and_a_new_id_is_offered(
    open_at: Open, tmp_path: Path
) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    theirs.import_bundle(bundle)
    with theirs.resume_session(session.id) as held:
        held.log("info", "work goes on here")
    before = rows_of(theirs, session.id)
    with pytest.raises(SessionExists, match="--as"):
        theirs.import_bundle(bundle)
    assert rows_of(theirs, session.id) == before
    for outcome in ("imported", "present"):
        report = theirs.import_bundle(bundle, session_id="second try")
        assert report.outcome == outcome
    copy = theirs.get_session("second try")
    original = ours.get_session(session.id)
    assert digests(theirs, copy) == digests(ours, original)
    names = {one.id: one.name for one in copy.list_checkpoints()}
    parents = {one.name: names.get(one.parent_id or "") for one in copy.list_checkpoints()}
    assert parents["save 2"] == "save 1"
    assert set(names).isdisjoint(one.id for one in original.list_checkpoints())
    assert list(report.checkpoints.values()) == [one.id for one in copy.list_checkpoints()][::-1]
    with pytest.raises(InvalidIdentifier):
        theirs.import_bundle(bundle, session_id="")


def test_the_same_work_under_another_id_is_told_apart(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    other = open_at("b")
    other.import_bundle(bundle, session_id="first")
    other.import_bundle(bundle)
    assert {one.id for one in other.list_sessions()} == {"first", session.id}
    other.delete_session(session.id)
    other.import_bundle(bundle)
    assert other.verify().ok


@pytest.mark.row("T4")
def test_files_come_back_at_once_if_asked_and_can_be_undone(open_at: Open, tmp_path: Path) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    wanted = tree_digest(ours.project_dir)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    (theirs.project_dir / "mine.txt").write_text("work that was not saved")
    before = tree_digest(theirs.project_dir)
    theirs.import_bundle(bundle)
    assert tree_digest(theirs.project_dir) == before
    theirs.delete_session(session.id)
    theirs.import_bundle(bundle, restore=True)
    assert tree_digest(theirs.project_dir) == wanted
    theirs.hold_session(session.id).undo()
    assert tree_digest(theirs.project_dir) == before


def test_a_completed_session_is_restored_in_a_fork_of_it(open_at: Open, tmp_path: Path) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    wanted = tree_digest(ours.project_dir)
    session.complete()
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    theirs.import_bundle(bundle, restore=True)
    assert tree_digest(theirs.project_dir) == wanted
    assert theirs.get_session(session.id).status == "completed"
    assert len(theirs.list_sessions()) == 2


def test_one_checkpoint_can_travel_alone(open_at: Open, tmp_path: Path) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    report = ours.export_session(session.id, tmp_path / "one.tar", checkpoint="save 2")
    assert len(report.states) == len(report.trees) == 1
    assert report.bytes < ours.export_session(session.id, tmp_path / "all.tar").bytes
    theirs.import_bundle(report.path)
    [there] = theirs.get_session(session.id).list_checkpoints()
    assert there.name == "save 2"
    assert there.state == session.get_checkpoint("save 2").state
    assert len(theirs.get_session(session.id).logs()) == len(session.logs())
    with pytest.raises(CheckpointNotFound):
        ours.export_session(session.id, tmp_path / "none.tar", checkpoint="save 9")
    assert not (tmp_path / "none.tar").exists()


def test_states_can_travel_without_files(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    plain = ours.export_session(session.id, tmp_path / "plain.tar", files=False)
    assert plain.trees == {}
    whole = ours.export_session(session.id, tmp_path / "whole.tar")
    bare = open_at("bare", workspace=False)
    with pytest.raises(WorkspaceRefused, match="no-files"):
        bare.import_bundle(whole.path)
    assert bare.list_sessions() == []
    bare.import_bundle(whole.path, files=False)
    with pytest.raises(WorkspaceRefused, match="no-files"):
        bare.export_session(session.id, tmp_path / "again.tar")
    theirs = open_at("b")
    theirs.import_bundle(plain.path)
    there = theirs.resume_session(session.id)
    assert there.state == session.latest_checkpoint().state
    with pytest.raises(SnapshotNotFound):
        there.rollback("save 1")
    # The files come after, with what is the same session.
    there.close()


def test_files_that_are_missing_here_arrive_with_a_second_import(
    open_at: Open, tmp_path: Path
) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    whole = ours.export_session(session.id, tmp_path / "whole.tar").path
    theirs.import_bundle(whole, files=False)
    assert not theirs.verify().ok
    assert theirs.import_bundle(whole).outcome == "present"
    assert theirs.verify().ok


def test_a_session_without_checkpoints_travels_too(open_at: Open, tmp_path: Path) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = ours.create_session("idle", session_id="odd/../id 'ü'")
    report = ours.export_session(session.id, tmp_path / "empty.tar")
    theirs.import_bundle(report.path, restore=True)
    assert rows_of(theirs, session.id) == rows_of(ours, session.id)


def test_what_is_in_the_way_of_an_export_stays(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    target = tmp_path / "session.tar"
    target.write_text("mine")
    with pytest.raises(BundleExists):
        ours.export_session(session.id, target)
    assert target.read_text() == "mine"
    ours.export_session(session.id, target, overwrite=True)
    for wrong in (tmp_path, tmp_path / "nowhere" / "x.tar"):
        with pytest.raises(InvalidIdentifier):
            ours.export_session(session.id, wrong, overwrite=True)
    with pytest.raises(SessionNotFound):
        ours.export_session("nobody", tmp_path / "x.tar")
    assert {one.name for one in tmp_path.iterdir()} == {"a", "session.tar"}


def test_work_goes_on_while_it_is_exported(open_at: Open, tmp_path: Path) -> None:
    ours = open_at("a")
    session = work(ours)
    write_files(ours.project_dir, 4)
    exported = ours.export_session(session.id, tmp_path / "one.tar")
    session.save_checkpoint("after", state={"n": 1})
    assert "after" not in exported.states
    other = open_at("b")
    other.import_bundle(exported.path)
    assert len(other.get_session(session.id).list_checkpoints()) == len(exported.states)
    assert os.path.exists(ours.project_dir / "text.txt")


def test_an_id_that_another_session_has_is_refused(open_at: Open, tmp_path: Path) -> None:
    ours, theirs = open_at("a"), open_at("b")
    session = work(ours)
    bundle = ours.export_session(session.id, tmp_path / "session.tar").path
    theirs.import_bundle(bundle)
    # As if somebody had given the session another id, and its checkpoints not.
    import apsw

    with apsw.Connection(str(theirs.project_dir / ".agents" / "sessions.db")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for table, column in (
            ("sessions", "id"), ("session_checkpoints", "session_id"), ("session_logs", "session_id"),
            ("effects", "session_id"), ("checkpoint_writes", "session_id"),
        ):  # fmt: skip
            connection.execute(
                f"UPDATE {table} SET {column} = 'other' WHERE {column} = ?", (session.id,)
            )
    with pytest.raises(CheckpointExists, match="--as"):
        theirs.import_bundle(bundle)
    assert {one.id for one in theirs.list_sessions()} == {"other"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x" * 300, StoreUnavailable),
        (f"{'x' * 300}/file", StoreUnavailable),
        ("missing/file", InvalidIdentifier),
        ("a\0", InvalidIdentifier),
        ("\ud800", InvalidIdentifier),
        (5, InvalidIdentifier),
    ],
    ids=ascii,
)
def test_a_path_that_no_bundle_can_have_is_refused(
    name: Any, expected: type[HoldfastError], tmp_path: Path
) -> None:
    path = os.path.join(tmp_path, name) if isinstance(name, str) else name
    with SessionManager.open("memory:", workspace=False) as manager:
        session = manager.create_session("implementer")
        with pytest.raises(expected):
            manager.export_session(session.id, path)
        with pytest.raises((NotABundle, InvalidIdentifier)):
            manager.import_bundle(path)
    assert list(tmp_path.iterdir()) == []


def test_a_single_id_is_no_list_of_sessions_to_copy(tmp_path: Path) -> None:
    """Its letters may be the ids of others."""
    with SessionManager.open("memory:", workspace=False) as manager:
        for name in ("ab", "a", "b"):
            manager.create_session("implementer", session_id=name)
        ids: Any
        for ids in ("ab", 5):
            with pytest.raises(InvalidIdentifier, match="list of ids"):
                manager.copy_to(tmp_path / "other.db", ids)
    assert list(tmp_path.iterdir()) == []
