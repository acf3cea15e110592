"""The key of a project's placeholders: a file for its owner only, made when the first secret is found.

Losing it loses no checkpoint: placeholders that are there can no longer be recognised, and new ones
look different.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directory
from holdfast.errors import InvalidConfiguration
from holdfast.places import keep_out_of_git
from holdfast.regular_files import read_small_file

FILE_NAME: Final = "redaction.key"
_BYTES: Final = 32


def parse_key(text: str, where: str) -> bytes:
    """Return the key that 64 hexadecimal digits stand for."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise InvalidConfiguration(
            f"{where} must be {2 * _BYTES} hexadecimal digits. Nothing was stored: put the right key "
            "back, or remove it to have a new one made"
        )
    return key


def load_key(folder: Path) -> bytes:
    """Return the key kept in a folder; the first to ask makes it."""
    path = folder / FILE_NAME
    try:
        if not os.path.lexists(path):
            _make(path)
        text = read_small_file(path).decode("ascii", "replace")
    except OSError as error:
        what = "leads nowhere" if path.is_symlink() and not os.path.exists(path) else error.strerror
        raise InvalidConfiguration(
            f"{path} cannot be read: {what}. Nothing was stored: put the right key back there, give the "
            "right to read it, or remove it to have a new one made"
        ) from None
    return parse_key(text, str(path))


def find_key(folder: Path) -> bytes | None:
    """Return the key kept in a folder, or None."""
    return load_key(folder) if (folder / FILE_NAME).exists() else None


def _make(path: Path) -> None:
    """Write a new key, whole and on the disk before its name appears, unless somebody was faster."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_out_of_git(str(path.parent))
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        # A name that is new is no link either.
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(fresh, path)
        finally:
            fresh.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise InvalidConfiguration(
            f"the key for redaction cannot be kept in {path}: {error}. Nothing was stored"
        ) from None
