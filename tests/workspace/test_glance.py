"""A glance says unchanged only if a capture would find nothing new."""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.workspace import glance
from holdfast.workspace.base import Limits
from holdfast.workspace.glance import is_unchanged, remember


def git(project: Path, *arguments: str) -> None:
    who = ("-c", "user.name=someone", "-c", "user.email=someone@example.com")
    subprocess.run(["git", *who, *arguments], cwd=project, check=True, capture_output=True)


@pytest.fixture(params=["repository", "plain"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / ".agents").mkdir()
    (folder / ".agents" / "holdfast.toml").touch()
    for name in ("app.py", "src/one.py", "src/two.py"):
        (folder / name).write_text(name)
    if request.param == "repository":
        git(folder, "init", "-q", "-b", "main")
        (folder / ".gitignore").write_text("*.log\n.agents/\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "begin")
    return folder


def note(project: Path) -> dict[str, Any]:
    found = json.loads((project / ".agents/workspace.git/last.json").read_bytes())
    assert isinstance(found, dict)
    return found


def seen(project: Path) -> dict[str, Any]:
    """Capture the project, and return what a glance goes by."""
    Workspace(project).snapshot()
    known = remember(str(project), note(project))
    assert known is not None
    return json.loads(json.dumps(known))  # type: ignore[no-any-return]


def test_nothing_changed(project: Path) -> None:
    assert is_unchanged(str(project), seen(project))
    assert is_unchanged(str(project), seen(project))


CHANGES = {
    "content": lambda p: (p / "app.py").write_text("other"),
    "same size": lambda p: (p / "app.py").write_text("ppa.yp"),
    "permission": lambda p: (p / "app.py").chmod(0o700),
    "deleted": lambda p: (p / "src/one.py").unlink(),
    "new": lambda p: (p / "src/new.py").write_text(""),
    "new folder": lambda p: ((p / "more").mkdir(), (p / "more/new.py").write_text("")),
    "empty folder": lambda p: (p / "more").mkdir(),
    "renamed": lambda p: (p / "app.py").rename(p / "ppa.py"),
    "a link": lambda p: (p / "link").symlink_to("app.py"),
    "a link for a file": lambda p: ((p / "app.py").unlink(), (p / "app.py").symlink_to("x")),
    "permission of a folder": lambda p: (p / "src").chmod(0o700),
    "ignore rules": lambda p: (p / ".gitignore").write_text("src/\n"),
    "a repository inside": lambda p: git(p, "init", "-q", "inside"),
    "a folder becomes a repository": lambda p: git(p / "src", "init", "-q"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_seen(project: Path, change: Any) -> None:
    known = seen(project)
    change(project)
    assert not is_unchanged(str(project), known)


def test_what_moves_the_repository_is_seen(tmp_path: Path) -> None:
    project = tmp_path
    git(project, "init", "-q", "-b", "main")
    (project / "app.py").write_text("1")
    known = seen(project)
    for command in (
        ("add", "app.py"),
        ("commit", "-qm", "begin"),
        ("branch", "-m", "other"),
        ("commit", "--allow-empty", "-qm", "empty"),
        ("checkout", "-q", "--detach"),
    ):
        git(project, *command)
        assert not is_unchanged(str(project), known), command
        known = seen(project)
        assert is_unchanged(str(project), known), command


def test_a_glance_waits_for_no_pipe_that_git_reads(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = seen(project)
    monkeypatch.setattr(glance, "_SECONDS", 0.2)
    os.mkfifo(project / "src" / ".gitignore")
    assert not is_unchanged(str(project), known)


def test_what_is_left_out_is_no_change(project: Path) -> None:
    os.mkfifo(project / "pipe")
    (project / "ignored.log").write_text("x")
    (project / ".agents" / "more").write_text("ours")
    known = seen(project)
    assert is_unchanged(str(project), known)
    os.mkfifo(project / "src" / "another")
    assert is_unchanged(str(project), known)
    (project / "pipe").unlink()
    os.mkfifo(project / "pipe")
    assert not is_unchanged(str(project), known)


def test_what_a_glance_cannot_tell_is_left_to_a_capture(project: Path) -> None:
    assert not is_unchanged(str(project), None)
    (project / "hollow").mkdir()
    assert not is_unchanged(str(project), seen(project))
    (project / "hollow").rmdir()
    known = seen(project)
    (project / ".agents/workspace.git/index").write_bytes(b"junk")
    assert not is_unchanged(str(project), known)


def test_a_tracked_file_that_a_rule_ignores_is_seen_coming_back(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.log\n.agents/\n")
    (tmp_path / "kept.log").write_text("1")
    git(tmp_path, "add", "-f", ".gitignore", "kept.log")
    (tmp_path / "kept.log").unlink()
    known = seen(tmp_path)
    assert is_unchanged(str(tmp_path), known)
    (tmp_path / "kept.log").write_text("2")
    assert not is_unchanged(str(tmp_path), known)


def test_new_files_in_an_included_folder_are_seen(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("out/\n.agents/\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "one").write_text("1")
    Workspace(tmp_path, limits=Limits(include=("out", "missing.log"))).snapshot()
    known = remember(str(tmp_path), note(tmp_path))
    assert is_unchanged(str(tmp_path), known)
    (tmp_path / "out" / "two").write_text("2")
    assert not is_unchanged(str(tmp_path), known)


def test_within_another_repository_nothing_is_claimed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    below = tmp_path / "part"
    (below / ".agents").mkdir(parents=True)
    (below / ".agents" / "holdfast.toml").touch()
    Workspace(below).snapshot()
    assert remember(str(below), note(below)) is None


def filter_everything(git_dir: Path, mark: Path) -> None:
    """Have a repository run a program for every file that git reads."""
    with (git_dir / "config").open("a") as config:
        config.write(f'[filter "evil"]\n\tclean = "touch {mark}; cat"\n')
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text("* filter=evil\n")


@pytest.mark.parametrize("place", ["the store", "a submodule"])
def test_a_glance_at_a_store_that_somebody_wrote_runs_nothing(project: Path, place: str) -> None:
    store, mark = project / ".agents/workspace.git", project.parent / "executed"
    seen(project)
    if place == "the store":
        filter_everything(store, mark)
    else:
        inner = project / "inner"
        inner.mkdir()
        git(inner, "init", "-q")
        (inner / "file").write_text("x")
        git(inner, "add", "file")
        git(inner, "commit", "-qm", "begin")
        filter_everything(inner / ".git", mark)
        os.utime(inner / "file", (0, 0))
        link = f"160000,{read_text(inner / '.git/refs/heads')},inner"
        where = (f"--git-dir={store}", f"--work-tree={project}")
        git(project, *where, "update-index", "--add", "--cacheinfo", link)
    # Git reads files whose time is not before that of its index.
    os.utime(store / "index", (1, 1))
    is_unchanged(str(project), {"watched": [], "files": {}, "folders": {}, "included": []})
    assert not mark.exists()
    # Nor does a capture that takes the index for its own.
    known = note(project)
    index = os.lstat(store / "index")
    known["made_in"] = [os.stat(store).st_ino, index.st_ino, index.st_size, index.st_mtime_ns]
    (store / "last.json").write_text(json.dumps(known))
    Workspace(project).snapshot()
    assert not mark.exists()


def read_text(folder: Path) -> str:
    """Return what the only file of a directory says."""
    (file,) = folder.iterdir()
    return file.read_text().strip()


@pytest.mark.parametrize("seed", range(6))
def test_what_it_calls_unchanged_a_capture_finds_unchanged(project: Path, seed: int) -> None:
    chance = random.Random(seed)
    known, commit = seen(project), Workspace(project).snapshot().commit
    for _ in range(25):
        path = project / chance.choice(["app.py", "src/one.py", "src/x", "y.log", "src/deep/z"])
        match chance.randrange(5):
            case 0:
                path.parent.mkdir(exist_ok=True)
                path.write_text(str(chance.random()))
            case 1:
                path.unlink(missing_ok=True)
            case 2 if path.exists():
                path.chmod(chance.choice([0o600, 0o644, 0o755]))
            case 3 if path.exists():
                os.utime(path)
        unchanged = is_unchanged(str(project), known)
        now = Workspace(project).snapshot().commit
        assert now == commit or not unchanged
        commit = now
        known = remember(str(project), note(project)) or {}
