"""Snapshots on their way to another machine, as git packs.

Through a shared database each travels by itself, with what the one before it lacks. In a bundle all of a
session's snapshots are one pack, which for the same snapshots has the same bytes.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Final, cast

from holdfast.errors import SnapshotCorrupt, WorkspaceFull, WorkspaceRefused, WorkspaceUnavailable
from holdfast.workspace.base import MB
from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore, names_in, tree_entries
from holdfast.workspace.process import Deadline, Git, finish, understood

_READ: Final = 1 << 20
# Git unpacks an object in memory, and a pack of some kilobytes can hold one of any size. No file that is
# taken in is larger than those of the project may be; the list of millions of objects has room in this.
_ROOM: Final = 256 * MB
# A directory that stands in a hundred others is one object, and so on in each of those. A list of a
# snapshot's files may be this long, and longer where the objects take room accordingly.
_LIST: Final = 16 * MB
_LIST_PER_BYTE: Final = 8
_FORMAT: Final = "%(objectname) %(objecttype) %(objectsize) %(objectsize:disk)"
_ENDLESS: Final = 1 << 50
# What a list says of a file besides its path.
_LINE: Final = 60


def export_pack(store: PrivateStore, commit: str, without: Sequence[str] = ()) -> bytes:
    """Return the objects of a snapshot as one pack, less those of snapshots that are there already."""
    wanted = lines((commit, *(f"^{one}" for one in without)))
    return store.git.run("pack-objects", "--revs", "--thin", "--stdout", "-q", stdin=wanted)


def import_pack(store: PrivateStore, data: bytes, *, largest: int) -> None:
    """Add a pack's objects; git hashes every one of them on the way in."""
    arguments = ("index-pack", "--stdin", "--fix-thin", "--threads=1")
    store.git.run(*arguments, stdin=data, variables=_bounded(largest))


def check_lists(store: PrivateStore, commits: Sequence[str]) -> None:
    """Raise `SnapshotCorrupt` where the files of a snapshot are too many for what it consists of."""
    _check_lists(store, store.git, list(_objects(store.git, commits)))


def write_pack(
    store: PrivateStore, commits: Sequence[str], write: Callable[[bytes], object]
) -> int:
    """Write the objects of snapshots as one pack, and return the bytes of their files unpacked."""
    arguments = (
        "pack-objects", "--revs", "--stdout", "-q", "--threads=1",
        "--no-reuse-delta", "--no-reuse-object",
    )  # fmt: skip
    with tempfile.TemporaryFile() as listed:
        # From a file: git begins to answer before it has read the last name.
        listed.write(lines(commits))
        listed.seek(0)
        process = store.git.start(*arguments, stdin=listed)
    answer = cast("IO[bytes]", process.stdout)
    try:
        while part := answer.read(_READ):
            write(part)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    finish(process, arguments, deadline=Deadline())
    return sum(size for _, _, size, _ in _objects(store.git, commits))


def take_in(
    store: PrivateStore,
    commits: Sequence[str],
    pack: Iterable[bytes],
    *,
    size: int,
    largest: int,
) -> None:
    """Add the objects of snapshots from one pack: all of them, looked at before, or none.

    Raises `SnapshotCorrupt` for a pack that is damaged, lacks something, or does not unpack to
    ``size`` bytes of files, and `WorkspaceRefused` for a file of more than ``largest`` bytes.
    """
    try:
        _index(store.incoming.git, pack, largest)
        total = 0
        found = list(_objects(store.incoming.git, commits))
        for name, kind, length, _ in found:
            if kind == "missing":
                raise SnapshotCorrupt(f"the pack lacks object {name}; nothing was changed")
            total += length
            if length > largest:
                raise WorkspaceRefused(
                    f"the pack has a file of {length} bytes, and files of a checkpoint may have "
                    f"{largest} here (workspace.max_file_mb). Nothing was changed"
                )
        if total != size:
            raise SnapshotCorrupt(
                f"the pack holds {total} bytes of files and {size} were announced; nothing was changed"
            )
        _check_lists(store, store.incoming.git, found)
        store.incoming.deliver()
    finally:
        store.incoming.close()


def _bounded(largest: int) -> dict[str, str]:
    """Return what keeps git from making room for more than the largest file."""
    return {"GIT_ALLOC_LIMIT": str(max(largest, _ROOM))}


def _index(git: Git, pack: Iterable[bytes], largest: int) -> None:
    """Let git read a pack and hash all that is in it."""
    arguments = ("index-pack", "--stdin", "--threads=1")
    process = git.start(*arguments, variables=_bounded(largest))
    into = cast("IO[bytes]", process.stdin)
    try:
        with suppress(BrokenPipeError):
            for part in pack:
                into.write(part)
        finish(process, arguments, deadline=Deadline())
    except WorkspaceFull:
        raise
    except WorkspaceUnavailable as error:
        raise SnapshotCorrupt(
            f"git does not take the pack: {error}. Nothing was changed"
        ) from error
    except BaseException:
        process.kill()
        process.communicate()
        raise


def _check_lists(store: PrivateStore, git: Git, found: Sequence[tuple[str, str, int, int]]) -> None:
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


def _objects(git: Git, commits: Sequence[str]) -> Iterator[tuple[str, str, int, int]]:
    """Yield name, kind, size and stored bytes of what snapshots are made of; only files have a size."""
    arguments = ("--objects", "--no-object-names", "--missing=print", "--stdin")
    try:
        found = git.run("rev-list", *arguments, stdin=lines(commits))
        names = b"".join(line.lstrip(b"?") + b"\n" for line in found.split())
        checked = git.run("cat-file", f"--batch-check={_FORMAT}", stdin=names)
    except WorkspaceUnavailable as error:
        raise SnapshotCorrupt(f"snapshots cannot be read: {error}") from error
    with understood("cat-file"):
        for line in checked.decode().splitlines():
            name, kind, *size = line.split()
            taken = int(size[1]) if size else 0
            yield name, kind, int(size[0]) if kind == "blob" else 0, taken
