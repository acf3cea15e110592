"""Directories deeper than a path may be long: what lies there is told, and never in the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from holdfast import Workspace
from tests.workspace.pictures import make_repository

NAME: Final = "d" * 200
REASON: Final = "its path is longer than the system takes"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "ok").write_text("then")
    return path


@contextmanager
def deepest(top: Path, depth: int) -> Iterator[int]:
    """Make directories in one another, and give the last; no path leads there."""
    handle = os.open(top, os.O_RDONLY)
    try:
        for _ in range(depth):
            os.mkdir(NAME, dir_fd=handle)
            inner = os.open(NAME, os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def write(folder: int, name: str, content: bytes) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=folder)
    os.write(handle, content)
    os.close(handle)


@pytest.mark.parametrize("beside", ["nothing", "a file", "a repository"])
def test_what_lies_too_deep_is_told(root: Path, beside: str) -> None:
    if beside == "a repository":
        make_repository(root / "inner")
        (root / "inner" / "f").write_text("f")
    top = root / "inner" if beside == "a repository" else root
    with deepest(top, 25) as folder:
        write(folder, "work.txt", b"hours of work")
        if beside == "a file":
            (root / NAME / "f").write_text("f")
        workspace = Workspace(root)
        for _ in range(2):
            taken = workspace.snapshot()
            assert [one.reason for one in taken.skipped] == [REASON]
            parts = taken.skipped[0].path.split("/")
            assert set(parts[top != root :]) == {NAME}
        # A rollback works around it.
        (root / "ok").write_text("now")
        workspace.restore(taken.commit)
        assert (root / "ok").read_text() == "then"
        assert os.listdir(folder) == ["work.txt"]


def test_a_file_whose_whole_path_is_too_long_is_told(root: Path) -> None:
    # Git, which works from the project's directory, can still open it; the system cannot by its path.
    with deepest(root, 20) as folder:
        write(folder, "n" * 60, b"hours of work")
        (root / NAME / "f").write_text("f")
        workspace = Workspace(root)
        for _ in range(2):
            taken = workspace.snapshot()
            assert REASON in {one.reason for one in taken.skipped}
            assert len(workspace.files(taken.commit)) == 2
