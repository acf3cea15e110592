"""Git's trees as bytes: read strictly, so that one made by a stranger leads nowhere else.

A tree is one directory: names with modes and objects, in an order of its own. What differs between two
trees is found by git, which skips what both share; each differing directory is then read here, hashed anew
and checked. The rest needs no look: it is what the project holds already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.config import AGENTS_DIR
from holdfast.errors import SnapshotCorrupt, SnapshotNotFound, WorkspaceUnavailable
from holdfast.workspace.base import Change, is_git_name
from holdfast.workspace.compare import raw_changes
from holdfast.workspace.private_store import PrivateStore

_FOLDER: Final = "040000"
_FORBIDDEN: Final = frozenset({"", ".", ".."})
# As trees spell them: plain files, executables, links, directories.
_MODES: Final = frozenset({b"100644", b"100755", b"120000", b"40000"})


@dataclass(frozen=True, slots=True)
class Difference:
    """The files that differ between two trees, and the directories that only one of them has."""

    files: list[Change]
    only_old: set[str]
    only_new: set[str]


def checked_difference(store: PrivateStore, old: str, new: str) -> Difference:
    """Return what differs, after hashing every differing directory of the new tree.

    Raises `SnapshotCorrupt` for one that no capture can have made: names that lead elsewhere, a name
    twice, an entry that is no file; and for one that is damaged.
    """
    found: list[Change] = []
    try:
        if old != new:
            found = raw_changes(store, old, new, folders=True)
            folders = [one.new.blob for one in found if one.new and one.new.mode == _FOLDER]
            for name, data in store.each_object([new, *folders], kind="tree"):
                _check(data, id_size=len(name) // 2)
    except (WorkspaceUnavailable, SnapshotNotFound) as error:
        raise SnapshotCorrupt(f"the snapshot's files cannot be listed: {error}") from error
    difference = Difference([], set(), set())
    for one in found:
        check_path(one.path)
        if _FOLDER not in (one.old and one.old.mode, one.new and one.new.mode):
            difference.files.append(one)
        elif one.old is None:
            difference.only_new.add(one.path)
        elif one.new is None:
            difference.only_old.add(one.path)
    return difference


def check_path(path: str) -> None:
    """Refuse a path that would lead out of the project or into what is not ours to write.

    Git itself stores no such names, but a snapshot may come from another machine.
    """
    if (
        leads_elsewhere(path)
        or path.split("/")[0] == AGENTS_DIR
        or "\0" in path
        or not _is_name(path)
    ):
        raise SnapshotCorrupt(f"the snapshot holds a path that no snapshot may hold: {path!r}")


def leads_elsewhere(path: str) -> bool:
    """Whether a path leads out of the project, or into a repository's own directory."""
    return not _FORBIDDEN.isdisjoint(path.split("/")) or is_git_name(path)


def _is_name(path: str) -> bool:
    """Whether there are bytes for a path: JSON can spell characters that there are none for."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _check(data: bytes, *, id_size: int) -> None:
    """Refuse the content of a tree that git would not have written."""
    names: set[bytes] = set()
    before = b""
    place = 0
    while place < len(data):
        mode = data[place : place + 8].partition(b" ")[0]
        start = place + len(mode) + 1
        end = data.find(b"\0", start)
        name = data[start:end]
        # Directories are in order as if a slash ended their names.
        key = name + b"/" if mode == b"40000" else name
        place = end + 1 + id_size
        if (
            mode not in _MODES
            or end < 0
            or place > len(data)
            or b"/" in name
            or key <= before
            or name in names
        ):
            raise SnapshotCorrupt(f"the snapshot holds something that is no file: {name!r}")
        names.add(name)
        before = key
