"""A snapshot holds every file, costs what changed, and comes back byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import SnapshotNotFound, WorkspaceRefused
from tests.workspace.pictures import picture


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_bytes(b"print('one')\r\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "key").write_bytes(b"\0secret\xff")
    (root / "key").chmod(0o600)
    (root / "empty" / "inner").mkdir(parents=True)
    (root / "link").symlink_to("src/app.py")
    (root / "dangling").symlink_to("nowhere")
    return root


def test_a_restore_and_its_undo_are_exact(project: Path) -> None:
    workspace = Workspace(project)
    before = picture(project)
    saved = workspace.snapshot()
    assert picture(project) == before

    (project / "src" / "app.py").write_text("broken")
    (project / "key").chmod(0o644)
    (project / "run.sh").unlink()
    (project / "link").unlink()
    (project / "link").mkdir()
    (project / "link" / "inside").write_text("a link became a directory")
    (project / "empty" / "inner").rmdir()
    (project / "new.txt").write_text("new")
    changed = picture(project)

    report = workspace.restore(saved.commit)
    assert picture(project) == before
    assert report.landed == saved.commit
    assert {(one.kind, one.path) for one in report.changes} == {
        ("modified", "src/app.py"), ("added", "run.sh"), ("added", "link"),
        ("deleted", "link/inside"), ("deleted", "new.txt"),
    }  # fmt: skip
    workspace.restore(report.safety)
    assert picture(project) == changed


def test_equal_files_give_an_equal_snapshot(project: Path) -> None:
    workspace = Workspace(project)
    first = workspace.snapshot()
    assert workspace.snapshot().commit == first.commit
    (project / "src" / "app.py").write_text("other")
    second = workspace.snapshot()
    assert second.commit != first.commit
    assert second.before == first.commit
    assert [one.path for one in workspace.diff(first.commit, second.commit)] == ["src/app.py"]


def test_told_paths_alone_are_looked_at(project: Path) -> None:
    workspace = Workspace(project)
    first = workspace.snapshot()
    (project / "src" / "app.py").write_text("told")
    (project / "run.sh").write_text("not told")
    (project / "src" / "new.py").write_text("new")
    told = workspace.snapshot(["src/app.py", project / "src" / "new.py", "src/never-there.py"])
    assert {one.path for one in workspace.diff(first.commit, told.commit)} == {
        "src/app.py", "src/new.py",
    }  # fmt: skip
    later = workspace.snapshot()
    assert [one.path for one in workspace.diff(told.commit, later.commit)] == ["run.sh"]


def test_every_directory_is_looked_at_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = project / "src" / "deep" / "er"
    deep.mkdir(parents=True)
    (deep / "file").write_text("below directories that hold no file")
    Workspace(project).snapshot()
    lstat, looked = os.lstat, []

    def count(path: str, **keywords: Any) -> os.stat_result:
        looked.append(os.fspath(path))
        return lstat(path, **keywords)

    monkeypatch.setattr("os.lstat", count)
    Workspace(project).snapshot()
    counts = [looked.count(str(one)) for one in (project / "src", deep.parent, deep)]
    assert counts == [1, 1, 1]


def test_what_cannot_be_meant_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(WorkspaceRefused):
        Workspace(tmp_path)
    with pytest.raises(WorkspaceRefused):
        Workspace("/")


def test_an_unknown_snapshot_touches_nothing(project: Path) -> None:
    workspace = Workspace(project)
    workspace.snapshot()
    before = picture(project)
    for commit in ("0" * 40, "HEAD", "--help", ""):
        with pytest.raises(SnapshotNotFound):
            workspace.restore(commit)
    assert picture(project) == before
