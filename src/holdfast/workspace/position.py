"""Where the user's repository stands: HEAD, branch, index, and a merge or rebase in progress.

A snapshot's details name HEAD and its commit. When that is not all (something is staged or unmerged, files
are added in intent, the checkout is sparse, an operation is in progress), a second commit holds the rest
and becomes the snapshot's parent: the index file as it is, the staged contents, git's own notes about
the operation, and the references of a bisection. Taking it reads the repository only; `mover` puts it
back when somebody asks for that.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from holdfast.errors import SnapshotCorrupt
from holdfast.trust import is_known_position, remember_position
from holdfast.workspace.base import Limits
from holdfast.workspace.details import Details
from holdfast.workspace.objects import tree_data
from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git
from holdfast.workspace.repository import Repository, Status, stamp

_NOTES: Final = (
    "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR", "MERGE_AUTOSTASH", "AUTO_MERGE", "SQUASH_MSG",
    "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD",
    "BISECT_LOG", "BISECT_START", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV",
)  # fmt: skip
OPERATION_FOLDERS: Final = ("rebase-merge", "rebase-apply", "sequencer")
# Those notes without which git can neither go on nor give up: each line of theirs is a commit.
_NAMING: Final = (
    "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD",
    "rebase-merge/onto", "rebase-merge/orig-head", "rebase-apply/onto", "rebase-apply/orig-head",
)  # fmt: skip
# How the files of the second commit are named, besides the index.
_INDEX, _NOTE, _STAGED, _BISECTION = "index", "note.", "staged.", "bisection"
# While there is this note, commits that were tried are references.
BISECTING: Final = "BISECT_LOG"
TRIED: Final = "refs/bisect"
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_TRIED_ONE: Final = re.compile(f"({_COMMIT.pattern}) ({TRIED}/\\S+)")
_HEAD: Final = re.compile(f"ref: refs/[^\\0]+|{_COMMIT.pattern}")
# In ``ls-files -v -z``: entries that are assumed unchanged, or left out of the work tree.
FLAGGED: Final = re.compile(rb"(?:^|\0)[a-zS] ([^\0]*)")


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
        return cls(details.head, details.head_commit, parents[0] if parents else None).checked()

    def checked(self) -> Position:
        """Return it. Raises `SnapshotCorrupt` for what no repository has: it is told to git."""
        names = [one for one in (self.commit, self.extra) if one is not None]
        if not _HEAD.fullmatch(self.head) or not all(_COMMIT.fullmatch(one) for one in names):
            raise SnapshotCorrupt(f"the snapshot names a HEAD that cannot be: {self.head!r}")
        return self

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
class Extra:
    """What HEAD alone does not tell: the index file, git's notes by path, staged objects by name.

    ``tried`` are the commits that a bisection has tried, by reference.
    """

    index: bytes | None = None
    notes: Mapping[str, bytes] = field(default_factory=dict)
    staged: tuple[str, ...] = ()
    tried: Mapping[str, str] = field(default_factory=dict)


def read_extra(store: PrivateStore, position: Position) -> Extra:
    """Read what a snapshot recorded besides HEAD. Raises `SnapshotCorrupt` for what it cannot have."""
    if position.extra is None:
        return Extra()
    tree, _, _ = store.read_commit(position.extra)
    entries = store.entries(tree)
    staged = tuple(entry.blob for name, entry in entries.items() if name.startswith(_STAGED))
    contents = store.read_objects(
        entry.blob for name, entry in entries.items() if not name.startswith(_STAGED)
    )
    notes = {}
    for name, entry in entries.items():
        if name.startswith(_NOTE):
            note = unquote(name.removeprefix(_NOTE))
            if not _is_note(note):
                raise SnapshotCorrupt(f"the snapshot names a file that is not git's note: {note!r}")
            notes[note] = contents[entry.blob]
    index = contents[entries[_INDEX].blob] if _INDEX in entries else None
    listed = contents[entries[_BISECTION].blob] if _BISECTION in entries else b""
    return Extra(index, notes, staged, _read_tried(listed))


def _read_tried(listed: bytes) -> dict[str, str]:
    found = {}
    for line in os.fsdecode(listed).splitlines():
        one = _TRIED_ONE.fullmatch(line)
        if one is None:
            raise SnapshotCorrupt(f"the snapshot names a bisection that cannot be: {line[:80]!r}")
        found[one[2]] = one[1]
    return found


def is_strange(position: Position, extra: Extra) -> bool:
    """Whether git would go on with what somebody else had begun: it may be told to run programs then."""
    begun = any(name.partition("/")[0] in OPERATION_FOLDERS for name in extra.notes)
    return begun and (position.extra is None or not is_known_position(position.extra))


def named_commits(extra: Extra) -> Iterator[str]:
    """Yield the commits that an operation in progress needs."""
    yield from extra.tried.values()
    for name in _NAMING:
        for line in extra.notes.get(name, b"").decode("ascii", "replace").splitlines():
            if _COMMIT.fullmatch(line):
                yield line


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

    Staged contents that exceed a limit stay in the user's repository alone, and so do those of one that
    was made later, with names of another kind than the private store's.
    """
    sparse = (repository.git_dir / "info" / "sparse-checkout").exists()
    notes = list(operation_files(repository.git_dir))
    if (
        status.plain_index and not notes and not sparse
        and not _has_flags(repository, note, deadline)
    ):  # fmt: skip
        return None
    index = [repository.index.relative_to(repository.git_dir)] if repository.index.exists() else []
    mark = [[str(path), *stamp(repository.git_dir / path)] for path in (*index, *notes)]
    if note.get("position") and note.get("position_mark") == mark:
        return str(note["position"])
    alike = [blob for blob in status.blobs if len(blob) == store.id_digits()]
    staged = _of_bearable_size(repository, alike, limits, note, deadline) if alike else []
    git = store.incoming.git
    if staged:
        copy_objects(repository.git(disarm=False), git, staged, deadline=deadline)
    with _whole_index(store, repository, deadline) as whole:
        files = [*([str(whole)] if index else ()), *(str(path) for path in notes)]
        blobs = git.run(
            "hash-object", "-w", "-t", "blob", "--no-filters", "--stdin-paths",
            stdin=lines(files),
            # Git reads these names from the top of its work tree, wherever it was started.
            variables={"GIT_WORK_TREE": str(repository.git_dir)}, cwd=repository.git_dir,
            deadline=deadline,
        ).decode().split()  # fmt: skip
    names = [*(_INDEX for _ in index), *(f"{_NOTE}{quote(str(path), safe='')}" for path in notes)]
    listed = dict(zip(names, blobs, strict=True)) | {f"{_STAGED}{blob}": blob for blob in staged}
    if Path(BISECTING) in notes:
        tried = list_tried(repository.git(disarm=False), deadline=deadline)
        stored = git.run("hash-object", "-w", "--stdin", stdin=tried, deadline=deadline)
        listed[_BISECTION] = stored.decode().strip()
    tree = tree_data({name: ("100644", blob) for name, blob in listed.items()})
    [written] = store.write_trees([tree], deadline=deadline)
    commit = store.commit(written, b"position\n", deadline=deadline)
    note["position_mark"] = mark
    if any(path.parts[0] in OPERATION_FOLDERS for path in notes):
        remember_position(commit)
    return commit


def list_tried(git: Git, *, deadline: Deadline | None = None) -> bytes:
    """Return the commits that a bisection has tried, each with its reference, one per line."""
    listed = ("for-each-ref", "--format=%(objectname) %(refname)", TRIED)
    return git.run(*listed, deadline=deadline)


def _has_flags(repository: Repository, note: dict[str, Any], deadline: Deadline) -> bool:
    """Whether the index marks files as unchanged or left out, which no status tells."""
    if not repository.index.exists():
        return False
    mark = stamp(repository.index)
    if note.get("flags_mark") != mark:
        out = repository.git(disarm=False).run("ls-files", "-v", "-z", deadline=deadline)
        note["flags"] = FLAGGED.search(out) is not None
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


def _is_note(name: str) -> bool:
    first, _, rest = name.partition("/")
    inside = (
        first in OPERATION_FOLDERS and bool(rest) and {"", ".", ".."}.isdisjoint(rest.split("/"))
    )
    return (name in _NOTES or inside) and "\0" not in name


def operation_files(git_dir: Path) -> Iterator[Path]:
    """Yield the files in which git notes an operation in progress; what a link leads to is no note."""
    for name in _NOTES:
        if (git_dir / name).is_file() and not (git_dir / name).is_symlink():
            yield Path(name)
    for folder in OPERATION_FOLDERS:
        if (git_dir / folder).is_symlink():
            continue
        for where, _, names in os.walk(git_dir / folder):
            for name in sorted(names):
                path = Path(where, name)
                if stat.S_ISREG(path.lstat().st_mode) and "\n" not in name:
                    yield path.relative_to(git_dir)


def _of_bearable_size(
    source: Repository,
    names: Iterable[str],
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


def copy_objects(
    source: Git, target: Git, names: Iterable[str], *, deadline: Deadline | None = None
) -> None:
    """Give one repository objects of another."""
    pack = source.run("pack-objects", "--stdout", "-q", stdin=lines(names), deadline=deadline)
    target.run("unpack-objects", "-q", stdin=pack, deadline=deadline)
