"""A few told files put into the last snapshot's tree, without git's index.

The index names every file of the project and is read and written as a whole, twice per snapshot. For a
handful of files it is cheaper to take the directories on the way to them, replace the names that changed,
and let git write those directories anew. Trees that this small workshop is not made for (a file where a
directory was, links, odd names) are left to the index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from holdfast.errors import WorkspaceUnavailable
from holdfast.workspace.base import Entry
from holdfast.workspace.objects import TREE, object_name, tree_data
from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline
from holdfast.workspace.watch import Watch, is_there

# The most files worth it.
MOST: Final = 50

# A directory's content: mode and object by name.
_Folder: TypeAlias = dict[str, tuple[str, str]]


class Graft:
    """Told files on their way into ``tree``."""

    def __init__(self, store: PrivateStore, tree: str, *, deadline: Deadline) -> None:
        self._store = store
        self._tree = tree
        self._deadline = deadline
        self._folders: dict[str, _Folder] = {}
        self._blobs: dict[str, str] = {}

    def open(self, paths: Collection[str]) -> bool:
        """Read the directories on the way to some paths. False where this is not the way to go."""
        if not paths or len(paths) > MOST or any(map(_is_odd, paths)):
            return False
        wanted = sorted({folder for path in paths for folder in _above(path)})
        folders = self._store.read_folders(self._tree, wanted)
        if folders is None or any(self._mode_in(folders, path) == TREE for path in paths):
            return False
        self._folders = folders
        return True

    def holds(self, path: str) -> bool:
        """Whether the tree has a file."""
        return self._mode_in(self._folders, path) is not None

    def read(self, modes: Mapping[str, str]) -> bool:
        """Keep the content of files with the objects that are incoming.

        ``modes`` are git's. False when one is gone, or when something else was read in its place.
        """
        watch = Watch(self._store.root, list(modes))
        try:
            blobs = _hash(self._store, list(modes), self._deadline)
        except WorkspaceUnavailable:
            return False
        self._blobs = dict(zip(modes, blobs, strict=True))
        return all(
            is_there(self._store.root, path, Entry(modes[path], self._blobs[path]))
            for path in watch.doubtful()
        )

    def write(self, files: Mapping[str, str | None]) -> str | None:
        """Return the tree with these files: git's mode of each, or None for one that is gone."""
        for path, mode in files.items():
            folder, _, name = path.rpartition("/")
            if mode is not None:
                self._folders[folder][name] = (mode, self._blobs[path])
            else:
                self._folders[folder].pop(name, None)
        return _write(
            self._store, self._folders, id_size=len(self._tree) // 2, deadline=self._deadline
        )

    @staticmethod
    def _mode_in(folders: Mapping[str, _Folder], path: str) -> str | None:
        folder, _, name = path.rpartition("/")
        there = folders[folder].get(name)
        return there[0] if there is not None else None


def _is_odd(path: str) -> bool:
    """Whether git, which is told one name per line, would take a name for another."""
    return "\n" in path or "\r" in path or path[0] == '"'


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _hash(store: PrivateStore, paths: Sequence[str], deadline: Deadline) -> list[str]:
    if not paths:
        return []
    out = store.incoming.git.run(
        "hash-object", "-w", "-t", "blob", "--no-filters", "--stdin-paths",
        stdin=lines(paths), deadline=deadline,
    )  # fmt: skip
    return out.decode().split()


def _write(
    store: PrivateStore, folders: dict[str, _Folder], *, id_size: int, deadline: Deadline
) -> str | None:
    """Write directories, the deepest first; return the one at the top."""
    trees = []
    names = []
    for path in sorted(folders, key=lambda one: -len(_above(f"{one}/x")) if one else 0):
        folder = folders[path]
        if path and not folder:
            parent, _, name = path.rpartition("/")
            folders[parent].pop(name, None)
            continue
        trees.append(data := tree_data(folder))
        names.append(object_name("tree", (data,), len(data), digits=2 * id_size))
        if path:
            parent, _, name = path.rpartition("/")
            folders[parent][name] = (TREE, names[-1])
    return names[-1] if store.write_trees(trees, deadline=deadline) == names else None
