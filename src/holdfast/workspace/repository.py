"""The user's own repository: found without git's help, read without leaving a trace.

A save only ever reads it. Everything that could run a program is switched off, no lock is taken, and the
index is not refreshed, so the repository's files are the same bytes afterwards.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.errors import WorkspaceError
from holdfast.regular_files import read_small_file
from holdfast.workspace.base import NEVER_CAPTURED, GitState
from holdfast.workspace.paths import split
from holdfast.workspace.pipes import refuse_special, refuse_waiting
from holdfast.workspace.process import Deadline, Git, finish, understood

# What git leaves in its directory while something is in progress, and what that is called.
OPERATIONS: Final = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "MERGE_HEAD": "merge",
    "BISECT_LOG": "bisect",
}
_FILES: Final = (
    "HEAD", "config", "config.worktree", "index", "packed-refs", "shallow", "info/attributes",
    "info/exclude", "info/grafts", "info/sparse-checkout", "objects/info/alternates",
)  # fmt: skip
_SECONDS: Final = 20

Mark: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Status:
    """What one ``git status`` says.

    ``plain_index`` is true when the index holds nothing but HEAD's tree; else ``blobs`` are the
    contents that it alone may hold.
    """

    state: GitState
    plain_index: bool
    blobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository and the work tree that the project lies in.

    ``below`` is where in it: empty at the top, else a path that ends with a slash.
    """

    top: Path
    git_dir: Path
    common_dir: Path
    below: str = ""

    @classmethod
    def find(cls, project_dir: Path) -> Repository | None:
        """Return the repository around a directory, a linked worktree's or submodule's too."""
        for top in (project_dir, *project_dir.parents):
            if (found := cls.at(top)) is not None:
                below = "".join(f"{part}/" for part in project_dir.relative_to(top).parts)
                return replace(found, below=below)
        return None

    @classmethod
    def at(cls, top: Path) -> Repository | None:
        """Return the repository whose work tree begins at a directory."""
        git_dir = _git_dir(top / ".git")
        return cls(top, git_dir, _common_dir(git_dir)) if git_dir is not None else None

    @property
    def index(self) -> Path:
        """The user's index."""
        return self.git_dir / "index"

    def git(self, *, disarm: bool = True, deadline: Deadline | None = None) -> Git:
        """Return git for this repository; disarmed, no filter that it defines can run."""
        refuse_special(self._read_by_git())
        plain = Git(self.git_dir, work_tree=self.top, common_dir=self.common_dir)
        if not disarm:
            return plain
        mark = self.settings_mark()
        drivers = (
            _filters(plain, deadline) if mark is None else _known_filters(self, mark, deadline)
        )
        settings = {
            f"{driver}.{key}": value
            for driver in drivers
            for key, value in (("clean", ""), ("process", ""), ("required", "false"))
        }
        return Git(self.git_dir, work_tree=self.top, common_dir=self.common_dir, settings=settings)

    def _read_by_git(self) -> Iterator[Path]:
        """Yield the files that git reads whatever it is asked."""
        for folder in dict.fromkeys((self.git_dir, self.common_dir)):
            for name in _FILES:
                yield folder / name
        with suppress(OSError):
            text = self.head()
            if text.startswith("ref: "):
                yield self.common_dir / text.removeprefix("ref: ")

    def settings_mark(self) -> Mark | None:
        """Return what changes when the repository's settings do, None where others are included."""
        files = (self.common_dir / "config", self.git_dir / "config.worktree")
        try:
            if any(b"include" in read_small_file(file).lower() for file in files if file.exists()):
                return None
        except OSError:
            return None
        return tuple(tuple(stamp(file)) for file in files)

    def status(self, *, deadline: Deadline | None = None) -> Status:
        """Return where it stands, and what of its index is in no commit."""
        process = self.start_status((), deadline=deadline)
        return self.parse_status(finish(process, ("status",), deadline=deadline or Deadline()))

    def start_status(
        self, paths: Sequence[str], *, deadline: Deadline | None = None
    ) -> subprocess.Popen[bytes]:
        """Start ``git status``, of some paths from the top or of everything."""
        return self.git(deadline=deadline).start(
            "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all",
            "--ignore-submodules=dirty", "--find-renames", "--", *paths,
        )  # fmt: skip

    def parse_status(self, out: bytes) -> Status:
        """Read what ``git status`` printed. Our own corner of the project is not the user's work."""
        own = tuple(f"{self.below}{path}/" for path in NEVER_CAPTURED)
        with understood("status"):
            return _parse(out.decode("utf-8", "surrogateescape"), self.operation(), own)

    def operation(self) -> str | None:
        """Return what is in progress, if anything."""
        for name, operation in OPERATIONS.items():
            if (self.git_dir / name).exists():
                return operation
        return None

    def head(self) -> str:
        """Return HEAD as it stands in its file: ``ref: refs/heads/…`` or a commit."""
        return _text(self.git_dir / "HEAD").strip()


_KNOWN: Final[dict[tuple[Repository, Mark], tuple[str, ...]]] = {}
_REMEMBERED: Final = 16


def read_git_state(project_dir: Path) -> GitState | None:
    """Return the state of the repository around ``project_dir``, or None when there is none.

    None also when git is not installed or does not answer in time: a checkpoint of the agent's state
    must not depend on it.
    """
    repository = Repository.find(project_dir)
    if repository is None:
        return None
    try:
        deadline = Deadline(_SECONDS, doubt=partial(refuse_waiting, repository.top))
        return repository.status(deadline=deadline).state
    except (WorkspaceError, OSError):
        return None


def read_head(project_dir: Path) -> GitState | None:
    """Return where HEAD is and what is in progress, without a look at any file: quick everywhere.

    None when there is no repository, or git does not answer.
    """
    repository = Repository.find(project_dir)
    if repository is None:
        return None
    try:
        text = repository.head()
        found = repository.git(disarm=False).run(
            "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1), deadline=Deadline(_SECONDS)
        )
    except (WorkspaceError, OSError):
        return None
    branch = text.removeprefix("ref: ").removeprefix("refs/heads/")
    detached = not text.startswith("ref: ")
    return GitState(
        branch=None if detached else branch,
        commit=found.decode().strip() or None,
        uncommitted=False,
        detached=detached,
        operation=repository.operation(),
    )


def _known_filters(
    repository: Repository, mark: Mark, deadline: Deadline | None
) -> tuple[str, ...]:
    """Return the filters for settings that were read before; kept here, where nobody can write."""
    found = _KNOWN.get((repository, mark))
    if found is None:
        found = _filters(repository.git(disarm=False), deadline)
        if len(_KNOWN) >= _REMEMBERED:
            _KNOWN.clear()
        _KNOWN[repository, mark] = found
    return found


def _filters(git: Git, deadline: Deadline | None) -> tuple[str, ...]:
    """Return the names of the filters that a repository defines."""
    listed = git.run(
        "config", "-z", "--name-only", "--get-regexp", "^filter[.]", ok=(0, 1), deadline=deadline
    )
    return tuple(dict.fromkeys(name.rpartition(".")[0] for name in split(listed)))


def stamp(path: Path) -> list[int]:
    """Return what `lstat` says of a file's version; empty when there is none."""
    try:
        looked = os.lstat(path)
    except OSError:
        return []
    return [looked.st_mtime_ns, looked.st_ctime_ns, looked.st_size, looked.st_ino]


def _text(path: Path) -> str:
    return read_small_file(path).decode("utf-8", "surrogateescape")


def _git_dir(dot_git: Path) -> Path | None:
    """Return the directory that a ``.git`` stands for: itself, or what a ``.git`` file names."""
    try:
        if dot_git.is_dir():
            found = dot_git
        elif dot_git.is_file():
            text = _text(dot_git)
            if not text.startswith("gitdir: "):
                return None
            found = dot_git.parent / text.removeprefix("gitdir: ").rstrip("\r\n")
        else:
            return None
        return found if (found / "HEAD").exists() or (found / "HEAD").is_symlink() else None
    except (OSError, ValueError):
        return None


def _common_dir(git_dir: Path) -> Path:
    try:
        text = _text(git_dir / "commondir")
    except OSError:
        return git_dir
    return git_dir / text.rstrip("\r\n")


def _parse(status: str, operation: str | None, own: tuple[str, ...]) -> Status:
    branch = commit = None
    staged: list[str] = []
    unstaged: list[str] = []
    untracked: list[str] = []
    deleted: list[str] = []
    renamed: list[tuple[str, str]] = []
    unmerged: list[str] = []
    blobs: list[str] = []
    intended = False
    entries = iter(status.split("\0"))
    for entry in entries:
        kind = entry[:2]
        if entry.startswith("# branch.oid "):
            commit = entry.removeprefix("# branch.oid ")
        elif entry.startswith("# branch.head "):
            branch = entry.removeprefix("# branch.head ")
        elif kind == "? ":
            if not entry.startswith(own, 2):
                untracked.append(entry[2:])
        elif kind == "u ":
            fields = entry.split(" ", 10)
            unmerged.append(fields[10])
            blobs += _contents(fields[10], fields[3:6], fields[7:10])
        elif kind in ("1 ", "2 "):
            # "1 XY sub mH mI mW hH hI path", and for a rename "2 … hI Xscore path" NUL "old path"
            fields = entry.split(" ", 8 if kind == "1 " else 9)
            in_index, in_tree = fields[1][0], fields[1][1]
            path = fields[-1]
            if kind == "2 ":
                renamed.append((next(entries, ""), path))
            if in_index != ".":
                staged.append(path)
                blobs += _contents(path, fields[4:5], fields[7:8])
            if in_tree != ".":
                unstaged.append(path)
            intended = intended or in_tree == "A"
            if "D" in (in_index, in_tree):
                deleted.append(path)
    state = GitState(
        branch=None if branch == "(detached)" else branch,
        commit=None if commit == "(initial)" else commit,
        uncommitted=bool(staged or unstaged or untracked or unmerged),
        detached=branch == "(detached)",
        staged=tuple(staged),
        unstaged=tuple(unstaged),
        untracked=tuple(untracked),
        deleted=tuple(deleted),
        renamed=tuple(renamed),
        unmerged=tuple(unmerged),
        operation=operation,
    )
    return Status(state, not (staged or unmerged or intended), tuple(dict.fromkeys(blobs)))


def _contents(path: str, modes: list[str], blobs: list[str]) -> list[str]:
    """Return the blobs among what an index entry names: a submodule's commit is none.

    Nor are files of ours that somebody staged by accident: the private store would take itself in.
    """
    if any(f"/{one}/" in f"/{path}" for one in NEVER_CAPTURED):
        return []
    return [
        blob
        for mode, blob in zip(modes, blobs, strict=True)
        if mode != "160000" and set(blob) != {"0"}
    ]
