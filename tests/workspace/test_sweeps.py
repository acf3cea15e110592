"""A sweep takes what nothing needs, all of it, and nothing else, whoever else is at work."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import WorkspaceBusy, WorkspaceFull, WorkspaceUnavailable
from holdfast.workspace import store_locks
from holdfast.workspace.base import Progress
from holdfast.workspace.private_store import PrivateStore
from tests.workspace.children import run_python
from tests.workspace.killing import Killer, killer
from tests.workspace.pictures import picture


@pytest.fixture(scope="module")
def deadly() -> Iterator[Killer]:
    with killer() as one:
        yield one


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "a").write_text("one")
    return path


def save(root: Path, number: int) -> str:
    (root / "noise").write_bytes(random.Random(number).randbytes(30_000))
    (root / f"file{number}").write_text(str(number))
    return Workspace(root).snapshot().commit


def test_orphans_are_swept_and_the_others_kept(root: Path) -> None:
    commits = [save(root, number) for number in range(8)]
    workspace = Workspace(root)
    other = Workspace(root, group="another")
    theirs = other.snapshot().commit
    before = workspace.usage()
    needed = commits[::3]
    preview = workspace.gc(lambda: needed, dry_run=True)
    assert (preview.snapshots, preview.dry_run) == (5, True)
    assert workspace.usage() == before
    swept = workspace.gc(lambda: needed)
    assert swept.snapshots == 5
    after = workspace.usage()
    assert before.bytes - after.bytes == swept.bytes
    assert swept.bytes > 100_000
    assert workspace.snapshots() == set(needed)
    assert other.snapshots() == {theirs}
    assert workspace.verify() == other.verify() == []
    for number, commit in enumerate(commits):
        # The last one is what the next capture builds on.
        assert workspace.has(commit) == (commit in (*needed, commits[-1]))
        if commit in needed:
            assert workspace.read(commit, f"file{number}") == str(number).encode()
    assert workspace.gc(lambda: needed).snapshots == 0
    assert workspace.gc(list).snapshots == 3


def test_a_project_that_went_back_can_be_saved_after_a_sweep(root: Path) -> None:
    workspace = Workspace(root)
    first = workspace.snapshot().commit
    second = save(root, 1)
    workspace.restore(first)
    before = picture(root)
    workspace.gc(lambda: [second])
    again = workspace.snapshot()
    assert again.commit == first
    assert workspace.verify([again.commit, second]) == []
    (root / "a").write_text("changed")
    workspace.restore(again.commit)
    assert picture(root) == before


def test_a_sweep_before_the_first_save_finds_nothing(root: Path) -> None:
    assert Workspace(root).gc(list).snapshots == 0
    assert not (root / ".agents").exists()


def test_sweeps_beside_saves_take_nothing_that_is_about_to_be_named(root: Path) -> None:
    run_python(
        """
names = root.parent / "names"
names.mkdir()
def needed():
    return [one.name for one in names.iterdir()]
children = []
for number in range(4):
    child = os.fork()
    if not child:
        workspace = Workspace(root)
        for turn in range(6):
            if number == 3:
                workspace.gc(needed)
                continue
            (root / f"file{number}").write_text(f"{number} {turn}")
            with workspace.saving():
                commit = workspace.snapshot().commit
                (names / commit).touch()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
workspace = Workspace(root)
assert len(needed()) >= 6
assert workspace.verify(needed()) == []
workspace.gc(needed)
assert workspace.verify(needed()) == []
assert workspace.snapshots() == set(needed())
""",
        root,
    )


def is_free(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def begin_sweep(threads: ThreadPoolExecutor, workspace: Workspace, order: list[str]) -> Future[Any]:
    """Begin a sweep, and return when it waits for whoever is saving."""

    def needed() -> set[str]:
        order.append("swept")
        return workspace.snapshots()

    sweep = threads.submit(workspace.gc, needed)
    end = time.monotonic() + 10
    while is_free(workspace.store_dir / "turn.lock"):
        assert time.monotonic() < end, "the sweep does not begin"
        time.sleep(0.01)
    return sweep


def test_a_sweep_that_waits_goes_before_saves_that_come_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or saves that overlap would keep it waiting for ever."""
    monkeypatch.setattr(store_locks, "COURTESY", 30.0)
    save(root, 0)
    workspace = Workspace(root)
    order: list[str] = []

    def goes_in() -> None:
        with workspace.saving():
            order.append("saved")

    with ThreadPoolExecutor() as threads:
        with workspace.saving():
            goes_in_beside = threads.submit(goes_in)
            goes_in_beside.result()
            sweep = begin_sweep(threads, workspace, order)
            late = threads.submit(goes_in)
        late.result()
        assert sweep.result().snapshots == 0
    assert order == ["saved", "swept", "saved"]


def test_a_save_goes_in_beside_sweeps_that_wait_for_somebody_else(root: Path) -> None:
    """A rollback, an import or a program that was stopped may keep them waiting for long."""
    save(root, 0)
    workspace = Workspace(root)
    store = PrivateStore(workspace.root, workspace.store_dir)
    order: list[str] = []

    def goes_in() -> None:
        with store.using(seconds=10):
            order.append("saved")

    with ThreadPoolExecutor() as threads:
        with workspace.saving():
            sweeps = [begin_sweep(threads, workspace, order) for _ in range(2)]
            threads.submit(goes_in).result()
            # A handler of a signal saves in the middle of another save.
            goes_in()
            assert order == ["saved", "saved"]
        assert [one.result().snapshots for one in sweeps] == [0, 0]


def test_a_sweep_that_gave_up_has_changed_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(root, 0)
    commit = save(root, 1)
    workspace = Workspace(root)
    with workspace.saving():
        before = picture(workspace.store_dir)
        with monkeypatch.context() as short:
            short.setattr(PrivateStore.using, "__kwdefaults__", {"alone": False, "seconds": 0.05})
            with pytest.raises(WorkspaceBusy, match="nothing was changed"):
                workspace.gc(list)
        assert picture(workspace.store_dir) == before
    assert workspace.gc(lambda: [commit]).snapshots == 1


@pytest.mark.parametrize("name", ["turn.lock", "use.lock"])
@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, WorkspaceFull), (errno.EIO, WorkspaceUnavailable)]
)
def test_a_lock_that_cannot_be_made_is_told_as_what_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, kind: type[Exception]
) -> None:
    save(root, 0)
    workspace = Workspace(root)
    truly = os.open

    def failing(path: str | Path, *arguments: Any, **options: Any) -> int:
        if str(path).endswith(name):
            raise OSError(number, os.strerror(number), str(path))
        return truly(path, *arguments, **options)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(kind, match=name), workspace.saving():
        raise AssertionError("there is no lock")
    with pytest.raises(kind, match=name):
        workspace.gc(list)


def test_what_goes_wrong_in_a_save_is_not_told_of_its_lock(root: Path) -> None:
    with pytest.raises(FileNotFoundError), Workspace(root).saving():
        (root / "missing").read_text()


def test_a_context_that_outlives_a_save_can_save_too(root: Path) -> None:
    """A task that is begun in a save, from its progress, has a copy of the save's context."""
    workspace = Workspace(root)
    contexts: list[Context] = []

    def work(progress: Progress | None = None) -> str:
        with workspace.saving():
            return workspace.snapshot(progress=progress).commit

    with ExitStack() as others:
        # Later the numbers of the locks' handles are nobody's.
        for _ in range(30):
            others.enter_context(open(os.devnull, "rb"))
        first = work(lambda *_: contexts.append(copy_context()))
    (root / "a").write_text("two")
    with ThreadPoolExecutor() as threads:
        second = threads.submit(contexts[0].run, work).result()
    assert workspace.read(second, "a") == b"two"
    assert workspace.read(first, "a") == b"one"


def test_a_sweep_finishes_a_killed_restore_first(root: Path, deadly: Killer) -> None:
    workspace = Workspace(root)
    saved = workspace.snapshot().commit
    new = picture(root)
    (root / "a").write_text("two")
    (root / "b").write_text("only in the safety snapshot")
    old = picture(root)
    number = 1
    while not (workspace.store_dir / "journal.json").exists():
        assert picture(root) == old
        assert deadly.attempt(root, "restore", saved, at=number)
        number += 1
    # Dead with its plan on disk. An attempt may find work that an earlier one left ready, so that this
    # one can also have come as far as its first move.
    workspace.gc(list)
    assert picture(root) == new
    assert not (workspace.store_dir / "journal.json").exists()
    assert workspace.verify([workspace.snapshot().commit]) == []


def sweep_killed(root: Path, deadly: Killer, *, stride: int) -> int:
    commits = [save(root, number) for number in range(5)]
    needed = [commits[1], commits[3]]
    attempts = 0
    number = 1
    while True:
        copy = root.parent / f"copy{number}"
        shutil.copytree(root, copy)
        killed = deadly.attempt(copy, "gc", needed, at=number)
        workspace = Workspace(copy)
        assert workspace.verify(needed) == []
        assert picture(copy) == picture(root)
        assert workspace.verify([workspace.snapshot().commit]) == []
        workspace.gc(lambda: needed)
        assert workspace.snapshots() == set(needed)
        assert workspace.verify() == []
        assert not workspace.has(commits[0])
        home = workspace.store_dir
        assert not [*home.rglob("tmp_*"), *home.rglob(".tmp-*"), *home.rglob("*.new")]
        assert len(list((home / "objects" / "pack").glob("*.pack"))) == 1
        shutil.rmtree(copy)
        if not killed:
            return attempts
        attempts += 1
        number += stride


def test_a_sweep_killed_at_any_step_is_made_up_for(root: Path, deadly: Killer) -> None:
    assert sweep_killed(root, deadly, stride=1) > 4
