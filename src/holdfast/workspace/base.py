"""The vocabulary of workspace snapshots: plain, frozen values.

A *snapshot* is the project's files at one moment, named by a commit of the private store. The same files
give the same commit, so a save that finds nothing changed costs no room. Paths are relative to the
project, with ``/``; bytes that are no UTF-8 are kept as surrogates, as `os.fsdecode` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from holdfast.config import AGENTS_DIR, DATABASE
from holdfast.errors import InvalidIdentifier

MB: Final = 1024 * 1024

Kind: TypeAlias = Literal["added", "modified", "deleted"]
Progress: TypeAlias = Callable[[int, int], None]
_P = TypeVar("_P")

# What is never captured: our own corner, and the copies that `CheckpointManager` keeps for readers.
NEVER_CAPTURED: Final = (AGENTS_DIR, ".claude/checkpoints")
# The private store of a project, in its `.agents`.
STORE: Final = "workspace.git"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a snapshot may cost.

    ``max_file_bytes`` leaves out larger files; ``quota_bytes`` bounds the whole private store;
    ``seconds`` bounds one capture. ``include`` names files or directories that are captured although
    the project's rules ignore them; ``patterns`` says which others would be, were they there.
    """

    max_file_bytes: int = 100 * MB
    quota_bytes: int = 10 * 1024 * MB
    seconds: float | None = 600.0
    include: Sequence[str] = ()
    patterns: Sequence[str] = ()

    def __post_init__(self) -> None:
        # Every later capture reads what this one was told.
        for path in (*self.include, *self.patterns):
            check_possible(path)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that a snapshot does not hold, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as a tree holds it: git's mode (``100644``, ``100755``, ``120000``) and blob."""

    mode: str
    blob: str


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two snapshots."""

    path: str
    kind: Kind
    old: Entry | None = None
    new: Entry | None = None


@dataclass(frozen=True, slots=True)
class GitState:
    """Where the user's own repository stood. ``branch`` is None when HEAD is detached.

    The lists are paths relative to the repository's top; ``renamed`` holds pairs. ``operation`` names
    a merge, rebase, cherry-pick, revert or bisect in progress.
    """

    branch: str | None
    commit: str | None
    uncommitted: bool
    detached: bool = False
    staged: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    unmerged: tuple[str, ...] = ()
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one capture found.

    ``commit`` names the files for good; ``before`` is the project's previous snapshot, from whoever
    made it, and ``touched`` the paths that looked different since. ``git`` is what the user's
    repository said at that moment, None outside of one.
    """

    commit: str
    tree: str
    before: str | None
    touched: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    git: GitState | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the private store holds on disk."""

    bytes: int
    snapshots: int
    objects: int
    quota_bytes: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """What `Workspace.gc` removed: snapshots that no checkpoint names, and the room they took.

    ``mended`` are snapshots that are needed and that no reference held: they are held again, and the
    next sweep frees what is not needed.
    """

    snapshots: int
    bytes: int
    dry_run: bool
    mended: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that `Workspace.verify` found wrong, and the snapshot that it concerns."""

    commit: str
    problem: str


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did, or with ``dry_run`` would do.

    ``changes`` are the paths written and deleted; ``modes`` those whose permissions alone were set;
    ``folders`` are empty directories that come or go; ``kept`` are paths left alone although the target lacks or differs in them, each with the reason;
    ``conflicts`` are kept because somebody else changed them since. ``safety`` is the snapshot from
    just before, ``landed`` the one from just after. ``head`` tells what moved in the user's
    repository, ``commits`` are those that a moved branch no longer contains, and ``backup`` the
    reference that keeps them where no other branch or tag does.
    """

    target: str
    safety: str
    landed: str | None
    changes: tuple[Change, ...]
    modes: tuple[str, ...] = ()
    folders: tuple[Change, ...] = ()
    kept: tuple[Skipped, ...] = ()
    conflicts: tuple[Skipped, ...] = ()
    head: str | None = None
    commits: tuple[str, ...] = ()
    backup: str | None = None
    dry_run: bool = False

    @property
    def left_alone(self) -> tuple[Skipped, ...]:
        """What is not as the target has it, and stays so: ``kept`` and ``conflicts``."""
        return (*self.kept, *self.conflicts)

    @property
    def acts(self) -> bool:
        """Whether anything is changed."""
        return bool(self.changes or self.modes or self.folders or self.head)

    def __bool__(self) -> bool:
        """Whether anything differs at all, be it changed or left alone."""
        return self.acts or bool(self.left_alone)


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file that a snapshot holds: its permissions and how many bytes it has."""

    path: str
    mode: int
    bytes: int
    link: bool = False


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One changed path with its unified text, as git writes it; ``text`` is empty for a binary file.

    Bytes that are no UTF-8 are kept as surrogates, as in paths.
    """

    change: Change
    text: str = ""
    binary: bool = False

    @property
    def added(self) -> int:
        """How many lines are new."""
        return self._count("+")

    @property
    def removed(self) -> int:
        """How many lines are gone."""
        return self._count("-")

    def _count(self, sign: str) -> int:
        count = 0
        inside = False
        for line in self.text.split("\n"):
            if line.startswith("diff --git "):
                inside = False
            elif line.startswith("@@ "):
                inside = True
            elif inside and line.startswith(sign):
                count += 1
        return count


def is_own(path: str) -> bool:
    """Whether a path is where Holdfast keeps its own: of this project, or of one that lies in it.

    Databases change while they are captured, and to put an older one back would lose what it holds.
    No rule of the project has a say in this.
    """
    if any(path == one or path.startswith(f"{one}/") for one in NEVER_CAPTURED):
        return True
    parts = path.split("/")
    return any(
        above == AGENTS_DIR and (name == STORE or name.startswith(DATABASE))
        for above, name in pairwise(parts)
    )


def check_possible(path: object) -> str:
    """Return a path, and refuse what no file can be called: no text, NUL, and half of a character."""
    if not isinstance(path, str):
        raise InvalidIdentifier(
            f"a path must be text, not {type(path).__name__}: {path!a:.200}. Nothing was changed"
        )
    try:
        possible = b"\0" not in path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise InvalidIdentifier(
            f"a path cannot contain NUL or a lone surrogate: {path!a:.200}. Nothing was changed"
        )
    return path


def path_of(given: object) -> Path:
    """Return the path of a file that a caller names. Raises `InvalidIdentifier` for what none can be called."""
    return Path(check_possible(fspath(given) if isinstance(given, PathLike) else given))


def listed(paths: Iterable[_P]) -> Iterable[_P]:
    """Return paths, of which there is a list: the letters of a single one would be taken for paths."""
    if isinstance(paths, (str, bytes, PathLike)) or not isinstance(paths, Iterable):
        raise InvalidIdentifier(
            f"a list of paths is needed, not {paths!a:.200}. Nothing was changed"
        )
    return paths


def is_git_name(path: str) -> bool:
    """Whether a part of a path is ``.git`` to some file system: in capitals, with invisible characters."""
    if "g" not in path and "G" not in path:
        return False
    return any(part.translate(_INVISIBLE).lower() == ".git" for part in path.split("/"))


def as_document(git: GitState) -> Mapping[str, Any]:
    """Return a git state as plain values, fit for a checkpoint; long lists keep their beginning."""
    document: dict[str, Any] = {
        "branch": git.branch,
        "commit": git.commit,
        "detached": git.detached,
        "uncommitted": git.uncommitted,
        "operation": git.operation,
    }
    for name in ("staged", "unstaged", "untracked", "deleted", "renamed", "unmerged"):
        paths: tuple[Any, ...] = getattr(git, name)
        document[name] = [_readable(one) for one in paths[:_LISTED]]
        if len(paths) > _LISTED:
            document[f"{name}_count"] = len(paths)
    return document


def readable(path: str) -> str:
    """Return a path fit for text and JSON: what is no UTF-8 is spelled out."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _readable(paths: str | tuple[str, str]) -> str | list[str]:
    return readable(paths) if isinstance(paths, str) else [readable(one) for one in paths]


_LISTED: Final = 1000
# What HFS+ does not see in a name.
_INVISIBLE: Final = dict.fromkeys(
    (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
)

__all__ = [
    "MB",
    "NEVER_CAPTURED",
    "STORE",
    "Change",
    "Entry",
    "FileDiff",
    "GitState",
    "Limits",
    "Problem",
    "RestoreReport",
    "SavedFile",
    "Skipped",
    "Snapshot",
    "Sweep",
    "Usage",
    "as_document",
    "check_possible",
    "is_git_name",
    "is_own",
    "listed",
    "readable",
]
