"""Bad input, damage and obstacles: typed errors, and the files as they were."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import (
    RestoreFailed,
    SnapshotCorrupt,
    SnapshotNotFound,
    WorkspaceBusy,
    WorkspaceError,
    WorkspaceRefused,
    WorkspaceUnavailable,
)
from holdfast.workspace.base import Snapshot
from holdfast.workspace.process import Git
from holdfast.workspace.store_settings import secure
from tests.workspace.children import run_python
from tests.workspace.pictures import (
    commit_all,
    git,
    make_repository,
    picture,
    picture_of_git,
    repository_view,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    make_repository(path)
    (path / ".gitignore").write_text(".agents/\n")
    (path / "sub").mkdir()
    (path / "sub" / "f").write_text("one\n")
    (path / "a.txt").write_text("one\n")
    (path / "noise").write_bytes(random.Random(4).randbytes(20_000))
    commit_all(path, "first")
    return path


# Damage ------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.chmod(0o600)
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, path.stat().st_size // 2)


def remove(path: Path) -> None:
    path.unlink()


def name_of(workspace: Workspace, snapshot: Snapshot, what: str) -> str:
    wanted = {"commit": snapshot.commit, "tree": snapshot.tree}
    if what in wanted:
        return wanted[what]
    path = {"subtree": "sub", "blob": "noise"}[what]
    return git(workspace.store_dir, "rev-parse", f"{snapshot.tree}:{path}")


@pytest.mark.parametrize("damage", [flip, truncate, remove], ids=lambda one: one.__name__)
@pytest.mark.parametrize("what", ["commit", "tree", "subtree", "blob"])
def test_a_damaged_object_touches_nothing(
    what: str, damage: Callable[[Path], None], root: Path
) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    for path in ("noise", "a.txt", "sub/f"):
        (root / path).write_text("two\n")
    later = workspace.snapshot()
    name = name_of(workspace, saved, what)
    damage(workspace.store_dir / "objects" / name[:2] / name[2:])
    before, own = picture(root), picture_of_git(root)
    every: list[dict[str, Any]] = [{}, {"move_head": True}, {"dry_run": True}]
    for options in every:
        with pytest.raises((SnapshotCorrupt, SnapshotNotFound)):
            workspace.restore(saved.commit, **options)
    assert (picture(root), picture_of_git(root)) == (before, own)
    assert workspace.recover() is None
    assert [one.commit for one in workspace.verify([saved.commit, later.commit])] == [saved.commit]
    # The others are as good as ever.
    (root / "a.txt").unlink()
    workspace.restore(later.commit)
    assert picture(root) == before


@pytest.mark.parametrize("damage", [flip, truncate, remove], ids=lambda one: one.__name__)
def test_a_damaged_pack_touches_nothing(damage: Callable[[Path], None], root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "noise").unlink()
    workspace.gc(lambda: [saved.commit])
    before, own = picture(root), picture_of_git(root)
    packs = list((workspace.store_dir / "objects" / "pack").glob("*.pack"))
    assert len(packs) == 1
    damage(packs[0])
    with pytest.raises((SnapshotCorrupt, SnapshotNotFound, WorkspaceError)):
        workspace.restore(saved.commit)
    assert (picture(root), picture_of_git(root)) == (before, own)
    assert [one.commit for one in workspace.verify([saved.commit])] == [saved.commit]


@pytest.mark.parametrize("damage", [flip, truncate], ids=lambda one: one.__name__)
@pytest.mark.parametrize("what", ["commit", "tree", "subtree", "blob"])
def test_objects_that_are_set_aside_are_stored_again(
    what: str, damage: Callable[[Path], None], root: Path
) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "more").write_text("more\n")
    later = workspace.snapshot()
    objects = workspace.store_dir / "objects"
    whole = {path for path in objects.rglob("*") if path.is_file()}
    name = name_of(workspace, saved, what)
    damage(objects / name[:2] / name[2:])
    assert Workspace(root).set_damaged_aside() == 1
    assert whole - {path for path in objects.rglob("*") if path.is_file()} == {
        objects / name[:2] / name[2:]
    }
    (root / "more").unlink()
    assert Workspace(root).snapshot().commit == saved.commit
    assert Workspace(root).verify([saved.commit, later.commit]) == []
    assert Workspace(root).set_damaged_aside() == 0
    workspace.gc(lambda: [saved.commit, later.commit])
    assert list(objects.rglob("tmp_obj_*")) == []


def packed(root: Path) -> tuple[Workspace, Snapshot, Snapshot]:
    """Return a workspace with two snapshots, all of whose objects are in one pack."""
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "more").write_bytes(random.Random(5).randbytes(20_000))
    (root / "noise").unlink()
    later = workspace.snapshot()
    workspace.gc(lambda: [saved.commit, later.commit])
    (root / "more").unlink()
    (root / "noise").write_bytes(random.Random(4).randbytes(20_000))
    return workspace, saved, later


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def damage_in_pack(workspace: Workspace, name: str) -> Path:
    """Damage one object of the only pack; return the pack."""
    (pack,) = (workspace.store_dir / "objects" / "pack").glob("*.pack")
    listed = git(workspace.store_dir, "verify-pack", "-v", str(pack.with_suffix(".idx")))
    words = next(line.split() for line in listed.splitlines() if line.startswith(name))
    data = bytearray(pack.read_bytes())
    data[int(words[4]) + int(words[3]) // 2] ^= 0x10
    pack.chmod(0o600)
    pack.write_bytes(data)
    return pack


@pytest.mark.parametrize("what", ["commit", "tree", "subtree", "blob"])
def test_of_a_damaged_pack_the_good_objects_stay(what: str, root: Path) -> None:
    workspace, saved, later = packed(root)
    pack = damage_in_pack(workspace, name_of(workspace, saved, what))
    before = workspace.verify([saved.commit, later.commit])
    # Both have the same subtree.
    others = [] if what == "subtree" else [later.commit]
    assert {one.commit for one in before} == {saved.commit, later.commit} - set(others)
    assert Workspace(root).set_damaged_aside() == 1
    assert not pack.exists()
    assert workspace.verify(others) == []
    assert Workspace(root).snapshot().commit == saved.commit
    assert workspace.verify([saved.commit, later.commit]) == []
    assert Workspace(root).set_damaged_aside() == 0
    workspace.gc(lambda: [saved.commit, later.commit])
    assert not [one for one in files_in(workspace.store_dir / "objects") if "tmp" in one]
    assert workspace.verify([saved.commit, later.commit]) == []


def test_a_kill_while_a_damaged_pack_is_set_aside_loses_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, saved, later = packed(root)
    damage_in_pack(workspace, name_of(workspace, saved, "blob"))
    rename, left = Path.rename, 0

    class Killed(BaseException):
        pass

    def renamed(path: Path, target: Path) -> Path:
        nonlocal left
        if not left:
            raise Killed
        left -= 1
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    # Each time one step further than the time before.
    for allowed in range(4):
        left = allowed
        with suppress(Killed):
            Workspace(root).set_damaged_aside()
        assert workspace.verify([later.commit]) == []
    monkeypatch.undo()
    assert Workspace(root).set_damaged_aside() == 0
    assert Workspace(root).snapshot().commit == saved.commit
    assert workspace.verify([saved.commit, later.commit]) == []


def test_nothing_is_set_aside_because_git_fails(root: Path) -> None:
    workspace, saved, _ = packed(root)
    damage_in_pack(workspace, name_of(workspace, saved, "blob"))
    before = files_in(workspace.store_dir / "objects")

    def fails(*arguments: Any, **options: Any) -> bytes:
        if "--batch" in arguments:
            raise WorkspaceUnavailable("git cat-file failed (128): fatal: Out of memory")
        return run(*arguments, **options)

    run = Git.run
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Git, "run", fails)
        with pytest.raises(WorkspaceUnavailable, match="memory"):
            workspace.set_damaged_aside()
    assert files_in(workspace.store_dir / "objects") == before


@pytest.mark.parametrize("part", [".pack", ".idx"])
def test_a_pack_that_git_cannot_open_stays_and_is_in_nobodys_way(part: str, root: Path) -> None:
    workspace, saved, _ = packed(root)
    (file,) = (workspace.store_dir / "objects" / "pack").glob(f"*{part}")
    truncate(file)
    assert workspace.set_damaged_aside() == 0
    assert file.exists()
    assert Workspace(root).snapshot().commit == saved.commit
    assert workspace.verify([saved.commit]) == []


def empty_head(store: Path) -> None:
    (store / "HEAD").write_bytes(b"")


def torn_head(store: Path) -> None:
    (store / "HEAD").write_bytes(bytes(21))


def no_references(store: Path) -> None:
    shutil.rmtree(store / "refs")


def empty_settings(store: Path) -> None:
    (store / "config").write_bytes(b"")


def no_head(store: Path) -> None:
    (store / "HEAD").unlink(missing_ok=True)


def no_settings(store: Path) -> None:
    (store / "config").unlink(missing_ok=True)


def neither_head_nor_settings(store: Path) -> None:
    no_head(store)
    no_settings(store)


def nothing_but_objects(store: Path) -> None:
    neither_head_nor_settings(store)
    shutil.rmtree(store / "refs")
    shutil.rmtree(store / "info")


@pytest.mark.parametrize("names", ["sha1", "sha256"])
@pytest.mark.parametrize(
    "damage",
    [
        empty_head, torn_head, no_references, empty_settings,
        no_head, no_settings, neither_head_nor_settings, nothing_but_objects,
    ],
    ids=lambda one: one.__name__,
)  # fmt: skip
def test_a_store_that_git_does_not_know_any_more_is_put_right(
    damage: Callable[[Path], None], names: str, tmp_path: Path
) -> None:
    """As after a power cut. No object is lost, and so nothing is."""
    root = tmp_path / "project"
    make_repository(root, f"--object-format={names}")
    (root / "a.txt").write_text("one\n")
    saved = Workspace(root).snapshot()
    home = Workspace(root).store_dir
    uses: list[Callable[[Workspace], Any]] = [
        lambda one: one.usage().objects > 0,
        lambda one: one.snapshots() <= {saved.commit},
        lambda one: one.unheld([saved.commit]) <= {saved.commit},
        lambda one: one.verify([saved.commit]) == [],
        lambda one: one.has(saved.commit),
        lambda one: one.absent([saved.commit]) == set(),
        lambda one: one.set_damaged_aside() == 0,
        lambda one: one.export_pack(saved.commit).startswith(b"PACK"),
        lambda one: one.read(saved.commit, "a.txt") == b"one\n",
        lambda one: one.diff(saved.commit, saved.commit) == [],
        lambda one: one.snapshot().tree == saved.tree,
        lambda one: one.restore(saved.commit, dry_run=True).changes == (),
    ]
    for use in uses:
        damage(home)
        assert use(Workspace(root))
    damage(home)
    assert Workspace(root).gc(lambda: [saved.commit]).snapshots == 0
    assert Workspace(root).snapshots() == {saved.commit}
    # By now they are in a pack.
    damage(home)
    assert Workspace(root).verify([saved.commit]) == []


def test_a_snapshot_that_cannot_be_read_is_not_there(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    other = git(workspace.store_dir, "commit-tree", saved.tree, stdin=b"not ours\n")
    newer = git(workspace.store_dir, "commit-tree", saved.tree, stdin=b'{"v": 99}\n')
    before = picture(root)
    for commit in (other, newer):
        assert not workspace.has(commit)
        with pytest.raises(SnapshotCorrupt):
            workspace.restore(commit)
    for commit in (saved.tree, "f" * 40, "f" * 64, "main", "-h", "f" * 39):
        with pytest.raises((SnapshotNotFound, SnapshotCorrupt)):
            workspace.restore(commit)
    assert picture(root) == before


# No room -----------------------------------------------------------------------------------------

_FILL = """
import resource
saved = Workspace(root).snapshot()
(root / "large").write_bytes(b"")
(root / "a.txt").write_text("two\\n")
Workspace(root).snapshot()
changed = picture(root)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    Workspace(root).restore(saved.commit)
except holdfast.errors.WorkspaceFull as error:
    assert "taken back" in str(error), error
else:
    raise AssertionError("there was room")
assert picture(root) == changed
assert Workspace(root).recover() is None
(root / "larger").write_bytes(os.urandom(390_000) * 1)
with open(root / "larger", "ab") as file:
    resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, resource.RLIM_INFINITY))
    file.write(os.urandom(300_000))
    file.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    Workspace(root).snapshot()
except holdfast.errors.WorkspaceFull:
    pass
else:
    raise AssertionError("there was room")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert Workspace(root).verify() == []
assert picture(root)["larger"]
Workspace(root).restore(saved.commit)
"""


def test_files_that_may_not_grow_stop_a_restore(root: Path) -> None:
    (root / "large").write_bytes(random.Random(5).randbytes(600_000))
    run_python(_FILL, root)


_FULL_DISK = """
import errno, random
workspace = Workspace(root)
(root / "large").write_bytes(random.Random(6).randbytes(500_000))
(root / "a.txt").write_text("one")
saved = workspace.snapshot()
(root / "large").unlink()
(root / "a.txt").write_text("two")
workspace.snapshot()
def fill(leave):
    with open(root.parent / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        size = file.tell()
        file.truncate(max(0, size - leave))
changed = picture(root)
outcomes = set()
for leave in range(0, 700_000, 60_000):
    fill(leave)
    try:
        report = workspace.restore(saved.commit)
    except (holdfast.errors.WorkspaceError) as error:
        outcomes.add(type(error).__name__)
        os.unlink(root.parent / "filler")
        workspace.recover()
        assert picture(root) == changed, (leave, error)
    else:
        outcomes.add("done")
        os.unlink(root.parent / "filler")
        assert (root / "a.txt").read_text() == "one"
        workspace.restore(report.safety)
        assert picture(root) == changed
    (root / "b.txt").write_text(str(leave))
    fill(leave // 40)
    try:
        workspace.snapshot()
    except holdfast.errors.WorkspaceFull:
        pass
    os.unlink(root.parent / "filler")
    (root / "b.txt").unlink()
    assert workspace.verify() == []
assert outcomes == {"done", "WorkspaceFull"}, outcomes
"""


_READ_ONLY = """
from holdfast.errors import WorkspaceUnavailable
workspace = Workspace(root)
[commit] = workspace.snapshots()
before = picture(root)
for act in (workspace.snapshot, lambda: workspace.restore(commit), workspace.recover):
    try:
        act()
    except WorkspaceUnavailable as error:
        assert "cannot be read or written" in str(error), error
    else:
        assert act == workspace.recover, act
assert picture(root) == before
assert workspace.read(commit, "a.txt") == b"one\\n"
"""


def run_on_disk(tmp_path: Path, work: str, *, mount: str) -> None:
    """Run a program on a disk, in a mount namespace that ends with the test."""
    script = tmp_path / "script.py"
    top = Path(__file__).parents[2]
    script.write_text(
        "import os, sys\nfrom pathlib import Path\nimport holdfast, holdfast.errors\n"
        "from holdfast import Workspace\nfrom tests.workspace.pictures import picture\n"
        f"root = Path({str(tmp_path / 'disk' / 'project')!r})\nroot.mkdir(exist_ok=True)\n{work}"
    )
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c",
         f"{mount} && exec '{sys.executable}' '{script}'"],
        env={**os.environ, "PYTHONPATH": f"{top}{os.pathsep}{top / 'src'}"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_full_disk_stops_everything_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    run_on_disk(tmp_path, _FULL_DISK, mount=f"mount -t tmpfs -o size=2m none '{disk}'")


def test_a_disk_that_is_only_read_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    root = disk / "project"
    root.mkdir(parents=True)
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    Workspace(root).snapshot()
    (root / "a.txt").write_text("two\n")
    mount = f"mount --bind '{disk}' '{disk}' && mount -o remount,bind,ro '{disk}'"
    run_on_disk(tmp_path, _READ_ONLY, mount=mount)


# The repository is in the way --------------------------------------------------------------------


def test_a_held_index_stops_a_move_before_anything_is_touched(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    commit_all(root)
    before = picture(root)
    (root / ".git" / "index.lock").touch()
    own = picture_of_git(root)
    for dry_run in (True, False):
        with pytest.raises(WorkspaceBusy):
            workspace.restore(saved.commit, move_head=True, dry_run=dry_run)
    assert (picture(root), picture_of_git(root)) == (before, own)
    workspace.restore(saved.commit)
    assert (root / "a.txt").read_text() == "one\n"


def test_an_index_that_is_taken_meanwhile_has_the_restore_taken_back(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    commit_all(root)
    (root / "new").write_text("new")
    before, own = picture(root), picture_of_git(root)
    lock = root / ".git" / "index.lock"

    def take(_: Snapshot) -> None:
        lock.touch()

    with pytest.raises(RestoreFailed, match="taken back"):
        workspace.restore(saved.commit, move_head=True, before=take)
    assert lock.exists()
    lock.unlink()
    assert (picture(root), picture_of_git(root)) == (before, own)
    assert workspace.recover() is None


@pytest.mark.parametrize("what", ["staged", "merge"])
def test_what_is_begun_in_the_repository_meanwhile_has_the_restore_taken_back(
    root: Path, what: str
) -> None:
    git(root, "checkout", "-q", "-b", "theirs")
    (root / "sub" / "f").write_text("theirs\n")
    commit_all(root)
    git(root, "checkout", "-q", "main")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("two\n")

    def begin(_: Snapshot) -> None:
        if what == "staged":
            (root / "noise").write_text("staged alone")
            git(root, "add", "noise")
        else:
            git(root, "merge", "-q", "--no-ff", "--no-commit", "theirs")
        stands.append(repository_view(root))

    stands: list[object] = []
    with pytest.raises(RestoreFailed, match="begun, in the git repository"):
        workspace.restore(saved.commit, move_head=True, before=begin)
    assert [repository_view(root)] == stands
    assert (root / "a.txt").read_text() == "two\n"
    assert not (root / ".git" / "index.lock").exists()
    assert workspace.recover() is None
    workspace.restore(saved.commit, move_head=True)
    assert (root / "a.txt").read_text() == "one\n"


def test_a_branch_that_is_held_has_the_restore_taken_back(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    commit_all(root)
    before, stands = picture(root), repository_view(root)
    lock = root / ".git" / "refs" / "heads" / "main.lock"
    lock.touch()
    with pytest.raises(RestoreFailed, match="taken back"):
        workspace.restore(saved.commit, move_head=True)
    lock.unlink()
    assert (picture(root), repository_view(root)) == (before, stands)
    assert not (root / ".git" / "index.lock").exists()
    assert workspace.recover() is None


def test_what_the_caller_raises_stops_the_restore_in_time(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    before, own = picture(root), picture_of_git(root)

    def refuse(_: Snapshot) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        workspace.restore(saved.commit, move_head=True, before=refuse)
    assert (picture(root), picture_of_git(root)) == (before, own)
    assert workspace.recover() is None


def test_a_merge_with_a_commit_that_is_gone_does_not_come_back(root: Path) -> None:
    git(root, "checkout", "-q", "-b", "theirs")
    (root / "a.txt").write_text("theirs\n")
    commit_all(root)
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "--no-commit", "theirs")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    git(root, "merge", "--abort")
    git(root, "branch", "-q", "-D", "theirs")
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    before, own = picture(root), picture_of_git(root)
    with pytest.raises(RestoreFailed, match="in the middle of a git operation"):
        workspace.restore(saved.commit, move_head=True)
    assert (picture(root), picture_of_git(root)) == (before, own)
    workspace.restore(saved.commit)
    assert (root / "a.txt").read_text() == "theirs\n"


def test_a_commit_that_is_gone_is_not_moved_to(root: Path) -> None:
    git(root, "checkout", "-q", "--orphan", "short-lived")
    commit_all(root)
    workspace = Workspace(root)
    saved = workspace.snapshot()
    git(root, "checkout", "-q", "main")
    git(root, "branch", "-q", "-D", "short-lived")
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    (root / "a.txt").write_text("two\n")
    before, own = picture(root), picture_of_git(root)
    with pytest.raises(RestoreFailed, match="no longer has commit"):
        workspace.restore(saved.commit, move_head=True)
    assert (picture(root), picture_of_git(root)) == (before, own)
    workspace.restore(saved.commit)
    assert (root / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("unborn", [True, False])
def test_a_repository_around_the_one_that_was_saved_is_not_moved(root: Path, unborn: bool) -> None:
    inner = root / "sub"
    make_repository(inner)
    (inner / ".agents").mkdir()
    if not unborn:
        commit_all(inner)
    workspace = Workspace(inner)
    assert workspace.root == inner
    saved = workspace.snapshot()
    (inner / "f").write_text("two\n")
    shutil.rmtree(inner / ".git")
    own = picture_of_git(root)
    report = workspace.restore(saved.commit, move_head=True)
    assert (inner / "f").read_text() == "one\n"
    assert picture_of_git(root) == own
    assert report.head is None
    assert [one.path for one in report.kept] == [".git"]
    around = workspace.snapshot()
    git(root, "checkout", "-q", "-b", "other")
    assert workspace.restore(around.commit, move_head=True).kept == ()
    assert git(root, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.parametrize("kind", ["submodule", "separate"])
def test_a_repository_whose_directory_is_elsewhere_is_moved(
    root: Path, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "elsewhere"
    if kind == "submodule":
        make_repository(place)
        git(place, "submodule", "--quiet", "add", str(root), "sub")
        place /= "sub"
    else:
        git(
            tmp_path, "clone", "-q", f"--separate-git-dir={tmp_path / 'git'}", str(root), str(place)
        )
    workspace = Workspace(place)
    saved = workspace.snapshot()
    before = git(place, "rev-parse", "HEAD")
    (place / "a.txt").write_text("two\n")
    commit_all(place)
    workspace.restore(saved.commit, move_head=True)
    assert git(place, "rev-parse", "HEAD") == before
    assert git(place, "status", "--porcelain") == ""


def test_a_branch_of_another_worktree_is_not_moved(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    git(root, "checkout", "-q", "-b", "other")
    git(root, "worktree", "add", "-q", str(root.parent / "second"), "main")
    (root / "a.txt").write_text("two\n")
    before = picture(root)
    with pytest.raises(RestoreFailed, match="another worktree"):
        workspace.restore(saved.commit, move_head=True)
    assert picture(root) == before


# Heads, branches and commits ---------------------------------------------------------------------


@pytest.mark.row("T16", "S4-16")
def test_commits_made_since_stay_reachable_and_are_reported(root: Path) -> None:
    hook = root / ".git" / "hooks"
    hook.mkdir()
    (hook / "pre-commit").write_text("#!/bin/sh\n")
    git(root, "branch", "other")
    (root / "a.txt").write_text("stashed\n")
    git(root, "stash", "-q")
    (root / "a.txt").write_text("dirty\n")
    (root / "staged").write_text("staged\n")
    git(root, "add", "staged")
    workspace = Workspace(root)
    saved = workspace.snapshot()
    files, stood = picture(root), repository_view(root)
    head = git(root, "rev-parse", "HEAD")
    second = commit_all(root, "second")
    (root / "sub" / "f").write_text("three\n")
    third = commit_all(root, "third")
    other = {name: one for name, one in picture_of_git(root).items() if name.startswith("hooks/")}

    report = workspace.restore(saved.commit, move_head=True)
    assert report.commits == (third, second)
    assert report.backup is not None
    assert report.head == f"HEAD moves from main at {third[:12]} to main at {head[:12]}"
    assert git(root, "rev-parse", report.backup) == third
    assert picture(root) == files
    assert repository_view(root) == stood
    kept = {name: one for name, one in picture_of_git(root).items() if name.startswith("hooks/")}
    assert kept == other
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    assert git(root, "log", "--format=%H", report.backup).split()[:2] == [third, second]


@pytest.mark.parametrize("version", ["2", "4"])
def test_an_index_that_was_moved_back_hides_no_change_of_the_same_moment(
    root: Path, version: str
) -> None:
    def write_at_once(text: str) -> None:
        (root / "a.txt").write_text(text)
        os.utime(root / "a.txt", (10_000, 10_000))

    git(root, "config", "core.trustCTime", "false")
    git(root, "update-index", "--index-version", version)
    write_at_once("two\n")
    git(root, "add", "a.txt")
    write_at_once("six\n")
    # Only the index's own time tells git now that it has to look into the file.
    os.utime(root / ".git" / "index", (10_000, 10_000))
    workspace = Workspace(root)
    saved = workspace.snapshot()
    git(root, "reset", "-q")
    workspace.restore(saved.commit, move_head=True)
    assert git(root, "status", "--porcelain") == "MM a.txt"
    assert "-two\n+six" in git(root, "diff", "a.txt")


@pytest.mark.parametrize("staged", [False, True])
def test_a_lock_that_a_power_cut_left_on_the_index_to_come_stops_no_move(
    root: Path, staged: bool
) -> None:
    workspace = Workspace(root)
    (root / "a.txt").write_text("two\n")
    if staged:
        git(root, "add", "a.txt")
    saved = workspace.snapshot()
    stood = repository_view(root)
    git(root, "add", "a.txt")
    commit_all(root)
    (root / ".git" / "holdfast-index.lock").write_bytes(b"half of")
    workspace.restore(saved.commit, move_head=True)
    assert repository_view(root) == stood
    assert not [*(root / ".git").glob("holdfast-*")]


@pytest.mark.parametrize(
    "elsewhere", ["refs/heads/topic", "refs/tags/v2", "refs/remotes/origin/main"]
)
def test_commits_that_another_branch_has_need_no_reference(root: Path, elsewhere: str) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("two\n")
    second = commit_all(root)
    (root / "a.txt").write_text("three\n")
    third = commit_all(root)
    git(root, "update-ref", elsewhere, third)
    report = workspace.restore(saved.commit, move_head=True)
    assert (report.commits, report.backup) == ((third, second), None)
    assert not git(root, "for-each-ref", "refs/holdfast")
    workspace.restore(report.safety, move_head=True)
    assert git(root, "rev-parse", "HEAD") == third
    git(root, "update-ref", elsewhere, second)
    report = workspace.restore(saved.commit, move_head=True)
    assert report.commits == (third, second)
    assert git(root, "rev-parse", str(report.backup)) == third


def test_commits_of_a_detached_head_are_kept_beside_those_of_the_branch(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "a.txt").write_text("on main\n")
    on_main = commit_all(root)
    git(root, "checkout", "-q", "--detach")
    (root / "a.txt").write_text("detached\n")
    on_none = commit_all(root)
    report = workspace.restore(saved.commit, move_head=True)
    assert set(report.commits) == {on_main, on_none}
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    for commit in (on_main, on_none):
        assert git(root, "for-each-ref", "--contains", commit, "refs/holdfast")


@pytest.mark.row("S4-05")
def test_a_snapshot_tells_where_the_repository_stands(root: Path) -> None:
    for name in ("gone", "moved", "staged-gone"):
        (root / name).write_text(f"{name}, long enough to be found again\n" * 3)
    commit_all(root)
    (root / "a.txt").write_text("dirty\n")
    (root / "gone").unlink()
    git(root, "mv", "moved", "renamed")
    git(root, "rm", "-q", "staged-gone")
    (root / "staged.bin").write_bytes(b"\0\1\2")
    git(root, "add", "staged.bin")
    (root / "untracked").write_text("u")
    (root / "untracked").chmod(0o700)
    (root / "link").symlink_to("nowhere")
    saved = Workspace(root).snapshot()
    assert saved.git is not None
    assert saved.git.commit == git(root, "rev-parse", "HEAD")
    assert len(saved.git.commit) == 40
    assert saved.git.branch == "main"
    assert saved.git.uncommitted
    assert set(saved.git.staged) == {"renamed", "staged-gone", "staged.bin"}
    assert set(saved.git.unstaged) == {"a.txt", "gone"}
    assert set(saved.git.untracked) == {"untracked", "link"}
    assert set(saved.git.deleted) == {"gone", "staged-gone"}
    assert saved.git.renamed == (("moved", "renamed"),)
    before = picture(root)
    for name in ("a.txt", "untracked", "link", "renamed", "staged.bin"):
        (root / name).unlink()
    Workspace(root).restore(saved.commit)
    assert picture(root) == before


# Parts, places and programs ----------------------------------------------------------------------


@pytest.mark.row("B5")
def test_a_part_is_restored_and_the_rest_left(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    for path in ("a.txt", "sub/f", "noise"):
        (root / path).write_text("two\n")
    (root / "sub" / "new").write_text("new")
    (root / "subordinate").write_text("another name that begins so")
    changed = picture(root)
    preview = workspace.restore(saved.commit, paths=["sub", "a.txt"], dry_run=True)
    assert {one.path for one in preview.changes} == {"a.txt", "sub/f", "sub/new"}
    assert picture(root) == changed
    report = workspace.restore(saved.commit, paths=["sub", "a.txt"])
    assert (root / "noise").read_text() == "two\n"
    assert (root / "a.txt").read_text() == (root / "sub" / "f").read_text() == "one\n"
    assert (root / "subordinate").exists()
    assert not (root / "sub" / "new").exists()
    undone = workspace.restore(report.safety)
    assert picture(root) == changed
    assert undone.landed == report.safety
    workspace.restore(undone.safety)
    assert (root / "sub" / "f").read_text() == "one\n"


def test_a_part_that_is_restored_leaves_the_directories_above_it_as_they_are(root: Path) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot()
    (root / "sub").chmod(0o700)
    (root / "sub" / "f").unlink()
    report = workspace.restore(saved.commit, paths=["sub/f"])
    assert (root / "sub" / "f").read_text() == "one\n"
    assert (root / "sub").stat().st_mode & 0o777 == 0o700
    assert report.modes == ()
    assert workspace.restore(saved.commit, paths=["sub"]).modes == ("sub",)
    assert (root / "sub").stat().st_mode & 0o777 == 0o755


@pytest.mark.row("T15")
def test_a_restore_from_a_subdirectory_writes_to_the_right_place(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "sub")
    saved = Workspace().snapshot()
    before = picture(root)
    (root / "sub" / "f").write_text("two\n")
    (root / "a.txt").unlink()
    workspace = Workspace(".")
    assert workspace.root == root
    workspace.restore(saved.commit)
    assert picture(root) == before
    assert os.listdir(root / "sub") == ["f"]


@pytest.mark.row("T19")
def test_without_git_it_says_so_and_without_a_repository_it_works(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "f").write_text("one")
    workspace = Workspace(plain)
    saved = workspace.snapshot()
    assert saved.git is None
    (plain / "f").write_text("two")
    report = workspace.restore(saved.commit, move_head=True)
    assert (plain / "f").read_text() == "one"
    assert report.head is None
    (plain / "f").write_text("three")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing-here"))
    for project in (plain, root):
        with pytest.raises(WorkspaceUnavailable, match="git is not installed"):
            Workspace(project).snapshot()
        with pytest.raises(WorkspaceUnavailable, match="git is not installed"):
            Workspace(project).restore(saved.commit)
        assert Workspace(project).git_state() is None
    assert (plain / "f").read_text() == "three"


def test_no_directory_of_a_store_is_a_project(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.snapshot()
    inside = workspace.store_dir / "objects" / "inner"
    inside.mkdir()
    for place in (workspace.store_dir, workspace.store_dir / "objects", inside):
        with pytest.raises(WorkspaceRefused):
            Workspace(place)


def test_nothing_is_removed_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only file system refuses even that, and its snapshots are to be read."""
    workspace = Workspace(tmp_path)
    workspace.snapshot()

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    secure(workspace.store_dir)
