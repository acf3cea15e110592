"""What the private store consists of besides snapshots: its directories, settings and attributes.

They are written by us and checked on every opening, since a project may come from strangers with a
``.agents`` of their making.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directory
from holdfast.errors import WorkspaceFull, WorkspaceRefused, WorkspaceUnavailable
from holdfast.workspace.environment import STORE_CONFIG, STORE_CONFIG_SHA256
from holdfast.workspace.notes import read_bytes, write_if_other
from holdfast.workspace.process import NO_ROOM

# Git takes a directory for a store only where this stands; the branch is never made.
_HEAD: Final = b"ref: refs/heads/none\n"
# What every store has from its first moment on.
_MARKS: Final = ("HEAD", "config")
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

_NO_RIGHTS: Final = frozenset({errno.EACCES, errno.EPERM})
_IN_THE_WAY: Final = frozenset(
    {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL, errno.ELOOP}
)


@contextmanager
def explained(home: Path) -> Iterator[None]:
    """Say of what the system refuses in a store that it is about the snapshots, and what to do."""
    try:
        yield
    except OSError as error:
        # Where a name is given to a new file, what stands in its way comes second.
        what = f"{error.strerror}: {str(error.filename2 or error.filename or home)!r}"
        said = f"the snapshots of files cannot be read or written: {what}. Nothing is lost: "
        if error.errno in NO_ROOM:
            raise WorkspaceFull(f"{said}make room and try again") from error
        if error.errno in _NO_RIGHTS:
            advice = (
                f"give the right to do so again, as with chmod -R u+rwX {shlex.quote(str(home))}"
            )
        elif error.errno in _IN_THE_WAY:
            advice = "move what stands there elsewhere"
        else:
            advice = "remove the cause"
        raise WorkspaceUnavailable(f"{said}{advice}, and try again") from error


def exists(home: Path) -> bool:
    """Whether a store was ever made there. Raises `WorkspaceUnavailable` where that cannot be told."""
    with explained(home):
        try:
            there = stat.S_ISDIR(home.stat().st_mode)
        except FileNotFoundError:
            # A link that leads nowhere is refused like any other, by whoever follows it.
            return home.is_symlink()
        if not there:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(home))
        # A power cut, or whoever thought to tidy up, takes single files: what is left is a store all the same.
        return any((home / name).exists() for name in _MARKS) or any(_stored(home))


def uses_sha256(home: Path) -> bool:
    """Whether a store names its objects by SHA-256; where its settings are lost, those names tell."""
    said = read_bytes(home / "config")
    if said in (STORE_CONFIG, STORE_CONFIG_SHA256):
        return said == STORE_CONFIG_SHA256
    return b"sha256" in said or any(len(name) == 64 for name in _stored(home))


def _stored(home: Path) -> Iterator[str]:
    """Yield the digits by which git finds the objects and the packs of a store."""
    for path in (home / "objects").glob("[0-9a-f][0-9a-f]/*"):
        yield path.parent.name + path.name
    for path in (home / "objects" / "pack").glob("pack-*.pack"):
        yield path.stem.removeprefix("pack-")


def make(home: Path, *, sha256: bool) -> None:
    """Make a store where none is. Raises `WorkspaceUnavailable` where none can be."""
    with explained(home):
        _make(home, sha256=sha256)


def _make(home: Path, *, sha256: bool) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("objects/info", "objects/pack", "refs", "info"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    # On the disk before the first snapshot is: without them it could not be read any more.
    write_if_other(home / "config", _config(sha256=sha256), durable=True)
    # Last, since it is what makes git take a directory for a store.
    write_if_other(home / "HEAD", _HEAD, durable=True)
    sync_directory(home.parent)


def secure(home: Path) -> None:
    """Take away whatever could lead git astray, and put back what it needs to know a store.

    The directory may come from strangers, or have been through a power cut.

    Raises `WorkspaceRefused` where links stand in place of directories, for what is written there would
    land elsewhere, and `WorkspaceUnavailable` where something cannot be put right.
    """
    with explained(home):
        _secure(home)


def _secure(home: Path) -> None:
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
