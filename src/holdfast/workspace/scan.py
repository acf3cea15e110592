"""Looking for what differs from the last capture, at the cost of what changed.

Two questions go to git side by side: which known files look different (``diff-files``, which compares only
what `lstat` says, so a changed permission shows too), and which unknown ones there are (``ls-files
--others``, by the project's ignore rules). What git does not list by itself is found by hand: the files of
nested repositories, files that the settings include, tracked files that a rule ignores.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.workspace.basis import FORCED_ABSENT, RECENT, Basis
from holdfast.workspace.details import Details
from holdfast.workspace.environment import DIRTY
from holdfast.workspace.files import Files
from holdfast.workspace.findings import Findings
from holdfast.workspace.folders import DOT_GIT, Folders
from holdfast.workspace.ignores import excludes_for, ignored_among
from holdfast.workspace.paths import batches, parents, split, within
from holdfast.workspace.private_index import PrivateIndex
from holdfast.workspace.process import Git, finish_heard
from holdfast.workspace.repository import stamp
from holdfast.workspace.tracked import Tracked

_OTHERS: Final = ("ls-files", "-z", "-o", "--directory", "--exclude-standard")
_OTHER_FILES: Final = ("ls-files", "-z", "-o", "--exclude-standard")
_DENIED: Final = b": Permission denied"
_EVERY_FILE: Final = ("ls-files", "-z", "-o")


class Scan:
    """One capture's look at the project; what it sees goes to ``findings``."""

    def __init__(
        self,
        basis: Basis,
        details: Details,
        findings: Findings,
        *,
        files: Files,
        folders: Folders,
        index: PrivateIndex,
    ) -> None:
        self._basis = basis
        self._root = basis.store.root
        self._details = details
        self._findings = findings
        self._files = files
        self._folders = folders
        self._index = index
        self._tracked = Tracked(basis, files)
        # The untracked directories, as long as none of them holds a file to be added.
        self._hollow: list[str] | None = None

    def look(self) -> None:
        """Look at everything."""
        self._read_rules()
        dirty, others, same = self._ask_git()
        findings = self._findings
        findings.consider(dirty, known=True)
        recent = self._basis.note.get(RECENT, {}).keys()
        findings.consider(self._changed_unseen(recent - set(dirty)), known=True)
        if swapped := [path for path in dirty if self._files.is_folder(path)]:
            # Git does not look into a directory as long as it knows a file by that name.
            self._index.forget(swapped)
            others = self._index.listed(*_OTHERS)
        findings.consider(self._expand(others))
        findings.consider(self._included())
        findings.consider(self._tracked.absent)
        same = same and not findings.touches_rules()
        findings.consider(self._tracked.newly_forced(same=same))
        self._forget_ignored()

    def look_at(self, told: Sequence[str]) -> None:
        """Look at told paths alone."""
        self._read_rules()
        listed = self.listed(told)
        self._changed_unseen(self._basis.note.get(RECENT, {}).keys() & listed)
        self._findings.consider(listed, known=True)

    def listed(self, told: Iterable[str]) -> list[str]:
        """Return the files that told paths are or hold, those that are gone too."""
        found = []
        for some in batches(sorted(set(told))):
            found += self._index.listed(
                "ls-files", "-z", "-c", "-o", "--exclude-standard", "--", *some
            )
        return found

    def needs_everything(self, told: Sequence[str]) -> bool:
        """Whether told paths may stand for files that only a look at everything finds.

        Git alone does not see what lies in a repository of its own, nor what is captured although a
        rule ignores it.
        """
        store = self._basis.store
        there = {path: self._files.lstat(path) for path in told if not store.is_own(path)}
        folders = {path for path, one in there.items() if one and stat.S_ISDIR(one.st_mode)}
        files = {path for path, one in there.items() if one} - folders
        if not folders and not files:
            return False
        store.write_excludes(excludes_for(self._root, self._basis.repository))
        listed = set(self.listed((*folders, *files)))
        return (
            not files <= listed
            or any(path.endswith("/") for path in listed)
            or bool(folders and self._may_hide_files())
        )

    def untracked_directories(self) -> list[str]:
        """Return the directories that hold no captured file, now that the index knows them all."""
        if self._hollow is None or self._findings.drop:
            return self._index.listed(*_OTHERS)
        return self._hollow

    def note_absent(self) -> None:
        """Note for the next look what the index does not hold of what it should."""
        self._tracked.note_absent(self._findings)

    def _read_rules(self) -> None:
        excludes = excludes_for(self._root, self._basis.repository)
        self._findings.rules_changed = excludes != self._details.excludes
        self._details.excludes = excludes
        self._details.included = list(self._basis.limits.include)
        self._details.patterns = list(self._basis.limits.patterns)
        self._basis.store.write_excludes(excludes)

    def _ask_git(self) -> tuple[list[str], list[str], bool]:
        """Return known files that look different, unknown ones, and whether the user tracks the same."""
        git, path, deadline = self._basis.store.git, self._index.path, self._basis.deadline
        # First, since it may be refused.
        self._tracked.start()
        dirty_process = git.start(*DIRTY, index=path) if self._index.exists() else None
        other_process = git.start(*_OTHERS, index=path)
        dirty = said = b""
        try:
            # Meanwhile, since git seldom keeps every processor busy until both have answered.
            for folder in self._folders.new_repositories():
                self._tracked.add_nested(folder)
            same = self._tracked.finish()
        finally:
            try:
                if dirty_process is not None:
                    dirty, said = finish_heard(dirty_process, DIRTY, deadline=deadline)
            finally:
                others = self._index.answer(other_process, _OTHERS)
        return split(dirty) + (self._unseen() if _DENIED in said else []), others, same

    def _unseen(self) -> list[str]:
        """Return the known files that cannot be seen. Git takes those in closed directories for unchanged."""
        known = self._index.listed("ls-files", "-z", "-c")
        return [path for path in known if self._files.lstat(path) is None]

    def _changed_unseen(self, recent: Iterable[str]) -> list[str]:
        """Return files that changed within the second of their last change, and have git read them anew.

        Git compares times by the second. It reads a file again that is as new as its index, but goes by
        the time of the content, which whoever writes a file may set to any.
        """
        changed_ns: dict[str, int] = self._basis.note.get(RECENT, {})
        unseen = []
        for path in sorted(recent):
            looked = self._files.lstat(path)
            if looked is not None and looked.st_ctime_ns != changed_ns[path]:
                unseen.append(path)
        if unseen:
            self._index.forget(unseen)
        return unseen

    def _may_hide_files(self) -> bool:
        """Whether a directory may hold files that are captured although git does not list them."""
        index = self._basis.repository.index if self._basis.repository else None
        note = self._basis.note
        return bool(
            note.get("nested")
            or note.get(FORCED_ABSENT)
            or self._basis.limits.include
            or (index and stamp(index) != note.get("tracked_mark"))
        )

    def _expand(self, others: Iterable[str]) -> Iterator[str]:
        """Yield the files among untracked entries, those inside of directories too."""
        folders = []
        for path in others:
            if not path.endswith("/"):
                yield path
            elif not self._basis.store.is_own(path[:-1]):
                folders.append(path)
        nested = [path for path in folders if _is_repository(self._root / path)]
        plain = [path for path in folders if path not in set(nested)]
        full = [path for path in plain if self._folders.has_files(path)]
        self._hollow = None if full or nested else plain
        for some in batches(full):
            for path in self._index.listed(*_OTHER_FILES, "--", *some):
                if path.endswith("/"):
                    nested.append(path)
                else:
                    yield path
        yield from self._not_ignored(
            path
            for folder in nested
            for path in self._nested(folder, "--exclude-per-directory=.gitignore")
        )

    def _nested(self, folder: str, *rules: str) -> Iterator[str]:
        """Yield the files of a repository inside of the project, but for those that some rules ignore."""
        home = self._basis.store.home
        inner = Git(home, work_tree=self._root / folder)
        self._tracked.add_nested(folder)
        for path in self._index.listed(
            *_EVERY_FILE, *rules, git=inner, index=home / "no-index", folder=folder
        ):
            if path.endswith("/"):
                yield from self._nested(folder + path, *rules)
            else:
                yield folder + path

    def _not_ignored(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that the project's rules do not ignore.

        Git goes by those in a nested repository, once the index knows files of it.
        """
        basis, found = self._basis, list(paths)
        if not found:
            return []
        ignored = set(ignored_among(basis.store.git, found, deadline=basis.deadline))
        return [path for path in found if path not in ignored]

    def _included(self) -> Iterator[str]:
        """Yield the files that the settings ask for although a rule ignores them."""
        wanted = [path for path in self._basis.limits.include if (self._root / path).exists()]
        asked = {self._seen_by_git(path) for path in wanted}
        for path in self._index.listed(*_EVERY_FILE, "--", *sorted(asked)) if asked else ():
            found = self._nested(path) if path.endswith("/") else (path,)
            yield from (one for one in found if within(one, wanted))

    def _seen_by_git(self, path: str) -> str:
        """Return the repository that a path lies in, if that lies in the project: git sees no further."""
        above = [one for one in parents(path) if _is_repository(self._root / one)]
        return above[-1] if above else path

    def _forget_ignored(self) -> None:
        """Let go of files that a rule ignores, unless a repository tracks them.

        It is a new rule, or no repository tracks them any more.
        """
        if self._basis.is_first:
            return
        if self._findings.touches_rules():
            ignored = self._index.listed("ls-files", "-z", "-c", "-i", "--exclude-standard")
        else:
            ignored = self._tracked.released
        tracked = set(self._tracked.forced)
        for path in ignored:
            if path not in tracked and not within(path, self._basis.limits.include):
                self._findings.let_go(path)


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / DOT_GIT)
