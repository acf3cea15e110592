"""Small files of ours in the private store: read without a fuss, and replaced in one step."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.durable import sync_directory
from holdfast.regular_files import read_small_file

# One has the marks of all files of a project.
_MOST_BYTES: Final = 1 << 30


class Notes:
    """The JSON documents that lie in a directory beside git's files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> dict[str, Any]:
        """Return a document, empty when it is missing or unreadable."""
        try:
            note = json.loads(read_small_file(self._folder / name, most=_MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return note if isinstance(note, dict) else {}

    def write(self, name: str, note: Mapping[str, Any], *, durable: bool = False) -> None:
        """Replace a document; ``durable`` if it has to outlast a power cut."""
        target = self._folder / name
        # In ASCII: paths may hold bytes that are no text.
        content = json.dumps(note, separators=(",", ":")).encode()
        if not durable and not target.is_symlink() and read_bytes(target) == content:
            return
        fresh = target.with_name(f"{name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, target)
        if durable:
            sync_directory(self._folder)

    def remove(self, name: str) -> None:
        """Remove a document for good."""
        (self._folder / name).unlink(missing_ok=True)
        sync_directory(self._folder)


def read_bytes(path: Path) -> bytes:
    """Return what a small file says, nothing when it cannot be read."""
    try:
        return read_small_file(path, most=_MOST_BYTES)
    except OSError:
        return b""


def write_if_other(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Have a small file say something; a link in its place is replaced.

    ``durable`` if what is written has to outlast a power cut.
    """
    if path.is_symlink() or read_bytes(path) != content:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        # A name of one's own: readers hold no lock.
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
        fresh.unlink(missing_ok=True)
        with fresh.open("xb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
        if durable:
            sync_directory(path.parent)
