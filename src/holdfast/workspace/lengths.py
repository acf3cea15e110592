"""How long names and paths may be where a project lies.

File systems differ in it, and a snapshot may come from another one. What does not fit is found out before
anything is touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Where the system does not tell: what nearly all of them have.
_NAME: Final = 255
_PATH: Final = 4096


def first_too_long(root: Path, paths: Iterable[str]) -> str | None:
    """Return the first of some paths that there can be no file by, below ``root``."""
    name, whole = _limit(root, "PC_NAME_MAX", _NAME), _limit(root, "PC_PATH_MAX", _PATH)
    # Less the slash after the project's own path, and the zero byte that ends every path.
    room = whole - len(os.fsencode(root)) - 2
    for path in paths:
        encoded = os.fsencode(path)
        if len(encoded) > room or max(map(len, encoded.split(b"/"))) > name:
            return path
    return None


def is_link_target(content: bytes) -> bool:
    """Whether a link can lead there, be there something or not."""
    return 0 < len(content) < _PATH and b"\0" not in content


def _limit(root: Path, what: str, usual: int) -> int:
    try:
        found = os.pathconf(root, what)
    except (AttributeError, OSError, ValueError):
        return usual
    return found if found > 0 else usual
