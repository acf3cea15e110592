"""What git does not keep of a file tree: permissions, empty directories, and why something is missing.

Each snapshot's commit carries them in its message. Nearly all files have the two usual modes, so only
exceptions are listed. ``defaults`` are the modes of a plain file, an executable and a directory; they are
learnt once and then stay, so that equal trees give equal messages.

A snapshot may come from strangers. Reading its message takes nothing for granted: what is not of the type
it must be, or no mode that a file can have, is refused before anybody works with it.
"""

from __future__ import annotations

import json
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.errors import SnapshotCorrupt
from holdfast.workspace.base import Skipped

FORMAT: Final = 1
_USUAL: Final = (0o644, 0o755, 0o755)


@dataclass(slots=True)
class Details:
    """What a snapshot knows beyond its tree; made anew for each one.

    ``head`` is what HEAD says in the user's repository (``ref: refs/heads/main`` or a commit) and
    ``head_commit`` the commit behind it, both None outside of one; ``below`` is where in its work tree
    the project lies, with a slash in the end, or empty at its top. ``excludes`` are the rules of
    ``.git/info/exclude`` at the time, ``included`` the paths that were captured in spite of rules, and
    ``patterns`` what such paths look like: what the snapshot lacks of those was not there.
    """

    defaults: tuple[int, int, int] = _USUAL
    modes: dict[str, int] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    head: str | None = None
    head_commit: str | None = None
    below: str = ""
    excludes: str = ""
    included: list[str] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)

    def mode_of(self, path: str, git_mode: str) -> int:
        """Return the permissions of a file."""
        return self.modes.get(path, self.defaults[1 if git_mode == "100755" else 0])

    def mode_of_directory(self, path: str) -> int:
        """Return the permissions of a directory."""
        return self.directories.get(path, self.defaults[2])

    def note_file(self, path: str, mode: int) -> None:
        """Remember a file's permissions."""
        usual = self.defaults[1 if mode & 0o100 else 0]
        if stat.S_IMODE(mode) == usual:
            self.modes.pop(path, None)
        else:
            self.modes[path] = stat.S_IMODE(mode)

    def note_directory(self, path: str, mode: int) -> None:
        """Remember a directory's permissions."""
        if stat.S_IMODE(mode) == self.defaults[2]:
            self.directories.pop(path, None)
        else:
            self.directories[path] = stat.S_IMODE(mode)

    def to_message(self) -> bytes:
        """Return the commit message: JSON in plain ASCII, equal for equal details."""
        document = {
            "v": FORMAT,
            "defaults": list(self.defaults),
            "modes": self.modes,
            "directories": self.directories,
            "empty": sorted(self.empty),
            "skipped": sorted([one.path, one.reason] for one in self.skipped),
            "head": self.head,
            "head_commit": self.head_commit,
            "excludes": self.excludes,
            "included": sorted(self.included),
            # Nearly all have none.
            **({"below": self.below} if self.below else {}),
            **({"patterns": sorted(self.patterns)} if self.patterns else {}),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_message(cls, message: bytes) -> Details:
        """Read a commit message back. Raises `SnapshotCorrupt` when it is not one of ours."""
        try:
            document: dict[str, Any] = json.loads(message)
            if document["v"] != FORMAT:
                raise SnapshotCorrupt(
                    f"the snapshot has format {document['v']!r}; this version reads {FORMAT}. "
                    "Use the newer Holdfast that wrote it"
                )
            first, second, third = map(_mode, document["defaults"])
            return cls(
                defaults=(first, second, third),
                modes=_modes(document["modes"]),
                directories=_modes(document["directories"]),
                empty=_texts(document["empty"]),
                skipped=[Skipped(*map(_text, (one, why))) for one, why in document["skipped"]],
                head=_text_or_none(document["head"]),
                head_commit=_text_or_none(document["head_commit"]),
                below=_text(document.get("below", "")),
                excludes=_text(document["excludes"]),
                included=_texts(document.get("included", [])),
                patterns=_texts(document.get("patterns", [])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise SnapshotCorrupt(f"the snapshot's details cannot be read: {error}") from None


def _modes(found: dict[Any, Any]) -> dict[str, int]:
    return {_text(path): _mode(mode) for path, mode in found.items()}


def _mode(found: object) -> int:
    if type(found) is not int or not 0 <= found <= 0o7777:
        raise ValueError(f"{found!r:.40} is no mode")
    return found


def _texts(found: list[Any]) -> list[str]:
    if not isinstance(found, list):
        raise TypeError(f"{found!r:.40} is no list")
    return [_text(one) for one in found]


def _text_or_none(found: object) -> str | None:
    return None if found is None else _text(found)


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r:.40} is no text")
    # There have to be bytes for it; JSON can spell characters that there are none for.
    found.encode("utf-8", "surrogateescape")
    return found


def learn_defaults(files: Iterable[int], directories: Iterable[int]) -> tuple[int, int, int]:
    """Return the most usual modes, so that few exceptions remain to be listed."""
    plain: Counter[int] = Counter()
    executable: Counter[int] = Counter()
    for mode in files:
        (executable if mode & 0o100 else plain)[stat.S_IMODE(mode)] += 1
    folders = Counter(stat.S_IMODE(mode) for mode in directories)
    first, second, third = (
        max(found.items(), key=lambda one: one[1])[0] if found else usual
        for found, usual in zip((plain, executable, folders), _USUAL, strict=True)
    )
    return first, second, third
