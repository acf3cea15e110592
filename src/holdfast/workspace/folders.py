"""What git knows nothing of: empty directories, permissions of directories, and special files in them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.workspace.basis import RACY_NS, Basis
from holdfast.workspace.details import Details
from holdfast.workspace.files import (
    TOO_LONG,
    UNREADABLE,
    Files,
    is_closed,
    is_plain,
    kind_of,
    lstat,
)
from holdfast.workspace.findings import Findings
from holdfast.workspace.ignores import ignored_among
from holdfast.workspace.paths import folders_of

DOT_GIT: Final = ".git"
# What lets everybody look into a directory.
_OPEN: Final = 0o555


class Folders:
    """The directories of the project, as one capture finds them."""

    def __init__(self, basis: Basis, files: Files, findings: Findings) -> None:
        self._basis = basis
        self._root = basis.store.root
        self._files = files
        self._findings = findings

    def new_repositories(self) -> Iterator[str]:
        """Look at all known directories; yield repositories that have changed since the last capture."""
        known: dict[str, list[Any]] = self._basis.note.get("folders", {})
        for path, (stamp, _) in known.items():
            looked = self._files.folder(path) if path else None
            changed = looked is not None and looked.st_mtime_ns != stamp
            if changed and os.path.lexists(self._root / path / DOT_GIT):
                yield f"{path}/"

    def has_files(self, folder: str) -> bool:
        """Whether a directory holds anything but directories; special files are noted."""
        found = False
        for where, folders, names in os.walk(self._root / folder, onerror=self._note_unreadable):
            if DOT_GIT in folders:
                folders.remove(DOT_GIT)
                found = True
            if any(os.path.islink(os.path.join(where, one)) for one in folders):
                # A link to a directory is listed as one.
                return True
            for name in names:
                path = os.path.relpath(os.path.join(where, name), self._root)
                looked = lstat(self._root / path)
                if looked is None:
                    if self._files.is_too_long(path):
                        self._findings.skipped[path] = TOO_LONG
                    elif closed := self._files.closed_on_the_way(path):
                        self._findings.skipped[closed] = UNREADABLE
                    continue
                if is_plain(looked.st_mode):
                    return True
                self._findings.skipped[path] = kind_of(looked.st_mode)
                found = True
        return found

    def note_unopened(self, folders: Iterable[str]) -> None:
        """Note what lies too deep, in directories that git could not open or name to their end."""
        for folder in folders:
            for _ in os.walk(self._root / folder, onerror=self._note_unreadable):
                pass

    def find_empty(self, untracked: Iterable[str]) -> None:
        """Find the directories without files among untracked ones, once every file is known."""
        empty = self._findings.empty
        for path in untracked:
            folder = path.rstrip("/")
            if path.endswith("/") and not self._basis.store.is_own(folder):
                empty |= self._empty_below(folder)
        empty -= self._ignored(empty)

    def note_permissions(self, details: Details, *, full: bool) -> dict[str, list[Any]]:
        """Note the permissions of the directories that hold files, and special files in them.

        Returns them with their time stamps: one that did not change is not opened the next time.
        """
        known: dict[str, list[Any]] = self._basis.note.get("folders", {})
        folders = {"": [0, []], **known}
        findings = self._findings
        for path in folders_of((*findings.add, *(f"{one}/" for one in findings.empty))):
            folders.setdefault(path, [0, []])
        kept: dict[str, list[Any]] = {}
        looked_at = folders if full else {path: one for path, one in folders.items() if not one[0]}
        started = self._basis.started
        for path, (stamp, special) in looked_at.items():
            looked = self._files.folder(path)
            if looked is None and self._files.is_out_of_reach(path):
                # It may be there: known as it was until somebody opens the way to it.
                kept[path] = [0, special]
                continue
            if looked is None:
                details.directories.pop(path, None)
                continue
            if path:
                details.note_directory(path, looked.st_mode)
            # Few are closed to anybody at all.
            if looked.st_mode & _OPEN != _OPEN and is_closed(self._root / path):
                findings.skipped[path or "."] = UNREADABLE
                stamp = 0
            elif looked.st_mtime_ns != stamp:
                special = self._special_files(path)
                stamp = looked.st_mtime_ns if started - looked.st_mtime_ns > RACY_NS else 0
            kept[path] = [stamp, special]
            for name, reason in special:
                findings.skipped.setdefault(f"{path}/{name}" if path else name, reason)
        return kept if full else {**folders, **kept}

    def _empty_below(self, folder: str) -> set[str]:
        found = set()
        for where, names, files in os.walk(self._root / folder, onerror=self._note_unreadable):
            if DOT_GIT in names:
                names.remove(DOT_GIT)
            special = (_is_special(Path(where, one)) for one in files)
            if not names and all(special) and not is_closed(Path(where)):
                found.add(os.path.relpath(where, self._root))
        return found

    def _ignored(self, folders: Iterable[str]) -> set[str]:
        # Without a slash at the end, which a rule about what is in a directory would fit too.
        listed = list(folders)
        if not listed:
            return set()
        basis = self._basis
        return set(ignored_among(basis.store.git, listed, deadline=basis.deadline))

    def _note_unreadable(self, error: OSError) -> None:
        path = os.path.relpath(error.filename, self._root)
        if isinstance(error, PermissionError):
            self._findings.skipped[path] = UNREADABLE
        elif error.errno == errno.ENAMETOOLONG:
            self._findings.skipped[path] = TOO_LONG

    def _special_files(self, folder: str) -> list[list[str]]:
        special = []
        try:
            with os.scandir(self._root / folder) as entries:
                for entry in entries:
                    if not (entry.is_file() or entry.is_dir() or entry.is_symlink()):
                        mode = entry.stat(follow_symlinks=False).st_mode
                        special.append([entry.name, kind_of(mode)])
        except PermissionError:
            self._findings.skipped[folder] = UNREADABLE
        except OSError:
            pass
        return special


def _is_special(path: Path) -> bool:
    looked = lstat(path)
    return looked is None or not is_plain(looked.st_mode)
