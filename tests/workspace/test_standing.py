"""A snapshot says where the user's repository stands, whether or not git had to be asked again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.config import CONFIG_FILE
from holdfast.workspace.base import GitState, Limits
from holdfast.workspace.repository import Repository, read_git_state


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt", "src/c.txt"):
        (root / name).write_text("one\r\ntwo\r\n")
    (root / ".gitignore").write_text("*.log\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    (root / "untracked.txt").write_text("mine\n")
    return root


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Every question to git, as the paths that it was about."""
    questions: list[tuple[str, ...]] = []
    start = Repository.start_status

    def counted(self: Repository, paths: list[str], **options: object) -> object:
        questions.append(tuple(paths))
        return start(self, paths, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "start_status", counted)
    return questions


def says(root: Path) -> GitState:
    state = read_git_state(root)
    assert state is not None
    return state


def test_nothing_is_asked_twice_when_nothing_changed(
    root: Path, asked: list[tuple[str, ...]]
) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot()
    assert asked == [()]
    again = [workspace.snapshot() for _ in range(3)]
    assert asked == [()]
    assert [one.git for one in again] == [says(root)] * 3
    assert {one.commit for one in again} == {first.commit}
    assert Workspace(root).snapshot().git == first.git


def _edit(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text("other\n")


def _merge(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "side")
    (root / "a.txt").write_text("side\n")
    git(root, "commit", "-q", "-am", "side")
    git(root, "checkout", "-q", "main")
    (root / "a.txt").write_text("main\n")
    git(root, "commit", "-q", "-am", "main")
    subprocess.run(["git", "merge", "side"], cwd=root, capture_output=True)


CAUSES: dict[str, Callable[[Path], object]] = {
    "a file edited": _edit("a.txt"),
    "a file made": _edit("new.txt"),
    "a file deleted": lambda root: (root / "b.txt").unlink(),
    "an untracked file gone": lambda root: (root / "untracked.txt").unlink(),
    "a permission": lambda root: (root / "a.txt").chmod(0o755),
    "staged": lambda root: git(root, "add", "untracked.txt"),
    "staged again": lambda root: git(root, "rm", "-q", "--cached", "b.txt"),
    "renamed": lambda root: git(root, "mv", "b.txt", "moved.txt"),
    "committed": lambda root: git(root, "commit", "-q", "--allow-empty", "-m", "second"),
    "packed and committed": lambda root: (
        git(root, "pack-refs", "--all"),
        git(root, "update-ref", "refs/heads/main", git(root, "commit-tree", "-m", "x", "HEAD^{tree}")),
        git(root, "pack-refs", "--all"),
    ),
    "another branch": lambda root: git(root, "checkout", "-q", "-b", "other"),
    "detached": lambda root: git(root, "checkout", "-q", "--detach"),
    "a merge": _merge,
    "a rule": lambda root: (root / ".gitignore").write_text("*.log\nuntracked.txt\n"),
    "a private rule": lambda root: (root / ".git" / "info" / "exclude").write_text("untracked.txt\n"),
    "a setting": lambda root: git(root, "config", "core.autocrlf", "true"),
    "an attribute": lambda root: (root / ".git" / "info" / "attributes").write_text("*.txt text\n"),
    "an ignored file": _edit("some.log"),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_every_change_is_seen(root: Path, cause: str) -> None:
    (root / ".git" / "info").mkdir(exist_ok=True)
    workspace = Workspace(root)
    workspace.snapshot()
    workspace.snapshot()
    CAUSES[cause](root)
    assert workspace.snapshot().git == says(root)
    assert workspace.snapshot().git == says(root)


def test_settings_that_include_others_are_asked_about_each_time(
    root: Path, tmp_path: Path, asked: list[tuple[str, ...]]
) -> None:
    other = tmp_path / "other.config"
    other.write_text("")
    git(root, "config", "include.path", str(other))
    workspace = Workspace(root)
    workspace.snapshot()
    other.write_text("[core]\n\tautocrlf = true\n")
    assert workspace.snapshot().git == says(root)
    assert len(asked) == 3


def test_a_project_below_the_top_is_asked_about_as_a_whole(root: Path) -> None:
    (root / "src" / ".agents").mkdir()
    (root / "src" / ".agents" / CONFIG_FILE).write_text("")
    workspace = Workspace(root / "src")
    assert workspace.root == root / "src"
    workspace.snapshot()
    (root / "a.txt").write_text("outside of the project\n")
    state = workspace.snapshot().git
    assert state is not None
    assert state.unstaged == ("a.txt",)


def test_files_too_large_to_capture_are_still_in_the_lists(root: Path) -> None:
    workspace = Workspace(root, limits=Limits(max_file_bytes=100))
    (root / "b.txt").write_text("x" * 101)
    workspace.snapshot()
    git(root, "commit", "-q", "-am", "large")
    assert workspace.snapshot().git == says(root)
    with open(root / "b.txt", "a") as file:
        file.write("more")
    assert workspace.snapshot().git == says(root)


def test_told_paths_are_asked_about_alone(root: Path, asked: list[tuple[str, ...]]) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    asked.clear()
    (root / "src" / "c.txt").write_text("told\n")
    (root / "src" / "new.txt").write_text("told\n")
    (root / "b.txt").unlink()
    saved = workspace.snapshot(["src/c.txt", "src/new.txt", "b.txt"])
    assert asked == [("src/c.txt", "src/new.txt", "b.txt")]
    assert saved.git == says(root)
    asked.clear()
    # Back to what is committed, and told of it.
    git(root, "checkout-index", "-f", "src/c.txt")
    saved = workspace.snapshot(["src/c.txt"])
    assert asked == [("src/c.txt",)]
    assert saved.git == says(root)
    (root / "src" / "new.txt").unlink()
    assert workspace.snapshot(["src/new.txt"]).git == says(root)


def test_what_is_staged_elsewhere_is_exact_in_a_told_save(root: Path) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    git(root, "mv", "b.txt", "moved.txt")
    (root / "a.txt").write_text("told\n")
    state = workspace.snapshot(["a.txt"]).git
    assert state == says(root)
    assert state is not None
    assert state.renamed == (("b.txt", "moved.txt"),)
    (root / "moved.txt").write_text("one\r\ntwo\r\nthree\r\n")
    assert workspace.snapshot(["moved.txt", "b.txt"]).git == says(root)


def test_our_own_store_is_invisible_to_the_users_git(root: Path) -> None:
    Workspace(root).snapshot()
    assert git(root, "status", "--porcelain") == "?? untracked.txt"
    assert os.listdir(root / ".agents") == ["workspace.git"]
