"""The sequence that orders checkpoints: a damaged one is found, and no save is older than what is there."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from holdfast.stores import sqlite_chain
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.drafts import checkpoint, session
from holdfast.verification import STRUCTURE_DAMAGED
from tests.stores.postgres_drafts import connect, schema_of

DAMAGE = {
    "lowered": "UPDATE sequences SET value = 2",
    "negative": "UPDATE sequences SET value = -7",
    "missing": "DELETE FROM sequences",
}


def opened(tmp_path: Path) -> SessionManager:
    return SessionManager.open(tmp_path / "sessions.db", workspace=False)


def damage(tmp_path: Path, statement: str) -> None:
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    connection = apsw.Connection(str(tmp_path / "sessions.db"))
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_sequence_is_told_of_and_the_next_save_is_the_newest(
    tmp_path: Path, statement: str
) -> None:
    with opened(tmp_path) as manager:
        sessions = [manager.create_session("x", session_id=name) for name in ("other", "work")]
        for number in range(5):
            for session in sessions:
                session.save_checkpoint(f"n{number}", state={})
    damage(tmp_path, statement)
    with opened(tmp_path) as manager:
        [found] = manager.verify(deep=True).damaged
        assert (found.code, found.kind) == (STRUCTURE_DAMAGED, "database")
        assert "the sequence of checkpoints" in found.reason
        work = manager.resume_session("work")
        assert work.save_checkpoint("new", state={}).seq == 11
        assert work.latest_checkpoint().name == "new"
        assert work.save_checkpoint("newer", state={}).seq == 12
        other = manager.resume_session("other")
        assert other.save_checkpoint("new", state={}).seq == 13
        assert manager.verify(deep=True).ok


def test_a_sequence_that_goes_missing_meanwhile_is_made_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as manager:
        work = manager.create_session("x")
        for number in range(3):
            work.save_checkpoint(f"n{number}", state={"n": number})
        damage(tmp_path, DAMAGE["missing"])
        assert work.save_checkpoint("new", state={}).seq == 4
        damage(tmp_path, DAMAGE["lowered"])
        fork = work.fork()
        damage(tmp_path, DAMAGE["missing"])
        assert fork.save_checkpoint("newest", state={}).seq > 4
        assert manager.verify(deep=True).ok


def test_lines_are_not_remembered_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_chain, "_MOST_LINES", 2)
    with SqliteStore(tmp_path / "x.db") as store:
        for _ in range(5):
            store.put(checkpoint(store.create_session(session()).id))
        assert len(store._drawn_for) <= 2


def test_postgres_tells_of_a_sequence_that_stands_too_low(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        owner = store.create_session(session())
        for number in range(3):
            store.put(checkpoint(owner.id, name=f"n{number}"))
        assert store.check_structure() == []
        with connect(postgres_url) as connection:
            name = f"{schema_of(postgres_url)}.session_checkpoints_seq_seq"
            connection.execute("SELECT setval(%s, 1)", (name,))
        [found] = store.check_structure()
        assert "the sequence of checkpoints stands at 1" in found
