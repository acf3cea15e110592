"""The private index: which files the last capture read, as git's own index has it for the user.

It is written to in a copy, made when there is something to write, which takes the old one's place when the
snapshot is durable. A capture that is killed leaves nothing that counts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import IO, Final

from holdfast.errors import WorkspaceUnavailable
from holdfast.workspace.base import Entry, Progress
from holdfast.workspace.paths import batches, join, split
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git, finish, finish_heard, understood
from holdfast.workspace.watch import Watch, is_there, opened

# Above so many files git writes one pack instead of a file each: a first snapshot is faster by half.
_MANY: Final = 500
_AT_ONCE: Final = 2000
_TICK_NS: Final = 50_000_000
# How often a file is read that changes meanwhile.
_TRIES: Final = 3
_UNREAD: Final = "changed while it was read"
# What git says of a name that it does not take, and of files that it could not read to their end.
_IGNORED: Final = b"Ignoring path "
_UNOPENED: Final = b"warning: could not open directory '"
_TOO_LONG: Final = b": File name too long"
# From about this length on its complaints are cut off.
_CUT: Final = 4000
_UNSTEADY: Final = ("short read", "read error", "unstable object", "mmap failed", "unable to mmap")


class PrivateIndex:
    """The index as one capture finds it and makes it; ``reliable`` if the old one counts."""

    def __init__(self, store: PrivateStore, *, reliable: bool, deadline: Deadline) -> None:
        self._store = store
        self._deadline = deadline
        self._fresh = store.home / "index.next"
        # Directories, as far as git could name them, in which some lie too deep to be opened.
        self.unopened: set[str] = set()
        # The store's own index, until something is to be written to it.
        self.path = store.index if reliable else self._fresh

    def exists(self) -> bool:
        """Whether it knows anything yet."""
        return self.path.exists()

    def is_damaged(self) -> bool:
        """Whether git cannot even read the store's own."""
        try:
            self._store.git.run("ls-files", "-z", index=self._store.index, deadline=self._deadline)
        except WorkspaceUnavailable:
            return True
        return False

    def listed(
        self,
        *arguments: str,
        git: Git | None = None,
        index: Path | None = None,
        folder: str = "",
    ) -> list[str]:
        """Return the paths that a command lists, asked about this index unless told otherwise.

        ``folder`` is where another git works, in the project's own terms.
        """
        process = (git or self._store.git).start(*arguments, index=index or self.path)
        return self.answer(process, arguments, folder=folder)

    def answer(
        self, process: subprocess.Popen[bytes], arguments: Sequence[str], *, folder: str = ""
    ) -> list[str]:
        """Return the paths that a command lists that was started before, and hear its complaints."""
        out, said = finish_heard(process, arguments, deadline=self._deadline)
        self.unopened |= {folder + path for path in _too_deep(said)}
        return split(out)

    def forget(self, paths: Iterable[str]) -> None:
        """Remove names, without a look at what has them now."""
        # Which is what mode 0 means.
        nothing = "0" * self._store.id_digits()
        self._store.git.run(
            "update-index", "-z", "--index-info",
            stdin=join(f"0 {nothing}\t{path}" for path in paths),
            index=self._writable(), deadline=self._deadline,
        )  # fmt: skip

    def add(
        self, paths: Sequence[str], *, rescue: Collection[str], progress: Progress | None
    ) -> dict[str, str]:
        """Have git read files. Returns those that it could not, with reasons.

        One among ``rescue`` that it cannot read stops the capture.
        """
        # Many at once go into packs, in parts so that progress can be told.
        packed = ("-c", "core.bigFileThreshold=1") if len(paths) > _MANY else ()
        arguments = (*packed, "update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        left: dict[str, str] = {}
        done = 0
        for some in batches(paths, _AT_ONCE):
            left |= self._add(some, arguments, frozenset(rescue))
            done += len(some)
            if progress is not None:
                progress(done, len(paths))
        return left

    def write_tree(self) -> str:
        """Add the tree of all files to what is incoming and return its id."""
        git = self._store.incoming.git
        out = git.run("write-tree", index=self._writable(), deadline=self._deadline)
        return out.decode().strip()

    def put_in_place(self, *, started: int) -> None:
        """Let the copy, if there is one, be the store's index; its capture began at ``started``."""
        if self._fresh.exists():
            # Git reads a file again whose time is not before the index's. This one knows nothing of
            # what changed since the capture began, so that is its time; files get theirs a tick late.
            begun = started - _TICK_NS
            os.utime(self._fresh, ns=(begun, begun))
            os.replace(self._fresh, self._store.index)

    def discard(self) -> None:
        """Throw away a copy that did not take its place, of this capture or a killed one."""
        self._fresh.unlink(missing_ok=True)

    def _writable(self) -> Path:
        """Return a copy of the index to write to."""
        if self.path != self._fresh:
            # With its time stamp: git compares it with those of the files it holds.
            shutil.copy2(self.path, self._fresh)
            self.path = self._fresh
        return self.path

    def _add(
        self, paths: Sequence[str], arguments: Sequence[str], rescue: frozenset[str]
    ) -> dict[str, str]:
        git, index = self._store.incoming.git, self._writable()
        watch = Watch(self._store.root, paths)
        for _ in range(_TRIES):
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
                    halves = paths[:middle], paths[middle:]
                    first, second = (self._add(one, arguments, rescue) for one in halves)
                    return first | second
                failure = error
            else:
                left = self._not_taken(paths, rescue) if _IGNORED in said else {}
                return left | self._check(watch.doubtful(), rescue)
        if not rescue.isdisjoint(paths):
            raise failure
        return self._leave_out(paths, _UNREAD)

    def _not_taken(self, paths: Sequence[str], rescue: frozenset[str]) -> dict[str, str]:
        """Find out which files git did not take, without an error."""
        taken = set(self.listed("ls-files", "-z", "-c"))
        left = [path for path in paths if path not in taken]
        if not rescue.isdisjoint(left):
            raise WorkspaceUnavailable(f"git does not take files of these names: {left}")
        return self._leave_out(left, "git does not take a file of this name")

    def _check(self, paths: Sequence[str], rescue: frozenset[str]) -> dict[str, str]:
        """See that what git took of some files is theirs; what is not is read once more, by us."""
        taken = self._entries(paths) if paths else {}
        root = self._store.root
        wrong = [path for path, entry in taken.items() if not is_there(root, path, entry)]
        left: dict[str, str] = {}
        for path in wrong:
            try:
                with opened(root, path) as (mode, file):
                    self._put(path, mode, file)
            except (OSError, WorkspaceUnavailable) as error:
                if path in rescue:
                    raise WorkspaceUnavailable(f"{path!r} cannot be read: {error}") from error
                left |= self._leave_out([path], _UNREAD)
        return left

    def _put(self, path: str, mode: str, content: IO[bytes]) -> None:
        """Take in a file that is open already."""
        git, arguments = self._store.incoming.git, ("hash-object", "-w", "-t", "blob", "--stdin")
        process = git.start(*arguments, stdin=content)
        blob = finish(process, arguments, deadline=self._deadline).decode().strip()
        git.run(
            "update-index", "-z", "--index-info", stdin=join([f"{mode} {blob}\t{path}"]),
            index=self._writable(), deadline=self._deadline,
        )  # fmt: skip

    def _entries(self, paths: Sequence[str]) -> dict[str, Entry]:
        """Return what the index has of some files."""
        found: dict[str, Entry] = {}
        with understood("ls-files"):
            for some in batches(paths) if len(paths) < _AT_ONCE else [()]:
                for line in self.listed("ls-files", "-s", "-z", "--", *some):
                    entry, _, path = line.partition("\t")
                    mode, blob, _ = entry.split()
                    found[path] = Entry(mode, blob)
        return {path: found[path] for path in paths if path in found}

    def _leave_out(self, paths: Sequence[str], reason: str) -> dict[str, str]:
        self.forget(paths)
        return dict.fromkeys(paths, reason)


def _too_deep(said: bytes) -> set[str]:
    """Return the directories that git could not open for the length of their paths.

    It does not name a long path to its end: what comes after the last slash is left out.
    """
    return {
        os.fsdecode(line.removeprefix(_UNOPENED).rpartition(b"/")[0])
        for line in said.split(b"\n")
        if line.startswith(_UNOPENED) and (line.endswith(_TOO_LONG) or len(line) >= _CUT)
    }


def _was_unsteady(code: int, said: str) -> bool:
    """Whether git failed because a file changed under its hands: it maps files into its memory."""
    bus = getattr(signal, "SIGBUS", None)
    return (bus is not None and code == -bus) or any(sign in said for sign in _UNSTEADY)
