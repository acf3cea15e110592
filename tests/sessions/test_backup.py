"""A copy of a database that is being written to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import HoldfastError, InvalidIdentifier, InvalidUrl, StoreUnavailable

# Its log is folded into the file all the time, so that whoever copies one after the other has neither.
_WRITER = """
import random
import sys
import apsw
from holdfast import SessionManager
with SessionManager.open(sys.argv[1], workspace=False) as manager:
    session = manager.create_session("writer", session_id="busy")
    beside = apsw.Connection(sys.argv[1])
    for n in range(100_000):
        text = random.randbytes(100_000).hex()
        session.save_checkpoint(f"c{n}", state={"n": n, "text": text, "list": list(range(n))})
        print(n, flush=True)
        beside.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
"""
_COPIES = 12


@pytest.mark.row("T20")
def test_a_copy_of_a_live_database_is_consistent(tmp_path: Path) -> None:
    url = tmp_path / "sessions.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(url)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    try:
        acknowledged = [int(writer.stdout.readline())]
        with SessionManager.open(url, workspace=False, create=False) as manager:
            for number in range(_COPIES):
                acknowledged += [int(writer.stdout.readline()) for _ in range(5)]
                manager.back_up(tmp_path / f"copy{number}.db")
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    for number in range(_COPIES):
        copy = tmp_path / f"copy{number}.db"
        assert copy.stat().st_mode & 0o777 == 0o600
        connection = apsw.Connection(str(copy))
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
        with SessionManager.open(copy, workspace=False, create=False) as manager:
            report = manager.verify()
            assert report.ok
            # What was acknowledged before the copy began is in it.
            assert report.checked >= 1 + 5 * (number + 1)
            latest = manager.get_session("busy").latest_checkpoint()
            assert latest.state["list"] == list(range(latest.state["n"]))


def test_a_copy_overwrites_nothing_and_needs_a_file(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    manager = SessionManager.open(tmp_path / "s.db", workspace=False)
    with manager, pytest.raises(InvalidUrl, match="exists already"):
        manager.back_up(taken)
    assert taken.read_text() == "mine"
    manager = SessionManager.open("memory:", workspace=False)
    with manager, pytest.raises(InvalidUrl, match="not a file"):
        manager.back_up(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "ending", [".part", ".part-wal", ".part-journal", ".part-shm", "-wal", "-journal"]
)
def test_what_lies_beside_the_copy_is_neither_removed_nor_taken_for_its_own(
    ending: str, tmp_path: Path
) -> None:
    beside = tmp_path / f"copy{ending}"
    beside.write_text("mine")
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        with pytest.raises(InvalidUrl, match=f"copy{ending} exists already") as refused:
            manager.back_up(tmp_path / "copy")
        assert ("killed may have left it: remove" in str(refused.value)) == (".part" in ending)
        assert (beside.read_text(), (tmp_path / "copy").exists()) == ("mine", False)
        beside.unlink()
        manager.back_up(tmp_path / "copy")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing/copy", StoreUnavailable),
        ("taken/copy", StoreUnavailable),
        ("x" * 300, StoreUnavailable),
        ("a\udcff", InvalidUrl),
        ("a\0", InvalidIdentifier),
        (5, InvalidIdentifier),
    ],
    ids=ascii,
)
def test_where_no_copy_can_be_written_none_is_begun(
    name: Any, expected: type[HoldfastError], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    path = tmp_path / name if isinstance(name, str) else name
    with SessionManager.open(tmp_path / "s.db", workspace=False) as manager:
        manager.create_session("a")
        with pytest.raises(expected):
            manager.back_up(path)
    assert {one.name for one in tmp_path.iterdir()} <= {"taken", "s.db", "s.db-wal", "s.db-shm"}


def test_a_copy_for_which_there_is_no_room_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from holdfast import SessionManager\n"
        "from holdfast.errors import StoreFull\n"
        "manager = SessionManager.open(sys.argv[1], workspace=False)\n"
        "manager.create_session('a').save_checkpoint('one', state={'x': 'y' * 100_000})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try:\n"
        "    manager.back_up(sys.argv[1] + '.copy')\n"
        "except StoreFull:\n"
        "    print('full')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.db")], capture_output=True, text=True
    )
    assert done.stdout == "full\n", done.stderr
    assert not list(tmp_path.glob("*.copy*"))
