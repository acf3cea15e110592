"""Paths of a project as git spells them: relative, with slashes, and bytes that need not be text.

Git lists them with a zero byte after each, and takes them so. Every module that talks to it about paths
reads and writes such lists with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

# How many paths one command is given as arguments.
ARGUMENTS: Final = 400


def split(out: bytes) -> list[str]:
    """Return the paths that git listed."""
    return [path for path in out.decode("utf-8", "surrogateescape").split("\0") if path]


def join(paths: Iterable[str]) -> bytes:
    """Return paths as git takes them with ``-z``."""
    return "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")


def lines(texts: Iterable[str]) -> bytes:
    """Return paths or names of objects as git takes them one per line."""
    return "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogateescape")


def batches(paths: Sequence[str], size: int = ARGUMENTS) -> Iterator[Sequence[str]]:
    """Yield paths in parts of at most ``size``."""
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


def parents(path: str) -> Iterator[str]:
    """Yield the directories that a path lies in, the nearest first, without the project's own."""
    while path := path.rpartition("/")[0]:
        yield path


def folders_of(paths: Iterable[str]) -> dict[str, None]:
    """Return the directories that some paths lie in, in order, without the project's own."""
    found: dict[str, None] = {}
    for path in paths:
        for folder in parents(path):
            if folder in found:
                break
            found[folder] = None
    return found


def within(path: str, folders: Iterable[str] | None) -> bool:
    """Whether a path is one of some files or directories, or lies in one.

    ``.`` is the project, and so is None.
    """
    return folders is None or any(
        one == "." or path == one or path.startswith(f"{one.rstrip('/')}/") for one in folders
    )


def fits(path: str, pattern: str) -> bool:
    """Whether a path fits a pattern as `pathlib.Path.glob` reads it, or lies in a directory that does."""
    parts = path.split("/")
    # How many parts of the path the parts of the pattern may stand for so far.
    reached = {0}
    for piece in pattern.split("/"):
        if piece == "**":
            reached = {at for first in reached for at in range(first, len(parts) + 1)}
        else:
            begun = (at for at in reached if at < len(parts))
            reached = {at + 1 for at in begun if fnmatchcase(parts[at], piece)}
    return any(reached)
