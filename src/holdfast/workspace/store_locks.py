"""Who may use the private store: its locks, and what is tidied up after a kill or a power cut.

*Work* is exclusive: one capture, restore or sweep at a time. *Use* is shared by every save from its capture
until its checkpoint is stored, and exclusive for a sweep: so a sweep never takes a snapshot whose checkpoint
is about to name it. Saves that overlap leave it no moment, so a sweep that waits takes the *turn*, for which
a save waits a moment before it goes in. That is politeness; *use* alone decides. All belong to an open file and
end with its process, however that ends; the git commands that a process starts hold them too.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Final

from holdfast.errors import WorkspaceBusy, WorkspaceFull, WorkspaceUnavailable
from holdfast.processes import holders_of, uptime
from holdfast.workspace.incoming import UNFINISHED
from holdfast.workspace.process import HELD, NO_ROOM
from holdfast.workspace.store_settings import explained, secure

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

# How long one waits for others.
PATIENCE: Final = 60.0
# How long a save lets a sweep go first. The sweep may wait for somebody who stays long, or for that very save:
# a handler of a signal saves in the middle of another one.
COURTESY: Final = 1.0
# Who naps longer finds the lock taken again by somebody who came later.
_LONGEST_NAP: Final = 0.01
# How temporary directories of ours begin.
ASIDE: Final = "aside-"
_WORK, _USE, _TURN = "work.lock", "use.lock", "turn.lock"
_OURS: Final = frozenset({_WORK, _USE, _TURN})
# What stands in the lock file while its holder is at work. After it let go in peace, see `_in_peace`.
_BUSY: Final = b"1"
_NOT_WRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class StoreLocks:
    """The locks of the store in ``home``, which holds the snapshots of ``project``."""

    def __init__(self, home: Path, *, project: Path) -> None:
        self._home = home
        self._project = project

    @contextmanager
    def working(self, seconds: float) -> Iterator[None]:
        """Be the only one that captures, restores or sweeps."""
        try:
            with self._locked(_WORK, shared=False, seconds=seconds) as handle:
                if not _left_in_peace(handle) and os.access(self._home, os.W_OK):
                    self._tidy_up()
                with suppress(OSError):
                    os.pwrite(handle, _BUSY, 0)
                yield
                with suppress(OSError):
                    os.pwrite(handle, _in_peace(), 0)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise WorkspaceFull(
                    f"no room is left for the snapshots of {self._project}: {error}. The files are as "
                    "they were"
                ) from error
            raise WorkspaceUnavailable(
                f"the snapshots of {self._project} cannot be read or written: {error}. Nothing is lost: "
                "remove the cause and try again"
            ) from error

    @contextmanager
    def using(self, *, alone: bool, seconds: float) -> Iterator[None]:
        """Keep sweeps away, or with ``alone`` be the sweep."""
        with ExitStack() as held:
            # What goes wrong in the block has nothing to do with the locks.
            with explained(self._home):
                if alone:
                    held.enter_context(self._locked(_TURN, shared=False, seconds=seconds))
                else:
                    courtesy = min(seconds, COURTESY)
                    with (
                        suppress(WorkspaceBusy),
                        self._locked(_TURN, shared=True, seconds=courtesy),
                    ):
                        pass
                held.enter_context(self._locked(_USE, shared=not alone, seconds=seconds))
            yield

    @contextmanager
    def _locked(self, name: str, *, shared: bool, seconds: float) -> Iterator[int]:
        if fcntl is None:
            raise WorkspaceUnavailable("file snapshots need a POSIX system; the state is saved")
        secure(self._home)
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = self._open(name)
        HELD[handle] = get_ident()
        try:
            self._wait_for(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, seconds)
            yield handle
            # Whoever was forked meanwhile may hold a copy of the handle. After a failure the lock stays
            # until the last git that was started has ended, too.
            fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            if HELD.pop(handle, None) is not None:
                os.close(handle)

    def _open(self, name: str) -> int:
        path = self._home / name
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            # A lock needs no right to write, and who only reads snapshots needs none either.
            with suppress(OSError):
                return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            raise WorkspaceUnavailable(
                f"the snapshots of {self._project} cannot be used where nothing can be written: {error}. "
                "Nothing was changed"
            ) from error

    def _wait_for(self, handle: int, how: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        wait = 0.001
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    raise WorkspaceBusy(
                        f"another process has worked on the files of {self._project} for more than "
                        f"{seconds:g} seconds; nothing was changed. Try again"
                    ) from None
                time.sleep(wait)
                wait = min(wait * 2, _LONGEST_NAP)

    def _tidy_up(self) -> None:
        """Remove what somebody who was stopped left unfinished. Needs the work lock."""
        for where, folders, names in os.walk(self._home):
            for name in names:
                mine = name in _OURS
                if (not mine and name.endswith((".lock", ".new"))) or name.startswith(UNFINISHED):
                    os.unlink(os.path.join(where, name))
            for name in folders:
                if name.startswith(ASIDE):
                    shutil.rmtree(os.path.join(where, name))


@dataclass(frozen=True, slots=True)
class Standing:
    """How the locks of a store are: who works, since when, and what earlier ones left behind.

    ``seconds`` is how long somebody has been at work, None where nobody is. ``left`` are git's own lock
    files that nobody uses any more; with ``tidied`` the next one who works removes them.
    """

    seconds: float | None
    workers: tuple[int, ...]
    left: tuple[Path, ...]
    tidied: bool


def look_at_locks(home: Path) -> Standing | None:
    """Look at the locks of the store in ``home`` without waiting or changing anything; None without one."""
    if fcntl is None:
        return None
    path = home / _WORK
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return Standing(None, (), tuple(_lock_files(home)), not _left_in_peace(handle))
    except BlockingIOError:
        # Whoever gets the lock writes into the file at once.
        seconds = max(time.time() - os.fstat(handle).st_mtime, 0.0)
        return Standing(seconds, tuple(holders_of(path)), (), tidied=False)
    finally:
        os.close(handle)


def _in_peace() -> bytes:
    """Return what the last one at work leaves in the lock file.

    Nobody waits until it is on the disk, so after a power cut the file may say what it said before. It is
    good for this boot only.
    """
    return b"0" + uptime().boot.encode()


def _left_in_peace(handle: int) -> bool:
    wanted = _in_peace()
    return os.pread(handle, len(wanted), 0) == wanted


def _lock_files(home: Path) -> Iterator[Path]:
    for where, _, names in os.walk(home):
        for name in sorted(names):
            if name.endswith(".lock") and name not in _OURS:
                yield Path(where, name)


def _let_go() -> None:
    """In a forked child: a lock belongs to the process that took it."""
    for handle in tuple(HELD):
        del HELD[handle]
        with suppress(OSError):
            os.close(handle)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
