"""What a checkpoint records about the user's repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.workspace.base import GitState
from holdfast.workspace.repository import read_git_state


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=repository, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project with space"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("one\n")
    git(root, "add", "a.txt")
    git(root, "commit", "-q", "-m", "first")
    return root


def read(root: Path) -> GitState:
    state = read_git_state(root)
    assert state is not None
    return state


def stand(root: Path) -> tuple[str | None, str | None, bool, bool]:
    state = read(root)
    return state.branch, state.commit, state.uncommitted, state.detached


@pytest.mark.row("S1-50")
def test_six_states_of_a_repository(repository: Path, tmp_path: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert stand(repository) == ("main", head, False, False)
    (repository / "b.txt").write_text("untracked")
    assert read(repository).uncommitted
    git(repository, "add", "b.txt")
    assert read(repository).uncommitted
    git(repository, "commit", "-q", "-m", "second")
    (repository / "a.txt").write_text("changed\n")
    assert stand(repository) == ("main", git(repository, "rev-parse", "HEAD"), True, False)
    git(repository, "checkout", "-q", "--", "a.txt")
    git(repository, "checkout", "-q", "--detach")
    assert stand(repository) == (None, git(repository, "rev-parse", "HEAD"), False, True)
    outside = tmp_path / "plain"
    outside.mkdir()
    assert read_git_state(outside) is None


def test_an_unborn_branch_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk")
    assert stand(tmp_path) == ("trunk", None, False, False)


@pytest.mark.row("S1-69")
def test_a_checkpoint_records_branch_and_dirtiness(repository: Path) -> None:
    (repository / "sub").mkdir()
    with SessionManager.open(project_dir=repository / "sub") as manager:
        session = manager.create_session("a")
        (repository / "new.txt").write_text("new\n")
        saved = session.save_checkpoint("dirty", state={})
        git(repository, "add", "new.txt")
        git(repository, "commit", "-q", "-m", "new")
        # What Holdfast itself keeps in .agents is nothing that the user could commit.
        clean = session.save_checkpoint("clean", state={})
    assert (saved.git_branch, saved.git_uncommitted) == ("main", True)
    assert (clean.git_branch, clean.git_uncommitted) == ("main", False)
    assert clean.git_commit == git(repository, "rev-parse", "HEAD")


def test_a_partial_clone_fetches_nothing(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    sprung = tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch '{sprung}'\n")
    trap.chmod(0o755)
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    for key, value in (
        ("core.repositoryformatversion", "1"), ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(tmp_path)), ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", f"{trap} #"),
    ):  # fmt: skip
        git(repository, "config", key, value)
    read_git_state(repository)
    assert not sprung.exists()


def test_nothing_that_a_repository_names_is_run(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    sprung = tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch '{sprung}'\ncat\n")
    trap.chmod(0o755)
    (repository / "b.txt").write_text("two\n")
    git(repository, "add", "b.txt")
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.process", "diff.external"):
        git(repository, "config", key, str(trap))
    git(repository, "config", "filter.evil.required", "true")
    with (repository / ".git" / "config").open("a") as config:
        config.write(f'[filter "a=b"]\n\tclean = {trap}\n\trequired = true\n')
    (repository / "b.txt").write_text("TWO\n")
    (repository / ".gitattributes").write_text("a.txt filter=evil diff=evil\nb.txt filter=a=b\n")
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.write_text(trap.read_text())
    hook.chmod(0o755)
    (repository / "a.txt").write_text("changed, same size?\n")
    before = (repository / ".git" / "index").read_bytes()
    assert read(repository).uncommitted
    assert not sprung.exists()
    assert (repository / ".git" / "index").read_bytes() == before
