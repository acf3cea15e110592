"""Changing a settings file of somebody else's: whole or not at all, and never over a change of theirs.

A file that is there is copied beside itself before hooks of ours come in. The new text is written
aside, synced and put in its place with the old one's permissions; a link is followed, so that it stays
a link. When the hooks go, the copy tells what the file was, and goes if it has no more to tell.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import AgentSettingsRefused
from holdfast.handoff.files import create_new, replace_file

_LARGEST: Final = 8 << 20
_BUSY: Final = "another program is writing it just now; try again"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file as it was read; ``text`` is None if there is none."""

    path: Path
    text: str | None

    @property
    def backup(self) -> Path:
        """Where the file is kept as it was before our hooks came in."""
        return self.path.with_name(f"{self.path.name}.holdfast-backup")

    def original(self) -> str | None:
        """Return what the file was before our hooks came in, if that is known."""
        try:
            return self.backup.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None

    def kept(self) -> Path | None:
        """Return where the file is kept as it was, if it is."""
        return self.backup if self.backup.is_file() else None

    def write(self, text: str, *, keep: bool) -> None:
        """Put another text in its place; with ``keep`` the old one is copied beside it first."""
        try:
            if self.text is None:
                create_new(self.path, text.encode())
                return
            if keep:
                self._keep(self.text.encode())
            if not replace_file(self.path, self.text.encode(), text.encode()):
                raise refused(self.path, _BUSY)
        except FileExistsError:
            raise refused(self.path, _BUSY) from None
        except OSError as error:
            raise refused(self.path, error.strerror or str(error)) from None

    def put_back(self, text: str | None) -> None:
        """Make the file what it is without our hooks; None if there is nothing left of it."""
        was = self.original()
        if text is not None:
            self.write(text, keep=False)
        try:
            if text is None:
                if self.path.read_bytes() != (self.text or "").encode():
                    raise refused(self.path, _BUSY)
                self.path.unlink()
                with suppress(OSError):
                    self.path.parent.rmdir()
            if text is not None and text == was:
                self.backup.unlink()
        except OSError as error:
            raise refused(self.path, error.strerror or str(error)) from None

    def _keep(self, content: bytes) -> None:
        with suppress(FileNotFoundError):
            if self.backup.read_bytes() == content:
                return
            self.backup.unlink()
        create_new(self.backup, content)
        os.chmod(self.backup, self.path.stat().st_mode & 0o7777)


def read_settings(path: Path) -> SettingsFile:
    """Read a settings file, through links. Raises `AgentSettingsRefused`; none at all is fine."""
    try:
        real = path.resolve()
        if real.is_symlink():
            raise refused(path, "its links lead in a circle")
        if not os.path.lexists(real):
            return SettingsFile(real, None)
        if not real.is_file():
            raise refused(path, "it is not a file")
        if real.stat().st_size > _LARGEST:
            raise refused(path, "it is too large for a settings file")
        return SettingsFile(real, real.read_bytes().decode())
    except UnicodeDecodeError:
        raise refused(path, "it is not UTF-8 text") from None
    except RuntimeError:
        raise refused(path, "its links lead in a circle") from None
    except OSError as error:
        raise refused(path, error.strerror or str(error)) from None


def refused(path: Path, problem: str) -> AgentSettingsRefused:
    """Return the error for a settings file that cannot be changed."""
    return AgentSettingsRefused(f"{path} was not changed: {problem}")
