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
from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Deadline, Git, finish, understood

_READ: Final = 1 << 20


def export_pack(store: PrivateStore, commit: str, without: Sequence[str] = ()) -> bytes:
    """Return the objects of a snapshot as one pack, less those of snapshots that are there already."""
    wanted = lines((commit, *(f"^{one}" for one in without)))
    return store.git.run("pack-objects", "--revs", "--thin", "--stdout", "-q", stdin=wanted)


def import_pack(store: PrivateStore, data: bytes) -> None:
    """Add a pack's objects; git hashes every one of them on the way in."""
    store.git.run("index-pack", "--stdin", "--fix-thin", stdin=data)


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
    return sum(size for _, _, size in _objects(store.git, commits))


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
        _index(store.incoming.git, pack)
        total = 0
        for name, kind, length in _objects(store.incoming.git, commits):
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
        store.incoming.deliver()
    finally:
        store.incoming.close()


def _index(git: Git, pack: Iterable[bytes]) -> None:
    """Let git read a pack and hash all that is in it."""
    arguments = ("index-pack", "--stdin")
    process = git.start(*arguments)
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


def _objects(git: Git, commits: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield name, kind and size of the files that snapshots are made of; of others the size is 0."""
    arguments = ("--objects", "--no-object-names", "--missing=print", "--stdin")
    try:
        found = git.run("rev-list", *arguments, stdin=lines(commits))
        names = b"".join(line.lstrip(b"?") + b"\n" for line in found.split())
        checked = git.run(
            "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=names
        )
    except WorkspaceUnavailable as error:
        raise SnapshotCorrupt(f"snapshots cannot be read: {error}") from error
    with understood("cat-file"):
        for line in checked.decode().splitlines():
            name, kind, *size = line.split()
            yield name, kind, int(size[0]) if kind == "blob" else 0
