"""What a directory holds under a name: looked at, and renamed, through the directory's own handle.

No path is walked here, so no link that somebody puts in the way leads elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cache
from typing import Any, Final, TypeAlias

from holdfast.workspace.base import Change, Entry
from holdfast.workspace.files import blob_of
from holdfast.workspace.objects import object_name

# The kind, as the first digits of git's mode tell it, and the content's name.
Held: TypeAlias = tuple[str, str]
DIRECTORY: Final[Held] = ("040", "")
UNKNOWN: Final[Held] = ("", "")
# Where there is none, nothing here is reached: `store_locks` refuses first.
NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# What a file system says of a name that it cannot hold, and so does not.
IMPOSSIBLE: Final = frozenset({errno.ENAMETOOLONG, errno.EINVAL})
# Of Linux's renameat2.
_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2


def look(folder: int, name: str, change: Change) -> Held | None:
    """Return what is at a name now, read and hashed; None when nothing is."""
    try:
        looked = lstat(folder, name)
        if stat.S_ISDIR(looked.st_mode):
            return DIRECTORY
        blob = next(one.blob for one in (change.old, change.new) if one is not None)
        if stat.S_ISLNK(looked.st_mode):
            content = os.readlink(os.fsencode(name), dir_fd=folder)
            return ("120", object_name("blob", (content,), len(content), digits=len(blob)))
        if not stat.S_ISREG(looked.st_mode):
            return UNKNOWN
        flags = os.O_RDONLY | NOFOLLOW | os.O_NONBLOCK
        with open(os.open(name, flags, dir_fd=folder), "rb", buffering=0) as file:
            return ("100", blob_of(file, blob))
    except FileNotFoundError:
        return None
    except OSError:
        return UNKNOWN


def held_by(entry: Entry | None) -> Held | None:
    """Return what a path holds where a snapshot's entry stands."""
    return (entry.mode[:3], entry.blob) if entry is not None else None


def exists(folder: int, name: str) -> bool:
    """Whether a name is taken, by whatever it is."""
    try:
        lstat(folder, name)
    except FileNotFoundError:
        return False
    return True


def lstat(folder: int, name: str) -> os.stat_result:
    """Look at a name. Raises `FileNotFoundError` too where it is none that could be there."""
    try:
        return os.lstat(name, dir_fd=folder)
    except OSError as error:
        raise as_absent(error) from None


def as_absent(error: OSError) -> OSError:
    """Return the error for a name that is not there, where it is one that could not be."""
    if error.errno in IMPOSSIBLE:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), error.filename)
    return error


def move(folder: int, source: str, target: str) -> bool:
    """Rename something unless the new name is taken; whether it was renamed."""
    try:
        if _rename(folder, source, target, _NO_REPLACE):
            return True
    except FileExistsError:
        return False
    # Not to be had here: look, and hope that nobody comes between.
    if exists(folder, target):
        return False
    os.rename(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def exchange(folder: int, one: str, other: str) -> bool:
    """Let two things change names; False where the system or the file system cannot."""
    return _rename(folder, one, other, _EXCHANGE)


def _rename(folder: int, source: str, target: str, how: int) -> bool:
    """Rename as Linux can; False where the system or the file system cannot."""
    rename = _renameat2()
    if rename is None:
        return False
    from ctypes import get_errno

    if rename(folder, os.fsencode(source), folder, os.fsencode(target), how) == 0:
        return True
    number = get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), target)


@cache
def _renameat2() -> Any:
    from ctypes import CDLL

    try:
        return CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
