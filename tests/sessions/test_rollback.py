"""State and files, saved together and put back together; and forward again."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Session, SessionManager
from holdfast.aio import AsyncSessionManager
from holdfast.errors import (
    CheckpointNotFound,
    IntegrityError,
    InvalidIdentifier,
    NothingToUndo,
    RestoreFailed,
    SnapshotCorrupt,
    SnapshotNotFound,
    StateNotSerializable,
    WorkspaceBusy,
    WorkspaceFull,
)
from holdfast.model import utc_now
from holdfast.sessions import upkeep
from holdfast.sessions.files import ProjectFiles
from holdfast.sessions.rollback import Rollbacks
from holdfast.workspace import Workspace
from holdfast.workspace.apply import Applier
from tests.workspace.pictures import commit_all, git, make_repository, picture


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a.txt").write_text("a\n")
    (root / "b.txt").write_text("b\n")
    commit_all(root)
    return root


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return cast("str", request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else str(tmp_path / "sessions.db")


@pytest.fixture
def manager(url: str, project: Path) -> Iterator[SessionManager]:
    with SessionManager.open(url, project_dir=project) as opened:
        yield opened


@pytest.fixture
def session(manager: SessionManager) -> Session:
    return manager.create_session("implementer")


@pytest.mark.row("S1-10", "B5")
def test_state_and_files_go_back_and_forth(session: Session, project: Path) -> None:
    (project / "b.txt").write_text("dirty\n")
    (project / "untracked").write_bytes(b"\0\xff")
    before = picture(project)
    saved = session.save_checkpoint("before", state={"n": 1})
    (project / "a.txt").unlink()
    (project / "b.txt").write_text("broken\n")
    (project / "new").mkdir()
    (project / "new" / "file").write_text("new")
    session.save_checkpoint("after", state={"n": 2})
    after = picture(project)

    preview = session.rollback("before", dry_run=True)
    assert picture(project) == after
    assert preview.files is not None
    assert {one.path for one in preview.files.changes} == {"a.txt", "b.txt", "new/file"}

    report = session.rollback("before")
    assert picture(project) == before
    assert session.state == {"n": 1}
    assert report.files is not None
    assert report.files.landed == saved.workspace_commit
    assert session.latest_checkpoint().state == {"n": 1}

    undone = session.undo()
    assert picture(project) == after
    assert session.state == {"n": 2}
    assert undone.files is not None
    assert undone.files.landed == report.files.safety

    session.redo()
    assert (picture(project), session.state) == (before, {"n": 1})
    with pytest.raises(NothingToUndo):
        session.redo()
    session.undo()
    with pytest.raises(NothingToUndo):
        session.undo()
    assert (picture(project), session.state) == (after, {"n": 2})


@pytest.mark.row("B5")
def test_a_part_of_the_files_comes_back_and_the_state_stays(
    session: Session, project: Path
) -> None:
    session.save_checkpoint("before", state={"n": 1})
    (project / "a.txt").write_text("A")
    (project / "b.txt").write_text("B")
    session.save_checkpoint("after", state={"n": 2})
    session.rollback("before", paths=["a.txt"])
    assert (project / "a.txt").read_text() == "a\n"
    assert (project / "b.txt").read_text() == "B"
    assert session.state == {"n": 2}
    session.rollback("before", files=False)
    assert session.state == {"n": 1}
    assert (project / "b.txt").read_text() == "B"
    session.rollback("before", state=False)
    assert (project / "b.txt").read_text() == "b\n"
    with pytest.raises(InvalidIdentifier, match="outside"):
        session.rollback("before", paths=["../elsewhere"])


def test_an_empty_directory_comes_back_by_its_name(session: Session, project: Path) -> None:
    (project / "empty" / "inner").mkdir(parents=True)
    session.save_checkpoint("before", state={})
    (project / "empty" / "inner").rmdir()
    (project / "empty").rmdir()
    session.rollback("before", paths=["empty"])
    assert (project / "empty" / "inner").is_dir()


@pytest.mark.row("T17", "B4")
def test_only_what_this_session_wrote_comes_back(manager: SessionManager, project: Path) -> None:
    theirs, mine = manager.create_session("a"), manager.create_session("b")
    mine.save_checkpoint("start", state={})
    (project / "a.txt").write_text("theirs\n")
    theirs.save_checkpoint(state={}, paths=["a.txt"])
    (project / "b.txt").write_text("mine\n")
    (project / "c.txt").write_text("mine, then changed by a person\n")
    mine.save_checkpoint(state={}, paths=["b.txt", "c.txt"])
    (project / "c.txt").write_text("by a person\n")
    (project / "d.txt").write_text("mine, not saved yet\n")
    mine.wrote("d.txt")
    report = mine.rollback("start", only_mine=True)
    assert (project / "a.txt").read_text() == "theirs\n"
    assert (project / "b.txt").read_text() == "b\n"
    assert (project / "c.txt").read_text() == "by a person\n"
    assert not (project / "d.txt").exists()
    assert report.files is not None
    assert {one.path: one.reason for one in report.files.conflicts} == {
        "a.txt": "this session did not write it",
        "c.txt": "it was changed by somebody else after this session wrote it",
    }


def test_permissions_that_others_set_stay_with_only_mine(session: Session, project: Path) -> None:
    for path in ("mine", "ours"):
        (project / path).write_text("as it was")
    (project / "folder").mkdir()
    (project / "folder" / "mine").write_text("as it was")
    session.save_checkpoint("start", state={})
    for path in ("mine", "ours", "folder/mine"):
        (project / path).chmod(0o640)
    (project / "folder" / "mine").write_text("changed")
    session.save_checkpoint(state={}, paths=["mine", "ours", "folder/mine"])
    for path, mode in (("a.txt", 0o600), ("ours", 0o600), ("folder", 0o700)):
        (project / path).chmod(mode)
    report = session.rollback("start", only_mine=True)
    assert modes_in(project) == {
        "a.txt": 0o600, "ours": 0o600, "folder": 0o700, "mine": 0o644, "folder/mine": 0o644
    }  # fmt: skip
    assert (project / "folder" / "mine").read_text() == "as it was"
    assert report.files is not None
    assert report.files.modes == ("mine",)
    assert {one.path: one.reason for one in report.files.conflicts} == {
        "a.txt": "this session did not write it",
        "ours": "it was changed by somebody else after this session wrote it",
    }


def modes_in(project: Path) -> dict[str, int]:
    paths = ("a.txt", "ours", "folder", "mine", "folder/mine")
    return {path: (project / path).stat().st_mode & 0o777 for path in paths}


def test_a_guard_names_what_it_could_not_put_back(session: Session, project: Path) -> None:
    def work() -> None:
        with session.guard("risky"):
            for name in ("a.txt", "b.txt"):
                (project / name).unlink()
            os.mkfifo(project / "a.txt")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        work()
    assert caught.value.__notes__ == [
        "left as it is: a.txt: one of the two snapshots could not hold it: a named pipe"
    ]
    assert (project / "b.txt").read_text() == "b\n"


def test_a_report_of_a_file_that_stays_different_is_not_empty(
    session: Session, project: Path
) -> None:
    saved = session.save_checkpoint("first")
    (project / "a.txt").unlink()
    os.mkfifo(project / "a.txt")
    report = session.rollback(saved.id)
    assert report.files
    assert not report.files.acts
    assert [one.path for one in report.files.left_alone] == ["a.txt"]


def test_a_guard_puts_files_and_state_back(session: Session, project: Path) -> None:
    before = picture(project)

    def risky() -> None:
        with session.guard("risky", state={"n": 1}):
            (project / "a.txt").write_text("half done")
            (project / "junk").write_text("junk")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        risky()
    assert picture(project) == before
    assert session.state == {"n": 1}
    [failure] = session.list_checkpoints(checkpoint_type="failure")
    session.rollback(failure.id)
    assert (project / "junk").read_text() == "junk"


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_guard_keeps_its_files_until_its_block_has_ended(
    manager: SessionManager, session: Session, project: Path, goes_back: bool
) -> None:
    (project / "a.txt").write_text("at the guard")

    def risky() -> None:
        with session.guard("risky") as before:
            if goes_back:
                session.rollback(before.id)
            save_often(session, project)
            manager.prune()
            manager.gc()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        risky()
    assert not hasattr(caught.value, "__notes__")
    assert (project / "a.txt").read_text() == "at the guard"
    with session.guard("fine") as saved:
        save_often(session, project)
    assert saved.id in [one.id for one in session.list_checkpoints()]
    session.save_checkpoint(retention_class="automatic")
    automatic = [one for one in session.list_checkpoints() if one.retention_class == "automatic"]
    assert len(automatic) == 5
    assert saved.id not in [one.id for one in automatic]


def test_a_guard_that_could_not_go_back_leaves_its_checkpoint_for_another_try(
    manager: SessionManager, session: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise WorkspaceBusy("somebody is at work")

    def risky() -> None:
        with session.guard("risky"):
            save_often(session, project)
            monkeypatch.setattr(Workspace, "restore", busy)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        risky()
    monkeypatch.undo()
    save_often(session, project)
    manager.gc()
    [before] = [one for one in session.list_checkpoints() if (one.metadata or {}).get("guard")]
    session.rollback(before.id)
    assert (project / "a.txt").read_text() == "a\n"


def save_often(session: Session, project: Path) -> None:
    """Save more automatic checkpoints than are kept, with other files each time."""
    for number in range(7):
        (project / "a.txt").write_text(f"half done {number}")
        session.save_checkpoint(retention_class="automatic")


@pytest.mark.row("S1-02")
def test_a_save_that_fails_leaves_no_row_and_its_files_are_swept(
    manager: SessionManager, session: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.save_checkpoint("kept", state={})
    (project / "a.txt").write_text("x" * 100_000)

    def fail(*_: object) -> None:
        raise RuntimeError("the database went away")

    with monkeypatch.context() as broken:
        broken.setattr(manager.store, "put", fail)
        with pytest.raises(RuntimeError):
            session.save_checkpoint("lost", state={"n": 1})
    with pytest.raises(CheckpointNotFound):
        session.get_checkpoint("lost")
    with pytest.raises(StateNotSerializable):
        session.save_checkpoint("lost", state={"n": object()})
    assert len(manager.workspace.snapshots()) == 2
    report = manager.gc()
    assert report.snapshots == 1
    assert manager.verify().ok
    session.rollback("kept")
    assert (project / "a.txt").read_text() == "a\n"


@pytest.mark.row("T7")
def test_the_users_repository_does_not_notice(session: Session, project: Path) -> None:
    (project / "a.txt").write_text("staged 'and' \"quoted\"\n")
    git(project, "add", "a.txt")
    (project / "a.txt").write_text("and more on top\n")
    before = (picture(project / ".git"), git(project, "status", "--porcelain=v2"))
    saved = session.save_checkpoint(
        "a 'quoted'\nname", state={"prompt": "say \"hi\"\n'there'"}, description="two\nlines"
    )
    assert (picture(project / ".git"), git(project, "status", "--porcelain=v2")) == before
    assert saved.git is not None
    assert (saved.git["staged"], saved.git["unstaged"]) == (["a.txt"], ["a.txt"])
    (project / "a.txt").write_text("lost?")
    session.rollback(saved.id)
    assert (project / "a.txt").read_text() == "and more on top\n"
    assert git(project, "show", ":a.txt") == "staged 'and' \"quoted\""


@pytest.mark.row("S1-10")
def test_a_checkpoint_tells_where_the_repository_stood(session: Session, project: Path) -> None:
    git(project, "mv", "a.txt", "moved.txt")
    (project / "b.txt").unlink()
    (project / "new.txt").write_text("new")
    head = git(project, "rev-parse", "HEAD")
    saved = session.save_checkpoint(state={})
    assert saved.git is not None
    assert {
        key: saved.git[key]
        for key in (
            "branch",
            "commit",
            "detached",
            "renamed",
            "deleted",
            "untracked",
            "uncommitted",
        )
    } == {
        "branch": "main",
        "commit": head,
        "detached": False,
        "renamed": [["a.txt", "moved.txt"]],
        "deleted": ["b.txt"],
        "untracked": ["new.txt"],
        "uncommitted": True,
    }


def test_what_is_damaged_is_refused_and_the_nearest_good_one_named(
    manager: SessionManager, session: Session, project: Path
) -> None:
    session.save_checkpoint("good", state={"n": 1})
    (project / "a.txt").write_text("precious and unique\n")
    bad = session.save_checkpoint("bad", state={"n": 2})
    (project / "a.txt").write_text("now\n")
    precious = git(project, "hash-object", "--stdin", stdin=b"precious and unique\n")
    loose = manager.workspace.store_dir / "objects" / precious[:2] / precious[2:]
    assert loose.exists()
    loose.chmod(0o644)
    loose.write_bytes(loose.read_bytes()[:-3] + b"\0\0\0")
    before = picture(project)
    with pytest.raises(
        (SnapshotCorrupt, SnapshotNotFound), match="nearest good checkpoint is 'good'"
    ):
        session.rollback("bad")
    assert picture(project) == before
    assert [one.checkpoint_id for one in manager.verify().damaged] == [bad.id]
    with pytest.raises(CheckpointNotFound):
        session.rollback("never saved")
    session.save_checkpoint("state only", state={}, workspace=False)
    with pytest.raises(SnapshotNotFound, match="without files"):
        session.rollback("state only", state=False)


@pytest.mark.row("T19")
def test_without_git_the_state_is_saved_and_the_reason_told(
    session: Session, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    saved = session.save_checkpoint("no git", state={"n": 1})
    assert saved.workspace_commit is None
    assert "git is not installed" in saved.files["problem"]
    assert session.get_checkpoint("no git").state == {"n": 1}
    session.save_checkpoint("again", state={"n": 2})
    warnings = [line.message for line in session.logs(level="warning")]
    assert len(warnings) == 1
    assert "git is not installed" in warnings[0]
    report = session.rollback("no git")
    assert report.files is None
    assert session.state == {"n": 1}


def test_files_that_cannot_be_captured_any_more_are_worth_one_save(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session.save_checkpoint("with files", state={"n": 1})
    assert session.look_at_files()[0] is False
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert session.look_at_files()[0] is True
    with session.autosave(lambda: {"n": 1}, interval=None):
        pass
    latest = session.latest_checkpoint()
    assert "git is not installed" in (latest.files_problem or "")
    assert session.look_at_files()[0] is False
    with session.autosave(lambda: {"n": 1}, interval=None):
        pass
    assert session.latest_checkpoint().id == latest.id


def test_another_machine_gets_the_files_through_the_database(
    postgres_url: str, project: Path, tmp_path: Path
) -> None:
    with SessionManager.open(postgres_url, project_dir=project) as here:
        session = here.create_session("a", session_id="travels")
        session.save_checkpoint("one", state={"n": 1})
        (project / "b.txt").write_text("changed here\n")
        (project / "run").write_text("#!/bin/sh\n")
        (project / "run").chmod(0o700)
        session.save_checkpoint("two", state={"n": 2})
        wanted = {
            path: seen for path, seen in picture(project).items() if not path.startswith(".git")
        }
    there = tmp_path / "elsewhere" / "checkout"
    make_repository(there)
    (there / "a.txt").write_text("something else\n")
    with SessionManager.open(postgres_url, project_dir=there) as manager:
        again = manager.resume_session("travels")
        assert again.state == {"n": 2}
        again.rollback("two")
        found = {path: seen for path, seen in picture(there).items() if not path.startswith(".git")}
        wanted.pop(".gitignore", None)
        found.pop(".gitignore", None)
        assert found == wanted
        again.rollback("one")
        assert (there / "b.txt").read_text() == "b\n"
        again.undo()
        assert (there / "b.txt").read_text() == "changed here\n"
        assert manager.store.pack_usage().packs >= 2


def test_files_that_are_not_shared_stay_where_they_are(
    postgres_url: str, project: Path, tmp_path: Path
) -> None:
    (project / ".agents").mkdir()
    (project / ".agents" / "holdfast.toml").write_text("[workspace]\nshare = false\n")
    with SessionManager.open(postgres_url, project_dir=project) as here:
        here.create_session("a", session_id="stays").save_checkpoint("one", state={"n": 1})
        assert here.store.pack_usage().packs == 0
    there = tmp_path / "there"
    there.mkdir()
    with SessionManager.open(postgres_url, project_dir=there) as manager:
        session = manager.hold_session("stays")
        with pytest.raises(IntegrityError, match="Nothing was changed"):
            session.rollback("one")
        assert list(there.iterdir()) in ([], [there / ".agents"])


_KILLED = """
import os, signal, sys
from holdfast import SessionManager
from holdfast.sessions.rollback import Rollbacks
manager = SessionManager.open(sys.argv[1], project_dir=sys.argv[2])
session = manager.resume_session("dies")
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] in ("landing", "state"):
    Rollbacks._land = die
elif sys.argv[3] == "journal":
    from holdfast.workspace.journal import Journal
    Journal.to_document = die
else:
    from holdfast.workspace.apply import Applier
    Applier.carry_out = die
session.rollback("before", files=sys.argv[3] != "state")
"""


@pytest.mark.parametrize("moment", ["journal", "state"])
def test_a_rollback_that_was_killed_before_it_began_is_none_to_undo(
    project: Path, tmp_path: Path, moment: str
) -> None:
    url = str(tmp_path / "sessions.db")
    with SessionManager.open(url, project_dir=project) as manager:
        session = manager.create_session("a", session_id="dies")
        session.save_checkpoint("before", state={"n": 1})
        (project / "a.txt").write_text("later\n")
        session.save_checkpoint("after", state={"n": 2})
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, url, str(project), moment],
        check=False, timeout=60, capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    for _ in range(2):
        with SessionManager.open(url, project_dir=project) as manager:
            resumed = manager.resume_session("dies")
            with pytest.raises(NothingToUndo):
                resumed.undo()
            assert (project / "a.txt").read_text() == "later\n"
            assert resumed.state == {"n": 2}
            said = [one.message for one in resumed.logs() if "came to nothing" in one.message]
            assert said == ["before the rollback to before: it came to nothing"]


@pytest.mark.parametrize("moment", ["landing", "files"])
@pytest.mark.parametrize("finisher", ["this session", "another session"])
def test_a_rollback_that_was_killed_is_finished_state_and_files(
    project: Path, tmp_path: Path, moment: str, finisher: str
) -> None:
    url = str(tmp_path / "sessions.db")
    with SessionManager.open(url, project_dir=project) as manager:
        session = manager.create_session("a", session_id="dies")
        session.save_checkpoint("before", state={"n": 1})
        (project / "a.txt").write_text("later\n")
        session.save_checkpoint("after", state={"n": 2})
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, url, str(project), moment],
        check=False, timeout=60, capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with SessionManager.open(url, project_dir=project) as manager:
        if finisher == "another session":
            manager.create_session("b").save_checkpoint(state={})
        resumed = manager.resume_session("dies")
        assert resumed.state == {"n": 1}
        assert (project / "a.txt").read_text() == "a\n"
        resumed.undo()
        assert resumed.state == {"n": 2}
        assert (project / "a.txt").read_text() == "later\n"


@pytest.mark.parametrize("one", ["a.txt", Path("a.txt"), b"a.txt", 5], ids=repr)
def test_a_single_path_is_no_list_of_them(one: Any, project: Path, tmp_path: Path) -> None:
    """Its letters would be, and the file that was meant would stay behind."""
    with SessionManager.open(str(tmp_path / "s.db"), project_dir=project) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("before", state={})
        (project / "a.txt").write_text("changed")
        for call in (
            lambda: session.save_checkpoint("after", state={}, paths=one),
            lambda: session.rollback("before", paths=one),
            lambda: manager.include(one),
            lambda: manager.include([], patterns=one),
            lambda: SessionManager.open("memory:", project_dir=project, include=one),
        ):
            with pytest.raises(InvalidIdentifier, match="a list of paths is needed"):
                call()
        assert [saved.name for saved in session.list_checkpoints()] == ["before"]
    assert (project / "a.txt").read_text() == "changed"


@pytest.mark.parametrize("one", [5, None, b"a.txt"], ids=repr)
def test_what_is_no_text_is_no_path(one: Any, project: Path, tmp_path: Path) -> None:
    with SessionManager.open(str(tmp_path / "s.db"), project_dir=project) as manager:
        session = manager.create_session("a")
        saved = session.save_checkpoint("before", state={})
        for call in (
            lambda: session.save_checkpoint("after", state={}, paths=[one]),
            lambda: session.rollback("before", paths=[one]),
            lambda: session.wrote(one),
            lambda: manager.include([one]),
            lambda: manager.read_file(saved, one),
            lambda: manager.diff(saved, saved, paths=[one]),
        ):
            with pytest.raises(InvalidIdentifier, match="a path must be text"):
                call()
        assert [saved.name for saved in session.list_checkpoints()] == ["before"]


def test_the_async_twin_rolls_back_too(project: Path, tmp_path: Path) -> None:
    async def work() -> None:
        url = str(tmp_path / "sessions.db")
        async with await AsyncSessionManager.open(url, project_dir=project) as manager:
            session = await manager.create_session("a")
            await session.save_checkpoint("before", state={"n": 1})
            (project / "a.txt").write_text("changed")
            await session.rollback("before")
            assert (project / "a.txt").read_text() == "a\n"
            await session.undo()
            assert (project / "a.txt").read_text() == "changed"
            await session.redo()
            assert (project / "a.txt").read_text() == "a\n"
            assert (await manager.file_usage()).snapshots >= 2

    asyncio.run(work())


def test_a_refused_directory_saves_the_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with SessionManager.open("memory:", project_dir=tmp_path) as manager:
        saved = manager.create_session("a").save_checkpoint(state={"n": 1})
        assert saved.workspace_commit is None
        assert "not a project" in saved.files["problem"]


def test_settings_bound_the_capture(project: Path, tmp_path: Path) -> None:
    (project / ".agents").mkdir()
    settings = project / ".agents" / "holdfast.toml"
    settings.write_text('[workspace]\nmax_file_mb = 1\ninclude = ["dist"]\n')
    (project / ".gitignore").write_text("dist/\n")
    (project / "dist").mkdir()
    (project / "dist" / "built").write_text("built")
    (project / "large").touch()
    os.truncate(project / "large", 2 * 1024 * 1024)
    with SessionManager.open(str(tmp_path / "s.db"), project_dir=project) as manager:
        saved = manager.create_session("a").save_checkpoint(state={})
        assert saved.files["skipped"] == [["large", "larger than 1,048,576 bytes"]]
        assert saved.workspace_commit is not None
        assert "dist/built" in manager.workspace.files(saved.workspace_commit)
    settings.write_text("[workspace]\ncapture = false\n")
    with SessionManager.open(str(tmp_path / "s.db"), project_dir=project) as manager:
        assert manager.create_session("a").save_checkpoint(state={}).workspace_commit is None


def test_a_pack_that_a_sweep_took_is_sent_again(
    postgres_url: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionManager.open(postgres_url, project_dir=project) as manager:
        session = manager.create_session("a")
        send: Callable[..., None] = ProjectFiles.send

        def send_and_lose(self: ProjectFiles, commit: str, before: str | None) -> None:
            send(self, commit, before)
            monkeypatch.setattr(ProjectFiles, "send", send)
            manager.store.delete_packs([commit])

        monkeypatch.setattr(ProjectFiles, "send", send_and_lose)
        saved = session.save_checkpoint("one", state={"n": 1})
        assert saved.workspace_commit is not None
        assert manager.store.find_packs([saved.workspace_commit]) == {saved.workspace_commit}


def test_autosave_saves_when_files_changed_and_only_then(session: Session, project: Path) -> None:
    with session.autosave(lambda: {"n": 1}, interval=None, signals=False) as saver:
        first = saver.flush()
        assert first is not None
        count = len(session.list_checkpoints())
        saver.notify("a thing of no weight")
        (project / "a.txt").write_text("by the agent\n")
    saved = session.list_checkpoints()
    assert len(saved) == count + 1
    assert saved[0].workspace_commit != first.workspace_commit
    with session.autosave(lambda: {"n": 1}, interval=None, signals=False):
        pass
    assert len(session.list_checkpoints()) == count + 1


def test_undo_outlives_the_landing(session: Session, project: Path) -> None:
    session.save_checkpoint("before", state={"n": 1})
    (project / "a.txt").write_text("later\n")
    session.save_checkpoint("after", state={"n": 2})
    landed = session.rollback("before").landed
    assert landed is not None
    session.save_checkpoint(state={"n": 10})
    session.delete_checkpoint(landed.id)
    session.undo()
    assert (project / "a.txt").read_text() == "later\n"
    assert session.state == {"n": 2}


@pytest.mark.row("S4-22")
def test_rollbacks_leave_all_checkpoints_that_somebody_saved(
    manager: SessionManager, session: Session, project: Path
) -> None:
    session.save_checkpoint("start", state={})
    steps = [session.save_checkpoint(state={"n": n}, retention_class="step").id for n in range(3)]
    kept = [
        session.save_checkpoint(state={"n": n}, retention_class="automatic").id for n in range(5)
    ]
    for n in range(3):
        (project / "a.txt").write_text(f"later {n}\n")
        session.rollback("start")
        landed = session.undo().landed
    manager.prune(keep=3)
    assert [one.id for one in session.list_checkpoints(retention_class="automatic")] == kept[::-1]
    assert [one.id for one in session.list_checkpoints(retention_class="step")] == steps[::-1]
    # The session goes on from it, however long nobody comes back.
    assert landed is not None
    assert landed.record.expires_at is None


def test_landings_go_after_a_month_but_for_the_one_to_go_on_from(
    manager: SessionManager, session: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = session.save_checkpoint("start", state={})
    for n in range(2):
        (project / "a.txt").write_text(f"later {n}\n")
        landed = session.rollback("start").landed
    assert landed is not None
    monkeypatch.setattr(upkeep, "utc_now", lambda: utc_now() + timedelta(days=29))
    assert all(one.keep for one in manager.prune(dry_run=True))
    monkeypatch.setattr(upkeep, "utc_now", lambda: utc_now() + timedelta(days=31))
    reasons = {one.record.id: one.reason for one in manager.prune() if not one.keep}
    assert {one.id for one in session.list_checkpoints()} & {start.id, landed.id, *reasons} == {
        start.id,
        landed.id,
    }
    assert [one for one in reasons.values() if "the limit of rollbacks is 30.0 days" in one]


def _fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the disk be full for the first file that is written, and for no other."""
    write, full = Applier._write_one, iter([OSError(errno.ENOSPC, "No space left on device")])

    def fail_once(self: Applier, *arguments: Any, **options: Any) -> None:
        for error in full:
            raise error
        write(self, *arguments, **options)

    monkeypatch.setattr(Applier, "_write_one", fail_once)


def test_a_rollback_that_failed_is_none_to_undo(
    session: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.save_checkpoint("before", state={"n": 1})
    (project / "a.txt").write_text("later\n")
    _fail_once(monkeypatch)
    with pytest.raises(WorkspaceFull):
        session.rollback("before")
    (project / "a.txt").write_text("later still\n")
    session.save_checkpoint("after", state={"n": 2})
    with pytest.raises(NothingToUndo):
        session.undo()
    assert (project / "a.txt").read_text() == "later still\n"
    assert session.state == {"n": 2}


def test_an_undo_that_failed_can_be_tried_again(
    session: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.save_checkpoint("before", state={"n": 1})
    (project / "a.txt").write_text("later\n")
    session.save_checkpoint("after", state={"n": 2})
    session.rollback("before")
    _fail_once(monkeypatch)
    with pytest.raises(WorkspaceFull):
        session.undo()
    with pytest.raises(NothingToUndo):
        session.redo()
    session.undo()
    assert (project / "a.txt").read_text() == "later\n"
    assert session.state == {"n": 2}
    session.redo()
    assert (project / "a.txt").read_text() == "a\n"


def test_what_others_wrote_stays_through_further_rollbacks_and_undo(
    session: Session, project: Path
) -> None:
    session.save_checkpoint("start", state={})
    (project / "b.txt").write_text("mine\n")
    session.save_checkpoint(state={}, paths=["b.txt"])
    (project / "a.txt").write_text("by a person\n")
    session.rollback("start", only_mine=True)
    session.rollback("start", only_mine=True)
    assert (project / "a.txt").read_text() == "by a person\n"
    (project / "a.txt").write_text("by a person, later\n")
    session.undo()
    session.undo()
    assert (project / "a.txt").read_text() == "by a person, later\n"
    assert (project / "b.txt").read_text() == "mine\n"


@pytest.mark.parametrize("landing", ["stored", "deleted", "made up for"])
def test_an_undo_spares_what_others_wrote_whatever_became_of_the_landing(
    session: Session, project: Path, monkeypatch: pytest.MonkeyPatch, landing: str
) -> None:
    session.save_checkpoint("start", state={})
    (project / "b.txt").write_text("mine\n")
    (project / "b.txt").chmod(0o640)
    (project / ".gitignore").chmod(0o640)
    session.save_checkpoint(state={}, paths=["b.txt", ".gitignore"])
    if landing == "made up for":
        with monkeypatch.context() as broken:
            broken.setattr(Rollbacks, "_land", lambda *_: 1 // 0)
            with pytest.raises(RestoreFailed):
                session.rollback("start", only_mine=True)
        session.settle()
    else:
        landed = session.rollback("start", only_mine=True).landed
    assert (project / ".gitignore").stat().st_mode & 0o777 == 0o644
    (project / "a.txt").write_text("by a person\n")
    if landing == "deleted":
        assert landed is not None
        session.save_checkpoint(state={})
        session.delete_checkpoint(landed.id)
    for take_back in (session.undo, session.redo, session.undo):
        take_back()
        assert (project / "a.txt").read_text() == "by a person\n"
    assert (project / "b.txt").read_text() == "mine\n"
    assert {(project / path).stat().st_mode & 0o777 for path in ("b.txt", ".gitignore")} == {0o640}


def test_what_autosave_noticed_is_this_sessions_own(session: Session, project: Path) -> None:
    session.save_checkpoint("start", state={})
    (project / "b.txt").write_text("mine\n")
    with session.autosave(dict, interval=None, signals=False):
        pass
    report = session.rollback("start", only_mine=True)
    assert (project / "b.txt").read_text() == "b\n"
    assert report.files is not None
    assert report.files.conflicts == ()


def test_a_sweep_leaves_the_files_of_other_tenants(project: Path, tmp_path: Path) -> None:
    url = str(tmp_path / "shared.db")
    with (
        SessionManager.open(url, project_dir=project, tenant="one") as one,
        SessionManager.open(url, project_dir=project, tenant="two") as two,
    ):
        session = one.create_session("a")
        session.save_checkpoint("kept", state={})
        (project / "a.txt").write_text("other\n")
        two.create_session("b").save_checkpoint(state={})
        two.gc()
        session.rollback("kept")
        assert (project / "a.txt").read_text() == "a\n"


def test_a_project_may_be_moved(project: Path, tmp_path: Path) -> None:
    with SessionManager.open(project_dir=project) as manager:
        manager.create_session("a", session_id="moves").save_checkpoint("one", state={})
    moved = tmp_path / "moved"
    project.rename(moved)
    with SessionManager.open(project_dir=moved) as manager:
        assert manager.verify().ok
        assert manager.gc().snapshots == 0
        (moved / "a.txt").unlink()
        manager.resume_session("moves").rollback("one")
        assert (moved / "a.txt").read_text() == "a\n"


def test_a_landing_that_failed_once_is_made_up_for(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "sessions.db")
    with SessionManager.open(url, project_dir=project) as manager:
        session = manager.create_session("a", session_id="dies")
        session.save_checkpoint("before", state={"n": 1})
        (project / "a.txt").write_text("later\n")
        session.save_checkpoint("after", state={"n": 2})
    subprocess.run(
        [sys.executable, "-c", _KILLED, url, str(project), "landing"],
        check=False, timeout=60, capture_output=True,
    )  # fmt: skip
    with SessionManager.open(url, project_dir=project) as manager:
        with monkeypatch.context() as broken:
            broken.setattr(Rollbacks, "_land", lambda *_: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                manager.resume_session("dies")
        resumed = manager.resume_session("dies")
        assert resumed.state == {"n": 1}
        resumed.undo()
        assert resumed.state == {"n": 2}


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": 7},
        {"title": None},
        {"target": {"$": 1}},
        {"undoes": {}},
        {"paths": [7]},
        {"paths": "a.txt"},
        {"restored": [7]},
        {"state": "yes"},
        None,
    ],
    ids=str,
)
def test_metadata_that_no_rollback_wrote_is_taken_for_none(
    session: Session, manager: SessionManager, changed: dict[str, object] | None
) -> None:
    noted = {
        "phase": "safety", "kind": "rollback", "title": "a rollback", "target": "x", "state": True,
        "files": True, "paths": None, "move_head": False, "undoes": None,
    }  # fmt: skip
    facts = {"phase": "safety"} if changed is None else {**noted, **changed}
    session.save_checkpoint("odd", state={"n": 1}, metadata={"rollback": facts})
    for take_back in (session.undo, session.redo):
        with pytest.raises(NothingToUndo):
            take_back()
    session.pause()
    assert manager.resume_session(session.id).state == {"n": 1}
