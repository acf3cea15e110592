"""What a log has that is not yet in the database: it is saved with the rest, or named as lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.doctor import salvage
from holdfast.errors import NotADatabase


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
