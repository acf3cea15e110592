"""Carrying out a plan on the real files, one careful step at a time.

Every path is walked from the project's own directory, component by component, without following a link:
nothing outside can be reached through a link that somebody put in the way. A file is written beside its
place and then changes places with the old one, so a reader sees the old content or the new. Each step can
be repeated, so a plan that was interrupted is carried out again from the start.

Editors do not wait for us. What is on disk is compared with what the plan found there, before it is moved
aside and once more after, when nobody finds it by its name any longer; only then it is removed. What
somebody wrote meanwhile is left alone or put back, and told as a conflict.

A plan stops at its first failure. Taking it back does not: whatever stopped the one may stop a step of the
other, and files that were deleted have to come back all the same.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import new as new_hash
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.durable import sync_directories
from holdfast.workspace.base import Change, Entry, Skipped
from holdfast.workspace.held import (
    DIRECTORY,
    IMPOSSIBLE,
    NOFOLLOW,
    Held,
    as_absent,
    exchange,
    exists,
    held_by,
    look,
    lstat,
    move,
)
from holdfast.workspace.paths import parents
from holdfast.workspace.plan import Plan
from holdfast.workspace.private_store import PrivateStore

# Up to so many files and directories are synced one by one; beyond, everything is, once.
_SYNC_EACH: Final = 200
# Where there are none, nothing here is reached: `store_locks` refuses first.
_NO_FILE: Final = getattr(os, "O_DIRECTORY", 0)
_FOLDER: Final = os.O_RDONLY | _NO_FILE | NOFOLLOW
_CHANGED: Final = "it was changed while the restore was at work"
_IN_THE_WAY: Final = "a file that was changed meanwhile is in its way"


class Applier:
    """Carries out plans below one directory. ``mark`` names the files that are not finished yet."""

    def __init__(self, store: PrivateStore, mark: str) -> None:
        self._store = store
        self._root = store.root
        self._temporary = f".holdfast-{mark}"
        self._opened: dict[str, int] = {}
        self._conflicts: dict[str, str] = {}
        # Directories whose names changed, and what got other permissions.
        self._touched: set[str] = set()
        # While a plan is taken back: what could not be done of it.
        self._failures: list[Exception] | None = None

    def carry_out(
        self, plan: Plan, contents: Mapping[str, bytes] = MappingProxyType({})
    ) -> list[Skipped]:
        """Delete, write and set what the plan says; durable when this returns.

        ``contents`` are blobs that were read and verified already. Returns the paths that hold neither
        what the plan found nor what it wants: they are left alone.
        """
        self._conflicts = {}
        try:
            for one in plan.changes:
                if one.new is None or _swaps(one):
                    with self._step():
                        self._delete(one)
            self._remove_folders(plan)
            for path in plan.empty_new:
                if not self._is_blocked(path):
                    with self._step(path), self._folder(path, create=True):
                        pass
            self._write(plan, contents)
            for path, (_, mode) in plan.modes.items():
                if path not in self._conflicts:
                    with self._step():
                        self._chmod(path, mode)
            self._set_folder_modes(plan)
        finally:
            self._give_back()
        with self._step():
            self._sync(everything=len(plan.changes) > _SYNC_EACH)
        return [Skipped(path, reason) for path, reason in self._conflicts.items()]

    def take_back(self, plan: Plan) -> list[Skipped]:
        """Undo a plan that stopped somewhere, and return the paths that are left alone.

        Each step is tried, whatever becomes of the others. Raises the first failure in the end.
        """
        failures: list[Exception] = []
        self._failures = failures
        try:
            conflicts = [*self.clean_up(plan), *self.carry_out(plan.reversed())]
        finally:
            self._failures = None
        if failures:
            raise failures[0]
        return conflicts

    def clean_up(self, plan: Plan) -> list[Skipped]:
        """Remove what an interrupted run left unfinished, and put back what it had moved aside.

        Returns the paths where that would have replaced what somebody wrote since.
        """
        self._conflicts = {}
        changes = {self._aside(one.path): one for one in plan.changes}
        try:
            for folder in {os.path.dirname(one.path) for one in plan.changes}:
                left = self._left_in(folder)
                if not left:
                    continue
                with self._step(), self._folder(folder, create=False, writable=True) as handle:
                    self._touched.add(folder)
                    for name in left:
                        if name == self._temporary:
                            os.unlink(name, dir_fd=handle)
                        elif name in changes:
                            self._settle(handle, changes[name])
        finally:
            self._give_back()
        return [Skipped(path, reason) for path, reason in self._conflicts.items()]

    def closed_mode(self, path: str) -> int | None:
        """Return the mode of a directory that may not be read or entered; None for any other."""
        parent, name = os.path.split(path)
        try:
            with suppress(OSError), self._folder(parent, create=False) as handle:
                mode = lstat(handle, name).st_mode
                if stat.S_ISDIR(mode) and not os.access(name, os.R_OK | os.X_OK, dir_fd=handle):
                    return stat.S_IMODE(mode)
        finally:
            self._give_back()
        return None

    @contextmanager
    def _step(self, path: str | None = None) -> Iterator[None]:
        """Let a step fail by itself while a plan is taken back.

        With a path it makes something. A file that is on the way to it then is somebody else's.
        """
        try:
            yield
        except Exception as error:
            if self._failures is None:
                raise
            if path is not None and isinstance(error, NotADirectoryError):
                self._conflicts[path] = _IN_THE_WAY
            else:
                self._failures.append(error)

    def _sync(self, *, everything: bool) -> None:
        """Have names and permissions outlast a power cut; contents were synced as they were written."""
        there = [path for path in self._touched if _is_own(self._root / path)]
        self._touched.clear()
        if not everything and len(there) <= _SYNC_EACH:
            try:
                sync_directories(self._root / path for path in there)
            except PermissionError:
                # What is closed to its owner cannot be opened to be synced.
                everything = True
        if everything or len(there) > _SYNC_EACH:
            os.sync()

    def _left_in(self, folder: str) -> list[str]:
        with suppress(OSError), self._folder(folder, create=False) as handle:
            return [name for name in os.listdir(handle) if name.startswith(self._temporary)]
        return []

    # Comparing -------------------------------------------------------------------------------

    def _aside(self, path: str) -> str:
        """Return the name for what was at a path: whoever finds it after a kill knows the path."""
        digest = new_hash("sha1", os.fsencode(path), usedforsecurity=False).hexdigest()
        return f"{self._temporary}-{digest[:16]}"

    def _settle(self, folder: int, change: Change) -> None:
        """Remove what was moved aside when a snapshot holds it; put it back when none does."""
        name, aside = os.path.basename(change.path), self._aside(change.path)
        known = _known(change)
        beside = look(folder, aside, change)
        if beside is None:
            return
        if not exists(folder, name) and move(folder, aside, name):
            pass
        elif beside in known:
            os.unlink(aside, dir_fd=folder)
            return
        elif beside != DIRECTORY and look(folder, name, change) in known:
            os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            where = os.path.join(os.path.dirname(change.path), aside)
            self._conflicts[change.path] = f"{_CHANGED}; what was there before is in {where}"
            return
        if beside not in known:
            self._conflicts[change.path] = _CHANGED

    def _is_blocked(self, path: str) -> bool:
        """Whether a file that is left alone is in the way of a path."""
        return bool(self._conflicts) and any(one in self._conflicts for one in parents(path))

    # Deleting --------------------------------------------------------------------------------

    def _delete(self, change: Change) -> None:
        folder, name = os.path.split(change.path)
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(folder, create=False, writable=True) as handle,
        ):
            found = look(handle, name, change)
            if found in (None, DIRECTORY, held_by(change.new)):
                return
            if found != held_by(change.old):
                self._conflicts[change.path] = _CHANGED
                return
            self._touched.add(folder)
            aside = self._aside(change.path)
            os.rename(name, aside, src_dir_fd=handle, dst_dir_fd=handle)
            if look(handle, aside, change) == found:
                os.unlink(aside, dir_fd=handle)
            else:
                self._settle(handle, change)

    def _remove_folders(self, plan: Plan) -> None:
        """Remove directories that lost their last file, unless something is left in them or to come."""
        wanted = {path: None for one in plan.empty_new for path in (one, *parents(one))}
        # A directory made anew is another one for whoever works in it.
        wanted |= {path: None for one in plan.changes if one.new for path in parents(one.path)}
        folders: dict[str, None] = {}
        for one in plan.changes:
            if one.new is None or _swaps(one):
                folders |= dict.fromkeys(parents(one.path))
            elif one.old is None:
                # Where a file is to come, only empty directories may be in the way.
                folders |= dict.fromkeys(self._folders_below(one.path))
        for path in plan.empty_old:
            if path not in wanted:
                folders |= dict.fromkeys((path, *parents(path), *self._folders_below(path)))
        for path in sorted(folders.keys() - wanted.keys(), key=lambda one: -one.count("/")):
            with self._step():
                self._remove_folder(path)

    def _remove_folder(self, path: str) -> None:
        parent, name = os.path.split(path)
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(parent, create=False, writable=True) as handle,
        ):
            self._touched.add(parent)
            try:
                os.rmdir(name, dir_fd=handle)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, *IMPOSSIBLE}:
                    raise

    def _folders_below(self, path: str) -> Iterator[str]:
        for where, _, _ in os.walk(self._root / path):
            yield os.path.relpath(where, self._root)

    # Writing ---------------------------------------------------------------------------------

    def _write(self, plan: Plan, contents: Mapping[str, bytes]) -> None:
        wanted: dict[str, list[tuple[Change, Entry]]] = {}
        for one in plan.changes:
            if one.new is not None and one.path not in self._conflicts:
                wanted.setdefault(one.new.blob, []).append((one, one.new))
        sync = len(plan.changes) <= _SYNC_EACH
        others = [blob for blob in wanted if blob not in contents]
        for blob, content in chain(contents.items(), self._read(others)):
            for one, entry in wanted.get(blob, ()):
                mode = plan.modes[one.path][1] if one.path in plan.modes else 0o644
                with self._step(one.path):
                    self._write_one(one, entry, content, mode, sync=sync)

    def _read(self, blobs: list[str]) -> Iterator[tuple[str, bytes]]:
        """Yield contents; while a plan is taken back, one that is damaged hides no other."""
        if self._failures is None:
            yield from self._store.each_object(blobs)
            return
        left = iter(blobs)
        while some := list(left):
            left = iter(some)
            with self._step():
                for found in self._store.each_object(some):
                    next(left)
                    yield found
            # The one that was not found.
            next(left, None)

    def _write_one(
        self, change: Change, entry: Entry, content: bytes, mode: int, *, sync: bool
    ) -> None:
        folder, name = os.path.split(change.path)
        if self._is_blocked(change.path):
            self._conflicts[change.path] = _IN_THE_WAY
            return
        with self._folder(folder, create=True) as handle:
            found = look(handle, name, change)
            if found == held_by(entry):
                return
            # On the way back it holds what somebody else put there.
            strict = self._failures is None
            if found == DIRECTORY and strict and not self._holds_conflicts(change.path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), change.path)
            if found not in (None, held_by(change.old)):
                self._conflicts[change.path] = _CHANGED
                return
            self._make_writable(folder, handle)
            self._touched.add(folder)
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=handle)
            try:
                if entry.mode == "120000":
                    os.symlink(content, os.fsencode(self._temporary), dir_fd=handle)
                else:
                    self._fill(handle, content, mode, sync=sync)
                self._put_in_place(handle, change, there=found is not None)
            except BaseException:
                with suppress(OSError):
                    os.unlink(self._temporary, dir_fd=handle)
                raise

    def _put_in_place(self, folder: int, change: Change, *, there: bool) -> None:
        """Give the finished file its name, and take the old one from there, whatever it is by now."""
        name, aside = os.path.basename(change.path), self._aside(change.path)
        if there:
            # Under this name it is known after a kill, be it before or after the exchange.
            os.rename(self._temporary, aside, src_dir_fd=folder, dst_dir_fd=folder)
            with suppress(FileNotFoundError):
                if exchange(folder, aside, name):
                    self._settle(folder, change)
                    return
            os.rename(aside, self._temporary, src_dir_fd=folder, dst_dir_fd=folder)
            with suppress(FileNotFoundError):
                os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        if not move(folder, self._temporary, name):
            os.unlink(self._temporary, dir_fd=folder)
            self._conflicts[change.path] = _CHANGED
        self._settle(folder, change)

    def _holds_conflicts(self, folder: str) -> bool:
        return any(one.startswith(f"{folder}/") for one in self._conflicts)

    def _fill(self, folder: int, content: bytes, mode: int, *, sync: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
        with open(os.open(self._temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())

    # Permissions -----------------------------------------------------------------------------

    def _chmod(self, path: str, mode: int) -> None:
        folder, name = os.path.split(path)
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(folder, create=False) as handle,
        ):
            looked = lstat(handle, name)
            if stat.S_ISREG(looked.st_mode) and stat.S_IMODE(looked.st_mode) != mode:
                self._touched.add(path)
                os.chmod(name, mode, dir_fd=handle)

    def _set_folder_modes(self, plan: Plan) -> None:
        # The deepest first: a directory that is closed afterwards cannot be entered any more.
        for path in sorted(plan.folder_modes, key=lambda one: -one.count("/")):
            mode = plan.folder_modes[path][1]
            self._opened.pop(path, None)
            with self._step():
                self._chmod_folder(path, mode)

    def _chmod_folder(self, path: str, mode: int) -> None:
        # By name: a directory that nobody may read cannot be opened.
        parent, name = os.path.split(path)
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder(parent, create=False) as handle,
        ):
            looked = lstat(handle, name)
            if stat.S_ISDIR(looked.st_mode) and stat.S_IMODE(looked.st_mode) != mode:
                self._touched.add(path)
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
        handle = os.open(self._root, os.O_RDONLY | _NO_FILE)
        walked = ""
        try:
            for name in path.split("/") if path and path != "." else ():
                below = f"{walked}/{name}" if walked else name
                try:
                    inner = self._enter(handle, name, below)
                except FileNotFoundError:
                    if not create:
                        raise
                    self._make_writable(walked, handle)
                    self._touched.add(walked)
                    os.mkdir(name, dir_fd=handle)
                    inner = os.open(name, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle, walked = inner, below
            if writable:
                self._make_writable(walked, handle)
            yield handle
        finally:
            os.close(handle)

    def _enter(self, folder: int, name: str, path: str) -> int:
        """Open a directory in another; one that is closed to its owner is opened for the time being."""
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:
            looked = lstat(folder, name)
            if not stat.S_ISDIR(looked.st_mode):
                raise
            mode = stat.S_IMODE(looked.st_mode)
            os.chmod(name, mode | 0o700, dir_fd=folder)
            self._opened.setdefault(path, mode)
            return os.open(name, _FOLDER, dir_fd=folder)
        except OSError as error:
            raise as_absent(error) from None


def _is_own(path: Path) -> bool:
    """Whether a path is there and no link, which could lead anywhere."""
    try:
        return not stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def _known(change: Change) -> set[Held | None]:
    """Return what a path may hold without anything being lost when it goes."""
    return {held_by(one) for one in (change.old, change.new) if one is not None}


def _swaps(change: Change) -> bool:
    """Whether a file becomes a link or a link a file."""
    return (
        change.old is not None
        and change.new is not None
        and (change.old.mode[:3] != change.new.mode[:3])
    )
