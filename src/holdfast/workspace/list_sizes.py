"""How long the list of a snapshot's files would be, told from its directories without making the list.

A directory that stands in a hundred others is one object, and so on in each of those: a few hundred bytes of a
pack can name more files than anybody has room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from holdfast.errors import SnapshotCorrupt
from holdfast.workspace.base import MB
from holdfast.workspace.objects import names_in, tree_entries
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Git

# Name, kind, size and stored bytes of an object.
Stored: TypeAlias = tuple[str, str, int, int]
# A list may be this long, and longer where the objects take room accordingly.
_LIST: Final = 64 * MB
_LIST_PER_BYTE: Final = 8
_ENDLESS: Final = 1 << 50
# What a list says of a file besides its path.
_LINE: Final = 60


def refuse_endless_lists(store: PrivateStore, git: Git, found: Sequence[Stored]) -> None:
    """Raise `SnapshotCorrupt` where the files of a snapshot are too many for what it consists of."""
    most = _LIST + _LIST_PER_BYTE * sum(taken for _, _, _, taken in found)
    trees = {name: _Inside() for name, kind, _, _ in found if kind == "tree"}
    for name, data in store.each_object(trees, kind="tree", git=git):
        here = trees[name]
        for path, (_, target) in tree_entries(data, id_size=len(name) // 2):
            here.entries += 1
            here.names += len(path)
            # Whatever its mode says: git reads one in many ways.
            if target in trees:
                here.folders[target, len(path) + 1] += 1
    commits = [name for name, kind, _, _ in found if kind == "commit"]
    for commit, raw in store.each_object(commits, kind="commit", git=git):
        top = names_in(commit, raw)[0]
        if top in trees and _list_size(top, trees) > most:
            raise SnapshotCorrupt(
                f"snapshot {commit} has the same directories over and over, and more files in them "
                "than its size can be for. Nothing was changed"
            )


@dataclass(slots=True)
class _Inside:
    """What a directory has: how many entries, their names' length, directories by object and prefix.

    When ``whole`` is set, entries and names are those to any depth.
    """

    entries: int = 0
    names: int = 0
    folders: Counter[tuple[str, int]] = field(default_factory=Counter)
    whole: bool = False


def _list_size(top: str, trees: Mapping[str, _Inside]) -> int:
    """Return how long a list of all that is below a directory is, up to a number that is too large."""
    waiting = [trees[top]]
    while waiting:
        here = waiting[-1]
        below = [(trees[one], name, times) for (one, name), times in here.folders.items()]
        missing = [] if here.whole else [one for one, _, _ in below if not one.whole]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if not here.whole:
            for one, name, times in below:
                here.names += times * (one.names + one.entries * name)
                here.entries += times * one.entries
            here.entries, here.names = min(here.entries, _ENDLESS), min(here.names, _ENDLESS)
            here.whole = True
    return trees[top].names + _LINE * trees[top].entries
