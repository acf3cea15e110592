"""What a capture decides about each path that it looks at: added, dropped, or skipped with a reason."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from holdfast.workspace.base import Limits, is_git_name
from holdfast.workspace.files import TOO_LONG, UNREADABLE, Files, kind_of
from holdfast.workspace.private_store import PrivateStore


class Findings:
    """The decisions of one capture so far.

    ``add`` holds files to be read, with what was seen of them; ``drop`` what the index is to forget,
    unless it is added again; ``skipped`` what is left out and why; ``empty`` directories without files.
    """

    def __init__(self, store: PrivateStore, limits: Limits, files: Files) -> None:
        self._store = store
        self._limits = limits
        self._files = files
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.add: dict[str, os.stat_result] = {}
        self.drop: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.empty: set[str] = set()
        self.rules_changed = False

    def consider(self, paths: Iterable[str], *, known: bool = False) -> None:
        """Sort paths into what is to be added, skipped and, where the index has them, dropped."""
        for path in paths:
            if path in self.add:
                continue
            if self._store.is_own(path):
                # One that an older capture took goes.
                if known:
                    self.drop.add(path)
                continue
            looked = self._files.lstat(path)
            if looked is not None and not stat.S_ISDIR(looked.st_mode):
                reason = self._reason_against(path, looked)
                if reason is None:
                    self.add[path] = looked
                    continue
                self.skipped[path] = reason
            elif looked is None and self._files.is_too_long(path):
                self.skipped[path] = TOO_LONG
            elif looked is None and (closed := self._files.closed_on_the_way(path)):
                self.skipped[closed] = UNREADABLE
            if known:
                self.drop.add(path)

    def rescue(self, paths: Iterable[str]) -> None:
        """Add files whatever the rules and caps say."""
        for path in paths:
            looked = self._files.lstat(path)
            if (
                looked is not None
                and not stat.S_ISDIR(looked.st_mode)
                and path not in self.add
                and not self._store.is_own(path)
            ):
                self.add[path] = looked
                self.drop.discard(path)
                self.skipped.pop(path, None)

    def let_go(self, path: str) -> None:
        """Drop a file that would have been added."""
        self.add.pop(path, None)
        self.drop.add(path)

    def leave_out(self, path: str, reason: str) -> None:
        """Skip a file that would have been added."""
        self.let_go(path)
        self.skipped[path] = reason

    def touches_rules(self) -> bool:
        """Whether other files may be ignored now than before."""
        return self.rules_changed or any(
            path.rpartition("/")[2] == ".gitignore" for path in (*self.add, *self.drop)
        )

    def _reason_against(self, path: str, looked: os.stat_result) -> str | None:
        if is_git_name(path):
            return "git keeps this name for itself"
        if stat.S_ISLNK(looked.st_mode):
            linked = path.rpartition("/")[2].lower()
            return "git keeps no link of this name" if linked == ".gitmodules" else None
        if not stat.S_ISREG(looked.st_mode):
            return kind_of(looked.st_mode)
        if looked.st_size > self._limits.max_file_bytes:
            return f"larger than {self._limits.max_file_bytes:,} bytes"
        if not os.access(self._store.root / path, os.R_OK):
            return UNREADABLE
        return None
