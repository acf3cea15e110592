"""Snapshots whose references are lost: they are told of, and a sweep holds them again before it frees anything."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import SessionManager, Workspace
from holdfast.config import load_config
from holdfast.doctor import examine
from holdfast.errors import WorkspaceRefused
from holdfast.verification import SNAPSHOT_UNHELD
from tests.workspace.pictures import git

SESSION = "session-1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with five checkpoints, each with other files, and a snapshot that none of them names."""
    path = tmp_path / "project"
    path.mkdir()
    with SessionManager.open(project_dir=path) as manager:
        session = manager.create_session("x", session_id=SESSION)
        for number in range(6):
            (path / "notes").write_text(f"{number}\n" * 1000)
            session.save_checkpoint(f"step-{number}", state={"step": number})
        session.delete_checkpoint("step-0")
    return path


def store_of(root: Path) -> Path:
    return root / ".agents" / "workspace.git"


def remove_all(root: Path) -> None:
    shutil.rmtree(store_of(root) / "refs" / "snapshots")


def remove_packed(root: Path) -> None:
    git(root, f"--git-dir={store_of(root)}", "pack-refs", "--all", "--prune")
    (store_of(root) / "packed-refs").unlink()


def writing(text: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for one in (store_of(root) / "refs" / "snapshots").glob("*/*"):
            one.write_text(text)

    return write


RUINS = {
    "removed": remove_all,
    "packed ones removed": remove_packed,
    "empty": writing(""),
    "junk": writing("junk\n"),
    "zeros": writing("0" * 40 + "\n"),
    "another object": writing("1" * 40 + "\n"),
}


@pytest.mark.parametrize("ruin", RUINS.values(), ids=RUINS.keys())
def test_lost_references_are_told_of_and_written_anew(
    root: Path, ruin: Callable[[Path], None]
) -> None:
    ruin(root)
    with SessionManager.open(project_dir=root) as manager:
        for deep in (False, True):
            report = manager.verify(deep=deep)
            assert {one.code for one in report.damaged} == {SNAPSHOT_UNHELD}
            assert report.damaged_checkpoints == 5
            assert report.quarantined == ()
        found = {
            one.name: one
            for one in examine(
                load_config(root), lambda: SessionManager.open(project_dir=root, create=False)
            )
        }
        assert found["references"].level == "bad"
        assert found["references"].text.startswith("5 of the snapshots")

        planned = manager.gc(dry_run=True)
        assert (planned.held_again >= 5, planned.snapshots) == (True, 0)
        assert manager.verify().damaged_checkpoints == 5
        mended = manager.gc()
        assert (mended.held_again, mended.snapshots) == (planned.held_again, 0)
        assert manager.verify(deep=True).ok
        assert manager.count_unheld() == 0
        # The next one frees what no checkpoint names, and no more.
        assert manager.gc().held_again == 0
        assert manager.verify(deep=True).ok
        session = manager.get_session(SESSION)
        commits = {one.workspace_commit for one in session.list_checkpoints()}
        assert manager.workspace.snapshots() == commits


def test_an_empty_reference_does_not_stop_a_save_or_a_sweep(root: Path) -> None:
    writing("")(root)
    (store_of(root) / "refs" / "last").write_text("")
    with SessionManager.open(project_dir=root) as manager:
        session = manager.resume_session(SESSION)
        # The same files, hence the same commit, whose reference is the empty one.
        saved = session.save_checkpoint("again", state={})
        assert saved.workspace_commit == session.list_checkpoints()[1].workspace_commit
        assert manager.gc().held_again == 5
        assert manager.gc().held_again == 0
        assert manager.verify().ok


def test_a_reference_to_what_is_gone_stops_no_sweep(root: Path) -> None:
    groups = store_of(root) / "refs" / "snapshots"
    (groups / "elsewhere").mkdir()
    (groups / "elsewhere" / ("1" * 40)).write_text("")
    workspace = Workspace(root)
    kept = workspace.snapshots()
    assert workspace.gc(lambda: kept).mended == 0
    assert not (groups / "elsewhere" / ("1" * 40)).exists()


def test_an_empty_reference_of_another_group_is_mended_by_its_name(root: Path) -> None:
    theirs = Workspace(root, group="theirs")
    (root / "notes").write_text("theirs")
    commit = theirs.snapshot().commit
    (root / "notes").write_text("ours")
    ours = Workspace(root, group="ours")
    mine = ours.snapshot().commit
    (store_of(root) / "refs" / "snapshots" / "theirs" / commit).write_text("")
    assert ours.gc(lambda: [mine]).mended == 1
    assert theirs.snapshots() == {commit}
    ours.gc(lambda: [mine])
    assert theirs.read(commit, "notes") == b"theirs"


def test_nothing_of_another_group_is_freed_when_references_are_missing(root: Path) -> None:
    theirs = Workspace(root, group="theirs")
    (root / "notes").write_text("theirs")
    commit = theirs.snapshot().commit
    (root / "notes").write_text("ours")
    ours = Workspace(root, group="ours")
    mine = ours.snapshot().commit
    remove_all(root)
    assert ours.gc(lambda: [mine]).mended == 1
    assert theirs.gc(lambda: [commit]).mended == 1
    ours.gc(lambda: [mine])
    assert theirs.read(commit, "notes") == b"theirs"


def test_references_that_cannot_be_read_at_all_are_told_of(root: Path) -> None:
    remove_packed(root)
    (store_of(root) / "packed-refs").write_text("junk\n")
    with SessionManager.open(project_dir=root) as manager:
        assert {one.code for one in manager.verify().damaged} == {SNAPSHOT_UNHELD}


@pytest.mark.skipif(sys.platform == "darwin", reason="has no such names")
@pytest.mark.parametrize("name", [b"\xff", "a\u2028b".encode(), b"x\x85"])
def test_a_reference_of_any_name_stops_no_sweep(name: bytes, root: Path) -> None:
    ours = Workspace(root, group="ours")
    mine = ours.snapshot().commit
    for group in (b"ours", name):
        folder = os.fsencode(store_of(root) / "refs" / "snapshots") + b"/" + group
        os.makedirs(folder, exist_ok=True)
        Path(os.fsdecode(folder + b"/" + name)).write_text(f"{mine}\n")
    assert ours.gc(lambda: [mine]).mended == 0
    assert ours.snapshots() == {mine}


def test_erasing_says_that_files_are_left_when_references_were_lost(root: Path) -> None:
    with SessionManager.open(project_dir=root) as manager:
        other = manager.create_session("x", session_id="session-2")
        other.save_checkpoint("theirs", state={})
        other.close()
        remove_all(root)
        assert any(
            "references were lost" in one for one in manager.delete_session("session-2").left
        )


@pytest.mark.parametrize("name", ["x.lock/abcdef", ".x/abcdef", "local/abcdef/inner.lock"])
def test_what_git_takes_for_no_reference_stops_no_sweep(name: str, root: Path) -> None:
    path = store_of(root) / "refs" / "snapshots" / name
    path.parent.mkdir(parents=True)
    path.write_text("junk")
    with SessionManager.open(project_dir=root) as manager:
        manager.gc()
        assert manager.verify(deep=True).ok
    assert path.read_text() == "junk"


@pytest.mark.parametrize(
    "name",
    [
        "with space/abcdef",
        "new\nline/abcdef",
        "a..b/abcdef",
        "end/no-commit",
        "local/abcdef/inner",
        "x",
    ],
)
def test_what_stops_git_from_sweeping_is_named(name: str, root: Path) -> None:
    path = store_of(root) / "refs" / "snapshots" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("junk")
    with SessionManager.open(project_dir=root) as manager:
        with pytest.raises(WorkspaceRefused, match="is no reference to a snapshot") as refused:
            manager.gc()
        assert repr(str(path)) in str(refused.value)
        path.unlink()
        manager.gc()
        assert manager.verify(deep=True).ok
