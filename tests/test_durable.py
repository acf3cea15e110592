from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.durable import sync_directory


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
