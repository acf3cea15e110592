"""What has to outlast a power cut is on the disk in time: seen by the calls that put it there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.workspace import apply, process
from holdfast.workspace.environment import inherited
from holdfast.workspace.incoming import Incoming
from holdfast.workspace.journal import JOURNAL
from holdfast.workspace.notes import Notes
from tests.workspace.pictures import commit_all, git, make_repository


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


class Synced:
    """Which files and directories were synced, by what they are and not by their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.everything = 0
        real = os.fsync

        def fsync(handle: int) -> None:
            looked = os.fstat(handle)
            self.seen.add((looked.st_dev, looked.st_ino))
            real(handle)

        def sync() -> None:
            self.everything += 1

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "sync", sync)

    def has(self, path: Path) -> bool:
        looked = path.lstat()
        return (looked.st_dev, looked.st_ino) in self.seen


# Restores ------------------------------------------------------------------------------------------


@pytest.fixture
def at_the_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Have something called, with nothing, just before the journal of a restore is removed."""
    checks: list[Any] = []
    remove = Notes.remove

    def checked(self: Notes, name: str) -> None:
        if name == JOURNAL:
            for check in checks:
                check()
            checks.clear()
        remove(self, name)

    monkeypatch.setattr(Notes, "remove", checked)
    yield checks
    assert checks == []


def test_contents_names_and_permissions_are_synced_before_the_journal_goes(
    root: Path, at_the_end: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("kept", "gone/deep", "modes", "links", "hollow/then", "quiet"):
        (root / folder).mkdir(parents=True)
        (root / folder / "f").write_text("then")
    (root / "hollow" / "then" / "f").unlink()
    (root / "links" / "link").symlink_to("nowhere")
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "kept" / "f").write_text("now")
    (root / "gone" / "deep" / "f").unlink()
    (root / "gone" / "deep").rmdir()
    (root / "gone" / "f").unlink(missing_ok=True)
    (root / "gone").rmdir()
    (root / "modes" / "f").chmod(0o600)
    (root / "quiet").chmod(0o700)
    (root / "links" / "link").unlink()
    (root / "hollow" / "then").rmdir()
    (root / "new").mkdir()
    (root / "new" / "f").write_text("now")
    synced = Synced(monkeypatch)

    def check() -> None:
        wanted = (
            "", "kept", "kept/f", "gone", "gone/deep", "gone/deep/f", "modes/f", "quiet", "links",
            "hollow",
        )  # fmt: skip
        assert [path for path in wanted if not synced.has(root / path)] == []
        assert not synced.has(root / "quiet" / "f")
        assert synced.everything == 0

    at_the_end.append(check)
    workspace.restore(then)


def test_what_is_taken_back_is_synced_too(
    root: Path, at_the_end: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "d").mkdir()
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "d" / "f").write_text("only here")

    def fail(*_: Any) -> None:
        raise OSError("not to be")

    monkeypatch.setattr("holdfast.workspace.restore.Restore._compare", fail)
    synced = Synced(monkeypatch)

    def check() -> None:
        assert synced.has(root / "d" / "f")
        assert synced.has(root / "d")

    at_the_end.append(check)
    with pytest.raises(Exception, match="taken back"):
        workspace.restore(then)


@pytest.mark.parametrize("kind", ["files", "directories"])
def test_very_many_are_synced_at_once(
    root: Path, kind: str, at_the_end: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "_SYNC_EACH", 3)
    for number in range(5):
        if kind == "files":
            (root / f"f{number}").write_text("then")
        else:
            (root / f"d{number}" / "inner").mkdir(parents=True)
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    for path in list(root.rglob("f?")) + list(root.rglob("inner")):
        path.unlink() if path.is_file() else path.rmdir()
    synced = Synced(monkeypatch)

    def check() -> None:
        assert synced.everything == 1

    at_the_end.append(check)
    workspace.restore(then)


# Captures ------------------------------------------------------------------------------------------


def test_what_makes_a_store_of_a_directory_is_synced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)
    synced = Synced(monkeypatch)
    workspace.snapshot()
    home = workspace.store_dir
    assert [one for one in ("config", "HEAD", "", "..") if not synced.has(home / one)] == []


def test_snapshots_can_be_read_where_a_power_cut_emptied_what_makes_them_a_store(
    root: Path,
) -> None:
    (root / "f").write_text("then")
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / "f").write_text("now")
    for name in (
        "HEAD",
        "config",
        "index",
        "last.json",
        "info/exclude",
        "incoming/info/alternates",
    ):
        (workspace.store_dir / name).write_bytes(b"")
    workspace.restore(then)
    assert (root / "f").read_text() == "then"


@pytest.mark.parametrize("said", [b"0of-an-earlier-boot", b""])
def test_what_a_power_cut_left_of_a_save_is_not_in_the_way_of_the_next(
    root: Path, said: bytes
) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    home = workspace.store_dir
    (home / "work.lock").write_bytes(said)
    left = [home / "refs" / "last.lock", home / "packed-refs.lock", home / "last.json.new"]
    for path in left:
        path.touch()
    (root / "f").write_text("new")
    workspace.snapshot()
    assert [path for path in left if path.exists()] == []


class Traced:
    """How often each command of git synced in what way, by its own account."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        variables = inherited() | {"GIT_TRACE2_EVENT": str(path)}
        monkeypatch.setattr(process, "inherited", lambda: variables)

    def counted(self) -> dict[tuple[str, str], int]:
        """Return the counts since this was last asked, by command and way."""
        commands: dict[str, str] = {}
        found: dict[tuple[str, str], int] = {}
        for line in self._path.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "start":
                commands[event["sid"]] = event["argv"][1]
            elif event.get("category") == "fsync":
                key = (commands[event["sid"]], event["key"])
                found[key] = found.get(key, 0) + int(event["value"])
        self._path.unlink()
        return found


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traced:
    return Traced(tmp_path / "trace", monkeypatch)


def test_git_sends_every_object_to_the_disk_and_syncs_the_reference(
    root: Path, traced: Traced
) -> None:
    (root / "f").write_text("one")
    Workspace(root).snapshot()
    counted = traced.counted()
    for command in ("update-index", "write-tree", "commit-tree"):
        assert counted[command, "fsync/writeout-only"] == 1
    assert counted["update-ref", "fsync/hardware-flush"] >= 1


def test_told_files_and_their_directories_are_sent_to_the_disk(root: Path, traced: Traced) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").write_text("one")
    workspace = Workspace(root)
    workspace.snapshot()
    (root / "a" / "b" / "f").write_text("two")
    traced.counted()
    workspace.snapshot(paths=["a/b/f"])
    counted = traced.counted()
    assert counted["hash-object", "fsync/writeout-only"] == 4
    assert counted["commit-tree", "fsync/writeout-only"] == 1


def test_what_is_staged_is_sent_to_the_disk(root: Path, traced: Traced) -> None:
    make_repository(root)
    (root / "f").write_text("one")
    git(root, "add", "f")
    (root / "f").write_text("two")
    Workspace(root).snapshot()
    counted = traced.counted()
    # The staged content; the index as it was, and a directory with both.
    assert counted["unpack-objects", "fsync/writeout-only"] == 1
    assert counted["hash-object", "fsync/writeout-only"] == 2
    assert counted["commit-tree", "fsync/writeout-only"] == 2


# Moves ---------------------------------------------------------------------------------------------


def test_a_moved_repository_is_synced_before_the_journal_goes(
    root: Path, at_the_end: list[Any], traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(root)
    (root / "f").write_text("one")
    commit_all(root)
    (root / ".git" / "MERGE_MSG").write_text("half a merge")
    workspace = Workspace(root)
    then = workspace.snapshot().commit
    (root / ".git" / "MERGE_MSG").unlink()
    git(root, "checkout", "-q", "-b", "other")
    git(root, "commit", "-q", "--allow-empty", "-m", "two")
    synced = Synced(monkeypatch)
    traced.counted()

    def check() -> None:
        wanted = ("", "HEAD", "MERGE_MSG", "index", "refs/heads")
        assert [one for one in wanted if not synced.has(root / ".git" / one)] == []

    at_the_end.append(check)
    workspace.restore(then, move_head=True)
    assert git(root, "symbolic-ref", "HEAD") == "refs/heads/main"
    git(root, "commit", "-q", "--allow-empty", "-m", "three")
    traced.counted()
    workspace.restore(then, move_head=True)
    # The branch, and what keeps the commit that it leaves.
    assert traced.counted()["update-ref", "fsync/hardware-flush"] >= 2


def test_one_sync_waits_for_all_objects_before_the_first_takes_its_place(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("one")
    workspace = Workspace(root)
    incoming = workspace.store_dir / "incoming"
    happened: list[str] = []
    fsync, replace = os.fsync, os.replace

    def told_fsync(handle: int) -> None:
        here = os.fstat(handle)
        path = incoming / "sync"
        if path.exists() and os.path.samestat(here, path.stat()):
            happened.append("sync")
        elif os.path.samestat(here, (workspace.store_dir / "objects").stat()):
            happened.append("names")
        fsync(handle)

    def told_replace(source: Any, target: Any) -> None:
        if incoming in Path(source).parents:
            happened.append("place")
        replace(source, target)

    deliver = Incoming.deliver

    def watched(self: Incoming) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", told_fsync)
            patched.setattr(os, "replace", told_replace)
            deliver(self)

    monkeypatch.setattr(Incoming, "deliver", watched)
    workspace.snapshot()
    assert happened == ["sync", "place", "place", "place", "names"]
