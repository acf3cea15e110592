"""New objects on their way into the private store: all of them at once, or none.

Git syncs each object by itself, which costs a capture of a hundred files several hundred waits for the
disk. Here a capture writes into a directory of its own, next to the store's objects. Each object is sent to
the disk as it is written, without waiting for the drive; one sync then waits for all, and only then do they
take their places. So the store never holds an object whose content may be missing after a power cut, where
a later capture would find the name and trust it. What a kill leaves here is thrown away by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directories
from holdfast.workspace.process import Git

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

# How files begin that git had not finished.
UNFINISHED: Final = ("tmp_", ".tmp-")
# A pack counts from the moment that its index is there, so that comes last.
_ORDER: Final = {".idx": 1}


class Incoming:
    """The objects that one capture adds to the store in ``home``. Needs the store's work lock."""

    def __init__(self, home: Path, *, work_tree: Path, settings: Mapping[str, str]) -> None:
        self._folder = home / "incoming"
        self._objects = home / "objects"
        self._opened = False
        # What the directory looked like when it was last left empty here.
        self._left: tuple[int, int] | None = None
        self._git = Git(
            home,
            work_tree=work_tree,
            objects=self._folder,
            settings={**settings, "core.fsyncMethod": "writeout-only"},
        )

    @property
    def git(self) -> Git:
        """Git that writes its objects here, and sees those of the store."""
        if not self._opened:
            if self._left is None or self._left != self._last_opened():
                self._throw_away()
            (self._folder / "info").mkdir(parents=True, exist_ok=True)
            # Whoever opens it writes this anew, and others see by its time that it was opened. Never into
            # what stands there: in a project from elsewhere that may be a pipe.
            alternates = self._folder / "info" / "alternates"
            alternates.unlink(missing_ok=True)
            alternates.write_text("../objects\n")
            self._opened, self._left = True, None
        return self._git

    def _last_opened(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._folder / "info" / "alternates")
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns)

    def deliver(self) -> None:
        """Wait until everything is on the disk, and move it into the store."""
        found = self._finished() if self._opened else []
        if found:
            self._sync()
        made: set[Path] = set()
        for path in sorted(found, key=lambda one: _ORDER.get(one.suffix, 0)):
            target = self._objects / path.relative_to(self._folder)
            if target.parent not in made:
                if not target.parent.exists():
                    target.parent.mkdir()
                    made.add(self._objects)
                made.add(target.parent)
            os.replace(path, target)
        sync_directories(made)
        self._empty()

    def close(self) -> None:
        """Throw away what was not delivered."""
        if self._opened:
            self._throw_away()
            self._empty()

    def _empty(self) -> None:
        if self._opened:
            self._opened, self._left = False, self._last_opened()

    def _finished(self) -> list[Path]:
        """Return what git wrote to its end, and throw away the rest: it may have been killed."""
        found = []
        for path in self._files():
            if path.name.startswith(UNFINISHED):
                path.unlink()
            else:
                found.append(path)
        return found

    def _throw_away(self) -> None:
        for path in self._files():
            path.unlink()

    def _files(self) -> list[Path]:
        # The directories stay for the next time: removing hundreds is what would take longest.
        found = []
        try:
            folders = list(os.scandir(self._folder))
        except FileNotFoundError:
            return []
        for folder in folders:
            if not folder.is_dir(follow_symlinks=False):
                found.append(Path(folder.path))
            elif folder.name != "info":
                found += [Path(folder.path, name) for name in os.listdir(folder.path)]
        return found

    def _sync(self) -> None:
        """Sync one file, and with it the journal and the drive's cache: what was sent before is safe."""
        handle = os.open(self._folder / "sync", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.fsync(handle)
            full = getattr(fcntl, "F_FULLFSYNC", None)
            if full is not None:
                fcntl.fcntl(handle, full)
        finally:
            os.close(handle)
            os.unlink(self._folder / "sync")
