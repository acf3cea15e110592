"""Groups of snapshots that end with their store: one that is in the memory of a process only.

Nothing that such a store names can be asked for once it is gone. As long as it is there, a file beside the
snapshots, with the name of its group, is locked by the process that has it, and by those that were forked
from that one and have it too. The lock ends with the last of them, however that ends. Whoever sweeps then
lets go of the group.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary, finalize

from holdfast.ids import new_id

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_START: Final = "passing-"


class PassingGroup:
    """The group of one store, held until that is gone."""

    def __init__(self) -> None:
        self._token = new_id()
        self._held: set[Path] = set()

    @property
    def name(self) -> str:
        """What its snapshots are kept under: after a fork, each process has some that the other knows nothing of."""
        return f"{_START}{os.getpid()}-{self._token}"

    def hold(self, home: Path) -> str:
        """Say in a private store that somebody has this group, and return its name. Needs the work lock."""
        path = home / self.name
        if path not in self._held or not path.exists():
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            finalize(self, _close, handle, os.fstat(handle))
            fcntl.flock(handle, fcntl.LOCK_SH)
            self._held.add(path)
        return self.name


def _close(handle: int, was: os.stat_result) -> None:
    # Who becomes a daemon closes everything, and the number may be another's by now.
    with suppress(OSError):
        if os.path.samestat(os.fstat(handle), was):
            os.close(handle)


_groups: Final[WeakKeyDictionary[object, PassingGroup]] = WeakKeyDictionary()


def group_of(store: object) -> PassingGroup:
    """Return the group of a store, the same for all who use it."""
    return _groups.setdefault(store, PassingGroup())


def is_passing(group: str) -> bool:
    """Tell whether a group is one that ends with its store."""
    return group.startswith(_START)


def passed_groups(home: Path) -> set[str]:
    """Return the groups in a private store that nobody has any more. Needs the work lock."""
    with os.scandir(home) as entries:
        return {
            one.name
            for one in entries
            if is_passing(one.name) and one.is_file(follow_symlinks=False) and _is_free(one.path)
        }


def _is_free(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        # Nobody can tell who has it.
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
