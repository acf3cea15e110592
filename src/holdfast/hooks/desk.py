"""What one hook process leaves for the next, in ``.agents/hooks`` of the project.

Three small files for each agent session. The *journal* has a line for everything that happened since the
last checkpoint: which tool ran, which files it wrote. Many processes may add to it at once, and none waits
long. The *note* is what the last checkpoint left: it only saves time and tells of the turn so far, and may be
lost. The *lock* lets one process at a time save. What was taken out of the journal stays in a second file until its checkpoint is
stored, so a kill in between loses nothing.
"""

from __future__ import annotations

import errno
import os
import time

from holdfast.hooks.reading import loads
from holdfast.places import AGENTS_DIR, file_name
from holdfast.regular_files import read_small_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = "hooks"
_ENDINGS = (".json", ".jsonl", ".taken", ".lock")
_JOURNAL_BYTES = 4 * 1024 * 1024
_STALE_SECONDS = 30 * 24 * 3600
# The line that is written most often, without a need to import what writes JSON.
_SCAN = b'{"scan": true}\n'
# Through no link, and without waiting for the other end of a pipe that somebody has put there.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class DeskBusy(Exception):
    """Another hook of the same agent session has not ended in time."""


class Desk:
    """The files of one agent session."""

    def __init__(self, root: str, agent: str, session_id: str) -> None:
        self.root = root
        self.folder = os.path.join(root, AGENTS_DIR, FOLDER)
        # Both may come from a session of elsewhere, and neither leads out of the folder.
        self.name = f"{file_name(agent)}-{file_name(session_id)}"

    @property
    def _path(self) -> str:
        return os.path.join(self.folder, self.name)

    @property
    def _journal(self) -> str:
        return f"{self._path}.jsonl"

    @property
    def _taken(self) -> str:
        return f"{self._path}.taken"

    def exists(self) -> bool:
        """Whether hooks ever worked in this project."""
        links = (self.folder, os.path.dirname(self.folder))
        return os.path.isdir(self.folder) and not any(map(os.path.islink, links))

    def is_known(self) -> bool:
        """Whether this agent session was ever at work in this project."""
        return any(os.path.lexists(f"{self._path}{ending}") for ending in (".json", ".lock"))

    def prepare(self) -> None:
        """Make the directory, for its owner only. Raises `OSError` where a link leads somewhere else."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        if os.path.islink(self.folder):
            raise OSError(errno.ELOOP, "is a link; nothing was written", self.folder)

    # The note --------------------------------------------------------------------------------

    def read_note(self) -> dict[str, Any]:
        """Return what the last checkpoint left, empty if that is lost."""
        try:
            found = loads(_read(f"{self._path}.json"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_note(self, note: dict[str, Any]) -> None:
        """Replace the note."""
        aside = f"{self._path}.{os.getpid()}.new"
        _remove(aside)
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        with open(handle, "wb") as file:
            file.write(_dumps(note))
        os.replace(aside, f"{self._path}.json")

    # The journal -----------------------------------------------------------------------------

    def append(self, line: dict[str, Any]) -> None:
        """Add a line to the journal. A journal that nobody empties stops growing."""
        data = _SCAN if line == {"scan": True} else _dumps(line) + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS
        while True:
            handle = os.open(self._journal, flags, 0o600)
            try:
                _lock(handle)
                if not _is_file_at(handle, self._journal):
                    # Taken away between opening and locking.
                    continue
                if os.fstat(handle).st_size + len(data) <= _JOURNAL_BYTES:
                    os.write(handle, data)
                return
            finally:
                os.close(handle)

    def peek(self) -> list[dict[str, Any]]:
        """Return what happened since the last checkpoint."""
        return [line for path in (self._taken, self._journal) for line in _lines_in(path)]

    def take(self) -> list[dict[str, Any]]:
        """Take everything out of the journal, to be stored. Needs the lock."""
        try:
            handle = os.open(self._journal, os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return _lines_in(self._taken)
        try:
            _lock(handle)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS
            with open(os.open(self._taken, flags, 0o600), "ab") as taken:
                taken.write(_read(self._journal))
            os.unlink(self._journal)
        finally:
            os.close(handle)
        return _lines_in(self._taken)

    def forget_taken(self) -> None:
        """What was taken is stored. Needs the lock."""
        _remove(self._taken)

    def forget(self) -> None:
        """Remove everything of this agent session, the note last: it says whose the rest is."""
        for ending in reversed(_ENDINGS):
            _remove(f"{self._path}{ending}")

    # The lock --------------------------------------------------------------------------------

    def holding(self, seconds: float) -> _Holding:
        """Be the only process that saves for this agent session, during a block."""
        self.prepare()
        return _Holding(f"{self._path}.lock", seconds)

    # Others ----------------------------------------------------------------------------------

    def others(self) -> list[Desk]:
        """Return the desks of other agent sessions that did something since their last checkpoints."""
        return [one for one in self._with((".jsonl", ".taken")) if one.name != self.name]

    def all(self) -> list[Desk]:
        """Return the desks of all agent sessions that have one in the project."""
        return self._with(_ENDINGS) if self.exists() else []

    def _with(self, endings: tuple[str, ...]) -> list[Desk]:
        split = (os.path.splitext(os.path.basename(path)) for path in self._files())
        return [
            self._beside(name) for name in sorted({name for name, end in split if end in endings})
        ]

    def _beside(self, name: str) -> Desk:
        other = Desk(self.root, "", "")
        other.name = name
        return other

    def tidy(self) -> None:
        """Remove what agent sessions of long ago left."""
        oldest = time.time() - _STALE_SECONDS
        for path in self._files():
            try:
                if os.lstat(path).st_mtime < oldest:
                    os.unlink(path)
            except OSError:
                continue

    def _files(self) -> list[str]:
        try:
            return [os.path.join(self.folder, name) for name in os.listdir(self.folder)]
        except OSError:
            return []


class _Holding:
    """The lock of one agent session."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._handle = -1

    def __enter__(self) -> None:
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        end = time.monotonic() + self._seconds
        while fcntl is not None:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(self._handle)
                    raise DeskBusy(
                        f"another hook of this agent has been at work for {self._seconds:g} "
                        "seconds; nothing was saved for this event"
                    ) from None
                time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def paths_in(line: dict[str, Any]) -> list[str]:
    """Return the paths that a line of the journal tells of."""
    paths = line.get("paths")
    return [one for one in paths if is_path(one)] if isinstance(paths, list) else []


def is_path(value: object) -> bool:
    """Tell whether a file can have this path. Half of a character, as in a text cut by its length, is in none."""
    try:
        return isinstance(value, str) and value != "" and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _lock(handle: int) -> None:
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX)


def _is_file_at(handle: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _read(path: str) -> bytes:
    return read_small_file(path, follow=False)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _dumps(value: dict[str, Any]) -> bytes:
    import json

    return json.dumps(value).encode()


def _lines_in(path: str) -> list[dict[str, Any]]:
    """Return the whole lines of a file; one that was torn or that is not ours is left out."""
    try:
        data = _read(path)
    except OSError:
        return []
    found = []
    for line in data.splitlines():
        try:
            one = loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(one, dict):
            found.append(one)
    return found
