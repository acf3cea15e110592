"""Paths of a project as git spells them: relative, with slashes, and bytes that need not be text.

Git lists them with a zero byte after each, and takes them so. Every module that talks to it about paths
reads and writes such lists with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
