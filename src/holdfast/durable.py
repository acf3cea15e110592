"""Names that outlast a power cut: a file is safe only when its directory knows it for good."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Put the names in a directory on the disk.

    Raises `OSError` where that fails, and on systems that do not open directories at all; whether that
    matters is for the caller to say.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
