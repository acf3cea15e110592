"""Reading files where anybody may have put something else in their place.

A link to a device without an end would fill the memory of whoever reads it, and a pipe that nobody writes to
would hold him for ever. So they are opened without waiting and have to be regular files; the small ones of a
project also have a size that such files have.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

MOST_BYTES = 16 * 1024 * 1024
_WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_small_file(
    path: str | os.PathLike[str], *, follow: bool = True, most: int = MOST_BYTES
) -> bytes:
    """Return what a file holds. Raises `OSError`, also for what is no file or a very large one."""
    with open_regular_file(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, "too large for what it is", os.fspath(path))
        # Room is made for all that is asked for, so no more than there is.
        return file.read(size)


def open_regular_file(path: str | os.PathLike[str], *, follow: bool = True) -> BufferedReader:
    """Open a file to be read. Raises `OSError`, also for what is no file."""
    flags = 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, os.O_RDONLY | _WITHOUT_WAITING | flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return open(handle, "rb")
