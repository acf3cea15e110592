"""Programs that write while a restore is at work, and people who go on after one was killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import LeaseLost, RestoreFailed
from holdfast.workspace import apply, held
from holdfast.workspace.apply import Applier
from holdfast.workspace.base import Snapshot
from holdfast.workspace.mover import Mover
from tests.workspace.pictures import commit_all, git, make_repository, repository_view


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and not {".agents", ".git"} & set(path.relative_to(root).parts)
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture(params=["exchange", "rename"])
def means(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With what Linux can do, and with what every system can."""
    if request.param == "rename":
        monkeypatch.setattr(held, "_renameat2", lambda: None)
    return str(request.param)


def changed(root: Path) -> tuple[Workspace, str]:
    """Make a project whose files were modified, deleted and added since a snapshot."""
    for name in ("modified", "deleted", "plain"):
        (root / name).write_text("then")
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "modified").write_text("now")
    (root / "plain").write_text("now")
    (root / "deleted").unlink()
    (root / "added").write_text("now")
    return workspace, then


# While it is at work -----------------------------------------------------------------------------


@pytest.mark.usefixtures("means")
def test_what_is_written_after_the_safety_snapshot_stays(project: Path) -> None:
    workspace, then = changed(project)

    def edit(_: Snapshot) -> None:
        for name in ("modified", "deleted", "added"):
            (project / name).write_text(f"edited {name}")

    report = workspace.restore(then, before=edit)
    assert contents(project) == {
        "modified": "edited modified",
        "deleted": "edited deleted",
        "added": "edited added",
        "plain": "then",
    }
    assert {one.path for one in report.conflicts} == {"modified", "deleted", "added"}
    assert [one.path for one in report.changes] == ["plain"]
    assert report.modes == ()


@pytest.mark.usefixtures("means")
@pytest.mark.parametrize("name", ["modified", "added"])
def test_what_is_written_between_the_look_and_the_move_is_put_back(
    project: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, then = changed(project)
    look: Callable[..., Any] = held.look
    looked: list[str] = []

    def look_and_let_write(folder: int, asked: str, change: Any) -> Any:
        found = look(folder, asked, change)
        if asked == name and asked not in looked:
            looked.append(asked)
            (project / "editors").write_text("edited")
            os.replace(project / "editors", project / name)
        return found

    monkeypatch.setattr(apply, "look", look_and_let_write)
    report = workspace.restore(then)
    assert looked == [name]
    assert (project / name).read_text() == "edited"
    assert [one.path for one in report.conflicts] == [name]
    assert [one for one in os.listdir(project) if one.startswith(".holdfast")] == []


def test_a_file_that_comes_where_none_was_is_not_replaced(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, then = changed(project)
    fill = Applier._fill

    def fill_and_let_write(self: Applier, *arguments: Any, **options: Any) -> None:
        fill(self, *arguments, **options)
        (project / "deleted").write_text("edited")

    monkeypatch.setattr(Applier, "_fill", fill_and_let_write)
    report = workspace.restore(then, paths=["deleted"])
    assert (project / "deleted").read_text() == "edited"
    assert [one.path for one in report.conflicts] == ["deleted"]


def test_a_directory_that_cannot_take_the_place_of_an_edited_file_is_a_conflict(
    project: Path,
) -> None:
    (project / "place").mkdir()
    (project / "place" / "inner").write_text("then")
    (project / "other").write_text("then")
    workspace = Workspace(project)
    then = workspace.snapshot().commit
    (project / "place" / "inner").unlink()
    (project / "place").rmdir()
    (project / "place").write_text("now")
    (project / "other").write_text("now")

    def edit(_: Snapshot) -> None:
        (project / "place").write_text("edit")

    report = workspace.restore(then, before=edit)
    assert contents(project) == {"place": "edit", "other": "then"}
    assert {one.path for one in report.conflicts} == {"place", "place/inner"}


def test_a_file_that_is_edited_after_it_was_restored_survives_the_taking_back(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, then = changed(project)
    carry_out = Applier.carry_out
    edits = iter(["edited"])

    def carry_out_and_let_write(self: Applier, *arguments: Any) -> Any:
        left = carry_out(self, *arguments)
        for text in edits:
            (project / "modified").write_text(text)
        return left

    monkeypatch.setattr(Applier, "carry_out", carry_out_and_let_write)
    with pytest.raises(RestoreFailed, match="except for 1 that another program changed") as caught:
        workspace.restore(then)
    assert contents(project) == {"modified": "edited", "plain": "now", "added": "now"}
    named = [word for word in str(caught.value).split() if len(word) == 40]
    workspace.gc(lambda: {then})
    assert [workspace.read(commit, "modified") for commit in named] == [b"edited"]


@pytest.mark.usefixtures("means")
@pytest.mark.parametrize("edited", [False, True], ids=["as it was", "edited"])
@pytest.mark.parametrize("name", ["modified", "added"])
def test_what_a_killed_restore_had_moved_aside_is_put_back(
    project: Path, name: str, edited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, then = changed(project)
    moved: list[str] = []

    class Killed(BaseException):
        pass

    def die(self: Applier, *_: Any) -> None:
        raise Killed

    look: Callable[..., Any] = held.look

    def look_and_die(folder: int, asked: str, change: Any) -> Any:
        if asked.startswith(".holdfast") and change.path == name:
            if edited:
                (project / asked).write_text("edited")
            moved.append(asked)
            raise Killed
        return look(folder, asked, change)

    with monkeypatch.context() as patch:
        patch.setattr(apply, "look", look_and_die)
        patch.setattr("holdfast.workspace.restore.Restore._revert", die)
        with pytest.raises(Killed):
            workspace.restore(then)
    assert (project / moved[0]).exists()
    report = workspace.recover()
    assert report is not None
    assert [one for one in os.listdir(project) if one.startswith(".holdfast")] == []
    expected = {"modified": "then", "plain": "then", "deleted": "then"}
    assert contents(project) == ({**expected, name: "edited"} if edited else expected)
    assert [one.path for one in report.conflicts] == ([name] if edited else [])


# Where the repository stands ---------------------------------------------------------------------


class Died(BaseException):
    """Stands for a kill: nothing is taken back."""


@pytest.fixture
def moved_and_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a repository whose restore with ``move_head`` died just after the move."""
    root = tmp_path / "repository"
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a").write_text("one")
    commit_all(root, "first")
    then = Workspace(root).snapshot().commit
    (root / "a").write_text("two")
    commit_all(root, "second")
    move = Mover.move

    def move_and_die(self: Mover, label: str, is_untouched: Callable[[], bool]) -> Any:
        move(self, label, is_untouched)
        raise Died

    def do_nothing(*_: Any) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(Mover, "move", move_and_die)
        patch.setattr("holdfast.workspace.restore.Restore._revert", do_nothing)
        with pytest.raises(Died):
            Workspace(root).restore(then, move_head=True)
    assert git(root, "log", "--format=%s").split() == ["first"]
    return root


def commit_more(root: Path) -> None:
    (root / "users").write_text("mine")
    commit_all(root, "third")


def stage_more(root: Path) -> None:
    (root / "users").write_text("mine")
    git(root, "add", "users")


def switch(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "another")


def test_a_bisection_comes_back_with_the_commits_that_were_tried(project: Path) -> None:
    root = project
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    for number in range(8):
        (root / "a").write_text(str(number))
        commit_all(root)
    workspace = Workspace(root)
    before = workspace.snapshot()
    for step in (("start", "--term-old=as_it-was"), ("bad",), ("as_it-was", "HEAD~7")):
        git(root, "bisect", *step)
    bisecting = repository_view(root)
    report = workspace.restore(before.commit, move_head=True)
    assert git(root, "for-each-ref", "refs/bisect") == ""
    assert not (root / ".git" / "BISECT_LOG").exists()
    workspace.restore(report.safety, move_head=True)
    assert repository_view(root) == bisecting
    git(root, "bisect", "as_it-was")
    git(root, "bisect", "reset")
    assert git(root, "symbolic-ref", "HEAD") == "refs/heads/main"


def begin_to_bisect(root: Path) -> None:
    git(root, "bisect", "start")


@pytest.mark.parametrize("act", [commit_more, stage_more, switch, begin_to_bisect])
def test_a_save_does_not_move_a_repository_that_somebody_works_in_again(
    moved_and_killed: Path, act: Callable[[Path], None]
) -> None:
    root = moved_and_killed
    act(root)

    def stand() -> list[str]:
        asked = (["log", "--format=%s"], ["status", "--short"], ["symbolic-ref", "HEAD"])
        notes = sorted(one for one in os.listdir(root / ".git") if "BISECT" in one)
        return [*(git(root, *one) for one in asked), *notes]

    before = stand()
    report = Workspace(root).recover()
    assert report is not None
    assert [one.path for one in report.conflicts] == [".git"]
    assert report.head is None
    assert stand() == before
    assert not (root / ".git" / "holdfast-move").exists()
    assert Workspace(root).recover() is None


def test_a_move_that_died_is_finished_when_nobody_came_between(moved_and_killed: Path) -> None:
    # A look at the status writes the index anew, and changes nothing in it.
    os.utime(moved_and_killed / "a")
    git(moved_and_killed, "status")
    report = Workspace(moved_and_killed).recover()
    assert report is not None
    assert report.conflicts == ()
    assert report.head is not None
    assert git(moved_and_killed, "log", "--format=%s").split() == ["first"]


def test_a_commit_between_the_backup_and_the_move_stops_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "repository"
    make_repository(root)
    (root / ".gitignore").write_text(".agents/\n")
    (root / "a").write_text("one")
    commit_all(root, "first")
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "a").write_text("two")
    commit_all(root, "second")
    keep_tips = Mover._keep_tips

    def keep_and_let_commit(self: Mover, label: str) -> str | None:
        kept = keep_tips(self, label)
        tree = git(root, "rev-parse", "HEAD^{tree}").strip()
        third = git(root, "commit-tree", tree, "-p", "HEAD", "-m", "third").strip()
        git(root, "update-ref", "HEAD", third)
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(Mover, "_keep_tips", keep_and_let_commit)
        with pytest.raises(RestoreFailed, match=r"'\.git' among them"):
            workspace.restore(then, move_head=True)
    assert git(root, "log", "--format=%s").split() == ["third", "second", "first"]
    assert (root / "a").read_text() == "two"
    assert workspace.recover() is None


def test_the_word_about_a_move_is_durable_before_the_journal_is_written(
    moved_and_killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(moved_and_killed)
    workspace.recover()
    then = workspace.snapshot().commit
    synced: list[str] = []
    sync = os.fsync

    def note_and_sync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", note_and_sync)
    workspace.restore(then, move_head=True)
    inside = moved_and_killed.resolve() / ".git"
    journal = str(workspace.store_dir.resolve() / "journal.json.new")
    expected = [str(inside / "holdfast-move"), str(inside), journal]
    assert [one for one in synced if one in expected][:3] == expected


# Directories -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"paths": ["d/e/x"]}, {"keep": lambda change, safety: None}],
    ids=["paths", "keep"],
)
def test_a_directory_that_both_sides_have_stays(project: Path, options: dict[str, Any]) -> None:
    (project / "d" / "e").mkdir(parents=True)
    workspace = Workspace(project)
    hollow = workspace.snapshot().commit
    (project / "d" / "e" / "x").write_text("x")
    full = workspace.snapshot().commit
    workspace.restore(hollow, **options)
    assert os.listdir(project / "d" / "e") == []
    workspace.restore(full, **options)
    assert os.listdir(project / "d" / "e") == ["x"]


def test_a_directory_that_was_hollow_is_hollow_after_the_taking_back(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "d").mkdir()
    (project / "d" / "x").write_text("x")
    workspace = Workspace(project)
    full = workspace.snapshot().commit
    (project / "d" / "x").unlink()

    def refuse(*_: Any) -> None:
        raise RestoreFailed("not as it should be")

    monkeypatch.setattr("holdfast.workspace.restore.Restore._compare", refuse)
    with pytest.raises(RestoreFailed, match="taken back"):
        workspace.restore(full, paths=["d/x"])
    assert os.listdir(project / "d") == []


# What follows ------------------------------------------------------------------------------------


def test_a_failure_after_the_files_are_restored_says_so(project: Path) -> None:
    workspace, then = changed(project)

    def fail(_: Snapshot) -> None:
        raise LeaseLost("somebody else took over; nothing was written")

    with pytest.raises(RestoreFailed, match=r"the files are restored.*next resume") as caught:
        workspace.restore(then, before=lambda _: {"id": "purpose"}, after=fail)
    assert isinstance(caught.value.__cause__, LeaseLost)
    assert "nothing was written" not in str(caught.value)
    assert set(contents(project).values()) == {"then"}
    report = workspace.recover()
    assert report is not None
    assert report.conflicts == ()
    assert workspace.was_finished("purpose")
