"""Files of the project, looked at without following a link.

What lies behind a link is not looked at by that way: if it belongs to the project, a snapshot knows it by
its own name.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, Final

from holdfast.workspace.objects import object_name
from holdfast.workspace.paths import parents

LINK: Final = "120000"
_PIECE: Final = 1 << 20
# Why a path cannot be looked at: it is not there, or something on the way to it is no directory of ours,
# or it is longer than the system takes.
_ABSENT: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}
)
TOO_LONG: Final = "its path is longer than the system takes"
UNREADABLE: Final = "unreadable"


class Files:
    """The files below ``root``, as one capture sees them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Which directories can be reached without passing through a link, and what was seen of them.
        self._real: dict[str, bool] = {"": True}
        self._folders: dict[str, os.stat_result] = {}
        self._links: dict[str, bool] = {}

    def lstat(self, path: str) -> os.stat_result | None:
        """Look at a path of the project; what lies behind a link is none."""
        return lstat(self._root / path) if self.is_real(path.rpartition("/")[0]) else None

    def is_too_long(self, path: str) -> bool:
        """Whether a path cannot be looked at because of its length."""
        try:
            os.lstat(self._root / path)
        except OSError as error:
            return error.errno == errno.ENAMETOOLONG
        return False

    def is_out_of_reach(self, path: str) -> bool:
        """Whether a path cannot be looked at because a directory on the way to it is closed."""
        try:
            os.lstat(self._root / path)
        except PermissionError:
            return True
        except OSError:
            pass
        return False

    def is_real(self, folder: str) -> bool:
        """Whether a directory is one, and is reached through directories alone."""
        known = self._real.get(folder)
        if known is None:
            known = self._real[folder] = self.folder(folder) is not None
        return known

    def folder(self, path: str) -> os.stat_result | None:
        """Return what was seen of a directory first; None where there is none, or a link leads to it."""
        seen = self._folders.get(path)
        if seen is None and self.is_real(path.rpartition("/")[0]):
            looked = lstat(f"{self._root}/{path}")
            if looked is not None and stat.S_ISDIR(looked.st_mode):
                seen = self._folders[path] = looked
        return seen

    def is_folder(self, path: str) -> bool:
        """Whether a path is a directory now."""
        looked = self.lstat(path)
        return looked is not None and stat.S_ISDIR(looked.st_mode)

    def passes_link(self, path: str) -> bool:
        """Whether a path leads to a file that a snapshot knows by another name."""
        return any(map(self._is_link, parents(path)))

    def closed_on_the_way(self, path: str) -> str | None:
        """Return the directory of the project that keeps a path out of reach, None if none does."""
        if not self.is_out_of_reach(path) or self.passes_link(path):
            return None
        above = [*parents(path)]
        return next((one for one in reversed(above) if is_closed(self._root / one)), None)

    def _is_link(self, folder: str) -> bool:
        known = self._links.get(folder)
        if known is None:
            known = self._links[folder] = os.path.islink(self._root / folder)
        return known


def lstat(path: Path | str) -> os.stat_result | None:
    """Return what `os.lstat` says, None where nothing can be seen."""
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None


def is_closed(folder: Path) -> bool:
    """Whether a directory may not be read or not be entered."""
    return not os.access(folder, os.R_OK | os.X_OK)


def is_plain(mode: int) -> bool:
    """Whether git keeps such a thing by itself: a regular file or a link."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def git_mode(mode: int) -> str:
    """Return the mode by which git knows a file or link."""
    if stat.S_ISLNK(mode):
        return LINK
    return "100755" if mode & 0o100 else "100644"


def kind_of(mode: int) -> str:
    """Return what a special file is, for a person to read."""
    for test, name in (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISCHR, "a device"),
    ):
        if test(mode):
            return name
    return "not a file"


def blob_of(file: IO[bytes], like: str) -> str:
    """Return the name that git gives to the content of an open file, in the format of another name.

    Should it grow meanwhile, this is the name of no content, and so of none that is known.
    """
    pieces = iter(lambda: file.read(_PIECE), b"")
    return object_name("blob", pieces, os.fstat(file.fileno()).st_size, digits=len(like))
