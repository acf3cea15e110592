"""Files that are with the server only: whether they can still be had is found out, not assumed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.errors import SnapshotCorrupt
from holdfast.stores import Store
from tests.stores.postgres_drafts import connect
from tests.workspace.pictures import make_repository


@pytest.fixture
def saved(postgres_url: str, tmp_path: Path) -> list[str]:
    """The snapshots of three checkpoints that another machine made, the later made of the earlier."""
    root = tmp_path / "there"
    make_repository(root)
    commits = []
    with SessionManager.open(postgres_url, project_dir=root) as manager:
        session = manager.create_session("a", session_id="travels")
        for number in range(3):
            (root / "a.txt").write_text(f"{number}\n" * 1000)
            (root / f"{number}.txt").write_text(f"{number}\n")
            commits.append(session.save_checkpoint(f"n{number}", state={}).workspace_commit)
    return [commit for commit in commits if commit is not None]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    root = tmp_path / "here"
    make_repository(root)
    return root


def put_instead(store: Store, commit: str, change: Callable[[bytes], bytes]) -> None:
    *_, pack = store.read_packs(commit)
    store.put_pack(commit, needs=pack.needs, data=change(pack.data), replace=True)


def flipped(data: bytes) -> bytes:
    return data[:20] + bytes([data[20] ^ 0xFF]) + data[21:]


def flipped_and_signed(data: bytes) -> bytes:
    content = flipped(data)[:-20]
    return content + sha1(content).digest()


def emptied(data: bytes) -> bytes:
    content = b"PACK\0\0\0\2\0\0\0\0"
    return content + sha1(content).digest()


@pytest.mark.parametrize("deep", [False, True])
def test_files_that_a_server_holds_are_read_back_and_nothing_is_kept_of_them(
    postgres_url: str, saved: list[str], here: Path, deep: bool
) -> None:
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        assert manager.verify(deep=deep).ok
        assert manager.workspace.snapshots() == set()
        assert not manager.workspace.store_dir.exists()


@pytest.mark.parametrize("deep", [False, True])
def test_a_damaged_pack_damages_every_checkpoint_that_is_made_of_it(
    postgres_url: str, saved: list[str], here: Path, deep: bool
) -> None:
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        put_instead(manager.store, saved[1], flipped)
        report = manager.verify(deep=deep)
        assert (report.ok, report.damaged_checkpoints) == (False, 2)
        assert {one.code for one in report.damaged} == {SnapshotCorrupt.code}
        assert all(saved[1][:12] in one.reason for one in report.damaged)


@pytest.mark.parametrize("change", [flipped_and_signed, emptied])
def test_a_pack_that_holds_something_else_is_found_by_unpacking_it(
    postgres_url: str, saved: list[str], here: Path, change: Callable[[bytes], bytes]
) -> None:
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        put_instead(manager.store, saved[2], change)
        report = manager.verify(deep=True)
        assert (report.ok, report.damaged_checkpoints) == (False, 1)


def test_a_pack_that_is_gone_is_found(postgres_url: str, saved: list[str], here: Path) -> None:
    with connect(postgres_url) as connection:
        connection.execute("DELETE FROM workspace_packs")
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        report = manager.verify()
        assert (report.ok, report.damaged_checkpoints) == (False, 3)
        assert "is not stored" in report.damaged[0].reason


def test_going_on_from_a_damaged_pack_is_unsafe_and_says_which(
    postgres_url: str, saved: list[str], here: Path
) -> None:
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        put_instead(manager.store, saved[2], flipped)
        found = manager.get_session("travels").preflight()
        assert (found.verdict, "snapshot_damaged" in found.codes) == ("unsafe", True)
        with pytest.raises(SnapshotCorrupt, match=saved[2][:12]):
            manager.hold_session("travels").rollback("n2")
