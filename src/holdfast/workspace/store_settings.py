"""What the private store consists of besides snapshots: its directories, settings and attributes.

They are written by us and checked on every opening, since a project may come from strangers with a
``.agents`` of their making.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directory
from holdfast.errors import WorkspaceRefused
from holdfast.workspace.environment import STORE_CONFIG, STORE_CONFIG_SHA256
from holdfast.workspace.notes import read_bytes, write_if_other

# Git takes a directory for a store only where this stands; the branch is never made.
_HEAD: Final = b"ref: refs/heads/none\n"
# Bytes as they are: no line endings, keywords, encodings or filters, whatever the project asks for.
_ATTRIBUTES: Final = b"* -text -ident !eol !filter !working-tree-encoding !diff\n"
_FOLDERS: Final = (
    "", "incoming", "incoming/info", "incoming/info/alternates", "info", "objects", "objects/info", "objects/pack", "refs", "refs/snapshots",
)  # fmt: skip
# Where links are looked for, and how those end that do no harm: they are replaced, or not followed.
_LISTED: Final = ("", "incoming", "objects", "refs", "refs/snapshots")
_REPLACED: Final = (
    "HEAD", "config", "index", "index.next", ".gitignore", "last.json", ".new",
)  # fmt: skip
# Where git appends a line for each reference it moves, to whatever it finds there. This store keeps none.
_LOGS: Final = "logs"
# What may stand in a git directory and send git elsewhere, or hide a part of its objects from it.
_FOREIGN: Final = (
    "commondir", "gitdir", "config.worktree", "shallow", "info/grafts", "info/sparse-checkout",
    "objects/info/alternates", "objects/info/http-alternates",
)  # fmt: skip


def exists(home: Path) -> bool:
    """Whether a store was ever made there."""
    return (home / "HEAD").exists()


def uses_sha256(home: Path) -> bool:
    """Whether a store names its objects by SHA-256."""
    return b"sha256" in read_bytes(home / "config")


def make(home: Path, *, sha256: bool) -> None:
    """Make a store where none is."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("objects/info", "objects/pack", "refs", "info"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    # On the disk before the first snapshot is: without them it could not be read any more.
    write_if_other(home / "config", _config(sha256=sha256), durable=True)
    # Last, since it is what makes a store of a directory.
    write_if_other(home / "HEAD", _HEAD, durable=True)
    sync_directory(home.parent)


def secure(home: Path) -> None:
    """Take away whatever could lead git astray, and put back what it needs to know a store.

    The directory may come from strangers, or have been through a power cut.

    Raises `WorkspaceRefused` where links stand in place of directories, for what is written there would
    land elsewhere.
    """
    _refuse(_links(home))
    if not exists(home):
        return
    # Who may not write there only reads, and what others may read is for its owner to say.
    if os.access(home, os.W_OK):
        if stat.S_IMODE(home.stat().st_mode) != 0o700:
            os.chmod(home, 0o700)
        write_if_other(home / "HEAD", _HEAD, durable=True)
        (home / "refs").mkdir(exist_ok=True)
    write_if_other(home / "config", _config(sha256=uses_sha256(home)), durable=True)
    write_if_other(home / "info" / "attributes", _ATTRIBUTES)
    for name in _FOREIGN:
        # Where nothing can be written, not even what is not there can be removed.
        if os.path.lexists(home / name):
            (home / name).unlink(missing_ok=True)
    if (home / _LOGS).is_dir():
        shutil.rmtree(home / _LOGS)
    # To the user's repository this directory is as if it were not there.
    write_if_other(home / ".gitignore", b"*\n")


def refuse_linked_references(home: Path) -> None:
    """Raise `WorkspaceRefused` where a link stands among references, at any depth.

    A sweep packs whatever it finds there and deletes the files; a save writes where no link is left.
    """
    folders = (where for where, _, _ in os.walk(home / "refs"))
    _refuse(link for folder in folders for link in _links_in(folder))


def _refuse(links: Iterable[str]) -> None:
    for link in links:
        raise WorkspaceRefused(
            f"{link} is a link, and snapshots are kept in real directories only. Nothing was "
            "changed; remove it"
        )


def _links(home: Path) -> Iterator[str]:
    """Yield links in places that git or we write to, delete from or walk through."""
    for place in (home.parent, *(home / folder for folder in _FOLDERS)):
        if place.is_symlink():
            yield str(place)
    for folder in _LISTED:
        yield from _links_in(home / folder)


def _links_in(folder: Path | str) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        yield from (
            one.path for one in entries if one.is_symlink() and not one.name.endswith(_REPLACED)
        )


def _config(*, sha256: bool) -> bytes:
    return STORE_CONFIG_SHA256 if sha256 else STORE_CONFIG
