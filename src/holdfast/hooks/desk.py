"""What one hook process leaves for the next, in ``.agents/hooks`` of the project.

Three small files for each agent session. The *journal* has a line for everything that happened since the
last checkpoint: which tool ran, which files it wrote. Many processes may add to it at once, and none waits
long. The *note* is what the last checkpoint left: it only saves time, and may be lost. The *lock* lets one
process at a time save. What was taken out of the journal stays in a second file until its checkpoint is
stored, so a kill in between loses nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.places import AGENTS_DIR

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = "hooks"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_NAME_CHARACTERS = 100
_JOURNAL_BYTES = 4 * 1024 * 1024
_STALE_SECONDS = 30 * 24 * 3600
_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class DeskBusy(Exception):
    """Another hook of the same agent session has not ended in time."""


class Desk:
    """The files of one agent session."""

    def __init__(self, root: str, agent: str, session_id: str) -> None:
        self.root = root
        self.folder = os.path.join(root, AGENTS_DIR, FOLDER)
        self._path = os.path.join(self.folder, f"{agent}-{_file_name(session_id)}")

    @property
    def _journal(self) -> str:
        return f"{self._path}.jsonl"

    @property
    def _taken(self) -> str:
        return f"{self._path}.taken"

    def exists(self) -> bool:
        """Whether hooks ever worked in this project."""
        return os.path.isdir(self.folder) and not os.path.islink(self.folder)

    def prepare(self) -> None:
        """Make the directory, for its owner only."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    # The note --------------------------------------------------------------------------------

    def read_note(self) -> dict[str, Any]:
        """Return what the last checkpoint left, empty if that is lost."""
        with suppress(OSError, ValueError):
            found = json.loads(_read(f"{self._path}.json"))
            if isinstance(found, dict):
                return found
        return {}

    def write_note(self, note: dict[str, Any]) -> None:
        """Replace the note."""
        aside = f"{self._path}.{os.getpid()}.new"
        with suppress(FileNotFoundError):
            os.unlink(aside)
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        with open(handle, "wb") as file:
            file.write(json.dumps(note).encode())
        os.replace(aside, f"{self._path}.json")

    # The journal -----------------------------------------------------------------------------

    def append(self, line: dict[str, Any]) -> None:
        """Add a line to the journal. A journal that nobody empties stops growing."""
        data = json.dumps(line).encode() + b"\n"
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
        lines = []
        for path in (self._taken, self._journal):
            with suppress(OSError):
                lines += _lines(_read(path))
        return lines

    def take(self) -> list[dict[str, Any]]:
        """Take everything out of the journal, to be stored. Needs the lock."""
        with suppress(FileNotFoundError):
            handle = os.open(self._journal, os.O_RDONLY | _FLAGS)
            try:
                _lock(handle)
                with open(self._taken, "ab") as taken:
                    taken.write(_read(self._journal))
                os.unlink(self._journal)
            finally:
                os.close(handle)
        with suppress(FileNotFoundError):
            return _lines(_read(self._taken))
        return []

    def forget_taken(self) -> None:
        """What was taken is stored. Needs the lock."""
        with suppress(FileNotFoundError):
            os.unlink(self._taken)

    # The lock --------------------------------------------------------------------------------

    @contextmanager
    def holding(self, seconds: float) -> Iterator[None]:
        """Be the only process that saves for this agent session."""
        self.prepare()
        handle = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        try:
            end = time.monotonic() + seconds
            while fcntl is not None:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise DeskBusy(
                            f"another hook of this agent has been at work for {seconds:g} seconds; "
                            "nothing was saved for this event"
                        ) from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(handle)

    # Others ----------------------------------------------------------------------------------

    def paths_of_others(self) -> set[str]:
        """Return the files that other agent sessions wrote since their last checkpoints."""
        found: set[str] = set()
        own = {os.path.basename(self._journal), os.path.basename(self._taken)}
        with suppress(OSError):
            for name in os.listdir(self.folder):
                if name.endswith((".jsonl", ".taken")) and name not in own:
                    with suppress(OSError):
                        for line in _lines(_read(os.path.join(self.folder, name))):
                            found.update(paths_in(line))
        return found

    def tidy(self) -> None:
        """Remove what agent sessions of long ago left."""
        oldest = time.time() - _STALE_SECONDS
        with suppress(OSError):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                with suppress(OSError):
                    if os.lstat(path).st_mtime < oldest:
                        os.unlink(path)


def paths_in(line: dict[str, Any]) -> list[str]:
    """Return the paths that a line of the journal tells of."""
    paths = line.get("paths")
    return [one for one in paths if isinstance(one, str)] if isinstance(paths, list) else []


def _file_name(session_id: str) -> str:
    if len(session_id) <= _NAME_CHARACTERS and _PLAIN.issuperset(session_id):
        return session_id
    from hashlib import sha256

    return "x" + sha256(session_id.encode("utf-8", "backslashreplace")).hexdigest()[:32]


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
    handle = os.open(path, os.O_RDONLY | _FLAGS)
    with open(handle, "rb") as file:
        return file.read()


def _lines(data: bytes) -> list[dict[str, Any]]:
    """Return the whole lines; one that was torn or that is not ours is left out."""
    found = []
    for line in data.splitlines():
        with suppress(ValueError):
            one = json.loads(line)
            if isinstance(one, dict):
                found.append(one)
    return found
