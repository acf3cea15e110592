"""Going back with `CheckpointManager`: git's position too, exactly, and never for good."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import CheckpointManager
from holdfast.errors import (
    CheckpointNotFound,
    DigestMismatch,
    NothingToUndo,
    SnapshotCorrupt,
    SnapshotNotFound,
)
from holdfast.manager import SyncCheckpointManager
from tests.manager.conftest import complete, files_of
from tests.workspace.pictures import commit_all, git, make_repository, repository_view


@pytest.mark.row("S4-03", "S4-17", "S4-18")
def test_a_rollback_gives_everything_back_and_names_every_path(project: Path) -> None:
    async def scenario() -> None:
        async with CheckpointManager(project) as manager:
            saved = await manager.create_checkpoint(name="before")
            before = files_of(project)
            complete(project, "auth-003")
            (project / "claude-progress.txt").write_bytes(b"other\r\n")
            (project / "src" / "app.ts").unlink()
            (project / "src" / "new.ts").write_text("new")
            (project / "tool.sh").chmod(0o700)
            planned = await manager.rollback(saved.id, dry_run=True)
            assert (project / "src" / "new.ts").exists()
            report = await manager.rollback(saved.id)
            assert files_of(project) == before
            assert report.paths == planned.paths == [
                "claude-progress.txt", "feature_list.json", "src/app.ts", "src/new.ts", "tool.sh",
            ]  # fmt: skip
            kinds = {one.path: one.kind for one in report.changes}
            assert (kinds["src/new.ts"], kinds["src/app.ts"]) == ("deleted", "added")
            assert report.checkpoint == saved

    asyncio.run(scenario())


@pytest.mark.row("S4-17", "S4-18")
@pytest.mark.parametrize("ignored", [False, True], ids=["untracked", "ignored"])
def test_feature_list_and_progress_file_come_and_go_as_they_did(
    project: Path, ignored: bool
) -> None:
    for name in ("feature_list.json", "claude-progress.txt"):
        git(project, "rm", "-q", "--cached", name)
    if ignored:
        (project / ".gitignore").write_text("feature_list.json\nclaude-progress.*\n")
    git(project, "commit", "-q", "-am", "untracked now")
    with SyncCheckpointManager(project) as manager:
        both = manager.create_checkpoint("both")
        before = files_of(project)
        (project / "feature_list.json").unlink()
        (project / "claude-progress.txt").unlink()
        neither = manager.create_checkpoint("neither")
        manager.rollback(both.id)
        assert files_of(project) == before
        manager.rollback(neither.id)
        assert not (project / "feature_list.json").exists()
        assert not (project / "claude-progress.txt").exists()


@pytest.mark.row("S4-18")
@pytest.mark.parametrize(
    ("pattern", "name"), [(None, "claude-progress.yaml"), ("notes/*.md", "notes/progress.md")]
)
def test_an_ignored_progress_file_that_appeared_later_comes_back(
    project: Path, pattern: str | None, name: str
) -> None:
    (project / ".gitignore").write_text("claude-progress.*\nnotes/\n")
    written = project / name
    with SyncCheckpointManager(project, progress=pattern) as manager:
        manager.create_checkpoint("before there was one")
        written.parent.mkdir(exist_ok=True)
        written.write_text("step 1")
        saved = manager.create_checkpoint("first step")
        written.write_text("step 2, broken")
        assert name in manager.rollback(saved.id).paths
        assert written.read_text() == "step 1"
        written.unlink()
        manager.rollback(saved.id)
        assert written.read_text() == "step 1"
    with SyncCheckpointManager(project, progress=pattern) as manager:
        (project / "src" / "app.ts").write_text("other\n")
        written.write_text("step 3")
        manager.rollback(saved.id)
        assert written.read_text() == "step 1"
        beside = written.with_name(f"{written.stem}.old{written.suffix}")
        beside.write_text("made later")
        other = written.with_suffix(".bin")
        other.write_text("left alone")
        manager.rollback("before there was one")
        assert not beside.exists()
        assert not written.exists()
        assert other.exists() == (pattern is not None)
        manager.undo()
        assert (beside.read_text(), written.read_text()) == ("made later", "step 1")
        assert other.read_text() == "left alone"


@pytest.mark.row("S4-04", "S4-20")
def test_the_latest_is_never_what_a_rollback_stored_for_itself(
    project: Path, manager: SyncCheckpointManager
) -> None:
    with pytest.raises(CheckpointNotFound):
        manager.rollback_to_latest()
    first = manager.create_checkpoint("first")
    (project / "src" / "app.ts").write_text("second\n")
    second = manager.create_checkpoint("second", type="automatic")
    (project / "src" / "app.ts").write_text("third\n")
    prior = files_of(project)
    report = manager.rollback_to_latest()
    assert report.checkpoint == second
    assert (project / "src" / "app.ts").read_text() == "second\n"
    assert report.safety not in (None, first.id, second.id)
    assert manager.get_checkpoint(str(report.safety)).files
    again = manager.rollback_to_latest()
    assert again.checkpoint == second
    assert again.paths == []
    manager.undo()
    manager.undo()
    assert files_of(project) == prior
    with pytest.raises(NothingToUndo):
        manager.undo()


@pytest.mark.row("S4-15")
@pytest.mark.parametrize("what", ["files", "state"])
def test_a_damaged_checkpoint_is_refused_untouched_and_a_good_one_named(
    project: Path, manager: SyncCheckpointManager, what: str
) -> None:
    with SyncCheckpointManager(project) as before_that:
        good = before_that.create_checkpoint("good")
        (project / "src" / "app.ts").write_text("a unique line of text\n" * 20)
        if what == "state":
            (project / "claude-progress.txt").write_bytes(os.urandom(40_000))
        bad = before_that.create_checkpoint("bad")
    if what == "files":
        store = project / ".agents" / "workspace.git"
        blob = git(project, "hash-object", "src/app.ts")
        for path in store.rglob(blob[2:]):
            path.chmod(0o600)
            path.write_bytes(b"rotten")
    else:
        import apsw

        database = apsw.Connection(str(project / ".agents" / "sessions.db"))
        database.execute(
            "UPDATE chunks SET data = zeroblob(length(data)) WHERE length(data) > 1000"
        )
        database.close()
    (project / "src" / "app.ts").write_text("now\n")
    before, where = files_of(project), repository_view(project)
    with pytest.raises(
        (SnapshotCorrupt, DigestMismatch), match="nearest good checkpoint is 'good'"
    ):
        manager.rollback(bad.id)
    assert files_of(project) == before
    assert repository_view(project) == where
    assert [one.id for one in manager.list_checkpoints()] == [bad.id, good.id]
    if what == "state":
        (listed, _) = manager.list_checkpoints()
        assert listed.problem is not None
    manager.rollback(good.id)
    assert (project / "src" / "app.ts").read_text() == "export {}\n"


@pytest.mark.row("S4-16", "S4-20")
def test_head_branch_index_and_dirt_come_back_and_later_commits_stay_reachable(
    project: Path, manager: SyncCheckpointManager
) -> None:
    git(project, "branch", "other")
    (project / "src" / "app.ts").write_text("stashed\n")
    git(project, "stash", "push", "-q")
    (project / ".git" / "hooks").mkdir(exist_ok=True)
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    (project / "src" / "app.ts").write_text("staged\n")
    git(project, "add", "-A")
    (project / "src" / "app.ts").write_text("dirty\n")
    then, dirt = repository_view(project), files_of(project)
    saved = manager.create_checkpoint("before")
    later = [commit_all(project, "second")]
    git(project, "switch", "-q", "-c", "topic")
    (project / "more.txt").write_text("more\n")
    git(project, "switch", "-q", "main")
    later.append(commit_all(project, "third"))
    now, prior = repository_view(project), files_of(project)
    report = manager.rollback(saved.id)
    found = repository_view(project)
    assert files_of(project) == dirt
    assert {key: found[key] for key in ("head", "status", "index", "stash")} == {
        key: then[key] for key in ("head", "status", "index", "stash")
    }
    assert git(project, "rev-parse", "HEAD") == saved.git_state["commit_hash"]
    assert set(report.commits) == set(later)
    assert git(project, "rev-parse", str(report.backup)) == later[-1]
    assert git(project, "rev-parse", "topic") == later[0], "a branch made since stays"
    assert not (project / "ran").exists()
    manager.undo()
    assert repository_view(project) == now
    assert files_of(project) == prior


@pytest.mark.row("S4-19")
def test_later_files_go_but_ignored_ones_and_what_lies_outside_stay(
    project: Path, manager: SyncCheckpointManager, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "dear.txt").write_text("dear\n")
    saved = manager.create_checkpoint("before")
    (project / ".env").write_text("SECRET=1\n")
    (project / "debug.log").write_text("ignored\n")
    (project / "tmp" / "deep").mkdir(parents=True)
    (project / "tmp" / "deep" / "scratch").write_text("x")
    (project / "link").symlink_to(outside)
    listed = manager.rollback(saved.id, dry_run=True)
    assert listed.paths == ["link", "tmp/deep/scratch"]
    manager.rollback(saved.id)
    assert not (project / "tmp").exists()
    assert not os.path.lexists(project / "link")
    assert (outside / "dear.txt").read_text() == "dear\n"
    assert (project / ".env").read_text() == "SECRET=1\n"
    assert (project / "debug.log").exists()


KILLED = """
import os, signal, sys
from holdfast.manager import SyncCheckpointManager
from holdfast.workspace import {module} as module

original = getattr(module.{owner}, {name!r})

def kill(*args, **kwargs):
    if {after}:
        original(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module.{owner}, {name!r}, kill)
SyncCheckpointManager(sys.argv[1]).rollback(sys.argv[2])
"""


@pytest.mark.row("S4-21")
@pytest.mark.parametrize(
    ("module", "owner", "name", "after", "done"),
    [
        ("git", "Workspace", "restore", False, False),
        pytest.param("restore", "Applier", "carry_out", False, True, marks=pytest.mark.slow),
        pytest.param("restore", "Applier", "carry_out", True, True, marks=pytest.mark.slow),
        ("restore", "Mover", "move", True, True),
    ],
    ids=["before", "files to come", "files done", "head moved"],
)
def test_a_killed_rollback_is_finished_or_never_happened(
    project: Path, module: str, owner: str, name: str, after: bool, done: bool
) -> None:
    with SyncCheckpointManager(project) as manager:
        saved = manager.create_checkpoint("before")
        target = files_of(project)
        (project / "src" / "app.ts").write_text("later\n")
        (project / "more.txt").write_text("more\n")
        commit = commit_all(project, "later")
        prior = files_of(project)
    program = KILLED.format(module=module, owner=owner, name=name, after=after)
    process = subprocess.run([sys.executable, "-c", program, project, saved.id], check=False)
    assert process.returncode == -signal.SIGKILL
    with SyncCheckpointManager(project) as manager:
        next_one = manager.create_checkpoint("next")
        assert files_of(project) == (target if done else prior)
        head = str(saved.git_state["commit_hash"]) if done else commit
        assert next_one.git_state["commit_hash"] == git(project, "rev-parse", "HEAD") == head
        if done:
            manager.undo()
            assert files_of(project) == prior
            assert git(project, "rev-parse", "HEAD") == commit


@pytest.mark.row("S4-34")
def test_a_project_without_git_rolls_back_its_files(tmp_path: Path) -> None:
    project = tmp_path / "plain"
    project.mkdir()
    (project / "a.txt").write_text("a\n")
    with SyncCheckpointManager(project) as manager:
        saved = manager.create_checkpoint("before")
        assert saved.git_state == {"commit_hash": None, "branch": None, "dirty_files": []}
        before = files_of(project)
        (project / "a.txt").write_text("b\n")
        (project / "new").write_text("x")
        prior = files_of(project)
        report = manager.rollback(saved.id)
        assert files_of(project) == before
        assert (report.head, report.backup, report.commits) == (None, None, ())
        manager.undo()
        assert files_of(project) == prior


@pytest.mark.row("S4-34")
def test_a_submodule_is_captured_file_by_file(project: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    make_repository(library)
    (library / "lib.txt").write_text("one\n")
    commit_all(library)
    git(project, "submodule", "-q", "add", str(library), "library")
    commit_all(project, "with a submodule")
    inside = project / "library"
    with SyncCheckpointManager(project) as manager:
        (inside / "lib.txt").write_text("dirty\n")
        saved = manager.create_checkpoint("before")
        before = files_of(project)
        (inside / "lib.txt").write_text("other\n")
        (inside / "extra.txt").write_text("extra\n")
        prior = files_of(project)
        report = manager.rollback(saved.id)
        assert report.paths == ["library/extra.txt", "library/lib.txt"]
        assert files_of(project) == before
        manager.undo()
        assert files_of(project) == prior
    assert git(inside, "rev-parse", "HEAD") == git(library, "rev-parse", "HEAD")


@pytest.mark.row("S4-34")
def test_without_the_git_command_the_state_is_saved_and_a_rollback_says_why_not(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("git") is None
    with SyncCheckpointManager(project) as manager:
        saved = manager.create_checkpoint("blind")
        assert not saved.files
        assert "git is not installed" in str(saved.problem)
        folder = project / ".claude" / "checkpoints" / saved.id
        assert (folder / "feature_list.json").read_bytes() == (
            project / "feature_list.json"
        ).read_bytes()
        before = files_of(project)
        with pytest.raises(SnapshotNotFound, match=r"git is not installed.*Nothing was changed"):
            manager.rollback(saved.id)
        assert files_of(project) == before
        with pytest.raises(RuntimeError) as failed, manager.guard("blind"):
            raise RuntimeError("no")
        assert any("saved without files" in note for note in failed.value.__notes__)
