"""Names that outlast a power cut: a file is safe only when its directory knows it for good."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Put the names in a directory on the disk.

    Raises `OSError` where that fails. Windows does not open directories; there the file system keeps
    the order of names itself.
    """
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
