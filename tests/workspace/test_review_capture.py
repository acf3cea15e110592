"""What a capture takes, what it leaves and says so, and what it never touches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import SessionManager, Workspace
from holdfast.workspace.private_store import PrivateStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    return root


# Databases --------------------------------------------------------------------------------------


def test_the_store_among_the_files_is_neither_captured_nor_put_back(root: Path) -> None:
    with SessionManager.open(str(root / "state.db"), project_dir=root) as manager:
        session = manager.create_session("x", session_id="s")
        base = session.save_checkpoint("base", state={"n": 0})
        assert base.workspace_commit is not None
        assert Workspace(root).files(base.workspace_commit) == ["a.txt"]
        (root / "a.txt").write_text("two\n")
        session.save_checkpoint("more", state={"n": 1})
        result = session.rollback("base")
        assert result.files is not None
        assert [one.path for one in result.files.changes] == ["a.txt"]
        session.save_checkpoint("after", state={"n": 2})
    with SessionManager.open(str(root / "state.db"), project_dir=root) as manager:
        names = {one.name for one in manager.get_session("s").list_checkpoints()}
    assert {"base", "more", "after"} <= names


@pytest.mark.parametrize(
    "name", ["state.db", "state.db-wal", "state.db-shm", "state.db-journal", "state.db.backup-v1"]
)
def test_databases_handed_in_are_left_alone(root: Path, name: str) -> None:
    (root / name).write_text("precious")
    (root / "state.db.txt").write_text("notes")
    workspace = Workspace(root, never=[root / "state.db"])
    taken = Workspace(root).snapshot()
    assert name in Workspace(root).files(taken.commit)
    (root / name).write_text("newer")
    assert workspace.files(workspace.snapshot().commit) == ["a.txt", "state.db.txt"]
    report = workspace.restore(taken.commit)
    assert (root / name).read_text() == "newer"
    assert [one.path for one in report.kept] == [name]


@pytest.mark.parametrize("name", ["sessions.db", "sessions.db-wal", "workspace.git/HEAD"])
def test_no_rule_opens_the_stores_of_inner_projects(root: Path, name: str) -> None:
    (root / ".gitignore").write_text("!.agents\n!*.db*\n!**/workspace.git/\n")
    inner = root / "deep" / "inner" / ".agents" / name
    inner.parent.mkdir(parents=True)
    inner.write_text("theirs")
    workspace = Workspace(root)
    assert not [one for one in workspace.files(workspace.snapshot().commit) if "agents" in one]
    relative = str(inner.relative_to(root))
    assert "agents" not in str(workspace.files(workspace.snapshot([relative]).commit))


# Edits during a capture -------------------------------------------------------------------------


def test_an_edit_of_the_same_size_during_a_capture_is_found_by_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(root)
    workspace.snapshot()
    file = root / "a.txt"
    keep = PrivateStore.keep

    def edit_and_keep(self: PrivateStore, *args: object, **named: object) -> None:
        looked = file.stat()
        with file.open("r+") as opened:
            opened.write("TWO\n")
        # Within the same second, as far as git can tell, and long before the index is in place.
        os.utime(file, ns=(looked.st_atime_ns, looked.st_mtime_ns))
        index = self.home / "index.next"
        later = looked.st_mtime_ns + 5_000_000_000
        os.utime(index, ns=(later, later))
        keep(self, *args, **named)  # type: ignore[arg-type]

    file.write_text("two\n")
    monkeypatch.setattr(PrivateStore, "keep", edit_and_keep)
    first = workspace.snapshot()
    monkeypatch.setattr(PrivateStore, "keep", keep)
    assert workspace.read(first.commit, "a.txt") == b"two\n"
    assert workspace.read(workspace.snapshot().commit, "a.txt") == b"TWO\n"
