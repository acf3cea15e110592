"""Where the user's repository stands: HEAD, branch, index, and a merge or rebase in progress.

A snapshot's details name HEAD and its commit. When that is not all (something is staged or unmerged, files
are added in intent, the checkout is sparse, an operation is in progress), a second commit holds the rest
and becomes the snapshot's parent: the index file as it is, the staged contents, and git's own notes about
the operation. Taking it reads the repository only; `move_to` puts it back when somebody asks for that.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from holdfast.errors import RestoreFailed, WorkspaceBusy, WorkspaceError
from holdfast.workspace.details import Details
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git
from holdfast.workspace.repository import Repository, Status

_NOTES: Final = (
    "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "AUTO_MERGE", "SQUASH_MSG",
    "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
    "BISECT_LOG", "BISECT_START", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV",
)  # fmt: skip
_FOLDERS: Final = ("rebase-merge", "rebase-apply", "sequencer")
_BACKUPS: Final = "refs/holdfast"
_FRESH: Final = "holdfast-index"
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
    deadline: Deadline,
) -> str | None:
    """Take in what HEAD alone does not tell; return its commit, or None when there is nothing."""
    sparse = (repository.git_dir / "info" / "sparse-checkout").exists()
    notes = list(_operation_files(repository.git_dir))
    if status.plain_index and not notes and not sparse:
        return None
    index = [repository.index.relative_to(repository.git_dir)] if repository.index.exists() else []
    mark = [[str(path), *_stamp(repository.git_dir / path)] for path in (*index, *notes)]
    if note.get("position") and note.get("position_mark") == mark:
        return str(note["position"])
    git = store.incoming.git
    _copy_objects(repository, git, status.blobs, deadline)
    blobs = git.run(
        "hash-object", "-w", "-t", "blob", "--no-filters", "--stdin-paths",
        stdin="".join(f"{path}\n" for path in (*index, *notes)).encode("utf-8", "surrogateescape"),
        cwd=repository.git_dir, deadline=deadline,
    ).decode().split()  # fmt: skip
    names = [*("index" for _ in index), *(f"note.{quote(str(path), safe='')}" for path in notes)]
    lines = [f"100644 blob {blob}\t{name}" for name, blob in zip(names, blobs, strict=True)]
    lines += [f"100644 blob {blob}\tstaged.{blob}" for blob in status.blobs]
    tree = git.run("mktree", stdin="\n".join([*lines, ""]).encode(), deadline=deadline)
    commit = store.commit(tree.decode().strip(), b"position\n", deadline=deadline)
    note["position_mark"] = mark
    return commit


class Mover:
    """Puts the user's repository where a snapshot found it. Every step may be repeated."""

    def __init__(self, store: PrivateStore, repository: Repository, position: Position) -> None:
        self._store = store
        self._repository = repository
        self._position = position
        self._git = repository.git()

    def check(self) -> None:
        """Refuse before anything is touched: a lock held, a commit gone, a branch used elsewhere."""
        for name in ("index.lock", "HEAD.lock"):
            if (self._repository.git_dir / name).exists():
                raise WorkspaceBusy(
                    f"{self._repository.git_dir / name} exists: another git command is at work, or "
                    "one died. Nothing was changed; when no git is running, remove that file"
                )
        commit = self._position.commit
        if commit is not None and not self._has(f"{commit}^{{tree}}"):
            raise RestoreFailed(
                f"the repository no longer has commit {commit}, so HEAD cannot go back there. "
                "Nothing was changed; restore the files alone, without move_head"
            )
        branch = self._position.branch
        if branch is not None and branch in self._branches_elsewhere():
            raise RestoreFailed(
                f"{branch.removeprefix('refs/heads/')} is checked out in another worktree. Nothing "
                "was changed; restore the files alone, without move_head"
            )

    def preview(self) -> Move:
        """Tell what `move` would do."""
        behind = self._left_behind()
        return Move(self._sentence(), behind, None)

    def move(self, label: str) -> Move:
        """Move HEAD, branch, index and notes; abandoned commits are kept under a reference."""
        behind = self._left_behind()
        backup = self._keep_tip(label) if behind else None
        what = self._sentence()
        if self._position.extra is not None:
            _copy_objects_back(self._store, self._git, self._position.extra)
        self._move_references()
        self._write_index()
        self._write_notes()
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

    def _has(self, name: str) -> bool:
        try:
            self._git.run("cat-file", "-e", name)
        except WorkspaceError:
            return False
        return True

    def _tip(self) -> str | None:
        """Return the commit that moving would leave: the branch's present tip, or HEAD's."""
        return self._resolve(self._position.branch or "HEAD")

    def _left_behind(self) -> tuple[str, ...]:
        tip = self._tip()
        if tip is None or tip == self._position.commit:
            return ()
        if self._position.branch is None and self._repository.head().startswith("ref: "):
            # HEAD leaves its branch, which keeps the commits.
            return ()
        without = [f"^{self._position.commit}"] if self._position.commit else []
        out = self._git.run("rev-list", "--max-count=1000", tip, *without)
        return tuple(out.decode().split())

    def _keep_tip(self, label: str) -> str | None:
        tip = self._tip()
        if tip is None:
            return None
        name = f"{_BACKUPS}/{label}"
        self._git.run("update-ref", name, tip)
        return name

    def _branches_elsewhere(self) -> set[str]:
        out = self._git.run("worktree", "list", "--porcelain", "-z").decode("utf-8", "replace")
        used = set()
        for block in out.split("\0\0"):
            lines = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            here = os.path.realpath(lines.get("worktree", "")) == os.path.realpath(
                self._repository.top
            )
            if not here and "branch" in lines:
                used.add(lines["branch"])
        return used

    def _move_references(self) -> None:
        branch, commit = self._position.branch, self._position.commit
        said = ("-m", "holdfast: move to a checkpoint")
        if branch is None:
            self._run("update-ref", *said, "--no-deref", "HEAD", str(commit))
            return
        if commit is not None:
            self._run("update-ref", *said, branch, commit)
        elif self._resolve(branch) is not None:
            self._run("update-ref", "-d", branch)
        self._run("symbolic-ref", *said, "HEAD", branch)

    def _run(self, *arguments: str) -> None:
        self._git.run(*arguments, variables=_WHO)

    def _write_index(self) -> None:
        """Replace the index as git does: write the lock file, then give it its name."""
        lock, fresh = self._repository.git_dir / "index.lock", self._repository.git_dir / _FRESH
        fresh.unlink(missing_ok=True)
        saved = self._extra_files().get("index")
        if saved is not None:
            fresh.write_bytes(saved)
        elif self._position.extra is None and self._position.commit is not None:
            if self._repository.index.exists():
                shutil.copy2(self._repository.index, fresh)
            self._git.run("read-tree", "--reset", self._position.commit, index=fresh)
            self._git.run("update-index", "-q", "--refresh", index=fresh, ok=(0, 1))
        else:
            self._repository.index.unlink(missing_ok=True)
            return
        try:
            # A second name for the same file: after a kill it tells that the lock is ours.
            os.link(fresh, lock)
        except FileExistsError:
            raise WorkspaceBusy(f"another git command took {lock} meanwhile") from None
        os.replace(lock, self._repository.index)
        fresh.unlink(missing_ok=True)

    def clear_own_lock(self) -> None:
        """Remove the index lock that a killed move of ours left behind, and only that."""
        lock, fresh = self._repository.git_dir / "index.lock", self._repository.git_dir / _FRESH
        if lock.exists() and fresh.exists() and lock.samefile(fresh):
            lock.unlink()

    def _write_notes(self) -> None:
        wanted = {
            unquote(name.removeprefix("note.")): data
            for name, data in self._extra_files().items()
            if name.startswith("note.")
        }
        for path in list(_operation_files(self._repository.git_dir)):
            if str(path) not in wanted:
                (self._repository.git_dir / path).unlink()
        for name, data in wanted.items():
            target = self._repository.git_dir / name
            if name.partition("/")[0] not in (*_NOTES, *_FOLDERS) or ".." in Path(name).parts:
                raise RestoreFailed(f"the snapshot names a file that is not git's note: {name}")
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
        return {
            name: contents[entry.blob] for name, entry in entries.items() if entry.blob in contents
        }


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


def _copy_objects(
    source: Repository, target: Git, names: tuple[str, ...], deadline: Deadline
) -> None:
    if names:
        listed = "".join(f"{name}\n" for name in names).encode()
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
        listed = "".join(f"{name}\n" for name in staged).encode()
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
