"""Files that a repository tracks although a rule ignores them: they are captured all the same.

Two kinds of repositories are asked: the one that the project lies in, and those that lie in the project.
Their indexes change far more often than the names in them, so the last answer is kept with marks of both.
Kept beside it are the files among them that the private index lacks, being deleted or too large at the
last look: no list of git's has them should they come back.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from typing import Final

from holdfast.errors import WorkspaceUnavailable
from holdfast.workspace.base import NEVER_CAPTURED
from holdfast.workspace.basis import FORCED_ABSENT, Basis
from holdfast.workspace.files import Files
from holdfast.workspace.findings import Findings
from holdfast.workspace.ignores import ignored_among
from holdfast.workspace.paths import split
from holdfast.workspace.process import finish
from holdfast.workspace.repository import Repository, stamp

_TRACKED: Final = ("ls-files", "-z", "-c")
# In the note: what is tracked although a rule ignores it.
_FORCED: Final = "forced"


class Tracked:
    """One capture's question to the repositories: `start`, go on with other work, then `finish`."""

    def __init__(self, basis: Basis, files: Files) -> None:
        self._basis = basis
        self._files = files
        self._nested: set[str] = set(basis.note.get("nested", ()))
        self._process: subprocess.Popen[bytes] | None = None
        # What the user's repository tracks, once it was asked.
        self._listed: list[str] | None = None
        self._new: list[str] = []
        # What was tracked although a rule ignores it, and no longer is.
        self.released: list[str] = []

    def add_nested(self, folder: str) -> None:
        """Take note of a repository inside of the project."""
        self._nested.add(folder)

    def start(self) -> None:
        """Start listing what the user's repository tracks, if that may be something new."""
        repository = self._basis.repository
        if repository is None:
            return
        mark = stamp(repository.index)
        if mark == self._basis.note.get("tracked_mark"):
            return
        self._basis.note["tracked_mark"] = mark
        git = repository.git(disarm=False)
        self._process = git.start(*_TRACKED, cwd=self._basis.store.root)

    def finish(self) -> bool:
        """Wait for the list; return whether the user's repository tracks the names it did before."""
        if self._process is None:
            return True
        tracked = finish(self._process, _TRACKED, deadline=self._basis.deadline)
        self._listed = split(tracked)
        note = self._basis.note
        own = (f"\0{path}/".encode() for path in NEVER_CAPTURED)
        note["tracks_own"] = any(path in b"\0" + tracked for path in own)
        digest = hashlib.sha256(tracked).hexdigest()
        known = note.get("tracked")
        note["tracked"] = digest
        return digest == known

    @property
    def forced(self) -> list[str]:
        """What is tracked although a rule ignores it, by the last answer."""
        return list(self._basis.note.get(_FORCED, ()))

    @property
    def absent(self) -> list[str]:
        """What of that the private index lacks since the last capture."""
        return list(self._basis.note.get(FORCED_ABSENT, ()))

    def newly_forced(self, *, same: bool) -> list[str]:
        """Return what is tracked although ignored and was not before.

        Nobody is asked if ``same`` and no nested repository changed.
        """
        note = self._basis.note
        repositories = self._repositories()
        inside = [one for one in repositories if one is not self._basis.repository]
        mark = [[str(one.index), *stamp(one.index)] for one in inside]
        if same and mark == note.get("nested_mark") and _FORCED in note:
            return []
        note["nested_mark"] = mark
        before = set(self.forced)
        note[_FORCED] = self._forced(repositories)
        self._new = [path for path in self.forced if path not in before]
        self.released = sorted(before - set(self.forced))
        return self._new

    def note_absent(self, findings: Findings) -> None:
        """Note which files the private index lacks once it is what ``findings`` say."""
        lacked = {*self.absent, *self._new, *findings.drop} - findings.add.keys()
        self._basis.note[FORCED_ABSENT] = [path for path in self.forced if path in lacked]

    def _repositories(self) -> list[Repository]:
        """Return the repository that the project lies in, and those that lie in the project."""
        own, root = self._basis.repository, self._basis.store.root
        nested = (Repository.at(root / folder) for folder in sorted(self._nested))
        inside = [one for one in nested if one is not None]
        self._basis.note["nested"] = [f"{one.top.relative_to(root)}/" for one in inside]
        return [*([own] if own else ()), *inside]

    def _forced(self, repositories: Iterable[Repository]) -> list[str]:
        """Return the tracked files that the rules ignore by which unknown files are listed.

        Those are not the rules that a repository goes by: the project's hold in the repositories inside
        of it, and those from above the project are rewritten.
        """
        basis, files = self._basis, self._files
        tracked = [path for one in repositories for path in self._tracked_by(one)]
        # Git refuses to be asked about what lies behind a link.
        asked = [
            path
            for path in dict.fromkeys(tracked)
            if not basis.store.is_own(path) and not files.passes_link(path)
        ]
        return ignored_among(basis.store.git, asked, deadline=basis.deadline) if asked else []

    def _tracked_by(self, repository: Repository) -> list[str]:
        root = self._basis.store.root
        if repository is self._basis.repository and self._listed is not None:
            return self._listed
        top = root if root.is_relative_to(repository.top) else repository.top
        prefix = "" if top == root else f"{top.relative_to(root)}/"
        git = repository.git(disarm=False)
        try:
            out = git.run(*_TRACKED, cwd=top, deadline=self._basis.deadline)
        except WorkspaceUnavailable:
            if top == root:
                raise
            # One inside of the project that git cannot read gives its files like any directory.
            return [path for path in self.forced if path.startswith(prefix)]
        return [f"{prefix}{path}" for path in split(out)]
