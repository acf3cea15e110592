"""Where the user's repository stands: HEAD, branch, index, and a merge or rebase in progress.

A snapshot's details name HEAD and its commit. When that is not all (something is staged or unmerged, files
are added in intent, the checkout is sparse, an operation is in progress), a second commit holds the rest
and becomes the snapshot's parent: the index file as it is, the staged contents, and git's own notes about
the operation. Taking it reads the repository only; `move_to` puts it back when somebody asks for that.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from holdfast.durable import sync_directory
from holdfast.errors import RestoreFailed, SnapshotCorrupt, WorkspaceBusy, WorkspaceError
from holdfast.workspace.base import Limits
from holdfast.workspace.details import Details
from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git
from holdfast.workspace.repository import Repository, Status

_NOTES: Final = (
    "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "MERGE_AUTOSTASH", "AUTO_MERGE", "SQUASH_MSG",
    "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
    "BISECT_LOG", "BISECT_START", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV",
)  # fmt: skip
_FOLDERS: Final = ("rebase-merge", "rebase-apply", "sequencer")
_BACKUPS: Final = "refs/holdfast"
_FRESH: Final = "holdfast-index"
# Says in the user's repository which restore may move it: what a project brings along cannot.
_TOKEN: Final = "holdfast-move"
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_HEAD: Final = re.compile(f"ref: refs/[^\\0]+|{_COMMIT.pattern}")
# In ``ls-files -v -z``: entries that are assumed unchanged, or left out of the work tree.
_FLAGGED: Final = re.compile(rb"(?:^|\0)[a-zS] ([^\0]*)")
_WHO: Final = {
    f"GIT_{who}_{what}": "holdfast" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a snapshot found the repository.

    ``extra`` is the commit with the index and the notes, None when the index was HEAD's tree and
    nothing was in progress.
    """

    head: str
    commit: str | None
    extra: str | None

    @classmethod
    def of(cls, details: Details, parents: list[str]) -> Position | None:
        """Return the position that a snapshot recorded, None when there was no repository."""
        if details.head is None:
            return None
        names = [one for one in (details.head_commit, *parents) if one is not None]
        if not _HEAD.fullmatch(details.head) or not all(_COMMIT.fullmatch(one) for one in names):
            raise SnapshotCorrupt(f"the snapshot names a HEAD that cannot be: {details.head!r}")
        return cls(details.head, details.head_commit, parents[0] if parents else None)

    @property
    def branch(self) -> str | None:
        """The branch's full reference, None when HEAD was detached."""
        return self.head.removeprefix("ref: ").strip() if self.head.startswith("ref: ") else None

    def describe(self) -> str:
        """Return it as a person would say it."""
        at = self.commit[:12] if self.commit else "no commit yet"
        branch = self.branch
        return f"{branch.removeprefix('refs/heads/')} at {at}" if branch else f"detached at {at}"


@dataclass(frozen=True, slots=True)
class Move:
    """What `move_to` did: a sentence, the commits left behind, the reference that keeps them."""

    what: str
    commits: tuple[str, ...]
    backup: str | None


def capture_position(
    store: PrivateStore,
    repository: Repository,
    status: Status,
    note: dict[str, Any],
    *,
    limits: Limits,
    deadline: Deadline,
) -> str | None:
    """Take in what HEAD alone does not tell; return its commit, or None when there is nothing.

    Staged contents that exceed a limit stay in the user's repository alone.
    """
    sparse = (repository.git_dir / "info" / "sparse-checkout").exists()
    notes = list(_operation_files(repository.git_dir))
    if (
        status.plain_index and not notes and not sparse
        and not _has_flags(repository, note, deadline)
    ):  # fmt: skip
        return None
    index = [repository.index.relative_to(repository.git_dir)] if repository.index.exists() else []
    mark = [[str(path), *_stamp(repository.git_dir / path)] for path in (*index, *notes)]
    if note.get("position") and note.get("position_mark") == mark:
        return str(note["position"])
    staged = _of_bearable_size(repository, status.blobs, limits, note, deadline)
    git = store.incoming.git
    _copy_objects(repository, git, staged, deadline)
    with _whole_index(store, repository, deadline) as whole:
        files = [*([str(whole)] if index else ()), *(str(path) for path in notes)]
        blobs = git.run(
            "hash-object", "-w", "-t", "blob", "--no-filters", "--stdin-paths",
            stdin=lines(files),
            # Git reads these names from the top of its work tree, wherever it was started.
            variables={"GIT_WORK_TREE": str(repository.git_dir)}, cwd=repository.git_dir,
            deadline=deadline,
        ).decode().split()  # fmt: skip
    names = [*("index" for _ in index), *(f"note.{quote(str(path), safe='')}" for path in notes)]
    listed = [f"100644 blob {blob}\t{name}" for name, blob in zip(names, blobs, strict=True)]
    listed += [f"100644 blob {blob}\tstaged.{blob}" for blob in staged]
    tree = git.run("mktree", stdin="\n".join([*listed, ""]).encode(), deadline=deadline)
    commit = store.commit(tree.decode().strip(), b"position\n", deadline=deadline)
    note["position_mark"] = mark
    return commit


def _has_flags(repository: Repository, note: dict[str, Any], deadline: Deadline) -> bool:
    """Whether the index marks files as unchanged or left out, which no status tells."""
    if not repository.index.exists():
        return False
    mark = _stamp(repository.index)
    if note.get("flags_mark") != mark:
        out = repository.git(disarm=False).run("ls-files", "-v", "-z", deadline=deadline)
        note["flags"] = _FLAGGED.search(out) is not None
        note["flags_mark"] = mark
    return bool(note["flags"])


@contextmanager
def _whole_index(store: PrivateStore, repository: Repository, deadline: Deadline) -> Iterator[Path]:
    """Give the index as one file: a split one is only the newer half."""
    if next(repository.git_dir.glob("sharedindex.*"), None) is None:
        yield Path(repository.index.name)
        return
    with store.aside() as aside:
        whole = Path(aside, "index").absolute()
        shutil.copy2(repository.index, whole)
        repository.git(disarm=False).run(
            "update-index",
            "--no-split-index",
            "--force-write-index",
            index=whole,
            deadline=deadline,
        )
        yield whole


class Mover:
    """Puts the user's repository where a snapshot found it. Every step may be repeated."""

    def __init__(self, store: PrivateStore, repository: Repository, position: Position) -> None:
        self._store = store
        self._repository = repository
        self._position = position
        self._git = repository.git()
        # Whether anything was moved yet.
        self.started = False

    def check(self) -> None:
        """Refuse before anything is touched: a lock held, a commit gone, a branch used elsewhere."""
        self._extra_files()
        for name in ("index.lock", "HEAD.lock"):
            if (self._repository.git_dir / name).exists():
                raise WorkspaceBusy(
                    f"{self._repository.git_dir / name} exists: another git command is at work, or "
                    "one died. Nothing was changed; when no git is running, remove that file"
                )
        commit = self._position.commit
        if commit is not None and not self._succeeds("cat-file", "-e", f"{commit}^{{tree}}"):
            raise RestoreFailed(
                f"the repository no longer has commit {commit}, so HEAD cannot go back there. "
                "Nothing was changed; restore the files alone, without move_head"
            )
        branch = self._position.branch
        if branch is not None and not self._succeeds("check-ref-format", branch):
            raise SnapshotCorrupt(f"the snapshot names a branch that cannot be: {branch!r}")
        if branch is not None and branch in self._branches_elsewhere():
            raise RestoreFailed(
                f"{branch.removeprefix('refs/heads/')} is checked out in another worktree. Nothing "
                "was changed; restore the files alone, without move_head"
            )

    def preview(self) -> Move:
        """Tell what `move` would do."""
        behind = self._left_behind()
        return Move(self._sentence(), behind, None)

    def announce(self, mark: str) -> None:
        """Leave word in the repository, for good, that a restore is going to move it."""
        with (self._repository.git_dir / _TOKEN).open("w") as file:
            file.write(mark)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._repository.git_dir)

    def is_announced(self, mark: str) -> bool:
        """Whether a restore left word that it is going to move the repository."""
        token = self._repository.git_dir / _TOKEN
        return token.is_file() and token.read_text("utf-8", "replace") == mark

    def conclude(self) -> None:
        """Take the word back."""
        forget_announcement(self._repository)

    def tip(self) -> str | None:
        """Return where the branch that is going to be moved stands now, None when it does not."""
        branch = self._position.branch
        return self._resolve(branch) if branch is not None else None

    def is_untouched(self, old: Position | None, tip: str | None) -> bool:
        """Whether nobody but us moved the repository since it was at ``old``.

        HEAD, branches, index and notes must each be as they were, or as this move makes them: it may
        have been stopped anywhere. ``tip`` is where the branch to be moved stood.
        """
        if old is None or self._repository.head() not in (old.head, self._position.head):
            return False
        allowed: dict[str, set[str | None]] = {}
        for branch, commits in (
            (old.branch, (old.commit,)),
            (self._position.branch, (tip, self._position.commit)),
        ):
            if branch is not None:
                allowed.setdefault(branch, set()).update(commits)
        if any(self._resolve(branch) not in commits for branch, commits in allowed.items()):
            return False
        before = Mover(self._store, self._repository, old)
        ways = [one._extra_files() for one in (before, self)]
        for path in _operation_files(self._repository.git_dir):
            data = (self._repository.git_dir / path).read_bytes()
            if all(files.get(f"note.{quote(str(path), safe='')}") != data for files in ways):
                return False
        staged = self._staged(self._repository.index)
        return any(
            one._staged_there(files) == staged
            for one, files in zip((before, self), ways, strict=True)
        )

    def _staged(self, index: Path) -> bytes:
        """Return what an index stages; git may write its file anew at any look at it."""
        return self._git.run("ls-files", "-s", "-z", index=index) if index.exists() else b""

    def _staged_there(self, files: dict[str, bytes]) -> bytes | None:
        """Return what the index of the position stages, None when that cannot be told any more."""
        with self._store.aside() as aside:
            index = Path(aside, "index").absolute()
            if "index" in files:
                index.write_bytes(files["index"])
            elif self._position.commit is not None and not self._succeeds(
                "read-tree", self._position.commit, index=index
            ):
                return None
            return self._staged(index)

    def move(self, label: str) -> Move:
        """Move HEAD, branch, index and notes; abandoned commits are kept under a reference.

        Raises `WorkspaceBusy`, with nothing moved, when another git command holds the index.
        """
        files = self._extra_files()
        behind = self._left_behind()
        what = self._sentence()
        if self._position.extra is not None:
            _copy_objects_back(self._store, self._git, self._position.extra)
        self.clear_own_lock()
        self._lock_index(files.get("index"))
        self.started = True
        try:
            # Whatever comes after this look is not kept, so it must stop the move.
            there, detached = self.tip(), self._resolve("HEAD")
            backup = self._keep_tips(label)
            self._move_references(there, detached)
            self._replace_index()
        finally:
            self.clear_own_lock()
        self._write_notes(files)
        return Move(what, behind, backup)

    def _sentence(self) -> str:
        now = self._now()
        there = self._position.describe()
        return f"HEAD stays on {there}" if now == there else f"HEAD moves from {now} to {there}"

    def _now(self) -> str:
        head = self._repository.head()
        return Position(head, self._resolve("HEAD"), None).describe()

    def _resolve(self, name: str) -> str | None:
        out = self._git.run("rev-parse", "-q", "--verify", f"{name}^{{commit}}", ok=(0, 1, 128))
        return out.decode().strip() or None

    def _succeeds(self, *arguments: str, index: Path | None = None) -> bool:
        try:
            self._git.run(*arguments, index=index)
        except WorkspaceError:
            return False
        return True

    def _tips(self) -> dict[str, tuple[str, ...]]:
        """Return the commits that moving would leave, each with those that only it leads to.

        The branch loses what it gained since; a detached HEAD loses what is on no branch or tag.
        """
        commit = self._position.commit
        without = [f"^{commit}"] if commit else []
        found = {}
        branch = self._position.branch
        if branch is not None and (tip := self._resolve(branch)) is not None:
            found[tip] = self._listed(tip, *without)
        if not self._repository.head().startswith("ref: "):
            tip = self._resolve("HEAD")
            if tip is not None:
                kept = ("--not", "--branches", "--tags", "--remotes")
                found.setdefault(tip, self._listed(tip, *without, *kept))
        return {tip: commits for tip, commits in found.items() if commits}

    def _listed(self, *wanted: str) -> tuple[str, ...]:
        return tuple(self._git.run("rev-list", "--max-count=1000", *wanted).decode().split())

    def _left_behind(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for commits in self._tips().values() for one in commits))

    def _keep_tips(self, label: str) -> str | None:
        """Keep what is left behind under references; an earlier one is never overwritten."""
        kept = None
        for tip in self._tips():
            name = f"{_BACKUPS}/{label}"
            number = 1
            while (there := self._resolve(name)) not in (None, tip):
                number += 1
                name = f"{_BACKUPS}/{label}-{number}"
            if there is None:
                self._git.run("update-ref", name, tip)
            kept = kept or name
        return kept

    def _branches_elsewhere(self) -> set[str]:
        out = self._git.run("worktree", "list", "--porcelain", "-z").decode("utf-8", "replace")
        used = set()
        for block in out.split("\0\0"):
            words = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            here = os.path.realpath(words.get("worktree", "")) == os.path.realpath(
                self._repository.top
            )
            if not here and "branch" in words:
                used.add(words["branch"])
        return used

    def _move_references(self, there: str | None, detached: str | None) -> None:
        """Move the branch from where it was found (``there``), or HEAD (``detached``); or fail."""
        branch, commit = self._position.branch, self._position.commit
        said = ("-m", "holdfast: move to a checkpoint")
        head = self._repository.head()
        if branch is None:
            if head != commit:
                expected = (detached,) if detached is not None else ()
                self._run("update-ref", *said, "--no-deref", "HEAD", str(commit), *expected)
            return
        # What is right already is not written again: somebody may hold it.
        if commit is not None and there != commit:
            self._run("update-ref", *said, branch, commit, there or "0" * len(commit))
        elif commit is None and there is not None:
            self._run("update-ref", "-d", branch, there)
        if head != self._position.head:
            self._run("symbolic-ref", *said, "HEAD", branch)

    def _run(self, *arguments: str) -> None:
        self._git.run(*arguments, variables=_WHO)

    def _lock_index(self, saved: bytes | None) -> None:
        """Take the index's lock as git does, with the index to come as its content."""
        lock, fresh = self._repository.git_dir / "index.lock", self._repository.git_dir / _FRESH
        fresh.unlink(missing_ok=True)
        if saved is not None:
            fresh.write_bytes(saved)
        elif self._position.commit is not None:
            if self._repository.index.exists():
                shutil.copy2(self._repository.index, fresh)
            self._git.run("read-tree", "--reset", self._position.commit, index=fresh)
            self._clear_flags(fresh)
            self._git.run("update-index", "-q", "--refresh", index=fresh, ok=(0, 1))
        else:
            fresh.touch()
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        try:
            # A second name for the same file: after a kill it tells that the lock is ours.
            os.link(fresh, lock)
        except FileExistsError:
            fresh.unlink()
            raise WorkspaceBusy(f"another git command took {lock} meanwhile") from None

    def _clear_flags(self, index: Path) -> None:
        paths = _FLAGGED.findall(self._git.run("ls-files", "-v", "-z", index=index))
        for option in ("--no-assume-unchanged", "--no-skip-worktree") if paths else ():
            listed = b"".join(path + b"\0" for path in paths)
            self._git.run("update-index", option, "-z", "--stdin", stdin=listed, index=index)

    def _replace_index(self) -> None:
        lock = self._repository.git_dir / "index.lock"
        if lock.stat().st_size:
            os.replace(lock, self._repository.index)
        else:
            self._repository.index.unlink(missing_ok=True)

    def clear_own_lock(self) -> None:
        """Remove the index lock that a killed move of ours left behind, and only that."""
        lock, fresh = self._repository.git_dir / "index.lock", self._repository.git_dir / _FRESH
        if lock.exists() and fresh.exists() and lock.samefile(fresh):
            lock.unlink()
        fresh.unlink(missing_ok=True)

    def _write_notes(self, files: dict[str, bytes]) -> None:
        wanted = {
            unquote(name.removeprefix("note.")): data
            for name, data in files.items()
            if name.startswith("note.")
        }
        for path in list(_operation_files(self._repository.git_dir)):
            if str(path) not in wanted:
                (self._repository.git_dir / path).unlink()
        for name, data in wanted.items():
            target = self._repository.git_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        for folder in _FOLDERS:
            _remove_empty(self._repository.git_dir / folder)

    def _extra_files(self) -> dict[str, bytes]:
        if self._position.extra is None:
            return {}
        tree, _, _ = self._store.read_commit(self._position.extra)
        entries = self._store.entries(tree)
        contents = self._store.read_objects(
            entry.blob for name, entry in entries.items() if not name.startswith("staged.")
        )
        for name in entries:
            note = unquote(name.removeprefix("note."))
            if name.startswith("note.") and not _is_note(note):
                raise SnapshotCorrupt(f"the snapshot names a file that is not git's note: {note!r}")
        return {
            name: contents[entry.blob] for name, entry in entries.items() if entry.blob in contents
        }


def forget_announcement(repository: Repository) -> None:
    """Remove the word of a restore that will not move the repository any more."""
    (repository.git_dir / _TOKEN).unlink(missing_ok=True)


def _is_note(name: str) -> bool:
    first, _, rest = name.partition("/")
    inside = first in _FOLDERS and bool(rest) and {"", ".", ".."}.isdisjoint(rest.split("/"))
    return (name in _NOTES or inside) and "\0" not in name


def _operation_files(git_dir: Path) -> Iterator[Path]:
    for name in _NOTES:
        if (git_dir / name).is_file():
            yield Path(name)
    for folder in _FOLDERS:
        for where, _, names in os.walk(git_dir / folder):
            for name in sorted(names):
                path = Path(where, name)
                if stat.S_ISREG(path.lstat().st_mode) and "\n" not in name:
                    yield path.relative_to(git_dir)


def _of_bearable_size(
    source: Repository,
    names: tuple[str, ...],
    limits: Limits,
    note: dict[str, Any],
    deadline: Deadline,
) -> list[str]:
    """Return the objects that a cap and the room that is left allow, and count that room."""
    listed = lines(names)
    out = source.git(disarm=False).run(
        "cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=listed, deadline=deadline
    )
    found = []
    for line in out.decode().splitlines():
        name, _, size = line.partition(" ")
        taken = note["bytes"] + int(size) if size.isdigit() else limits.quota_bytes + 1
        if taken <= limits.quota_bytes and int(size) <= limits.max_file_bytes:
            found.append(name)
            note["bytes"] = taken
    return found


def _copy_objects(source: Repository, target: Git, names: list[str], deadline: Deadline) -> None:
    if names:
        listed = lines(names)
        pack = source.git(disarm=False).run(
            "pack-objects", "--stdout", "-q", stdin=listed, deadline=deadline
        )
        target.run("unpack-objects", "-q", stdin=pack, deadline=deadline)


def _copy_objects_back(store: PrivateStore, target: Git, extra: str) -> None:
    """Give the user's repository the staged contents again, should it have let go of them."""
    tree, _, _ = store.read_commit(extra)
    staged = [
        entry.blob for name, entry in store.entries(tree).items() if name.startswith("staged.")
    ]
    if staged:
        listed = lines(staged)
        pack = store.git.run("pack-objects", "--stdout", "-q", stdin=listed)
        target.run("unpack-objects", "-q", stdin=pack)


def _remove_empty(folder: Path) -> None:
    for where, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(where):
            os.rmdir(where)


def _stamp(path: Path) -> list[int]:
    looked = os.lstat(path)
    return [looked.st_mtime_ns, looked.st_size, looked.st_ino]


def to_document(position: Position | None) -> dict[str, Any] | None:
    """Return a position as plain values for the journal."""
    if position is None:
        return None
    return {"head": position.head, "commit": position.commit, "extra": position.extra}


def from_document(document: dict[str, Any] | None) -> Position | None:
    """Read a position from the journal."""
    return Position(**document) if document is not None else None
