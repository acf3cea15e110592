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


def saved_again(root: Path, url: str, number: int, name: str) -> str:
    """Save changed files as another process would; return the snapshot."""
    with SessionManager.open(url, project_dir=root) as manager:
        (root / "a.txt").write_text(f"{number}\n" * 1000)
        saved = manager.hold_session("travels").save_checkpoint(name, state={})
        assert saved.workspace_commit is not None
        return saved.workspace_commit


def assert_files_travel(url: str, here: Path, name: str, number: int) -> None:
    """A machine that has nothing goes back to a checkpoint."""
    with SessionManager.open(url, project_dir=here) as manager:
        manager.hold_session("travels").rollback(name)
    assert (here / "a.txt").read_text() == f"{number}\n" * 1000


@pytest.mark.parametrize("change", [flipped, flipped_and_signed, emptied])
@pytest.mark.parametrize("damaged", [[0], [1], [0, 1, 2]])
def test_the_machine_that_saved_files_finds_their_damaged_packs_and_sends_them_again(
    postgres_url: str,
    saved: list[str],
    tmp_path: Path,
    here: Path,
    damaged: list[int],
    change: Callable[[bytes], bytes],
) -> None:
    with SessionManager.open(postgres_url, project_dir=tmp_path / "there") as manager:
        for number in damaged:
            put_instead(manager.store, saved[number], change)
        good = {one.commit: one for one in manager.store.read_packs(saved[2])}
        report = manager.verify(deep=True)
        told = [one.reason for one in report.damaged]
        assert not report.ok
        assert len(told) >= len(damaged)
        assert all("sent it again" in one for one in told), told
        assert not any("Nothing was changed" in one for one in told)
        assert manager.verify(deep=True).ok
        for number in {0, 1, 2} - set(damaged):
            *_, pack = manager.store.read_packs(saved[number])
            assert change is not flipped or pack == good[saved[number]]
    assert_files_travel(postgres_url, here, "n2", 2)


def test_packs_that_are_gone_are_sent_again_each_with_what_the_one_before_lacks(
    postgres_url: str, saved: list[str], tmp_path: Path, here: Path
) -> None:
    with connect(postgres_url) as connection:
        connection.execute("DELETE FROM workspace_packs")
    with SessionManager.open(postgres_url, project_dir=tmp_path / "there") as manager:
        assert manager.verify(deep=True).damaged_checkpoints == 3
        needs = manager.store.pack_needs()
        assert needs == {saved[0]: (), saved[1]: (saved[0],), saved[2]: (saved[1],)}
        assert manager.verify(deep=True).ok
    assert_files_travel(postgres_url, here, "n2", 2)


def test_a_machine_that_has_not_fetched_them_names_damaged_packs_and_leaves_them(
    postgres_url: str, saved: list[str], here: Path
) -> None:
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        put_instead(manager.store, saved[1], flipped)
        for _ in range(2):
            report = manager.verify(deep=True)
            assert report.damaged_checkpoints == 2
            assert not any("sent it again" in one.reason for one in report.damaged)


def test_what_was_erased_meanwhile_is_not_sent_again(
    postgres_url: str, saved: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        SessionManager.open(postgres_url, project_dir=tmp_path / "there") as manager,
        SessionManager.open(postgres_url, workspace=False) as other,
    ):
        put_instead(manager.store, saved[0], flipped)
        put_pack = type(manager.store).put_pack

        def erased_first(store: Store, *args: object, **options: object) -> bool:
            monkeypatch.undo()
            other.delete_session("travels")
            return put_pack(store, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(type(manager.store), "put_pack", erased_first)
        manager.verify(deep=True)
        assert manager.store.pack_needs() == {}


def test_a_save_is_not_built_on_a_pack_whose_own_base_is_gone(
    postgres_url: str, saved: list[str], tmp_path: Path, here: Path
) -> None:
    with connect(postgres_url) as connection:
        connection.execute("DELETE FROM workspace_packs WHERE commit_id = %s", [saved[0]])
    fresh = saved_again(tmp_path / "there", postgres_url, 3, "n3")
    with SessionManager.open(postgres_url, project_dir=here) as manager:
        assert manager.store.pack_needs()[fresh] == ()
    assert_files_travel(postgres_url, here, "n3", 3)


def test_a_save_of_the_same_files_sends_a_pack_again_whose_base_is_gone(
    postgres_url: str, saved: list[str], tmp_path: Path, here: Path
) -> None:
    with connect(postgres_url) as connection:
        connection.execute("DELETE FROM workspace_packs WHERE commit_id = %s", [saved[0]])
    assert saved_again(tmp_path / "there", postgres_url, 2, "again") == saved[2]
    assert_files_travel(postgres_url, here, "again", 2)


def test_a_process_that_goes_on_saving_reads_the_names_of_packs_once(
    postgres_url: str, saved: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "there"
    with SessionManager.open(postgres_url, project_dir=root) as manager:
        store = manager.store
        pack_needs = type(store).pack_needs
        asked = []

        def names(one: Store) -> dict[str, tuple[str, ...]]:
            asked.append(one)
            return pack_needs(one)

        monkeypatch.setattr(type(store), "pack_needs", names)
        session = manager.hold_session("travels")
        for number in range(3, 6):
            (root / "a.txt").write_text(f"{number}\n" * 1000)
            session.save_checkpoint(f"n{number}", state={})
        assert len(asked) == 1
