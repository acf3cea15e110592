"""Whether git read the files of the project, and no others.

Git opens a file by its whole path. Somebody who exchanges a directory for a link just then has it read what
lies outside. An exchange leaves a trace that nobody can remove: the directory in which it happens gets a new
time of change. So the directories on the way are looked at before and after; only where one has changed, or
changed so shortly before that its time would not tell, the files below are opened once more, from the
project's own directory down and without following a link, and compared with what git took.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, TypeAlias

from holdfast.workspace.base import Entry
from holdfast.workspace.files import LINK, blob_of, git_mode, lstat
from holdfast.workspace.paths import folders_of, parents

# Times of change are as fine as a tick of the system; where they are whole seconds, as coarse as two.
_TICK_NS: Final = 50_000_000
_SECOND_NS: Final = 1_000_000_000
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_Stamp: TypeAlias = tuple[int, int, int] | None


class Watch:
    """The directories on the way to some files, while git reads those."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root = root
        self._paths = paths
        self._folders = ["", *folders_of(paths)]
        self._begun = time.time_ns()
        self._before = self._stamps()

    def doubtful(self) -> list[str]:
        """Return the files of which nobody knows by now what git has read."""
        after = self._stamps()
        moved = {
            path
            for path, stamp in self._before.items()
            if stamp is None or stamp != after[path] or self._is_fresh(stamp[2])
        }
        if not moved:
            return []
        return [path for path in self._paths if not moved.isdisjoint(("", *parents(path)))]

    def _stamps(self) -> dict[str, _Stamp]:
        return {path: _stamp(lstat(self._root / path)) for path in self._folders}

    def _is_fresh(self, changed: int) -> bool:
        coarse = changed % _SECOND_NS == 0
        return changed > self._begun - (2 * _SECOND_NS if coarse else _TICK_NS)


@contextmanager
def opened(root: Path, path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Open a file of the project without following a link; give git's mode and the content.

    That of a link is where it leads. Raises `OSError` for what is no file, or not reached that way.
    """
    with _folder_of(root, path) as (folder, name):
        looked = os.lstat(name, dir_fd=folder)
        if stat.S_ISLNK(looked.st_mode):
            target = os.readlink(os.fsencode(name), dir_fd=folder)
            with TemporaryFile() as file:
                file.write(target)
                file.seek(0)
                yield LINK, file
            return
        with open(os.open(name, _FILE, dir_fd=folder), "rb", buffering=0) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            yield git_mode(mode), file


def is_there(root: Path, path: str, entry: Entry) -> bool:
    """Whether a file of the project is what git took for it, reached without following a link."""
    try:
        with opened(root, path) as (mode, file):
            return (mode, blob_of(file, entry.blob)) == (entry.mode, entry.blob)
    except OSError:
        return False


@contextmanager
def _folder_of(root: Path, path: str) -> Iterator[tuple[int, str]]:
    *folders, name = path.split("/")
    handle = os.open(root, os.O_RDONLY)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, name
    finally:
        os.close(handle)


def _stamp(looked: os.stat_result | None) -> _Stamp:
    if looked is None or not stat.S_ISDIR(looked.st_mode):
        return None
    return (looked.st_dev, looked.st_ino, looked.st_ctime_ns)
