"""Writing beside other people's files: whole or not at all, and never over what is there."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directory
from holdfast.errors import HandoffRefused
from holdfast.workspace.base import STORE, is_git_name

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


def inside(project_dir: Path, path: Path) -> Path:
    """Return where a path of the project leads, links followed. Raises `HandoffRefused` if outside.

    What git keeps is no file of the project: settings that came with it do not lead there either.
    """
    top, real = project_dir.resolve(), (project_dir / path).resolve()
    inner = real.relative_to(top) if top in real.parents else None
    if inner is None or is_git_name(inner.as_posix()) or STORE in inner.parts:
        raise HandoffRefused(f"{path} is not a file of the project {top}; nothing was written")
    return real


def make_folder(folder: Path) -> None:
    """Make a directory and those above it, if they are not there. A file in its place is none that exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(
            errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(folder)
        ) from None


def create_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet. Raises `FileExistsError`; what appears is whole."""
    make_folder(path.parent)
    aside = _written_aside(path.parent, data, mode=0o644)
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    finally:
        aside.unlink()
    _sync_names(path.parent)


def replace_file(path: Path, before: bytes, after: bytes) -> bool:
    """Put ``after`` in the place of ``before``; false if the file says something else by now."""
    aside = _written_aside(path.parent, after, mode=path.stat().st_mode & 0o7777)
    try:
        if path.read_bytes() != before:
            return False
        os.replace(aside, path)
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
    _sync_names(path.parent)
    return True


def _written_aside(folder: Path, data: bytes, *, mode: int) -> Path:
    handle, name = tempfile.mkstemp(prefix=".holdfast-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.chmod(name, mode)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        os.unlink(name)
        raise
    return Path(name)


def _sync_names(folder: Path) -> None:
    # Not every system opens directories; the file itself is synced in any case.
    with suppress(OSError):
        sync_directory(folder)
