"""Files with keys: made for their owner only, whole or not at all, and never one in the place of another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from holdfast.crypto.keys import KeyRing
from holdfast.durable import sync_directory
from holdfast.errors import InvalidKey


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
        with _written(path, ring) as made:
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
    """Put a new key in front of the ring in a file, and return its id; the others still open."""
    ring = KeyRing.from_file(path).rotated()
    try:
        with _written(path, ring) as made:
            os.replace(made, path)
    except OSError as error:
        raise InvalidKey(f"{path} cannot be written: {error}. It is as it was") from None
    return ring.current


@contextmanager
def _written(path: Path, ring: KeyRing) -> Iterator[Path]:
    """Yield a file beside ``path`` with a ring, on the disk; what is done with it then lasts too."""
    with NamedTemporaryFile(dir=path.parent, prefix=".keys-", delete=False) as file:
        made = Path(file.name)
        try:
            file.write(ring.text().encode())
            file.flush()
            os.fsync(file.fileno())
            yield made
        finally:
            made.unlink(missing_ok=True)
    with suppress(OSError):
        sync_directory(path.parent)
