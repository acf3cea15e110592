"""The places where a project's data lie: who may read them, who may write them, and how much room is left.

A place is looked at where it really is: the store that was chosen, wherever that may be, and the target of a
link, whose own mode says nothing. Files are only asked for their status. None is opened, for closing a database
file would take away the locks that SQLite holds on it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.autosave.fallback import FallbackLog
from holdfast.config import AGENTS_DIR, Config, key_in_environment
from holdfast.doctor.finding import Finding
from holdfast.errors import InputError
from holdfast.redaction.keys import FILE_NAME as REDACTION_KEY
from holdfast.stores import file_of
from holdfast.workspace.base import STORE as SNAPSHOTS

_LITTLE_ROOM: Final = 512 * 1024 * 1024
_BESIDE_A_DATABASE: Final = ("-wal", "-shm", "-journal")


def stated_file(config: Config) -> Path | None:
    """Return the file that the store is in, as it was named; None where it is no file."""
    try:
        return file_of(config.stated_url)
    except InputError:
        return None


def store_file(config: Config) -> Path | None:
    """Return the same, links followed."""
    path = stated_file(config)
    return None if path is None else Path(os.path.realpath(path))


def snapshots_of(config: Config) -> Path:
    """Return the private git repository with the project's files."""
    return config.project_dir / AGENTS_DIR / SNAPSHOTS


def look_at_links(config: Config) -> Iterator[Finding]:
    """Tell of links where directories of Holdfast's own should be."""
    for path in (snapshots_of(config), _hooks(config)):
        if os.path.islink(path):
            yield Finding(
                "links",
                "warning",
                f"{path} is a link, and what belongs there is not saved behind one",
                f"remove the link: {_command('rm', [path])}",
            )


def look_at_permissions(config: Config) -> Iterator[Finding]:
    """Tell whether others may get at what is kept, and whether this user may write it."""
    kept = list(_kept(config))
    if not kept:
        return
    if os.name == "nt":
        yield Finding(
            "permissions", "ok", "as the folders' own rights say: there are no modes here"
        )
        return
    open_to_others = [path for path, mode in kept if stat.S_IMODE(mode) & 0o077]
    if open_to_others:
        named = ", ".join(
            f"{path} ({stat.filemode(mode)})" for path, mode in kept if path in open_to_others
        )
        yield Finding(
            "permissions",
            "warning",
            f"by their modes others may get at {named}",
            _command("chmod", ["go=", *open_to_others]),
        )
    store = store_file(config)
    needed = [] if store is None or not os.path.exists(store) else [store.parent, store]
    needed += [path for path, _ in kept if path == snapshots_of(config)]
    closed = [path for path in needed if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        yield Finding(
            "permissions",
            "warning",
            f"this user, or this file system, may not write {', '.join(map(str, closed))}: nothing can be "
            "saved there",
            "work as the user to whom it belongs, or choose another place with --url",
        )
    if not (open_to_others or closed):
        yield Finding("permissions", "ok", "what is stored here is for its owner only")


def look_at_key_file(config: Config) -> Iterator[Finding]:
    """Tell of keys that lie among what they seal: whoever has the one has the other."""
    key = _key_file()
    if key is None or not key.exists():
        return
    real, project = key.resolve(), config.project_dir.resolve()
    if real.is_relative_to(project):
        yield Finding(
            "keys",
            "warning",
            f"{key} lies in the project: its files are saved as they are, keys too",
            "move it elsewhere and set HOLDFAST_KEY_FILE to that place",
        )


def look_at_room(config: Config) -> Finding:
    """Tell how much room the disks have on which states and files are kept."""
    places = {"files": _existing(snapshots_of(config))}
    if (store := store_file(config)) is not None:
        places = {"the store": _existing(store.parent), **places}
    # Most often it is one disk.
    disks: dict[int, list[str]] = {}
    for what, place in places.items():
        disks.setdefault(place.stat().st_dev, []).append(what)
    free = {
        " and ".join(names): shutil.disk_usage(places[names[0]]).free for names in disks.values()
    }
    text = ", ".join(f"{_size(size)} free for {what}" for what, size in free.items())
    if min(free.values()) < _LITTLE_ROOM:
        return Finding("room", "warning", text, "free some: holdfast prune, then holdfast gc")
    return Finding("room", "ok", text)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _hooks(config: Config) -> Path:
    return config.project_dir / AGENTS_DIR / "hooks"


def _kept(config: Config) -> Iterator[tuple[Path, int]]:
    """Yield every place that there is, with the mode of what really stands there."""
    for path in _places(config):
        with suppress(OSError):
            yield path, path.stat().st_mode


def _places(config: Config) -> Iterator[Path]:
    store = store_file(config)
    if store is not None:
        yield store
        yield from (store.with_name(store.name + ending) for ending in _BESIDE_A_DATABASE)
        with suppress(OSError):
            copies = (
                one
                for one in store.parent.iterdir()
                if one.name.startswith(f"{store.name}.backup-")
            )
            yield from sorted(copies)
    yield snapshots_of(config)
    yield _hooks(config)
    yield config.project_dir / AGENTS_DIR / REDACTION_KEY
    yield FallbackLog(config.project_dir).path
    if (key := _key_file()) is not None:
        yield key


def _key_file() -> Path | None:
    # What is wrong with it the store says: a home of nobody is no error of ours.
    with suppress(InputError, RuntimeError):
        key = key_in_environment()
        if isinstance(key, Path):
            return key.expanduser()
    return None


def _existing(path: Path) -> Path:
    """Return the place, or the nearest one above it that there is."""
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


def _command(name: str, arguments: list[str | Path]) -> str:
    return " ".join([name, *(shlex.quote(str(one)) for one in arguments)])
