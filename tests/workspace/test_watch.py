"""A capture takes in the files of the project, and no others that stand in their place for a moment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.workspace import graft, private_index
from holdfast.workspace.base import Entry
from tests.workspace.pictures import git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in (("project", "inside 1"), ("outside", "OUTSIDE!")):
        (tmp_path / name / "d" / "deep").mkdir(parents=True)
        (tmp_path / name / "d" / "deep" / "f").write_text(content)
        (tmp_path / name / "d" / "link").symlink_to(content)
    return tmp_path / "project"


@contextmanager
def exchanged(root: Path) -> Iterator[None]:
    """Have a directory from outside stand in the place of ours."""

    def exchange() -> None:
        os.rename(root / "d", root.parent / "aside")
        os.rename(root.parent / "outside" / "d", root / "d")
        os.rename(root.parent / "aside", root.parent / "outside" / "d")

    exchange()
    try:
        yield
    finally:
        exchange()


def while_git_reads(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> list[str]:
    """Have something done around each reading of git's; return what it was asked for."""
    asked: list[str] = []

    def around(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if name == "finish_heard" and arguments[1] != ("update-index",):
                return real(*arguments, **options)
            asked.append(name)
            with act():
                return real(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    around(private_index, "finish_heard")
    around(graft, "_hash")
    return asked


def texts(workspace: Workspace, commit: str) -> dict[str, str]:
    return {path: workspace.read(commit, path).decode() for path in workspace.files(commit)}


@pytest.mark.parametrize("told", [None, ["d/deep/f"]], ids=["all", "told"])
def test_what_git_read_outside_is_not_in_the_snapshot(
    root: Path, told: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    (root / "d" / "deep" / "f").write_text("inside 2")
    asked = while_git_reads(monkeypatch, lambda: exchanged(root))
    taken = workspace.snapshot(told)
    assert asked[0] == ("_hash" if told else "finish_heard")
    assert texts(workspace, taken.commit) == {"d/deep/f": "inside 2", "d/link": "inside 1"}
    assert taken.skipped == ()
    monkeypatch.undo()
    # It is read again by the next one, which finds it the same.
    assert workspace.snapshot().tree == taken.tree


def test_a_first_snapshot_takes_links_and_modes_of_the_project_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.parent / "outside" / "d" / "deep" / "f").chmod(0o755)
    while_git_reads(monkeypatch, lambda: exchanged(root))
    workspace = Workspace(root)
    taken = workspace.snapshot()
    assert texts(workspace, taken.commit) == {"d/deep/f": "inside 1", "d/link": "inside 1"}
    assert git(workspace.store_dir, "ls-tree", taken.tree, "d/deep/f").startswith("100644")


def test_a_file_that_is_reached_through_a_link_by_then_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)

    @contextmanager
    def linked() -> Iterator[None]:
        yield
        os.rename(root / "d", root.parent / "aside")
        (root / "d").symlink_to(root.parent / "outside" / "d")

    while_git_reads(monkeypatch, linked)
    taken = workspace.snapshot()
    assert workspace.files(taken.commit) == []
    assert {one.reason for one in taken.skipped} == {"changed while it was read"}


def test_quiet_directories_cost_no_second_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time.sleep(0.1)
    looked: list[str] = []

    def look(_: Path, path: str, entry: Entry) -> bool:
        looked.append(path)
        return True

    monkeypatch.setattr(private_index, "is_there", look)
    workspace = Workspace(root)
    workspace.snapshot()
    time.sleep(0.1)
    (root / "d" / "deep" / "f").write_text("inside 2")
    workspace.snapshot()
    looked.clear()
    (root / "d" / "deep" / "f").write_text("inside 3")
    assert workspace.snapshot().touched == ("d/deep/f",)
    assert looked == []
