"""New objects enter the private store together, when all of them are on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.errors import WorkspaceUnavailable
from holdfast.workspace.basis import NOTE
from holdfast.workspace.incoming import Incoming
from holdfast.workspace.notes import Notes
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.repository import stamp


def objects(workspace: Workspace) -> set[str]:
    return {
        os.path.join(where, name)
        for where, _, names in os.walk(workspace.store_dir / "objects")
        for name in names
    }


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("one")
    return Workspace(tmp_path / "project")


def test_a_capture_that_fails_leaves_no_object_behind(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.snapshot()
    before = objects(workspace)
    (workspace.root / "a.txt").write_text("two")

    def refuse(*_: object, **__: object) -> str:
        raise WorkspaceUnavailable("the power went")

    with monkeypatch.context() as patched:
        patched.setattr(PrivateStore, "commit", refuse)
        with pytest.raises(WorkspaceUnavailable, match="the power went"):
            workspace.snapshot()
    assert objects(workspace) == before
    assert not list((workspace.store_dir / "incoming").glob("??/*"))
    again = workspace.snapshot()
    assert workspace.read(again.commit, "a.txt") == b"two"


@pytest.mark.parametrize("restarted", [False, True], ids=["by another process", "and restarted"])
def test_what_a_kill_left_is_thrown_away_and_never_trusted(
    workspace: Workspace, restarted: bool
) -> None:
    first = workspace.snapshot()
    (workspace.root / "a.txt").write_text("two")
    second = workspace.snapshot()
    blob = workspace.diff(first.commit, second.commit)[0].new
    assert blob is not None
    where = Path(blob.blob[:2], blob.blob[2:])
    # As if a capture had died before its sync: the name is there, the content is not.
    (workspace.store_dir / "objects" / where).unlink()
    left = workspace.store_dir / "incoming" / where
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"")
    if restarted:
        workspace = Workspace(workspace.root)
    else:
        # What the other one wrote when it began.
        alternates = workspace.store_dir / "incoming" / "info" / "alternates"
        later = alternates.stat().st_mtime_ns + 20_000_000
        os.utime(alternates, ns=(later, later))
    (workspace.root / "b.txt").write_text("two")
    third = workspace.snapshot()
    assert not left.exists()
    assert workspace.read(third.commit, "b.txt") == b"two"
    assert workspace.verify([second.commit, third.commit]) == []


def test_everything_is_synced_before_the_first_object_takes_its_place(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    sync = Incoming._sync

    def watched(self: Incoming) -> None:
        seen.append(objects(workspace))
        sync(self)

    monkeypatch.setattr(Incoming, "_sync", watched)
    workspace.snapshot()
    assert seen == [set()]
    assert len(objects(workspace)) == 3


def test_a_first_snapshot_of_many_files_arrives_as_a_pack(workspace: Workspace) -> None:
    for number in range(600):
        (workspace.root / f"file{number}").write_text(f"content {number}")
    snapshot = workspace.snapshot()
    assert list((workspace.store_dir / "objects" / "pack").glob("*.idx"))
    assert workspace.verify() == []
    assert workspace.read(snapshot.commit, "file599") == b"content 599"


def test_a_kill_between_the_index_and_its_note_hides_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.snapshot()
    (workspace.root / "a.txt").write_text("two")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Notes, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            workspace.snapshot()
    again = workspace.snapshot()
    assert workspace.read(again.commit, "a.txt") == b"two"


def test_a_snapshot_of_nothing_new_leaves_index_and_objects_alone(workspace: Workspace) -> None:
    workspace.snapshot()
    index = stamp(workspace.store_dir / "index")
    before = objects(workspace)
    taken = PrivateStore(workspace.root, workspace.store_dir).notes.read(NOTE)["bytes"]
    workspace.snapshot()
    assert PrivateStore(workspace.root, workspace.store_dir).notes.read(NOTE)["bytes"] == taken
    assert stamp(workspace.store_dir / "index") == index
    assert objects(workspace) == before
