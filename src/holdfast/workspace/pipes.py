"""Pipes and devices in the place of files that git reads.

Git opens what has the name of its rules and settings, whatever it is: it waits for a pipe without end, and
reads a device until the memory is full. The few files of a repository, and those that stand above files which
are to be read, are looked at before. Rules may stand in any directory; those are looked for when git has not
answered for a while, and then only a pipe counts that somebody waits for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from holdfast.errors import WorkspaceUnavailable
from holdfast.workspace.files import kind_of, lstat

ATTRIBUTES: Final = ".gitattributes"
_RULES: Final = frozenset({".gitignore", ATTRIBUTES})
_DOT_GIT: Final = ".git"
_WITHOUT_WAITING: Final = getattr(os, "O_NONBLOCK", 0)


def refuse_special(files: Iterable[str | Path], *, follow: bool = True) -> None:
    """Raise `WorkspaceUnavailable` where git would read what is no file; ``follow`` if it follows links."""
    for path in files:
        try:
            looked = os.stat(path, follow_symlinks=follow)
        except (OSError, ValueError):
            continue
        if _is_endless(looked):
            _refuse(path, kind_of(looked.st_mode))


def refuse_waiting(top: Path) -> None:
    """Raise `WorkspaceUnavailable` where somebody waits for a pipe that git takes for one of its files."""
    for where, _, names in os.walk(top):
        git_dir = _DOT_GIT in os.path.relpath(where, top).split(os.sep)
        for name in names if git_dir else _RULES.intersection(names):
            path = os.path.join(where, name)
            looked = lstat(path)
            if looked is not None and stat.S_ISFIFO(looked.st_mode) and _is_waited_for(path):
                _refuse(path, kind_of(looked.st_mode))


def _is_endless(looked: os.stat_result) -> bool:
    if stat.S_ISCHR(looked.st_mode) or stat.S_ISBLK(looked.st_mode):
        # What says that there is nothing is in use as a file without rules.
        return looked.st_rdev != os.stat(os.devnull).st_rdev
    return stat.S_ISFIFO(looked.st_mode)


def _is_waited_for(pipe: str) -> bool:
    """Whether somebody has opened a pipe to read, or would have if anybody wrote."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | _WITHOUT_WAITING))
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def _refuse(path: str | Path, kind: str) -> None:
    raise WorkspaceUnavailable(
        f"{os.fspath(path)!r} is {kind}, and git would read it as a file, without end. Nothing was "
        "changed; remove it"
    )
