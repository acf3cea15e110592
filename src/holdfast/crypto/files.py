"""Files with keys: made for their owner only, whole or not at all, and never one in the place of another."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from holdfast.crypto.keys import KeyRing
from holdfast.durable import sync_directory
from holdfast.errors import InvalidKey
from holdfast.file_locks import locked

_PATIENCE: Final = 5.0


def new_key_file(path: Path) -> str:
    """Write a new ring to a new file, for its owner only, and return the id of its key.

    Raises `InvalidKey` when there is one, since a ring that is lost cannot be had back, and when it
    cannot be written.
    """
    if not path.parent.is_dir():
        raise InvalidKey(f"{path} cannot be written: there is no directory {path.parent}; make it")
    ring = KeyRing.new()
    try:
        # Linked to its name only when it is whole: a file that is there is never replaced.
        with _written(path, ring.text()) as made:
            os.link(made, path)
    except FileExistsError:
        raise InvalidKey(
            f"{path} exists already; nothing was written. Name a new file, or add a key to this one "
            f"(holdfast keys add)"
        ) from None
    except OSError as error:
        raise InvalidKey(f"{path} cannot be written: {error}") from None
    return ring.current


def add_key(path: Path) -> str:
    """Put a new key in front of the ring in a file, and return its id; the others still open.

    A link to the file stays one, and the file keeps its owner, group and permissions: whoever reads it
    has to read it tomorrow. Of several who add one at once, each waits for the one before. Raises
    `InvalidKey`, also where they cannot be kept, and where somebody keeps the file locked.
    """
    KeyRing.from_file(path)
    try:
        with _alone(path) as file:
            # Bytes, since text would get other ends of lines.
            before = file.read_bytes().decode("ascii")
            ring = KeyRing.parse(before, str(path)).rotated()
            entry = ring.text().partition("\n")[0]
            # Before what is there: what people wrote beside their keys stays.
            with _written(file, f"{entry}\n{before}") as made:
                _belong_alike(made, file.stat())
                os.replace(made, file)
    except OSError as error:
        raise InvalidKey(f"{path} cannot be written: {error}. It is as it was") from None
    return ring.current


@contextmanager
def _alone(path: Path) -> Iterator[Path]:
    """Be the only one that puts another file in the place of the one that ``path`` leads to."""
    while True:
        file = path.resolve(strict=True)
        with _open(file) as held, locked(held.fileno(), file, seconds=_PATIENCE):
            # Whoever was first has put another in its place, whose lock is another too.
            if os.path.samestat(os.fstat(held.fileno()), file.stat()):
                yield file
                return


def _open(file: Path) -> BufferedIOBase:
    """Open a file to be locked: for writing, since over NFS nothing else is, unless it is read only."""
    try:
        return file.open("r+b")
    except PermissionError:
        return file.open("rb")


def _belong_alike(made: Path, before: os.stat_result) -> None:
    """Give a new file the owner, group and permissions of the one that it is to replace."""
    now = made.stat()
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.chown(made, before.st_uid, before.st_gid)
    # Last: a change of owner may take permissions away.
    os.chmod(made, stat.S_IMODE(before.st_mode))


@contextmanager
def _written(path: Path, text: str) -> Iterator[Path]:
    """Yield a file beside ``path`` with a text, on the disk; what is done with it then lasts too."""
    with NamedTemporaryFile(dir=path.parent, prefix=".keys-", delete=False) as file:
        made = Path(file.name)
        try:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            yield made
        finally:
            made.unlink(missing_ok=True)
    with suppress(OSError):
        sync_directory(path.parent)
