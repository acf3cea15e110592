"""The skill that ships with the package: a folder that coding agents read and run.

Installing it copies the folder into a project. A small list of digests beside it remembers what was
installed, so that a later version replaces what nobody touched and leaves alone what somebody edited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.config import find_project_root
from holdfast.errors import InvalidConfiguration
from holdfast.ids import new_id

Installed: TypeAlias = Literal["created", "updated", "present", "kept"]

SKILL_DIR: Final = ".claude/skills/checkpoint-manager"
_INSTALLED: Final = ".holdfast.json"


@dataclass(frozen=True, slots=True)
class SkillReport:
    """Where the skill is, and what became of each of its files; ``kept`` ones were edited."""

    directory: Path
    files: dict[str, Installed]


def install_skill(
    directory: str | Path | None = None,
    *,
    project_dir: str | Path | None = None,
    force: bool = False,
) -> SkillReport:
    """Copy the skill to ``directory``, by default the project's own folder for skills.

    Doing it again changes nothing. What was edited since it was installed is kept, unless ``force``.
    """
    target = (
        Path(directory) if directory is not None else find_project_root(project_dir) / SKILL_DIR
    )
    try:
        target.mkdir(parents=True, exist_ok=True)
        known = _read_installed(target)
        done: dict[str, Installed] = {}
        for name, content in sorted(skill_files()):
            done[name] = _install(target / name, content, known.get(name), force=force)
            if done[name] != "kept":
                known[name] = _digest(content)
        _write(target / _INSTALLED, json.dumps({"files": known}, indent=2).encode() + b"\n")
    except OSError as error:
        raise InvalidConfiguration(f"the skill cannot be installed in {target}: {error}") from None
    return SkillReport(target, done)


def skill_files() -> Iterator[tuple[str, bytes]]:
    """Return the files of the skill with their paths."""
    return _walk(files("holdfast") / "skill", "")


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield f"{prefix}{entry.name}", entry.read_bytes()


def _install(path: Path, content: bytes, known: str | None, *, force: bool) -> Installed:
    there = os.path.lexists(path)
    # A link is somebody's doing, whatever it leads to.
    current = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    if current == content:
        return "present"
    if there and not force and (current is None or _digest(current) != known):
        return "kept"
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, content)
    return "updated" if there else "created"


def _write(path: Path, content: bytes) -> None:
    making = path.with_name(f".{path.name}.{new_id()}")
    making.write_bytes(content)
    making.replace(path)


def _read_installed(target: Path) -> dict[str, str]:
    try:
        found = json.loads((target / _INSTALLED).read_bytes())["files"]
        return {str(name): str(digest) for name, digest in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"
