"""The file for what the database cannot take: one JSON object a line, for its owner only, bounded.

It lies beside the database in ``.agents``, so that ``holdfast status`` finds it. When it is full it becomes
``….log.1``, and what was there before goes.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from io import BufferedRandom
from pathlib import Path
from typing import Any, Final

from holdfast.config import AGENTS_DIR
from holdfast.file_locks import locked
from holdfast.regular_files import MOST_BYTES, read_small_file

FILE_NAME: Final = "holdfast-errors.log"
MAX_BYTES: Final = 256 * 1024
_MESSAGE_CHARACTERS: Final = 2000
_PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A save that failed.

    ``after_seq`` is the sequence number of the session's latest checkpoint at that time: a later one
    settles the matter. It is None for a line that cannot be read, whose ``message`` is the line itself.
    A hook may not know the session, but the agent's own name for it: ``agent_session``.
    """

    at: str
    message: str
    session_id: str | None = None
    url: str | None = None
    tenant: str | None = None
    event: str | None = None
    code: str | None = None
    after_seq: int | None = None
    failures: int = 1
    agent_session: str | None = None


class FallbackLog:
    """The error log of one project."""

    def __init__(self, project_dir: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = project_dir / AGENTS_DIR / FILE_NAME
        self._max_bytes = max_bytes

    @property
    def _older(self) -> Path:
        return self.path.with_name(f"{FILE_NAME}.1")

    def append(self, entry: Entry) -> None:
        """Add a line and put it on the disk. Raises `OSError` when even that cannot be done."""
        values = asdict(entry) | {"message": entry.message[:_MESSAGE_CHARACTERS]}
        line = json.dumps(values).encode() + b"\n"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.parent.is_symlink():
            raise OSError(errno.ELOOP, "is a link; nothing was written", str(self.path.parent))
        while not self._append(line):
            pass

    def _append(self, line: bytes) -> bool:
        """Write a line; false when the file is another now, or was full and has moved on."""
        # Never through a link: that could be anybody's file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with ExitStack() as block:
            file = block.enter_context(open(os.open(self.path, flags, 0o600), "ab", buffering=0))
            # A failure is noted even where somebody keeps the file locked. It may be this process: a handler of
            # a signal notes failures too.
            with suppress(TimeoutError):
                block.enter_context(locked(file.fileno(), self.path, seconds=_PATIENCE))
            here = os.fstat(file.fileno())
            with suppress(FileNotFoundError):
                if not os.path.samestat(here, os.lstat(self.path)):
                    return False
                if here.st_size and here.st_size + len(line) > self._max_bytes:
                    if os.name == "nt":
                        # Nobody moves a file there that is open.
                        file.close()
                    self.path.replace(self._older)
                    return False
                os.write(file.fileno(), line)
                os.fsync(file.fileno())
                return True
        return False

    def forget(self, tenant: str, sessions: Collection[str] | None) -> None:
        """Blank out what is about some sessions of a tenant, or about all of them.

        A line that cannot be read may be about anybody, and goes too. The file stays the one that others
        append to, and they wait meanwhile: none of their lines is lost, and none is met half written. Raises
        `OSError`, also where somebody else keeps the file locked.
        """
        # A line may move on to the older file meanwhile, and never back.
        for path in (self.path, self._older):
            with (
                suppress(FileNotFoundError),
                _opened(path) as file,
                locked(file.fileno(), path, seconds=_PATIENCE),
            ):
                at = 0
                for line in file.read(MOST_BYTES).split(b"\n"):
                    text = line.decode("utf-8", "replace")
                    if text.strip() and not _stays(_entry(text), tenant, sessions):
                        file.seek(at)
                        file.write(b" " * len(line))
                    at += len(line) + 1
                file.flush()
                os.fsync(file.fileno())

    def entries(self) -> list[Entry]:
        """Return what is there, oldest first.

        A torn line is an entry too, and so is a file that cannot be read: something happened.
        """
        found: list[Entry] = []
        for path in (self._older, self.path):
            try:
                lines = _lines(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.append(Entry(at="", message=f"{path.name} cannot be read: {error.strerror}"))
                continue
            found += [_entry(line) for line in lines if line.strip()]
        return found


@contextmanager
def _opened(path: Path) -> Iterator[BufferedRandom]:
    """Open a log to change it where it stands: never through a link, which could lead to anybody's file."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise OSError(errno.EINVAL, "is no log; nothing was taken out", str(path))
        with open(handle, "r+b", closefd=False) as file:
            yield file
    finally:
        os.close(handle)


def _lines(path: Path) -> list[str]:
    return read_small_file(path).decode("utf-8", "replace").splitlines()


def _entry(line: str) -> Entry:
    try:
        values = json.loads(line)
        known = {name: values[name] for name in _FIELDS if name in values}
        entry = Entry(**known)
    except (ValueError, TypeError, RecursionError):
        return Entry(at="", message=line)
    return entry if _well_formed(known) else Entry(at="", message=line)


def _stays(entry: Entry, tenant: str, sessions: Collection[str] | None) -> bool:
    if not entry.at or entry.session_id is None:
        return False
    if entry.tenant not in (None, tenant):
        return True
    return sessions is not None and entry.session_id not in sessions


def _well_formed(values: Mapping[str, Any]) -> bool:
    return all(
        isinstance(value, int) if name in _NUMBERS else isinstance(value, str)
        for name, value in values.items()
        if value is not None
    )


_FIELDS: Final = tuple(one.name for one in fields(Entry))
_NUMBERS: Final = frozenset({"after_seq", "failures"})
