"""Objects with other bytes than their names say, taken out of git's way.

Git does not write again what it finds under a name. So a later snapshot of the same file would rest on the
damaged object, unless that one is gone. A pack is one file for many objects: those that are good go into a
new pack first, and the old one is renamed when that one is on the disk. A kill in between leaves two packs, and
the next time the same is done again. What was renamed git takes for something that it had not finished: the next
sweep removes it.
"""

from __future__ import annotations

from hashlib import new as new_hash
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directory
from holdfast.errors import SnapshotCorrupt, SnapshotNotFound, WorkspaceUnavailable
from holdfast.workspace.environment import STORE_SETTINGS
from holdfast.workspace.objects import has_name, is_whole
from holdfast.workspace.paths import batches, lines
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Git

# How the files begin that git prunes; those of packs must not end as they did, either.
_LEFT_OVER: Final = "tmp_obj_"
_NO_PACK: Final = ".damaged"
# Without the first of them the others count for nothing.
_PARTS: Final = (".pack", ".idx", ".rev")
# For each damaged object git is started anew, and told at most so many names.
_AT_ONCE: Final = 1000
# What it says of one.
_SAID: Final = " is corrupt"


def set_damaged_aside(store: PrivateStore) -> int:
    """Take damaged objects out of the way and return how many. Needs the store's work lock."""
    # Git works elsewhere.
    objects = (store.home / "objects").absolute()
    digits = store.id_digits()
    loose = [
        path
        for path in objects.glob("[0-9a-f][0-9a-f]/*")
        if len(name := path.parent.name + path.name) == digits and not is_whole(path, name)
    ]
    for path in loose:
        path.rename(path.with_name(f"{_LEFT_OVER}{path.name}"))
    packed = [_set_pack_aside(store, pack) for pack in sorted((objects / "pack").glob("*.pack"))]
    return len(loose) + sum(packed)


def _set_pack_aside(store: PrivateStore, pack: Path) -> int:
    """Put a pack of its good objects in the place of one that has others; return how many those are.

    One of which git can read nothing stays, since git does not find an object in it either. So does one
    whose list is damaged: nobody knows what is in it.
    """
    names = _listed(store, pack.with_suffix(".idx"))
    with store.aside() as aside:
        # Where git sees this pack and no other.
        Path(aside, "pack").mkdir()
        for part in _PARTS[:2]:
            Path(aside, "pack", f"{pack.stem}{part}").symlink_to(pack.with_suffix(part))
        alone = Git(store.home, objects=Path(aside), settings=STORE_SETTINGS)
        if not _is_open(names, alone):
            return 0
        good = _good(store, names, alone)
        if len(good) == len(names):
            return 0
        if good:
            made = alone.run(
                "pack-objects", "-q", "--no-reuse-delta", "--no-reuse-object",
                str(pack.with_name("pack")), stdin=lines(good),
            )  # fmt: skip
            store.git.run("verify-pack", str(pack.with_name(f"pack-{made.decode().strip()}.idx")))
            sync_directory(pack.parent)
    for part in _PARTS:
        file = pack.with_suffix(part)
        if file.exists():
            file.rename(file.with_name(f"{_LEFT_OVER}{file.name}{_NO_PACK}"))
    return len(names) - len(good)


def _listed(store: PrivateStore, index: Path) -> list[str]:
    """Return the names that the list of a pack has, none where it is damaged."""
    try:
        said = index.read_bytes()
    except OSError:
        return []
    size, kind = (32, "sha256") if store.id_digits() == 64 else (20, "sha1")
    if new_hash(kind, said[:-size], usedforsecurity=False).digest() != said[-size:]:
        return []
    out = store.git.run("show-index", f"--object-format={kind}", stdin=said)
    return [line.split()[1] for line in out.decode().splitlines()]


def _is_open(names: list[str], git: Git) -> bool:
    """Whether git finds anything in a pack."""
    out = git.run("cat-file", "--batch-check", stdin=lines(names))
    return any(not line.endswith(b" missing") for line in out.splitlines())


def _good(store: PrivateStore, names: list[str], git: Git) -> list[str]:
    """Return the names whose objects git can read, and which have the bytes that they should."""
    found = []
    for some in batches(names, _AT_ONCE):
        place = 0
        while place < len(some):
            try:
                for name, _ in store.each_object(some[place:], kind=None, git=git):
                    found.append(name)
                    place += 1
            except (SnapshotNotFound, SnapshotCorrupt):
                if not _is_damaged(some[place], git):
                    found.append(some[place])
                place += 1
    return found


def _is_damaged(name: str, git: Git) -> bool:
    """Look at one object by itself. Raises where git fails for another reason: it may be short of memory."""
    try:
        out = git.run("cat-file", "--batch", stdin=lines([name]))
    except WorkspaceUnavailable as error:
        if _SAID not in str(error):
            raise
        return True
    header, _, content = out.partition(b"\n")
    kind = header.decode().split()[1]
    return kind == "missing" or not has_name(name, kind, content[:-1])
