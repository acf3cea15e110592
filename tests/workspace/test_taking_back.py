"""A restore that stops anywhere is taken back: what it had deleted is there again, and nothing is blocked."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast import Workspace
from holdfast.errors import RestoreFailed, SnapshotCorrupt, WorkspaceUnavailable
from holdfast.workspace import apply, held, plan
from holdfast.workspace.details import Details
from holdfast.workspace.restore import Restore
from tests.workspace.children import project_of_nobody, run_python
from tests.workspace.pictures import git, picture

# The calls that change something. ``open`` does where it makes a file.
CHANGING: Final = ("mkdir", "rmdir", "rename", "unlink", "symlink", "chmod", "fchmod", "replace")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


class FailingSystem:
    """Stands for `os` in `apply`: the change with one number fails, or each that ``fails`` names."""

    def __init__(
        self, number: int | None = None, fails: Callable[[str, Any], bool] = lambda *_: False
    ) -> None:
        self.changes = 0
        self._number = number
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in (*CHANGING, "open"):
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            if name != "open" or arguments[1] & os.O_CREAT:
                self.changes += 1
                if self.changes == self._number or self._fails(name, arguments[0]):
                    raise OSError(errno.EIO, "the disk is unwell", str(arguments[0]))
            return real(*arguments, **options)

        return call


def swapped(root: Path) -> tuple[Workspace, str]:
    """Make a project in which nearly everything was replaced by something else since a snapshot."""
    (root / "was-folder" / "deep").mkdir(parents=True)
    (root / "was-folder" / "deep" / "f").write_text("then")
    (root / "was-file").write_text("then")
    (root / "was-link").symlink_to("nowhere")
    (root / "gone" / "below").mkdir(parents=True)
    (root / "gone" / "below" / "f").write_text("then")
    (root / "hollow" / "then").mkdir(parents=True)
    (root / "closed").mkdir()
    (root / "closed" / "f").write_text("then")
    (root / "closed").chmod(0o555)
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "was-folder" / "deep" / "f").unlink()
    (root / "was-folder" / "deep").rmdir()
    (root / "was-folder").rmdir()
    (root / "was-folder").write_text("now")
    (root / "was-file").unlink()
    (root / "was-file").mkdir()
    (root / "was-file" / "f").write_text("now")
    (root / "was-link").unlink()
    (root / "was-link").write_text("now")
    (root / "was-link").chmod(0o600)
    (root / "gone" / "below" / "f").unlink()
    (root / "gone" / "below").rmdir()
    (root / "gone").rmdir()
    (root / "hollow" / "then").rmdir()
    (root / "hollow" / "now").mkdir()
    (root / "closed").chmod(0o755)
    (root / "closed" / "f").write_text("now")
    (root / "new" / "below").mkdir(parents=True)
    (root / "new" / "below" / "f").write_text("only here")
    (root / "new" / "below" / "f").chmod(0o700)
    return workspace, then


@pytest.mark.parametrize("means", ["exchange", "rename"])
def test_a_failure_at_any_change_is_taken_back(
    root: Path, means: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if means == "rename":
        monkeypatch.setattr(held, "_renameat2", lambda: None)
    workspace, then = swapped(root)
    before = picture(root)
    count = FailingSystem()
    monkeypatch.setattr(apply, "os", count)
    monkeypatch.setattr(Restore, "_compare", refuse)
    with pytest.raises(RestoreFailed, match="taken back"):
        workspace.restore(then)
    assert picture(root) == before
    assert count.changes > 60
    monkeypatch.undo()
    if means == "rename":
        monkeypatch.setattr(held, "_renameat2", lambda: None)
    for number in range(1, count.changes // 2 + 1):
        monkeypatch.setattr(apply, "os", FailingSystem(number))
        try:
            report = workspace.restore(then)
        except RestoreFailed:
            report = None
        monkeypatch.setattr(apply, "os", os)
        if report is not None:
            # What failed was only tried, and is done in another way.
            workspace.restore(report.safety)
        assert picture(root) == before, number
        assert workspace.recover() is None


def refuse(*_: Any) -> None:
    raise RestoreFailed("not as it should be")


# Names that cannot be ------------------------------------------------------------------------------

LONG: Final = {
    "one name": "e" * 300,
    "below": f"new/{'e' * 300}/x",
    "the whole path": "/".join(["e" * 200] * 30),
}


def with_empty_folder(workspace: Workspace, path: str) -> str:
    """Return a snapshot of nothing but an empty directory, as a stranger may make one."""
    workspace.snapshot()
    tree = git(workspace.store_dir, "mktree", stdin=b"")
    message = Details(empty=[path]).to_message()
    return git(workspace.store_dir, "commit-tree", tree, stdin=message)


@pytest.mark.parametrize("kind", LONG)
def test_a_path_that_is_too_long_is_refused_before_anything_is_touched(
    root: Path, kind: str
) -> None:
    (root / "a.txt").write_text("mine")
    workspace = Workspace(root)
    hostile = with_empty_folder(workspace, LONG[kind])
    before = picture(root)
    for dry_run in (True, False):
        with pytest.raises(RestoreFailed, match=r"too long.*Nothing was changed"):
            workspace.restore(hostile, dry_run=dry_run)
    assert picture(root) == before
    blob = git(workspace.store_dir, "hash-object", "-w", "--stdin", stdin=b"x")
    tree = git(workspace.store_dir, "mktree", stdin=f"100644 blob {blob}\t{'n' * 300}\n".encode())
    hostile = git(workspace.store_dir, "commit-tree", tree, stdin=Details().to_message())
    with pytest.raises(RestoreFailed, match=r"too long.*Nothing was changed"):
        workspace.restore(hostile)
    assert picture(root) == before
    assert workspace.recover() is None


def test_a_name_for_which_there_are_no_bytes_is_refused(root: Path) -> None:
    (root / "a.txt").write_text("mine")
    workspace = Workspace(root)
    hostile = with_empty_folder(workspace, "\ud800")
    with pytest.raises(SnapshotCorrupt):
        workspace.restore(hostile)
    assert (root / "a.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["one name", "below"])
@pytest.mark.parametrize("killed", [False, True], ids=["at once", "by the next"])
def test_what_a_file_system_turns_out_not_to_take_is_taken_back(
    root: Path, kind: str, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("mine")
    (root / "was-folder").write_text("mine")
    workspace = Workspace(root)
    hostile = with_empty_folder(workspace, LONG[kind])
    before = picture(root)
    monkeypatch.setattr(plan, "first_too_long", lambda *_: None)
    if killed:
        monkeypatch.setattr(Restore, "_revert", lambda *_: None)
    with pytest.raises((RestoreFailed, WorkspaceUnavailable)):
        workspace.restore(hostile)
    assert (picture(root) == before) is not killed
    assert Workspace(root).recover() is None
    assert picture(root) == before
    assert not (workspace.store_dir / "journal.json").exists()
    assert workspace.snapshot().commit


# Failures on the way back --------------------------------------------------------------------------


def test_a_step_that_cannot_be_taken_back_stops_no_other(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, then = swapped(root)
    before = picture(root)
    monkeypatch.setattr(Restore, "_compare", refuse)
    monkeypatch.setattr(
        apply, "os", FailingSystem(fails=lambda name, what: (name, what) == ("rmdir", "below"))
    )
    # The way there makes `gone/below` and has to remove `new/below`, where it stops.
    with pytest.raises(RestoreFailed, match="taken back"):
        workspace.restore(then)
    assert picture(root) == before
    monkeypatch.setattr(
        apply, "os", FailingSystem(fails=lambda name, what: (name, what) == ("rmdir", "then"))
    )
    with pytest.raises(RestoreFailed, match="taking it back failed too"):
        workspace.restore(then)
    left = picture(root)
    assert {path: left[path] for path in before} == before
    assert left.keys() - before.keys() == {"hollow/then"}
    monkeypatch.undo()
    report = workspace.recover()
    assert report is not None
    assert (root / "was-file").read_text() == "then"
    workspace.restore(report.safety)
    assert picture(root) == before


def test_a_content_that_is_damaged_hides_no_other_on_the_way_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)
    hollow = workspace.snapshot().commit
    names = [f"file{number}" for number in range(6)]
    for name in names:
        (root / name).write_text(f"only here: {name}")

    def damage(*_: Any) -> None:
        for name in names[1::3]:
            blob = git(
                workspace.store_dir, "hash-object", "--stdin", stdin=f"only here: {name}".encode()
            )
            path = workspace.store_dir / "objects" / blob[:2] / blob[2:]
            path.chmod(0o600)
            path.write_bytes(b"damaged")
        refuse()

    monkeypatch.setattr(Restore, "_compare", damage)
    with pytest.raises(RestoreFailed, match="taking it back failed too"):
        workspace.restore(hollow)
    assert sorted(one.name for one in root.glob("file*")) == [
        name for name in names if name not in names[1::3]
    ]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_somebody_put_in_the_way_meanwhile_is_left_and_told(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_text("then")
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "d" / "f").unlink()
    (root / "d").rmdir()
    if kind == "file":
        (root / "e" / "below").mkdir(parents=True)
        (root / "e" / "f").write_text("mine")
    else:
        (root / "d").write_text("mine")

    def come_between(*_: Any) -> None:
        if kind == "file":
            (root / "e").write_text("theirs")
        else:
            (root / "d" / "theirs").write_text("theirs")
        refuse()

    monkeypatch.setattr(Restore, "_compare", come_between)
    with pytest.raises(RestoreFailed, match=r"taken back.*except for"):
        workspace.restore(then)
    assert workspace.recover() is None
    assert (root / ("e" if kind == "file" else "d/theirs")).read_text() == "theirs"


_CLOSED = """
from holdfast.workspace.details import Details
from tests.workspace.pictures import git
(root / "d" / "e").mkdir(parents=True)
(root / "d" / "e" / "f").write_text("then")
workspace = Workspace(root)
saved = workspace.snapshot()
(root / "d" / "e" / "f").write_text("mine")
(root / "extra").write_text("my only copy")
before = picture(root)
for closed in ({"d": 0}, {"d/e": 0}, {"d": 0o200, "d/e": 0o100}):
    message = Details(directories=closed).to_message()
    hostile = git(workspace.store_dir, "commit-tree", saved.tree, stdin=message)
    try:
        workspace.restore(hostile)
    except holdfast.errors.RestoreFailed as error:
        assert "taken back" in str(error), error
    else:
        raise AssertionError("nobody can read that")
    assert picture(root) == before
    assert workspace.recover() is None
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs POSIX users")
def test_a_directory_that_the_snapshot_closes_to_everybody_is_opened_again() -> None:
    with project_of_nobody() as root:
        run_python(_CLOSED, root, unprivileged=True)
