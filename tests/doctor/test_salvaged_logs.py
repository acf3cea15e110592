"""What a log has that is not yet in the database: it is saved with the rest, or named as lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.doctor import salvage
from holdfast.errors import LogDamaged, NotADatabase
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_log import FRAME, is_damaged, read_frames, read_header


def left_by_a_killed_writer(
    path: Path, saves: int = 5, *, before: int = 0
) -> dict[str, dict[str, Any]]:
    """Leave a database and its log as a writer does that is killed; return the states by checkpoint.

    So many saves ``before`` are in the database already.
    """
    states: dict[str, dict[str, Any]] = {}
    working = path.parent / "working" / path.name
    if before:
        with SessionManager.open(working, project_dir=path.parent, workspace=False) as manager:
            session = manager.create_session("worker", session_id="one")
            for number in range(before):
                state = {"b": number}
                states[session.save_checkpoint(f"b{number}", state=state).id] = state
    with SessionManager.open(working, project_dir=path.parent, workspace=False) as manager:
        session = manager.create_session("worker", session_id="other")
        for number in range(saves):
            states[session.save_checkpoint(f"w{number}", state={"w": number}).id] = {"w": number}
        for ending in ("", "-wal"):
            shutil.copyfile(f"{working}{ending}", f"{path}{ending}")
    shutil.rmtree(working.parent)
    return states


def fold(path: Path) -> None:
    """Bring all of a log into the database, and empty it."""
    connection = apsw.Connection(str(path))
    # Only who has read knows that there is a log.
    connection.pragma("application_id")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


def stored(path: Path) -> dict[str, Any]:
    """Return the states in a database by checkpoint, all of which verify."""
    with SessionManager.open(path, project_dir=path.parent, workspace=False) as manager:
        assert manager.verify(deep=True).ok
        return {
            one.id: one.state
            for session in manager.list_sessions()
            for one in manager.get_session(session.id).list_checkpoints()
        }


def test_a_log_is_saved_whose_database_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    states = left_by_a_killed_writer(path)
    path.write_bytes(b"")
    report = salvage(path, tmp_path / "saved.db")
    assert report.complete
    assert stored(report.target) == states


def test_pages_that_are_neither_in_the_log_nor_in_the_file_are_said_to_be_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "damaged.db"
    states = left_by_a_killed_writer(path, before=40)
    path.write_bytes(b"")
    try:
        report = salvage(path, tmp_path / "saved.db")
    except NotADatabase:
        assert not (tmp_path / "saved.db").exists()
        return
    assert not report.complete
    assert states.items() >= stored(report.target).items()


@pytest.mark.parametrize("cut", [0, 10, 32, 40, 5000])
def test_a_log_that_was_cut_off_gives_what_it_has_or_nothing(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "damaged.db"
    left_by_a_killed_writer(path)
    path.write_bytes(b"")
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[:cut])
    with pytest.raises(NotADatabase):
        salvage(path, tmp_path / "saved.db")


def test_a_database_that_is_written_to_is_saved_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "live.db"
    copy_file = shutil.copyfile
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="one")
        ids = {session.save_checkpoint(f"c{n}", state={"n": n}).id for n in range(20)}

        def copy_and_lose_the_log(source: Path | str, target: Path | str) -> Path | str:
            """Copy a file; the log is folded and begun anew before the next is copied."""
            copied = copy_file(source, target)
            fold(path)
            session.save_checkpoint("meanwhile", state={"n": -1}, overwrite=True)
            return copied

        monkeypatch.setattr(shutil, "copyfile", copy_and_lose_the_log)
        report = salvage(path, tmp_path / "saved.db")
        assert report.complete
        session.save_checkpoint("after", state={})
    assert ids <= stored(report.target).keys()


@pytest.mark.parametrize("index", ["with its index", "without"])
def test_a_log_is_not_folded_by_being_saved(tmp_path: Path, index: str) -> None:
    path = tmp_path / "source" / "damaged.db"
    path.parent.mkdir()
    states = left_by_a_killed_writer(path, before=3)
    if index == "with its index":
        connection = apsw.Connection(str(path))
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("application_id")
        connection.close()
        assert Path(f"{path}-shm").exists()
    before = {one: one.read_bytes() for one in path.parent.iterdir() if one.suffix != ".db-shm"}
    report = salvage(path, tmp_path / "saved.db")
    assert report.complete
    assert stored(report.target) == states
    after = {one: one.read_bytes() for one in path.parent.iterdir() if one.suffix != ".db-shm"}
    assert after == before


def turn_bit(log: Path, commits_behind: int) -> None:
    """Turn a bit of the page of a commit behind which there are so many more."""
    with log.open("rb") as file:
        header = read_header(file)
        assert header is not None
        commits = [one for one in read_frames(file, header.page_size) if one.pages]
    content = bytearray(log.read_bytes())
    content[commits[-1 - commits_behind].at + FRAME.size + 2000] ^= 4
    log.write_bytes(content)


@pytest.mark.parametrize("behind", [1, 4])
def test_commits_behind_a_damaged_frame_are_refused_kept_and_saved(
    tmp_path: Path, behind: int
) -> None:
    path = tmp_path / "source" / "damaged.db"
    path.parent.mkdir()
    states = left_by_a_killed_writer(path, before=10)
    log = Path(f"{path}-wal")
    turn_bit(log, behind)
    damaged = path.read_bytes(), log.read_bytes()
    for _ in range(2):
        with pytest.raises(LogDamaged, match="--salvage"):
            SqliteStore(path)
    assert (path.read_bytes(), log.read_bytes()) == damaged
    [kept] = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == log.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600
    report = salvage(path, tmp_path / "saved.db")
    found = stored(report.target)
    assert states.items() >= found.items()
    assert states.keys() - found.keys() == {one.checkpoint_id for one in report.lost} - {None}
    assert len(found) > len(states) // 2
    assert log.read_bytes() == damaged[1]


def overwrite(log: Path, end: int, *, begin: int = 0) -> None:
    """Turn every bit of a part of a log."""
    content = bytearray(log.read_bytes())
    content[begin:end] = bytes(one ^ 0xFF for one in content[begin:end])
    log.write_bytes(content)


@pytest.mark.parametrize("before", [0, 10])
@pytest.mark.parametrize(("begin", "end"), [(0, 4), (0, 32), (16, 24), (24, 32), (20, 4000)])
def test_commits_behind_a_damaged_header_are_refused_kept_and_saved(
    tmp_path: Path, before: int, begin: int, end: int
) -> None:
    path = tmp_path / "source" / "damaged.db"
    path.parent.mkdir()
    states = left_by_a_killed_writer(path, 30, before=before)
    log = Path(f"{path}-wal")
    overwrite(log, end, begin=begin)
    damaged = path.read_bytes(), log.read_bytes()
    for create in (False, True):
        with pytest.raises(LogDamaged, match="--salvage"):
            SqliteStore(path, ensure_schema=create)
    assert (path.read_bytes(), log.read_bytes()) == damaged
    [kept] = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == damaged[1]
    # Another log that is damaged later is kept too.
    assert "unknown" not in kept.name
    report = salvage(path, tmp_path / "saved.db")
    # A header is told by whole frames to the last bit, and who lacks page 1 has it again.
    assert report.complete
    assert stored(report.target) == states
    assert (path.read_bytes(), log.read_bytes()) == damaged


def test_a_header_of_zeros_before_whole_frames_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    left_by_a_killed_writer(path, before=3)
    log = Path(f"{path}-wal")
    log.write_bytes(bytes(32) + log.read_bytes()[32:])
    with pytest.raises(LogDamaged):
        SqliteStore(path)


def test_a_log_of_which_nothing_can_be_read_is_refused_and_said_to_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    states = left_by_a_killed_writer(path, before=3)
    log = Path(f"{path}-wal")
    log.write_bytes(b"\x07" * log.stat().st_size)
    with pytest.raises(LogDamaged):
        SqliteStore(path)
    report = salvage(path, tmp_path / "saved.db")
    [lost] = report.lost
    assert "its log cannot be read" in lost.reason
    assert len(stored(report.target)) == 3 == len(states) - 5


@pytest.mark.parametrize("size", [0, 31, 32, 500, 9000])
def test_a_log_of_zeros_is_no_alarm(tmp_path: Path, size: int) -> None:
    path = tmp_path / "sessions.db"
    left_by_a_killed_writer(path, before=3)
    Path(f"{path}-wal").write_bytes(bytes(size))
    assert len(stored(path)) == 3


@pytest.mark.parametrize("torn", [13, 16, 20, 24, 28, 31])
def test_a_header_torn_while_the_log_is_started_over_is_no_alarm(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "sessions.db"
    states = left_by_a_killed_writer(path, before=3)
    log = Path(f"{path}-wal")
    # All in the file, and still in the log.
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("application_id")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    connection.close()
    overwrite(log, 32, begin=torn)
    assert stored(path) == states


def test_a_log_whose_header_is_damaged_while_it_is_read_is_no_alarm(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="one")
        session.save_checkpoint("c", state={"n": 1})
        # Who has the index of the log needs no header.
        overwrite(Path(f"{path}-wal"), 32)
        SqliteStore(path).close()
        session.save_checkpoint("d", state={"n": 2})
    assert len(stored(path)) == 2


@pytest.mark.parametrize("end", ["damaged", "cut off"])
def test_a_torn_end_of_a_log_is_no_alarm(tmp_path: Path, end: str) -> None:
    path = tmp_path / "damaged.db"
    states = left_by_a_killed_writer(path)
    log = Path(f"{path}-wal")
    if end == "damaged":
        turn_bit(log, 0)
    else:
        log.write_bytes(log.read_bytes()[:-3000])
    assert states.items() > stored(path).items()


def test_a_log_that_starts_over_is_no_alarm(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SessionManager.open(path, project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("worker", session_id="one")
        for number in range(30):
            session.save_checkpoint(f"c{number}", state={"n": number})
            if number % 5 == 4:
                beside = apsw.Connection(str(path))
                beside.pragma("application_id")
                # What was folded stays in the log until it is written over.
                beside.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                SqliteStore(path).close()
                beside.close()
            SqliteStore(path).close()
        # Whoever starts it over says so before the first new frame is there.
        assert not is_damaged(Path(f"{path}-wal"), lambda: 0, lambda *_: b"")
    assert len(stored(path)) == 30


def test_a_copy_of_a_damaged_log_is_among_what_erasing_leaves(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with SqliteStore(path) as store:
        kept = tmp_path / "sessions.db-wal.damaged-00"
        kept.touch()
        assert any(one.startswith(f"{kept}: ") for one in store.leftovers())
