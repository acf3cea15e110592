"""The SQLite store keeps the contract."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import (
    CheckpointExists,
    ChunksMissing,
    DigestMismatch,
    IllegalTransition,
    StateCorrupt,
)
from holdfast.model import SESSION_TRANSITIONS, CheckpointQuery
from holdfast.state.refs import digest_of
from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import StoreContract
from holdfast.testing.content import state_checkpoint
from holdfast.testing.drafts import checkpoint, session, stored


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with SqliteStore(tmp_path / "sessions.db") as store:
            yield store

    @pytest.fixture
    def neighbour(self, tmp_path: Path) -> Iterator[Store]:
        with SqliteStore(tmp_path / "sessions.db", tenant="neighbour") as store:
            yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "sessions.db") as store:
        yield store


@pytest.mark.row("T5")
def test_a_name_is_never_a_path_and_a_failure_leaves_no_half_row(store: SqliteStore) -> None:
    owner = store.create_session(session())
    odd = ["a/b", "..", '"', "../../etc/passwd", "'; DROP TABLE sessions; --"]
    for name in odd:
        store.put(checkpoint(owner.id, name))
        assert stored(store, owner.id, name=name) == [name]
    assert {found.name for found in store.path.parent.iterdir()} <= {
        "sessions.db",
        "sessions.db-shm",
        "sessions.db-wal",
    }
    broken = checkpoint(owner.id, "broken", contents=[b"sent"], expects=[digest_of(b"not stored")])
    with pytest.raises(ChunksMissing):
        store.put(broken)
    assert stored(store, owner.id) == odd[::-1]
    assert store.read_chunks(list(broken.chunks)) == {}


@pytest.mark.row("S1-67")
def test_an_overwrite_keeps_the_old_checkpoint_readable_until_it_is_done(
    store: SqliteStore,
) -> None:
    owner, other = (store.create_session(session()) for _ in range(2))
    old = store.put(checkpoint(owner.id, "same", contents=[b"old"])).record
    with pytest.raises(CheckpointExists):
        store.put(checkpoint(owner.id, "same", contents=[b"new"]))
    reader = apsw.Connection(str(store.path))
    with reader:
        before = reader.execute("SELECT id FROM session_checkpoints").fetchall()
        new = store.put(checkpoint(owner.id, "same", contents=[b"new"], replace=True)).record
        assert reader.execute("SELECT id FROM session_checkpoints").fetchall() == before
    assert before == [(old.id,)]
    assert reader.execute("SELECT id FROM session_checkpoints").fetchall() == [(new.id,)]
    assert store.put(checkpoint(other.id, "same")).created


@pytest.mark.row("S1-63", "S1-64")
def test_a_session_only_goes_where_it_may(store: SqliteStore) -> None:
    for start, allowed in SESSION_TRANSITIONS.items():
        for target in SESSION_TRANSITIONS:
            owner = store.create_session(session())
            placed = store.update_session(owner.id, status=start)
            sources = {one for one, targets in SESSION_TRANSITIONS.items() if target in targets}
            if target in allowed:
                moved = store.update_session(owner.id, status=target, expected=sources)
                assert moved.status == target
                assert moved.updated_at > placed.updated_at
            else:
                with pytest.raises(IllegalTransition):
                    store.update_session(owner.id, status=target, expected=sources)
                assert store.find_session(owner.id) == placed


@pytest.mark.row("S1-71")
def test_log_lines_stay_in_the_order_of_the_calls(store: SqliteStore) -> None:
    owner = store.create_session(session())
    for number, level in enumerate(("debug", "info", "warning", "error", "info")):
        store.append_log(owner.id, level, f"line {number}")
    lines = store.list_logs(owner.id)
    assert [line.message for line in lines] == [f"line {number}" for number in range(5)]
    assert [line.id for line in lines] == sorted({line.id for line in lines})
    assert [line.message for line in store.list_logs(owner.id, level="info", offset=1)] == [
        "line 4"
    ]
    assert [line.message for line in store.list_logs(owner.id, limit=2, offset=1)] == [
        "line 1",
        "line 2",
    ]


@pytest.mark.row("S1-39")
def test_sessions_and_checkpoints_can_be_created_read_updated_and_deleted(
    store: SqliteStore,
) -> None:
    owner = store.create_session(session())
    assert store.find_session(owner.id) == owner
    record = store.put(checkpoint(owner.id, "one")).record
    assert store.list_checkpoints(CheckpointQuery(session_id=owner.id)) == [record]
    assert store.update_session(owner.id, status="paused").status == "paused"
    assert store.mark_restored(record.id).restored_at is not None
    assert store.delete_checkpoints([record.id]) == 1
    assert store.delete_session(owner.id)
    assert store.find_session(owner.id) is None


@pytest.mark.parametrize("compress", [True, False])
def test_a_damaged_chunk_is_never_passed_off_as_the_state(tmp_path: Path, compress: bool) -> None:
    owner = session()
    draft = state_checkpoint(owner.id, {"text": "again and " * 5000}, session=owner)
    with SqliteStore(tmp_path / "sessions.db", compress=compress) as store:
        store.put(draft)
        assert store.load(draft.id) is not None
    database = apsw.Connection(str(store.path))
    chunks: list[tuple[Any, ...]] = database.execute("SELECT rowid, data FROM chunks").fetchall()
    rowid, data = chunks[0][0], bytearray(chunks[0][1])
    data[len(data) // 2] ^= 1
    database.execute("UPDATE chunks SET data = ? WHERE rowid = ?", (data, rowid))
    database.close()
    with SqliteStore(store.path) as fresh, pytest.raises(DigestMismatch):
        fresh.load(draft.id)


def test_a_row_that_cannot_be_read_holds_nothing_up(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "a.db") as store, SqliteStore(tmp_path / "a.db") as other:
        owner = store.create_session(session())
        for _ in range(3):
            store.put(checkpoint(owner.id))
        connection = apsw.Connection(str(store.path))
        connection.execute("UPDATE session_checkpoints SET created_at = 'xx' WHERE seq = 2")
        connection.close()
        with pytest.raises(StateCorrupt, match=owner.id) as kept:
            store.list_checkpoints(CheckpointQuery())
        # The error is still there, and with it all that it holds on to.
        added = other.put(checkpoint(other.create_session(session()).id)).record
        assert store.list_checkpoints(CheckpointQuery(id=added.id)) == [added]
        assert store.put(checkpoint(owner.id)).created
        assert kept.value is not None
