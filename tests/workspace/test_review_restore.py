"""Programs that write while a restore is at work, and people who go on after one was killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import RestoreFailed
from holdfast.workspace import apply
from holdfast.workspace.apply import Applier
from holdfast.workspace.base import Snapshot


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
        monkeypatch.setattr(apply, "_renameat2", lambda: None)
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
    look: Callable[..., Any] = apply._look
    looked: list[str] = []

    def look_and_let_write(folder: int, asked: str, change: Any) -> Any:
        found = look(folder, asked, change)
        if asked == name and asked not in looked:
            looked.append(asked)
            (project / "editors").write_text("edited")
            os.replace(project / "editors", project / name)
        return found

    monkeypatch.setattr(apply, "_look", look_and_let_write)
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

    look: Callable[..., Any] = apply._look

    def look_and_die(folder: int, asked: str, change: Any) -> Any:
        if asked.startswith(".holdfast") and change.path == name:
            if edited:
                (project / asked).write_text("edited")
            moved.append(asked)
            raise Killed
        return look(folder, asked, change)

    with monkeypatch.context() as patch:
        patch.setattr(apply, "_look", look_and_die)
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
