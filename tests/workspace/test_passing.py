"""Snapshots of a store in memory are there as long as somebody has the store, and gone after that."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.workspace.passing import group_of, passed_groups
from tests.workspace.children import run_python


class InMemory:
    """Something that ends like a store in memory."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "a").write_text("one")
    return path


def sweep(root: Path, needed: Collection[str] = ()) -> int:
    return Workspace(root).gc(lambda: needed).snapshots


def locked_files(root: Path) -> list[str]:
    return [one.name for one in (root / ".agents" / "workspace.git").glob("passing-*")]


def test_they_go_with_the_last_who_has_the_store(root: Path) -> None:
    store, other = InMemory(), InMemory()
    first = Workspace(root, group=group_of(store)).snapshot().commit
    (root / "a").write_text("two")
    second = Workspace(root, group=group_of(other)).snapshot().commit
    # Whoever uses the same store has the same group.
    again = Workspace(root, group=group_of(store))
    assert again.snapshots() == {first}
    del again, other
    gc.collect()
    (root / "a").write_text("three")
    Workspace(root).snapshot()
    assert Workspace(root).gc(list, dry_run=True).snapshots == 2
    assert len(locked_files(root)) == 2
    assert sweep(root) == 2
    assert len(locked_files(root)) == 1
    workspace = Workspace(root, group=group_of(store))
    assert workspace.read(first, "a") == b"one"
    assert not workspace.has(second)
    assert workspace.gc(list).snapshots == 1


def test_a_process_that_goes_on_after_its_parent_keeps_them(root: Path) -> None:
    told = run_python(
        """
from holdfast.workspace.passing import group_of
class InMemory: pass
store = InMemory()
workspace = Workspace(root, group=group_of(store))
before = workspace.snapshot().commit
theirs, ours = os.pipe(), os.pipe()
if not os.fork():
    # The one that has forked ends here; what a daemon is begun by.
    os.close(ours[1])
    os.read(ours[0], 1)
    (root / "a").write_text("two")
    after = workspace.snapshot().commit
    (root / "a").write_text("three")
    Workspace(root).snapshot()
    assert Workspace(root).gc(list).snapshots == 1
    assert workspace.read(before, "a") == b"one"
    assert workspace.read(after, "a") == b"two"
    # What it has from before the fork it takes over.
    assert workspace.gc(lambda: [before]).snapshots == 1
    assert workspace.snapshots() == {before}
    print("kept", flush=True)
""",
        root,
    )
    assert told == "kept\n"
    assert sweep(root) > 0
    assert locked_files(root) == []


def test_two_processes_that_have_the_same_store_free_nothing_of_each_other(root: Path) -> None:
    run_python(
        """
from holdfast.workspace.passing import group_of
class InMemory: pass
store = InMemory()
workspace = Workspace(root, group=group_of(store))
before = workspace.snapshot().commit
if not (child := os.fork()):
    (root / "a").write_text("of the child")
    workspace.snapshot()
    (root / "a").write_text("of another")
    Workspace(root).snapshot()
    workspace.gc(list)
    os._exit(0)
(root / "b").write_text("of the parent")
own = workspace.snapshot().commit
assert os.waitpid(child, 0)[1] == 0
assert workspace.read(before, "a") == b"one"
assert workspace.read(own, "b") == b"of the parent"
""",
        root,
    )


def test_they_are_kept_where_the_private_store_was_made_anew(root: Path) -> None:
    store = InMemory()
    workspace = Workspace(root, group=group_of(store))
    workspace.snapshot()
    shutil.rmtree(workspace.store_dir)
    kept = workspace.snapshot().commit
    (root / "a").write_text("two")
    Workspace(root).snapshot()
    assert sweep(root) == 1
    assert workspace.read(kept, "a") == b"one"
    del store, workspace
    gc.collect()
    (root / "a").write_text("three")
    Workspace(root).snapshot()
    assert sweep(root) == 2
    assert locked_files(root) == []


def test_what_only_has_such_a_name_is_left_alone(root: Path) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    (workspace.store_dir / "passing-folder").mkdir()
    assert passed_groups(workspace.store_dir) == set()
    assert sweep(root, workspace.snapshots()) == 0
    assert (workspace.store_dir / "passing-folder").is_dir()


def test_no_handle_of_anybody_else_is_closed_with_the_store(root: Path) -> None:
    store = InMemory()
    Workspace(root, group=group_of(store)).snapshot()
    [name] = locked_files(root)
    open_now = Path("/proc/self/fd").iterdir()
    [handle] = [int(one.name) for one in open_now if Path(os.path.realpath(one)).name == name]
    # As one does who becomes a daemon.
    os.close(handle)
    with (root / "a").open("rb") as other:
        os.dup2(other.fileno(), handle)
    del store
    gc.collect()
    assert os.read(handle, 3) == b"one"
    os.close(handle)
