"""Snapshots on their way to another machine, as git packs.

Through a shared database each travels by itself, with what the one before it lacks. In a bundle all of a
session's snapshots are one pack, which for the same snapshots has the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Final, cast

from holdfast.errors import SnapshotCorrupt, WorkspaceFull, WorkspaceRefused, WorkspaceUnavailable
from holdfast.workspace.base import MB
from holdfast.workspace.list_sizes import Stored, refuse_endless_lists
from holdfast.workspace.objects import ends_with_digest
from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git, finish, understood

_READ: Final = 1 << 20
# Git unpacks an object in memory, and a pack of some kilobytes can hold one of any size. No file that is
# taken in is larger than those of the project may be; the list of millions of objects has room in this.
_ROOM: Final = 256 * MB
_FORMAT: Final = "%(objectname) %(objecttype) %(objectsize) %(objectsize:disk)"


def export_pack(store: PrivateStore, commit: str, without: Sequence[str] = ()) -> bytes:
    """Return the objects of a snapshot as one pack, less those of snapshots that are there already."""
    wanted = lines((commit, *(f"^{one}" for one in without)))
    return store.git.run("pack-objects", "--revs", "--thin", "--stdout", "-q", stdin=wanted)


def import_pack(store: PrivateStore, commit: str, data: bytes, *, largest: int) -> None:
    """Add the objects of a pack that a snapshot is made of; git hashes each. Raises `SnapshotCorrupt`."""
    try:
        _index(store.git, (data,), largest, "--fix-thin")
    except SnapshotCorrupt as error:
        raise SnapshotCorrupt(f"a pack of snapshot {commit[:12]} is damaged: {error}") from error


def check_digest(commit: str, data: bytes) -> None:
    """Raise `SnapshotCorrupt` for a pack that does not end with the digest of its content, as git's do.

    Needs no git. That the objects in it are those of the snapshot only `import_pack` finds out.
    """
    if not ends_with_digest(data, digits=len(commit)):
        raise SnapshotCorrupt(f"the pack of snapshot {commit[:12]} is damaged: its digest is wrong")


def check_lists(store: PrivateStore, commits: Sequence[str]) -> None:
    """Raise `SnapshotCorrupt` where the files of a snapshot are too many for what it consists of."""
    refuse_endless_lists(store, store.git, list(_objects(store.git, commits)))


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
        refuse_endless_lists(store, store.incoming.git, found)
        store.incoming.deliver()
    finally:
        store.incoming.close()


def _bounded(largest: int) -> dict[str, str]:
    """Return what keeps git from making room for more than the largest file."""
    return {"GIT_ALLOC_LIMIT": str(max(largest, _ROOM))}


def _index(git: Git, pack: Iterable[bytes], largest: int, *options: str) -> None:
    """Let git read a pack and hash all that is in it."""
    arguments = ("index-pack", "--stdin", "--threads=1", *options)
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


def _objects(git: Git, commits: Sequence[str]) -> Iterator[Stored]:
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
