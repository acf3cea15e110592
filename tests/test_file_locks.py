"""One at a time has a file locked, and nobody waits for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.file_locks import locked

fcntl = pytest.importorskip("fcntl")


def test_one_at_a_time_has_a_file_locked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as mine, path.open("w+b") as theirs:
        with locked(mine.fileno(), path, seconds=1):
            with (
                pytest.raises(TimeoutError, match="somebody else has kept it locked") as caught,
                locked(theirs.fileno(), path, seconds=0.01),
            ):
                pass
            assert caught.value.filename == str(path)
        with locked(theirs.fileno(), path, seconds=0.01):
            pass


def test_a_copy_of_the_handle_keeps_no_lock(tmp_path: Path) -> None:
    """As one that was forked meanwhile has."""
    path = tmp_path / "file"
    with path.open("w+b") as mine, path.open("w+b") as theirs:
        with locked(mine.fileno(), path, seconds=1):
            copy = os.dup(mine.fileno())
        with locked(theirs.fileno(), path, seconds=0.01):
            os.close(copy)


def test_nobody_waits_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError("no locks available")

    path = tmp_path / "file"
    monkeypatch.setattr(fcntl, "flock", none)
    with path.open("w+b") as mine, locked(mine.fileno(), path, seconds=60):
        monkeypatch.setattr("holdfast.file_locks.fcntl", None)
        with path.open("w+b") as theirs, locked(theirs.fileno(), path, seconds=60):
            pass
