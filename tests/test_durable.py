from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.durable import sync_directories, sync_directory


def test_the_directory_itself_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fsync

    def watched(handle: int) -> None:
        synced.append(os.fstat(handle))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    sync_directory(tmp_path)
    (found,) = synced
    assert stat.S_ISDIR(found.st_mode)
    assert found.st_ino == tmp_path.stat().st_ino


def test_what_cannot_be_synced_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "missing")


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_many_directories_are_put_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    folders = [tmp_path / str(number) for number in range(count)]
    for folder in folders:
        folder.mkdir()
    synced: list[int] = []

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    sync_directories(folders)
    assert sorted(synced) == sorted(folder.stat().st_ino for folder in folders)


def test_one_directory_that_fails_is_said_and_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with pytest.raises(FileNotFoundError):
        sync_directories([tmp_path, tmp_path / "missing", tmp_path])
    assert len(synced) == 2
