"""A damaged database: what is lost is said, and everything that still verifies is saved."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.crypto import KeyRing
from holdfast.doctor import SalvageReport, salvage
from holdfast.errors import (
    EffectUnknown,
    InvalidUrl,
    KeyRequired,
    NotADatabase,
    StoreUnavailable,
    WrongKey,
)

PAGE = 4096
SESSIONS = ("first", "second", "third")
SAVES = 30


def fill(path: Path) -> dict[str, dict[str, Any]]:
    """Fill a database; return the states by checkpoint."""
    coin = random.Random(1)
    states: dict[str, dict[str, Any]] = {}
    with SessionManager.open(path, project_dir=path.parent, workspace=False) as manager:
        for name in SESSIONS:
            session = manager.create_session("worker", session_id=name)
            messages: list[dict[str, str]] = []
            for number in range(SAVES):
                messages = [*messages, {"role": "user", "content": coin.randbytes(400).hex()}]
                state = {"messages": messages}
                states[session.save_checkpoint(f"step-{number}", state=state).id] = state
                session.step(f"effect-{number}", lambda number=number: number)
                session.log("info", f"line {number}")
    return states


def pages_of(path: Path, *names: str) -> list[int]:
    """Return the pages of some tables or indexes that hold rows."""
    connection = apsw.Connection(str(path))
    try:
        found = connection.execute(
            "SELECT pageno FROM dbstat WHERE name IN (SELECT value FROM json_each(?))"
            " AND pagetype = 'leaf' ORDER BY pageno",
            (f"[{', '.join(map(repr, names))}]".replace("'", '"'),),
        ).fetchall()
    finally:
        connection.close()
    return [int(str(page)) for (page,) in found]


def ruin(path: Path, *pages: int) -> None:
    coin = random.Random(2)
    with path.open("rb+") as file:
        for page in pages:
            file.seek((page - 1) * PAGE)
            file.write(coin.randbytes(PAGE))


def check(report: SalvageReport, states: dict[str, dict[str, Any]]) -> None:
    """Everything is either saved, exactly, or known to be lost; what is saved can be worked with."""
    with SessionManager.open(report.target, project_dir=report.target.parent) as manager:
        assert manager.verify().ok
        stored = {
            one.id: one.state
            for session in manager.list_sessions()
            for one in manager.get_session(session.id).list_checkpoints()
        }
        assert len(stored) == report.checkpoints
        assert stored == {id_: state for id_, state in states.items() if id_ in stored}
        assert states.keys() - stored.keys() == {one.checkpoint_id for one in report.lost} - {None}
        for name in SESSIONS:
            assert manager.resume_session(name).save_checkpoint("after", state={"ok": True}).id
        assert manager.store._file.read(  # type: ignore[attr-defined]
            lambda connection: connection.execute("PRAGMA foreign_key_check").fetchall()
        ) == []  # fmt: skip


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, dict[str, dict[str, Any]]]:
    path = tmp_path / "damaged.db"
    return path, fill(path)


def test_a_sound_file_is_saved_whole(filled: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, states = filled
    before = path.read_bytes()
    report = salvage(path, tmp_path / "new" / "saved.db")
    assert report.complete
    assert (report.sessions, report.checkpoints) == (3, 3 * SAVES)
    assert (report.effects, report.logs) == (3 * SAVES, 3 * SAVES)
    assert path.read_bytes() == before
    assert (report.target.stat().st_mode & 0o777) == 0o600
    assert [one.name for one in report.target.parent.iterdir()] == ["saved.db"]
    check(report, states)


@pytest.mark.row("T22")
@pytest.mark.parametrize("table", ["session_checkpoints", "chunks"])
def test_what_lies_on_other_pages_is_saved_and_what_is_lost_is_named(
    filled: tuple[Path, dict[str, Any]], tmp_path: Path, table: str
) -> None:
    path, states = filled
    pages = pages_of(path, table)
    ruin(path, pages[1], pages[len(pages) // 2])
    damaged = path.read_bytes()
    report = salvage(f"sqlite:///{path}", tmp_path / "saved.db")
    assert not report.complete
    assert 0 < len(report.lost) < len(states)
    assert 0 < report.checkpoints < len(states)
    assert path.read_bytes() == damaged
    check(report, states)


@pytest.mark.parametrize("left", [-1, -40, 0.9, 0.75, 0.5, 45, 30, 12])
def test_of_a_file_that_was_cut_off_the_rest_is_saved(
    filled: tuple[Path, dict[str, Any]], tmp_path: Path, left: float
) -> None:
    path, states = filled
    pages = path.stat().st_size // PAGE
    kept = int(left * pages) if 0 < left < 1 else int(left) % pages
    # The end need not be that of a page.
    os.truncate(path, kept * PAGE + 700)
    damaged = path.read_bytes()
    report = salvage(path, tmp_path / "saved.db")
    assert not report.complete
    assert path.read_bytes() == damaged
    with SessionManager.open(report.target, project_dir=tmp_path) as manager:
        assert manager.verify(deep=True).ok
        for session in manager.list_sessions():
            for one in manager.get_session(session.id).list_checkpoints():
                assert one.state == states[one.id]
    if left == -1:
        assert report.checkpoints > len(states) // 2
        check(report, states)
    if kept < 45:
        assert report.lost_rows.keys() >= {"session_checkpoints", "chunks"}


def test_a_damaged_index_costs_nothing(filled: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, states = filled
    ruin(path, *pages_of(path, "checkpoints_by_seq", "checkpoints_by_agent"))
    report = salvage(path, tmp_path / "saved.db")
    assert report.lost == ()
    assert report.checkpoints == len(states)
    check(report, states)


def test_sessions_whose_rows_are_lost_come_back_with_their_checkpoints(
    filled: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, states = filled
    ruin(path, *pages_of(path, "sessions"), *pages_of(path, "agents"))
    report = salvage(path, tmp_path / "saved.db")
    assert sorted(report.remade_sessions) == sorted(SESSIONS)
    assert report.checkpoints == len(states)
    with SessionManager.open(report.target, project_dir=tmp_path) as manager:
        assert {one.status for one in manager.list_sessions()} == {"interrupted"}
    check(report, states)


def test_an_effect_whose_result_is_lost_is_not_run_again_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="one")
        session.step("download", lambda: random.Random(3).randbytes(200_000))
    ruin(path, *pages_of(path, "chunks")[:1])
    report = salvage(path, tmp_path / "saved.db")
    assert [one.checkpoint_id for one in report.lost] == [None]
    assert report.lost[0].effect_key is not None
    with SessionManager.open(report.target, project_dir=tmp_path) as manager:
        (effect,) = manager.get_session("one").effects()
        assert effect.status == "unknown"


def test_random_damage_never_ends_in_wrong_data(
    filled: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, states = filled
    sound = path.read_bytes()
    saved = 0
    for seed in range(12):
        coin = random.Random(seed)
        damaged = bytearray(sound)
        for _ in range(coin.randrange(1, 12)):
            at, size = coin.randrange(PAGE, len(sound) - PAGE), coin.choice((1, 40, PAGE))
            damaged[at : at + size] = coin.randbytes(size)
        path.write_bytes(damaged)
        target = tmp_path / f"saved-{seed}.db"
        try:
            report = salvage(path, target)
        except NotADatabase:
            assert not target.exists()
            continue
        saved += 1
        with SessionManager.open(report.target, project_dir=tmp_path) as manager:
            assert manager.verify().ok
            for session in manager.list_sessions():
                for one in manager.get_session(session.id).list_checkpoints():
                    assert states.get(one.id) in (None, one.state)
    assert saved > 6


def test_a_key_that_is_missing_or_wrong_is_said_of_the_file_that_was_named(tmp_path: Path) -> None:
    path, target = tmp_path / "odd name.db", tmp_path / "saved.db"
    with SessionManager.open(path, workspace=False, keys=KeyRing.new()) as manager:
        manager.create_session("worker").save_checkpoint("one", state={"n": 1})
    wrong: tuple[tuple[Any, type[Exception]], ...] = (
        (False, KeyRequired),
        (KeyRing.new(), WrongKey),
    )
    for keys, error in wrong:
        with pytest.raises(error, match=f"^{re.escape(str(path))} is sealed"):
            salvage(path, target, keys=keys)
        assert not target.exists()


def test_what_cannot_be_salvaged_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "saved.db"
    with pytest.raises(StoreUnavailable, match="no file"):
        salvage(tmp_path / "missing.db", target)
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE mine (id)")
    connection.close()
    with pytest.raises(NotADatabase, match="no database of Holdfast"):
        salvage(other, target)
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(random.Random(4).randbytes(50_000))
    with pytest.raises(NotADatabase, match="list of tables"):
        salvage(garbage, target)
    for url in ("memory:", "postgresql://localhost/x"):
        with pytest.raises(InvalidUrl, match="only a SQLite file"):
            salvage(url, target)
    assert not target.exists()
    fill(tmp_path / "sound.db")
    target.write_text("mine")
    with pytest.raises(InvalidUrl, match="exists already"):
        salvage(tmp_path / "sound.db", target)
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob(".holdfast-*"))


@pytest.mark.row("T22")
def test_other_projects_go_on_while_one_is_damaged(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fill(tmp_path / name / "sessions.db")
    path = tmp_path / "one" / "sessions.db"
    ruin(path, *pages_of(path, "session_checkpoints"))
    # In one process, while the other is open and fails.
    with (
        SessionManager.open(path, project_dir=tmp_path) as damaged,
        SessionManager.open(tmp_path / "two" / "sessions.db", project_dir=tmp_path) as manager,
    ):
        with pytest.raises(NotADatabase):
            damaged.resume_session("first")
        assert manager.verify().ok
        assert manager.resume_session("first").save_checkpoint("goes on", state={}).id


def test_an_effect_that_was_altered_is_not_run_again_by_itself(tmp_path: Path) -> None:
    path, target = tmp_path / "s.db", tmp_path / "new.db"
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session(agent_type="t", session_id="one")
        session.step("charge", lambda: "paid", key="charge")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE effects SET status = 'failed', error = '{\"began\": false}'")
    connection.close()
    report = salvage(path, target)
    assert [one.effect_key for one in report.lost] == ["charge"]
    with SessionManager.open(target, workspace=False) as manager:
        assert manager.verify(deep=True).ok
        with pytest.raises(EffectUnknown):
            manager.resume_session("one").step("charge", lambda: "again", key="charge")


@pytest.mark.parametrize("metadata", [{"note": "about $sealed"}, {"$sealed": {"a": 1}}])
def test_who_speaks_of_seals_has_none(tmp_path: Path, metadata: dict[str, Any]) -> None:
    path, new = tmp_path / "sessions.db", tmp_path / "new.db"
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="one", metadata=metadata)
        session.save_checkpoint("kept", state={"n": 1})
    assert salvage(path, new, keys=KeyRing.new()).complete
    with SessionManager.open(new, workspace=False) as manager:
        assert manager.get_session("one").load_checkpoint("kept").state == {"n": 1}
