"""Finding out what is in the project now, at the cost of what changed.

The private index remembers every captured file with its size, times and blob, as git's own does. One
capture asks two questions side by side: which known files look different (``diff-files``, which compares
only what `lstat` says, so a changed permission shows too), and which unknown ones there are
(``ls-files --others``, by the project's ignore rules). Only those are read. What git leaves out is added
by hand: permissions, empty directories, the files of nested repositories, tracked files that a rule
ignores, and the list of what was skipped, with reasons.

All of it happens in a copy of the index, which takes the old one's place when the snapshot is durable. New
objects wait in `incoming` until all are on the disk. A capture that is killed leaves nothing that counts.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import WorkspaceFull, WorkspaceUnavailable
from holdfast.workspace.base import (
    NEVER_CAPTURED,
    Limits,
    Progress,
    Skipped,
    Snapshot,
    is_git_name,
)
from holdfast.workspace.details import Details, learn_defaults
from holdfast.workspace.graft import Graft
from holdfast.workspace.ignores import excludes_for, ignored_among, tracked_although_ignored
from holdfast.workspace.paths import batches, folders_of, join, parents, split, within
from holdfast.workspace.position import capture_position
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git, finish, finish_heard
from holdfast.workspace.repository import Repository
from holdfast.workspace.repository import stamp as stamp_of
from holdfast.workspace.standing import Standing

NOTE: Final = "last.json"

# Above so many files git writes one pack instead of a file each: a first snapshot is faster by half.
_MANY: Final = 500
_AT_ONCE: Final = 2000
# What changed within this time may change again without its time stamp telling.
_RACY_NS: Final = 2_000_000_000
_TICK_NS: Final = 50_000_000
_ROOM_PER_FILE: Final = 1024
_ROOM_PER_ENTRY: Final = 100
# How often a file is read that changes meanwhile.
_TRIES: Final = 3
# What git says of a name that it does not take, and of files that it could not read to their end.
_IGNORED: Final = b"Ignoring path "
_UNSTEADY: Final = ("short read", "read error", "unstable object", "mmap failed", "unable to mmap")
_DOT_GIT: Final = ".git"
# Why a path cannot be looked at: it is not there, or something on the way to it is no directory of ours.
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP})
# In the note: files that the last tree has and the index does not know of yet, with their stamps.
_AHEAD: Final = "ahead"


@dataclass(slots=True)
class _Found:
    """What a capture decided about the paths it looked at."""

    add: dict[str, os.stat_result]
    drop: set[str]
    skipped: dict[str, str]
    empty: set[str]
    rules_changed: bool = False


class Capture:
    """One capture of a project. Needs the store's work lock."""

    def __init__(
        self,
        store: PrivateStore,
        limits: Limits,
        *,
        repository: Repository | None,
        progress: Progress | None = None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._repository = repository
        self._progress = progress
        self._deadline = Deadline(limits.seconds)
        self._fresh_index = store.home / "index.next"
        self._note = read_cache(store)
        # The store's own index, until something is to be written to it.
        self._index = store.index if self._note else self._fresh_index
        self._taken_before = self._note.get("bytes")
        self._details = _known_details(self._note)
        self._found = _Found({}, set(), {}, set())
        self._nested_found = set(self._note.get("nested", ()))
        self._started = time.time_ns()
        # Which directories can be reached without passing through a link.
        self._real: dict[str, bool] = {"": True}
        self._standing = (
            Standing(repository, self._note, deadline=self._deadline) if repository else None
        )
        # The tree, where it was made without the index.
        self._tree: str | None = None
        # The untracked directories, as long as none of them holds a file to be added.
        self._hollow: list[str] | None = None

    def run(
        self,
        told: Sequence[str] | None = None,
        *,
        group: str,
        rescue: Sequence[str] = (),
        held: Sequence[str] = (),
    ) -> Snapshot:
        """Capture the project, or only the ``told`` paths of it on top of the last snapshot.

        ``rescue`` names paths to be held whatever the rules and caps say: a restore is about to
        overwrite them. ``held`` names paths that were just written from the store, so they need no
        room there. The snapshot is kept for ``group``.
        """
        try:
            return self._run(told, group=group, rescue=rescue, held=held)
        except WorkspaceUnavailable:
            if not self._note or not self._index_is_damaged():
                raise
        # It only says what need not be read again.
        self._store.index.unlink()
        self._store.remove_note(NOTE)
        again = Capture(
            self._store, self._limits, repository=self._repository, progress=self._progress
        )
        return again._run(None, group=group, rescue=rescue, held=held)

    def _index_is_damaged(self) -> bool:
        try:
            self._store.git.run("ls-files", "-z", index=self._store.index, deadline=self._deadline)
        except WorkspaceUnavailable:
            return True
        return False

    def _run(
        self,
        told: Sequence[str] | None,
        *,
        group: str,
        rescue: Sequence[str],
        held: Sequence[str],
    ) -> Snapshot:
        if self._note.get("tree") is None:
            told = None
        self._fresh_index.unlink(missing_ok=True)
        try:
            if told is not None and any(map(self._passes_link, told)):
                told = None
            if told is not None:
                if self._look_at_told(told):
                    return self._finish(told, group)
                self._found = _Found({}, set(), {}, set())
                # The index knows nothing of what was grafted before.
                if self._note.get(_AHEAD) or self._needs_full_look(told):
                    told = None
            self._look(told)
            self._look_at_rescued((*rescue, *held))
            self._fit_quota(rescue, held)
            if self._note.get("tree") is None:
                self._details.defaults = self._learn_defaults()
            self._update_index(frozenset(rescue))
            self._ask(told)
            if told is None:
                self._look_for_empty_directories()
            return self._finish(told, group)
        finally:
            if self._standing is not None:
                self._standing.close()
            self._store.incoming.close()
            self._fresh_index.unlink(missing_ok=True)

    # Looking ---------------------------------------------------------------------------------

    def _look(self, told: Sequence[str] | None) -> None:
        git = self._store.git
        excludes = excludes_for(self._store.root, self._repository)
        self._found.rules_changed = excludes != self._details.excludes
        self._details.excludes = excludes
        self._details.included = list(self._limits.include)
        self._store.write_excludes(excludes)
        if told is not None:
            self._consider(self._listed(told), known=True)
            return
        arguments = ("diff-files", "-z", "--name-only", "--ignore-submodules=none")
        others = ("ls-files", "-z", "-o", "--directory", "--exclude-standard")
        dirty_process = git.start(*arguments, index=self._index) if self._index.exists() else None
        other_process = git.start(*others, index=self._index)
        tracked_process = self._start_tracked()
        out = b""
        tracked = None
        try:
            if tracked_process is not None:
                tracked = finish(tracked_process, ("ls-files",), deadline=self._deadline)
        finally:
            try:
                if dirty_process is not None:
                    out = finish(dirty_process, arguments, deadline=self._deadline)
            finally:
                other = finish(other_process, others, deadline=self._deadline)
        dirty = split(out)
        self._consider(dirty, known=True)
        if swapped := [path for path in dirty if self._is_folder(path)]:
            # Git does not look into a directory as long as it knows a file by that name.
            self._forget(swapped)
            other = git.run(*others, index=self._index, deadline=self._deadline)
        self._consider(self._expand(split(other)))
        self._consider(self._included())
        self._consider(self._forced(tracked), known=True)
        self._forget_ignored()

    def _listed(self, told: Iterable[str]) -> list[str]:
        """Return the files that told paths are or hold, those that are gone too."""
        found = []
        for some in batches(sorted(set(told))):
            found += self._paths("ls-files", "-z", "-c", "-o", "--exclude-standard", "--", *some)
        return found

    def _needs_full_look(self, told: Sequence[str]) -> bool:
        """Whether told paths may stand for files that only a look at everything finds.

        Git alone does not see what lies in a repository of its own, nor what is captured although a
        rule ignores it.
        """
        there = {path: self._lstat(path) for path in told if not self._store.is_own(path)}
        folders = {path for path, one in there.items() if one and stat.S_ISDIR(one.st_mode)}
        files = {path for path, one in there.items() if one} - folders
        if not folders and not files:
            return False
        self._store.write_excludes(excludes_for(self._store.root, self._repository))
        listed = set(self._listed((*folders, *files)))
        return (
            not files <= listed
            or any(path.endswith("/") for path in listed)
            or bool(folders and self._may_hide_files())
        )

    def _passes_link(self, path: str) -> bool:
        """Whether a path leads to a file that a snapshot knows by another name."""
        return any((self._store.root / above).is_symlink() for above in parents(path))

    def _may_hide_files(self) -> bool:
        """Whether a directory may hold files that are captured although git does not list them."""
        index = self._repository.index if self._repository else None
        return bool(
            self._note.get("nested")
            or self._limits.include
            or (index and stamp_of(index) != self._note.get("tracked_mark"))
        )

    def _look_at_told(self, told: Sequence[str]) -> bool:
        """Put told files into the last tree, if that is all that there is to do."""
        excludes = excludes_for(self._store.root, self._repository)
        graft = Graft(self._store, self._note["tree"], deadline=self._deadline)
        if excludes != self._details.excludes or not graft.open(told):
            return False
        self._store.write_excludes(excludes)
        unknown = [path for path in told if not graft.holds(path)]
        # What the tree lacks may be ignored, or a directory: the index and the rules tell.
        if unknown and sorted(self._listed(unknown)) != sorted(set(unknown)):
            return False
        self._consider(told, known=True)
        found = self._found
        modes = {path: _git_mode(one.st_mode) for path, one in found.add.items()}
        if not found.skipped:
            self._fit_quota((), ())
        if found.skipped or "120000" in modes.values() or any(map(self._is_folder, found.drop)):
            return False
        if not graft.read(list(modes)):
            return False
        self._ask(told)
        self._tree = graft.write({**dict.fromkeys(found.drop), **modes})
        if self._tree is None:
            return False
        ahead = {path: stamp_of(self._store.root / path) for path in told}
        self._note[_AHEAD] = {**self._note.get(_AHEAD, {}), **ahead}
        return True

    def _ask(self, told: Sequence[str] | None) -> None:
        if self._standing is not None:
            self._standing.ask(told=told, unchanged=self._unchanged(told))

    def _unchanged(self, told: Sequence[str] | None) -> bool:
        """Whether everything that ``git status`` looks at is as the last capture left it."""
        found = self._found
        return not (
            told is not None
            or self._repository is None
            or self._repository.below
            or self._note.get("tree") is None
            or self._note.get("tracks_own")
            or self._note.get("nested")
            or self._note.get(_AHEAD)
            or found.rules_changed
            or found.add
            or found.drop
            or found.skipped
        )

    def _paths(
        self, *arguments: str, git: Git | None = None, index: Path | None = None
    ) -> list[str]:
        out = (git or self._store.git).run(
            *arguments, index=index or self._index, deadline=self._deadline
        )
        return split(out)

    def _expand(self, others: Iterable[str]) -> Iterator[str]:
        """Yield the files among untracked entries, those inside of directories too."""
        folders = []
        for path in others:
            if not path.endswith("/"):
                yield path
            elif not self._store.is_own(path[:-1]):
                folders.append(path)
        nested = [path for path in folders if _is_repository(self._store.root / path)]
        plain = [path for path in folders if path not in set(nested)]
        full = [path for path in plain if self._has_files(path)]
        self._hollow = None if full or nested else plain
        for some in batches(full):
            listed = self._paths("ls-files", "-z", "-o", "--exclude-standard", "--", *some)
            for path in listed:
                if path.endswith("/"):
                    nested.append(path)
                else:
                    yield path
        for path in nested:
            yield from self._nested(path)

    def _has_files(self, folder: str) -> bool:
        """Whether a directory holds anything but directories; special files are noted."""
        found = False
        for where, folders, names in os.walk(
            self._store.root / folder, onerror=self._note_unreadable
        ):
            if _DOT_GIT in folders:
                folders.remove(_DOT_GIT)
                found = True
            if any(os.path.islink(os.path.join(where, one)) for one in folders):
                # A link to a directory is listed as one.
                return True
            for name in names:
                path = os.path.relpath(os.path.join(where, name), self._store.root)
                mode = _lstat(self._store.root / path)
                if mode is None:
                    continue
                if stat.S_ISREG(mode.st_mode) or stat.S_ISLNK(mode.st_mode):
                    return True
                self._found.skipped[path] = _kind(mode.st_mode)
                found = True
        return found

    def _nested(self, folder: str) -> Iterator[str]:
        """Yield the files of a repository inside of the project, by its own ignore rules."""
        inner = Git(self._store.home, work_tree=self._store.root / folder)
        missing = self._store.home / "no-index"
        self._nested_found.add(folder)
        for path in self._paths(
            "ls-files", "-z", "-o", "--exclude-standard", git=inner, index=missing
        ):
            if path.endswith("/"):
                yield from self._nested(folder + path)
            else:
                yield folder + path

    def _included(self) -> Iterator[str]:
        """Yield the files that the settings ask for although a rule ignores them."""
        wanted = [path for path in self._limits.include if (self._store.root / path).exists()]
        if wanted:
            yield from self._paths("ls-files", "-z", "-o", "--", *wanted)

    def _start_tracked(self) -> subprocess.Popen[bytes] | None:
        """Start listing what the user's repository tracks, if that may be something new."""
        if self._repository is None:
            return None
        mark = stamp_of(self._repository.index)
        if mark == self._note.get("tracked_mark"):
            return None
        self._note["tracked_mark"] = mark
        git = self._repository.git(disarm=False)
        return git.start("ls-files", "-z", "-c", cwd=self._store.root)

    def _forced(self, tracked: bytes | None) -> list[str]:
        """Return what the repositories here track although a rule ignores it."""
        same = tracked is None or self._tracks_the_same(tracked)
        repositories = self._repositories()
        inside = [one for one in repositories if one is not self._repository]
        mark = [[str(one.index), *stamp_of(one.index)] for one in inside]
        if same and mark == self._note.get("nested_mark") and not self._rules_touched():
            return []
        self._note["nested_mark"] = mark
        return self._tracked_although_ignored(repositories)

    def _tracks_the_same(self, tracked: bytes) -> bool:
        """Whether the user's repository tracks the same names as before; its index may be new."""
        own = (f"\0{path}/".encode() for path in NEVER_CAPTURED)
        self._note["tracks_own"] = any(path in b"\0" + tracked for path in own)
        digest = hashlib.sha256(tracked).hexdigest()
        known = self._note.get("tracked")
        self._note["tracked"] = digest
        return digest == known

    def _repositories(self) -> list[Repository]:
        """Return the repository that the project lies in, and those that lie in the project."""
        nested = (Repository.at(self._store.root / folder) for folder in sorted(self._nested_found))
        inside = [one for one in nested if one is not None]
        self._note["nested"] = [f"{one.top.relative_to(self._store.root)}/" for one in inside]
        return [*([self._repository] if self._repository else ()), *inside]

    def _tracked_although_ignored(self, repositories: Iterable[Repository]) -> list[str]:
        root = self._store.root
        found = []
        for repository in repositories:
            top = root if root.is_relative_to(repository.top) else repository.top
            prefix = "" if top == root else f"{top.relative_to(root)}/"
            listed = tracked_although_ignored(top, repository, self._deadline)
            found += [f"{prefix}{path}" for path in listed]
        return found

    def _rules_touched(self) -> bool:
        looked_at = (*self._found.add, *self._found.drop)
        return self._found.rules_changed or any(
            path.rpartition("/")[2] == ".gitignore" for path in looked_at
        )

    def _forget_ignored(self) -> None:
        """Let go of files that a new rule ignores, unless a repository tracks them."""
        if self._note.get("tree") is None or not self._rules_touched():
            return
        ignored = self._paths("ls-files", "-z", "-c", "-i", "--exclude-standard")
        tracked = set(self._tracked_although_ignored(self._repositories())) if ignored else set()
        for path in ignored:
            if path not in tracked and not within(path, self._limits.include):
                self._found.add.pop(path, None)
                self._found.drop.add(path)

    # Deciding --------------------------------------------------------------------------------

    def _consider(self, paths: Iterable[str], *, known: bool = False) -> None:
        """Sort paths into what is to be added, skipped and, where the index has them, dropped."""
        found = self._found
        for path in paths:
            if path in found.add:
                continue
            if self._store.is_own(path):
                # One that an older capture took goes.
                if known:
                    found.drop.add(path)
                continue
            looked = self._lstat(path)
            reason = None
            if looked is not None and not stat.S_ISDIR(looked.st_mode):
                reason = self._reason_against(path, looked)
                if reason is None:
                    found.add[path] = looked
                    continue
                found.skipped[path] = reason
            if known:
                found.drop.add(path)

    def _lstat(self, path: str) -> os.stat_result | None:
        """Look at a path of the project; what lies behind a link is none."""
        return _lstat(self._store.root / path) if self._is_real(path.rpartition("/")[0]) else None

    def _is_real(self, folder: str) -> bool:
        known = self._real.get(folder)
        if known is None:
            looked = self._lstat(folder)
            known = looked is not None and stat.S_ISDIR(looked.st_mode)
            self._real[folder] = known
        return known

    def _reason_against(self, path: str, looked: os.stat_result) -> str | None:
        if is_git_name(path):
            return "git keeps this name for itself"
        if stat.S_ISLNK(looked.st_mode):
            linked = path.rpartition("/")[2].lower()
            return "git keeps no link of this name" if linked == ".gitmodules" else None
        if not stat.S_ISREG(looked.st_mode):
            return _kind(looked.st_mode)
        if looked.st_size > self._limits.max_file_bytes:
            return f"larger than {self._limits.max_file_bytes:,} bytes"
        if not os.access(self._store.root / path, os.R_OK):
            return "unreadable"
        return None

    def _look_at_rescued(self, rescue: Iterable[str]) -> None:
        for path in rescue:
            looked = self._lstat(path)
            if (
                looked is not None
                and not stat.S_ISDIR(looked.st_mode)
                and path not in self._found.add
                and not self._store.is_own(path)
            ):
                self._found.add[path] = looked
                self._found.drop.discard(path)
                self._found.skipped.pop(path, None)

    def _fit_quota(self, rescue: Sequence[str], held: Sequence[str]) -> None:
        """Leave out the largest new files where they would not fit into the store's quota."""
        known = set(held)
        sizes = {
            path: looked.st_size + _ROOM_PER_FILE
            for path, looked in self._found.add.items()
            if not stat.S_ISLNK(looked.st_mode) and path not in known
        }
        growth = sum(sizes.values()) + self._bookkeeping()
        quota = self._limits.quota_bytes
        taken = self._note.get("bytes", 0) + growth
        if taken > quota or "bytes" not in self._note:
            # The estimate only ever grows; what is really there decides.
            taken = self._store.size() + growth
        protected = set(rescue)
        for path, size in sorted(sizes.items(), key=lambda one: -one[1]):
            if taken <= quota:
                break
            if path not in protected:
                del self._found.add[path]
                self._found.skipped[path] = f"over the quota of {quota:,} bytes"
                self._found.drop.add(path)
                taken -= size
        if taken > quota and protected:
            raise WorkspaceFull(
                "the files that would be overwritten cannot be saved first: they do not fit into the "
                f"quota of {quota:,} bytes. Nothing was changed; raise the quota"
            )
        if taken > quota and (self._found.add or self._found.drop):
            raise WorkspaceFull(
                f"the snapshots of {self._store.root} fill their quota of {quota:,} bytes. Nothing was "
                "changed; remove old checkpoints and collect garbage, or raise the quota"
            )
        self._note["bytes"] = taken

    def _bookkeeping(self) -> int:
        """Return a bound for what a snapshot takes beside contents: trees, indexes, details.

        The trees that change are not known yet; all of them together are no larger than the index.
        """
        indexes = [self._store.index, *([self._repository.index] if self._repository else ())]
        sizes = [looked.st_size for one in indexes if (looked := _lstat(one)) is not None]
        paths = sum(len(path) + _ROOM_PER_ENTRY for path in self._found.add)
        return 2 * (sum(sizes) + paths) + len(self._note.get("message", "")) + _ROOM_PER_FILE

    def _learn_defaults(self) -> tuple[int, int, int]:
        files = [one.st_mode for one in self._found.add.values() if stat.S_ISREG(one.st_mode)]
        folders = [_lstat(self._store.root / path) for path in folders_of(self._found.add)]
        return learn_defaults(files, [one.st_mode for one in folders if one is not None])

    # Recording -------------------------------------------------------------------------------

    def _own_index(self) -> Path:
        """Return a copy of the index to write to."""
        if self._index != self._fresh_index:
            # With its time stamp: git compares it with those of the files it holds.
            shutil.copy2(self._index, self._fresh_index)
            self._index = self._fresh_index
        return self._index

    def _is_folder(self, path: str) -> bool:
        looked = self._lstat(path)
        return looked is not None and stat.S_ISDIR(looked.st_mode)

    def _forget(self, paths: Iterable[str]) -> None:
        # By mode 0, which removes a name without a look at what has it now.
        nothing = "0" * self._store.id_digits()
        self._store.git.run(
            "update-index", "-z", "--index-info",
            stdin=join(f"0 {nothing}\t{path}" for path in paths),
            index=self._own_index(), deadline=self._deadline,
        )  # fmt: skip

    def _update_index(self, rescue: frozenset[str]) -> None:
        found = self._found
        gone = found.drop - found.add.keys()
        if gone and self._index.exists():
            self._forget(gone)
        # Many at once go into packs, in parts so that progress can be told.
        packed = ("-c", "core.bigFileThreshold=1") if len(found.add) > _MANY else ()
        done = 0
        paths = list(found.add)
        for some in batches(paths, _AT_ONCE):
            self._add(some, packed, rescue)
            done += len(some)
            if self._progress is not None:
                self._progress(done, len(paths))

    def _add(self, paths: Sequence[str], options: Sequence[str], rescue: frozenset[str]) -> None:
        """Have git read files; one that it cannot is listed as skipped, or stops a rescue."""
        arguments = (*options, "update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        git, index = self._store.incoming.git, self._own_index()
        for tries in range(_TRIES, 0, -1):
            process = git.start(*arguments, index=index)
            try:
                _, said = finish_heard(
                    process, ("update-index",), stdin=join(paths), deadline=self._deadline
                )
            except WorkspaceUnavailable as error:
                index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
                if not _was_unsteady(process.returncode, str(error)):
                    raise
                if len(paths) > 1:
                    middle = len(paths) // 2
                    self._add(paths[:middle], options, rescue)
                    self._add(paths[middle:], options, rescue)
                    return
                if tries == 1:
                    if not rescue.isdisjoint(paths):
                        raise
                    self._leave_out(paths, "changed while it was read")
            else:
                if _IGNORED in said:
                    self._leave_out_ignored(paths, rescue)
                return

    def _leave_out_ignored(self, paths: Sequence[str], rescue: frozenset[str]) -> None:
        """Find out which files git did not take, without an error."""
        taken = set(self._paths("ls-files", "-z", "-c"))
        left = [path for path in paths if path not in taken and path in self._found.add]
        if not rescue.isdisjoint(left):
            raise WorkspaceUnavailable(f"git does not take files of these names: {left}")
        self._leave_out(left, "git does not take a file of this name")

    def _leave_out(self, paths: Iterable[str], reason: str) -> None:
        for path in paths:
            self._found.skipped[path] = reason
            self._found.add.pop(path, None)
            self._found.drop.add(path)
        self._forget(paths)

    def _look_for_empty_directories(self) -> None:
        """Find the directories without files, now that every file is known."""
        hollow = self._hollow
        if hollow is None or self._found.drop:
            hollow = self._paths("ls-files", "-z", "-o", "--directory", "--exclude-standard")
        for path in hollow:
            folder = path.rstrip("/")
            if path.endswith("/") and not self._store.is_own(folder):
                self._found.empty |= self._empty_below(folder)
        if ignored := self._ignored(self._found.empty):
            self._found.empty -= ignored

    def _empty_below(self, folder: str) -> set[str]:
        found = set()
        for where, names, files in os.walk(
            self._store.root / folder, onerror=self._note_unreadable
        ):
            if _DOT_GIT in names:
                names.remove(_DOT_GIT)
            if not names and all(self._is_special(Path(where, one)) for one in files):
                found.add(os.path.relpath(where, self._store.root))
        return found

    def _note_unreadable(self, error: OSError) -> None:
        if isinstance(error, PermissionError):
            path = os.path.relpath(error.filename, self._store.root)
            self._found.skipped[path] = "unreadable"

    def _ignored(self, folders: Iterable[str]) -> set[str]:
        listed = [f"{folder}/" for folder in folders]
        if not listed:
            return set()
        ignored = ignored_among(self._store.git, listed, deadline=self._deadline)
        return {path.rstrip("/") for path in ignored}

    def _is_special(self, path: Path) -> bool:
        looked = _lstat(path)
        return looked is None or not (stat.S_ISREG(looked.st_mode) or stat.S_ISLNK(looked.st_mode))

    def _finish(self, told: Sequence[str] | None, group: str) -> Snapshot:
        found = self._found
        details = self._details
        touched = self._touched()
        tree = self._tree or self._tree_of_index()
        status = self._standing.answer() if self._standing is not None else None
        for path in found.drop:
            details.modes.pop(path, None)
        self._note_permissions()
        folders = self._look_at_directories(full=told is None)
        if told is None:
            details.empty = sorted(found.empty)
            details.skipped = [Skipped(path, why) for path, why in sorted(found.skipped.items())]
        else:
            skipped = {one.path: one for one in details.skipped if one.path not in found.add}
            skipped |= {path: Skipped(path, why) for path, why in found.skipped.items()}
            details.skipped = [skipped[path] for path in sorted(skipped)]
        before = self._note.get("commit")
        position = None
        if self._repository is not None and status is not None:
            position = capture_position(
                self._store, self._repository, status, self._note,
                limits=self._limits, deadline=self._deadline,
            )  # fmt: skip
            details.head, details.head_commit = self._repository.head(), status.state.commit
        else:
            details.head = details.head_commit = None
        message = details.to_message()
        text = message.decode()
        same = (tree, text, position) == tuple(
            self._note.get(key) for key in ("tree", "message", "position")
        )
        commit = before if same and before is not None else None
        if commit is not None:
            # Nothing was added after all.
            self._note["bytes"] = self._taken_before
        else:
            parents = [position] if position else []
            commit = self._store.commit(tree, message, parents, deadline=self._deadline)
        self._store.incoming.deliver()
        self._store.keep(group, commit, deadline=self._deadline)
        if self._fresh_index.exists():
            # Git reads a file again whose time is not before the index's. This one knows nothing of
            # what changed since the capture began, so that is its time; files get theirs a tick late.
            begun = self._started - _TICK_NS
            os.utime(self._fresh_index, ns=(begun, begun))
            os.replace(self._fresh_index, self._store.index)
        self._note |= {
            "commit": commit, "tree": tree, "message": text, "position": position,
            "folders": folders, "made_in": _made_in(self._store),
        }  # fmt: skip
        self._store.write_note(NOTE, self._note)
        return Snapshot(
            commit=commit,
            tree=tree,
            before=before,
            touched=touched if before else (),
            skipped=tuple(details.skipped),
            git=status.state if status else None,
        )

    def _tree_of_index(self) -> str:
        ahead = self._note.pop(_AHEAD, None)
        last: str | None = self._note.get("tree")
        if last is not None and not (self._found.add or self._found.drop or ahead):
            return last
        git = self._store.incoming.git
        out = git.run("write-tree", index=self._own_index(), deadline=self._deadline)
        return out.decode().strip()

    def _touched(self) -> tuple[str, ...]:
        """Return the paths that look different from the last snapshot."""
        found = self._found.drop | self._found.add.keys()
        for path, mark in self._note.get(_AHEAD, {}).items() if self._tree is None else ():
            # The index still has it as it was before it was grafted.
            same = stamp_of(self._store.root / path) == mark
            found = found - {path} if same else found | {path}
        return tuple(sorted(found))

    def _note_permissions(self) -> None:
        """Note the permissions of what was added, and look again at what changed just before.

        Git compares times by the second only. It looks again at contents that could have changed within
        the second of its last look, but not at permissions.
        """
        looked = dict(self._found.add)
        for path in self._note.get("recent", ()):
            if path not in looked and path not in self._found.drop:
                again = self._lstat(path)
                if again is not None:
                    looked[path] = again
        for path, one in looked.items():
            if stat.S_ISREG(one.st_mode):
                self._details.note_file(path, one.st_mode)
            else:
                self._details.modes.pop(path, None)
        recent = self._started - _RACY_NS
        self._note["recent"] = [path for path, one in looked.items() if one.st_ctime_ns > recent]

    def _look_at_directories(self, *, full: bool) -> dict[str, list[Any]]:
        """Note the permissions of the directories that hold files, and special files in them.

        Returns them with their time stamps: one that did not change is not opened the next time.
        """
        known: dict[str, list[Any]] = self._note.get("folders", {})
        folders = {"": [0, []], **known}
        for path in folders_of((*self._found.add, *(f"{one}/" for one in self._found.empty))):
            folders.setdefault(path, [0, []])
        kept: dict[str, list[Any]] = {}
        looked_at = folders if full else {path: one for path, one in folders.items() if not one[0]}
        root = str(self._store.root)
        for path, (stamp, special) in looked_at.items():
            reached = self._is_real(path.rpartition("/")[0])
            looked = _lstat(f"{root}/{path}") if reached else None
            if looked is None or not stat.S_ISDIR(looked.st_mode):
                self._details.directories.pop(path, None)
                continue
            if path:
                self._details.note_directory(path, looked.st_mode)
            if looked.st_mtime_ns != stamp:
                special = self._special_files(path)
                stamp = looked.st_mtime_ns if self._started - looked.st_mtime_ns > _RACY_NS else 0
            kept[path] = [stamp, special]
            for name, reason in special:
                self._found.skipped.setdefault(f"{path}/{name}" if path else name, reason)
        return kept if full else {**folders, **kept}

    def _special_files(self, folder: str) -> list[list[str]]:
        special = []
        try:
            with os.scandir(self._store.root / folder) as entries:
                for entry in entries:
                    if not (entry.is_file() or entry.is_dir() or entry.is_symlink()):
                        mode = entry.stat(follow_symlinks=False).st_mode
                        special.append([entry.name, _kind(mode)])
        except PermissionError:
            self._found.skipped[folder] = "unreadable"
        except OSError:
            pass
        return special


def read_cache(store: PrivateStore) -> dict[str, Any]:
    """Return what the last capture noted, empty when it is not to be relied on.

    An index says which files need not be read again. One that came with a project from elsewhere is
    worth nothing here, and could have been made to hide changes.
    """
    note = store.read_note(NOTE)
    own = store.index.exists() and note.get("made_in") == _made_in(store)
    return note if own and not store.index.is_symlink() else {}


def _made_in(store: PrivateStore) -> list[int]:
    """Return what tells this store from a copy, and the index that a note is about from others.

    The two are replaced one after the other. After a kill in between, neither is worth anything
    without the other.
    """
    looked = _lstat(store.index)
    index = [looked.st_ino, looked.st_size, looked.st_mtime_ns] if looked else []
    return [store.home.stat().st_ino, *index]


def _known_details(note: dict[str, Any]) -> Details:
    message = note.get("message")
    return Details.from_message(message.encode()) if isinstance(message, str) else Details()


def _is_repository(folder: Path) -> bool:
    return os.path.lexists(folder / _DOT_GIT)


def _lstat(path: Path | str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None


def _was_unsteady(code: int, said: str) -> bool:
    """Whether git failed because a file changed under its hands: it maps files into its memory."""
    bus = getattr(signal, "SIGBUS", None)
    return (bus is not None and code == -bus) or any(sign in said for sign in _UNSTEADY)


def _git_mode(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "120000"
    return "100755" if mode & 0o100 else "100644"


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISCHR, "a device"),
    ):
        if test(mode):
            return name
    return "not a file"
