"""Carrying out a plan on the real files, one careful step at a time.

Every path is walked from the project's own directory, component by component, without following a link:
nothing outside can be reached through a link that somebody put in the way. A file is written beside its
place and then moved there, so a reader sees the old content or the new. Each step can be repeated, so a
plan that was interrupted is carried out again from the start.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from types import MappingProxyType
from typing import Final

from holdfast.workspace.base import Change, Entry
from holdfast.workspace.plan import Plan
from holdfast.workspace.private_store import PrivateStore

# Up to so many files are synced one by one; beyond, the system is asked to sync everything once.
_SYNC_EACH: Final = 200
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Applier:
    """Carries out plans below one directory. ``mark`` names the files that are not finished yet."""

    def __init__(self, store: PrivateStore, mark: str) -> None:
        self._store = store
        self._root = store.root
        self._temporary = f".holdfast-{mark}"
        self._opened: dict[str, int] = {}

    def carry_out(self, plan: Plan, contents: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Delete, write and set what the plan says; durable when this returns.

        ``contents`` are blobs that were read and verified already.
        """
        try:
            self._delete([one.path for one in plan.changes if one.new is None or _swaps(one)])
            self._remove_folders(plan)
            for path in plan.empty_new:
                with self._folder(path, create=True):
                    pass
            self._write(plan, contents)
            for path, (_, mode) in plan.modes.items():
                self._chmod(path, mode)
            self._set_folder_modes(plan)
        finally:
            self._give_back()
        if len(plan.changes) > _SYNC_EACH:
            os.sync()

    def clean_up(self, plan: Plan) -> None:
        """Remove what an interrupted run left unfinished."""
        for folder in {os.path.dirname(one.path) for one in plan.changes}:
            with suppress(OSError), self._folder(folder, create=False) as handle:
                os.unlink(self._temporary, dir_fd=handle)

    # Deleting --------------------------------------------------------------------------------

    def _delete(self, paths: list[str]) -> None:
        for path in paths:
            folder, name = os.path.split(path)
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                self._folder(folder, create=False, writable=True) as handle,
            ):
                if not stat.S_ISDIR(os.lstat(name, dir_fd=handle).st_mode):
                    os.unlink(name, dir_fd=handle)

    def _remove_folders(self, plan: Plan) -> None:
        """Remove directories that lost their last file, unless something else is left in them."""
        wanted = {path: None for one in plan.empty_new for path in _with_parents(one)}
        folders: dict[str, None] = {}
        for one in plan.changes:
            if one.new is None or _swaps(one):
                folders |= dict.fromkeys(_with_parents(os.path.dirname(one.path)))
            elif one.old is None:
                # Where a file is to come, only empty directories may be in the way.
                folders |= dict.fromkeys(self._folders_below(one.path))
        for path in plan.empty_old:
            if path not in wanted:
                folders |= dict.fromkeys((*_with_parents(path), *self._folders_below(path)))
        for path in sorted(folders.keys() - wanted.keys(), key=lambda one: -one.count("/")):
            parent, name = os.path.split(path)
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                self._folder(parent, create=False, writable=True) as handle,
            ):
                try:
                    os.rmdir(name, dir_fd=handle)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise

    def _folders_below(self, path: str) -> Iterator[str]:
        for where, _, _ in os.walk(self._root / path):
            yield os.path.relpath(where, self._root)

    # Writing ---------------------------------------------------------------------------------

    def _write(self, plan: Plan, contents: Mapping[str, bytes]) -> None:
        wanted: dict[str, list[tuple[str, Entry]]] = {}
        for one in plan.changes:
            if one.new is not None:
                wanted.setdefault(one.new.blob, []).append((one.path, one.new))
        sync = len(plan.changes) <= _SYNC_EACH
        others = (blob for blob in wanted if blob not in contents)
        for blob, content in chain(contents.items(), self._store.each_object(others)):
            for path, entry in wanted[blob]:
                mode = plan.modes[path][1] if path in plan.modes else 0o644
                self._write_one(path, entry, content, mode, sync=sync)

    def _write_one(self, path: str, entry: Entry, content: bytes, mode: int, *, sync: bool) -> None:
        folder, name = os.path.split(path)
        with self._folder(folder, create=True) as handle:
            if _holds(handle, name, entry, content):
                return
            self._make_writable(folder, handle)
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=handle)
            try:
                if entry.mode == "120000":
                    os.symlink(content, os.fsencode(self._temporary), dir_fd=handle)
                else:
                    self._fill(handle, content, mode, sync=sync)
                os.replace(self._temporary, name, src_dir_fd=handle, dst_dir_fd=handle)
            except BaseException:
                with suppress(OSError):
                    os.unlink(self._temporary, dir_fd=handle)
                raise

    def _fill(self, folder: int, content: bytes, mode: int, *, sync: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())

    # Permissions -----------------------------------------------------------------------------

    def _chmod(self, path: str, mode: int) -> None:
        folder, name = os.path.split(path)
        with suppress(FileNotFoundError), self._folder(folder, create=False) as handle:
            looked = os.lstat(name, dir_fd=handle)
            if stat.S_ISREG(looked.st_mode) and stat.S_IMODE(looked.st_mode) != mode:
                os.chmod(name, mode, dir_fd=handle)

    def _set_folder_modes(self, plan: Plan) -> None:
        # The deepest first: a directory that is closed afterwards cannot be entered any more.
        for path in sorted(plan.folder_modes, key=lambda one: -one.count("/")):
            mode = plan.folder_modes[path][1]
            self._opened.pop(path, None)
            self._chmod_folder(path, mode)

    def _chmod_folder(self, path: str, mode: int) -> None:
        # By name: a directory that nobody may read cannot be opened.
        parent, name = os.path.split(path)
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(parent, create=False) as handle,
        ):
            looked = os.lstat(name, dir_fd=handle)
            if stat.S_ISDIR(looked.st_mode) and stat.S_IMODE(looked.st_mode) != mode:
                os.chmod(name, mode, dir_fd=handle)

    def _make_writable(self, path: str, handle: int) -> None:
        """Open a directory for writing that its owner had closed; it is closed again in the end."""
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & 0o300 != 0o300 and path not in self._opened:
            with suppress(PermissionError):
                os.fchmod(handle, mode | 0o300)
                self._opened[path] = mode

    def _give_back(self) -> None:
        for path, mode in sorted(self._opened.items(), key=lambda one: -one[0].count("/")):
            with suppress(OSError), self._folder(path, create=False) as handle:
                os.fchmod(handle, mode)
        self._opened.clear()

    # Walking ---------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, path: str, *, create: bool, writable: bool = False) -> Iterator[int]:
        """Open a directory below the project without following any link."""
        handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        walked = ""
        try:
            for name in path.split("/") if path and path != "." else ():
                try:
                    inner = os.open(name, _FOLDER, dir_fd=handle)
                except FileNotFoundError:
                    if not create:
                        raise
                    self._make_writable(walked, handle)
                    os.mkdir(name, dir_fd=handle)
                    inner = os.open(name, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
                walked = f"{walked}/{name}" if walked else name
            if writable:
                self._make_writable(walked, handle)
            yield handle
        finally:
            os.close(handle)


def _holds(folder: int, name: str, entry: Entry, content: bytes) -> bool:
    """Whether a file or link is there with its content already, so that nothing is to be written."""
    try:
        looked = os.lstat(name, dir_fd=folder)
        if entry.mode == "120000":
            return stat.S_ISLNK(looked.st_mode) and content == os.readlink(
                os.fsencode(name), dir_fd=folder
            )
        if not stat.S_ISREG(looked.st_mode) or looked.st_size != len(content):
            return False
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=folder), "rb") as file:
            return file.read() == content
    except OSError:
        return False


def _swaps(change: Change) -> bool:
    """Whether a file becomes a link or a link a file."""
    return (
        change.old is not None
        and change.new is not None
        and (change.old.mode[:3] != change.new.mode[:3])
    )


def _with_parents(path: str) -> Iterator[str]:
    while path:
        yield path
        path = os.path.dirname(path)
