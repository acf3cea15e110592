"""A save of told paths holds the same as a whole one, however it was made."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.workspace.basis import NOTE
from holdfast.workspace.capture import Capture
from holdfast.workspace.private_store import PrivateStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for path in (
        "a.txt",
        "a-b.txt",
        "a/b/c.txt",
        "a/b/d.txt",
        "a.d/e.txt",
        "lone/f.txt",
        "-x/g.txt",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


@pytest.fixture
def grafts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each told save was grafted."""
    made: list[bool] = []
    look = Capture._graft

    def noted(self: Capture, told: list[str]) -> bool:
        made.append(look(self, told))
        return made[-1]

    monkeypatch.setattr(Capture, "_graft", noted)
    return made


def tree_from_nothing(root: Path) -> str:
    """Return the tree of a whole capture that knows of none before."""
    workspace = Workspace(root)
    (workspace.store_dir / NOTE).unlink()
    return workspace.snapshot().tree


def _write(path: str, content: bytes = b"new\r\n\0") -> Callable[[Path], list[str]]:
    def write(root: Path) -> list[str]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
        return [path]

    return write


def _delete(*paths: str) -> Callable[[Path], list[str]]:
    def delete(root: Path) -> list[str]:
        for path in paths:
            (root / path).unlink()
        return list(paths)

    return delete


def _executable(root: Path) -> list[str]:
    (root / "a.txt").chmod(0o755)
    return ["a.txt"]


def _several(root: Path) -> list[str]:
    return [
        *_write("a/b/c.txt")(root),
        *_write("a/new.txt")(root),
        *_delete("a.d/e.txt")(root),
    ]


PLAIN = {
    "edited": _write("a/b/c.txt"),
    "at the top": _write("a.txt"),
    "new": _write("a/b/new.txt"),
    "new directories": _write("n/e/w/x.txt"),
    "a directory that sorts oddly": _write("a-b/x.txt"),
    "deleted": _delete("a/b/c.txt"),
    "the last of its directory": _delete("lone/f.txt"),
    "the last of several": _delete("a/b/c.txt", "a/b/d.txt"),
    "executable": _executable,
    "several": _several,
    "a name with an option": _write("-x/g.txt"),
    "bytes that are no text": _write(os.fsdecode(b"a/\xff\xfe")),
    "a space and a quote": _write('a/it is "so"'),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_told_files_are_grafted_exactly(root: Path, grafts: list[bool], kind: str) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    told = PLAIN[kind](root)
    saved = workspace.snapshot(told)
    assert grafts == [True]
    assert saved.touched == tuple(sorted(told))
    assert workspace.verify([saved.commit]) == []
    # The whole capture after it finds nothing new, and agrees.
    after = workspace.snapshot()
    assert (after.tree, after.touched) == (saved.tree, ())
    assert tree_from_nothing(root) == saved.tree


def _link(root: Path) -> list[str]:
    (root / "a" / "link").symlink_to("../a.txt")
    return ["a/link"]


def _file_for_directory(root: Path) -> list[str]:
    (root / "lone" / "f.txt").unlink()
    (root / "lone").rmdir()
    (root / "lone").write_text("a file now")
    return ["lone"]


def _directory_for_file(root: Path) -> list[str]:
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "x").write_text("x")
    return ["a.txt"]


ODD = {
    "a link": _link,
    "a file for a directory": _file_for_directory,
    "a directory for a file": _directory_for_file,
    "a line break": _write("a/b\nc"),
    "a leading quote": _write('"quoted"'),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("ahead", [False, True], ids=["fresh", "after-a-graft"])
def test_what_cannot_be_grafted_is_captured_all_the_same(
    root: Path, kind: str, ahead: bool
) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    if ahead:
        workspace.snapshot(_write("a/b/new.txt")(root))
    saved = workspace.snapshot(ODD[kind](root))
    assert workspace.snapshot().tree == saved.tree
    assert tree_from_nothing(root) == saved.tree


def test_a_grafted_file_that_goes_again_is_missed(root: Path) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot()
    workspace.snapshot(_write("a/passing.txt")(root))
    (root / "a" / "passing.txt").unlink()
    whole = workspace.snapshot()
    assert whole.tree == first.tree
    assert whole.touched == ("a/passing.txt",)


@pytest.mark.parametrize("told", [["a/passing.txt"], ["a"], ["a.txt", "a/passing.txt"]])
def test_told_that_a_grafted_file_is_gone(root: Path, told: list[str]) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot()
    workspace.snapshot(_write("a/passing.txt")(root))
    (root / "a" / "passing.txt").unlink()
    assert workspace.snapshot(told).tree == first.tree


def test_a_damaged_directory_is_never_grafted_upon(root: Path, grafts: list[bool]) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot()
    git = PrivateStore(root, workspace.store_dir).git
    name = git.run("rev-parse", f"{first.tree}:a").decode().strip()
    (workspace.store_dir / "objects" / name[:2] / name[2:]).unlink()
    saved = workspace.snapshot(_write("a/b/c.txt")(root))
    assert grafts == [False]
    assert set(workspace.files(saved.commit)) == set(workspace.files(workspace.snapshot().commit))
    assert "a/b/d.txt" in workspace.files(saved.commit)


def test_an_unfinished_index_of_a_killed_capture_is_not_taken(root: Path) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    (workspace.store_dir / "index.next").write_bytes(b"half")
    saved = workspace.snapshot(_write("a.txt")(root))
    assert workspace.snapshot().tree == saved.tree


def test_random_told_saves_end_where_a_whole_one_does(root: Path) -> None:
    chance = random.Random(5)
    workspace = Workspace(root)
    workspace.snapshot()
    names = ["a.txt", "a/b/c.txt", "a/b/d.txt", "a/n.txt", "z/y/x.txt", "lone/f.txt", "a-c"]
    for step in range(60):
        told = []
        for path in chance.sample(names, chance.randint(1, 3)):
            target = root / path
            if target.exists() and chance.random() < 0.4:
                target.unlink()
            elif not target.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(f"{step} {path}")
                target.chmod(chance.choice((0o644, 0o755)))
            told.append(path)
        saved = workspace.snapshot(told)
        if chance.random() < 0.3:
            assert workspace.snapshot().tree == saved.tree
    last = workspace.snapshot()
    assert last.tree == saved.tree
    assert tree_from_nothing(root) == last.tree
