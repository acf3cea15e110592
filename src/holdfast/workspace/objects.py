"""Git's objects as bytes: how they are named, and what commits and trees say.

The name of an object is a digest of its kind, its size and its content: SHA-1, or SHA-256 in a repository that
was made so, which the number of its digits tells.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import new as new_hash
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import SnapshotCorrupt

if TYPE_CHECKING:
    from hashlib import _Hash

# Git's mode of a directory.
TREE: Final = "40000"
# How a commit begins; what comes after the parents is of no use here.
_HEAD: Final = re.compile(rb"tree [0-9a-f]+\n(?:parent [0-9a-f]+\n)*")
_PIECE: Final = 1 << 16


# Names -----------------------------------------------------------------------------------------


def object_name(kind: str, pieces: Iterable[bytes], size: int, *, digits: int) -> str:
    """Return the name of so many digits that git gives to an object."""
    digest = _digest(digits)
    digest.update(f"{kind} {size}\0".encode())
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def has_name(name: str, kind: str, data: bytes) -> bool:
    """Whether this is the object of that name."""
    return object_name(kind, (data,), len(data), digits=len(name)) == name


def ends_with_digest(data: bytes, *, digits: int) -> bool:
    """Whether the last bytes are a digest of those before, as in a pack whose objects have such names."""
    digest = _digest(digits)
    content = memoryview(data)
    end = max(0, len(data) - digest.digest_size)
    digest.update(content[:end])
    return digest.digest() == content[end:]


def is_whole(path: Path, name: str) -> bool:
    """Whether the file of an object has the bytes that its name says; one that cannot be read may have."""
    digest = _digest(len(name))
    unpacking = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            while part := file.read(_PIECE):
                digest.update(unpacking.decompress(part))
    except OSError:
        return True
    except zlib.error:
        return False
    return digest.hexdigest() == name


def _digest(digits: int) -> _Hash:
    return new_hash("sha256" if digits == 64 else "sha1", usedforsecurity=False)


# Commits and trees -----------------------------------------------------------------------------


def names_in(commit: str, raw: bytes) -> list[str]:
    """Return the tree that a commit's bytes name, and its parents after it.

    They become arguments of commands, so nothing counts that git would not take for a name there.
    """
    head = _HEAD.match(raw)
    names = head.group().decode().split()[1::2] if head is not None else [""]
    if any(len(name) != len(commit) for name in names):
        raise SnapshotCorrupt(f"commit {commit} of the private store names no tree")
    return names


def tree_entries(data: bytes, *, id_size: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what a tree's bytes say: names with modes and objects."""
    place = 0
    while place < len(data):
        end = data.find(b"\0", place)
        if end < 0:
            raise SnapshotCorrupt("a directory of the private store is cut off")
        mode, _, name = data[place:end].decode("utf-8", "surrogateescape").partition(" ")
        place = end + 1 + id_size
        yield name, (mode, data[end + 1 : place].hex())


def tree_data(folder: Mapping[str, tuple[str, str]]) -> bytes:
    """Return the bytes of a tree, as `tree_entries` reads them."""
    entries = sorted(
        (
            (name.encode("utf-8", "surrogateescape"), mode.encode(), bytes.fromhex(target))
            for name, (mode, target) in folder.items()
        ),
        # Directories are in order as if a slash ended their names.
        key=lambda one: one[0] + b"/" if one[1] == TREE.encode() else one[0],
    )
    return b"".join(mode + b" " + name + b"\0" + target for name, mode, target in entries)
