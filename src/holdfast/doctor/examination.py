"""How an installation and a project are: versions, permissions, room, locks, schema, leases.

Each check is one small function that returns what it found in a sentence, and what to do about it. None of
them changes anything, and none needs what another has found to be in order.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from holdfast.autosave.fallback import FallbackLog
from holdfast.config import AGENTS_DIR, Config, key_in_environment, without_password
from holdfast.errors import HoldfastError, IntegrityError, InvalidConfiguration, NotADatabase
from holdfast.processes import is_gone, owner_name, process_in
from holdfast.sessions import SessionManager

Level = Literal["ok", "warning", "bad"]

# A race in resetting the log could damage a database, from when there were logs until it was mended.
_MENDED_SQLITE: Final = (3, 51, 3)
# Older ones cannot be told to sync what they write.
_OLDEST_GIT: Final = (2, 36)
_LITTLE_ROOM: Final = 512 * 1024 * 1024
_SALVAGE: Final = "save what still verifies into a new file: holdfast doctor --salvage NEW"
_EXTRAS: Final = {
    "postgres": "psycopg",
    "mcp": "mcp",
    "langgraph": "langgraph-checkpoint",
    "crypto": "cryptography",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: Level
    text: str
    advice: str | None = None


def examine(config: Config, open_manager: Callable[[], SessionManager]) -> list[Finding]:
    """Look at everything; an error in one check is a finding of its own."""
    found = [_versions(), _sqlite(), _git(), _extras()]
    found.append(
        Finding(
            "project", "ok", f"{config.project_dir}, store {without_password(config.stated_url)}"
        )
    )
    found += _files(config)
    found += _key_file()
    found.append(_room(config.project_dir))
    try:
        with open_manager() as manager:
            found += _store(manager)
    except (NotADatabase, IntegrityError) as error:
        found.append(Finding("store", "bad", str(error), _SALVAGE))
    except HoldfastError as error:
        found.append(Finding("store", "warning", str(error)))
    found.append(_failed_saves(config))
    return found


def _versions() -> Finding:
    from holdfast.state.plain import COMPILED

    ours = version("holdfast")
    return Finding(
        "versions",
        "ok",
        f"holdfast {ours} {'with' if COMPILED else 'without'} its compiled part, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
    )


def _sqlite() -> Finding:
    import apsw

    found = apsw.sqlitelibversion()
    if _numbers(found) < _MENDED_SQLITE:
        return Finding(
            "sqlite",
            "warning",
            f"SQLite {found} can damage a database when its log is reset while others write",
            "install a newer apsw, which brings its own SQLite",
        )
    return Finding("sqlite", "ok", f"SQLite {found}, by apsw {apsw.apsw_version()}")


def _git() -> Finding:
    program = shutil.which("git")
    if program is None:
        return Finding(
            "git",
            "warning",
            "git is not installed: files are not saved, only states",
            "install git 2.36 or later",
        )
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = said.removeprefix("git version ").strip()
    if _numbers(found) < _OLDEST_GIT:
        return Finding(
            "git",
            "warning",
            f"git {found} cannot be told to sync what it writes",
            "install git 2.36 or later",
        )
    return Finding("git", "ok", f"git {found}")


def _extras() -> Finding:
    there = []
    for extra, package in _EXTRAS.items():
        try:
            there.append(f"{extra} ({package} {version(package)})")
        except PackageNotFoundError:
            continue
    return Finding("extras", "ok", ", ".join(there) or "none installed")


def _files(config: Config) -> Iterator[Finding]:
    """Whether anybody else may read what is stored here."""
    folder = config.project_dir / AGENTS_DIR
    open_to_others = []
    for path in (folder / "sessions.db", folder / "workspace.git", folder / "hooks"):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        if stat.S_IMODE(mode) & 0o077:
            open_to_others.append(f"{path.name} ({stat.filemode(mode)})")
        if path.is_symlink():
            yield Finding("links", "warning", f"{path} is a link: it is not followed everywhere")
    if open_to_others:
        yield Finding(
            "permissions",
            "warning",
            f"others may read {', '.join(open_to_others)}",
            f"chmod -R go= {folder}",
        )
    elif folder.exists():
        yield Finding("permissions", "ok", "what is stored here is for its owner only")


def _key_file() -> Iterator[Finding]:
    """Whether anybody else may read the keys, or put keys of his own in front of them."""
    try:
        given = key_in_environment()
        if not isinstance(given, Path):
            return
        path = given.expanduser()
        mode = path.stat().st_mode
    except (InvalidConfiguration, OSError, RuntimeError):
        return  # opening the store says why
    others = stat.S_IMODE(mode) & 0o077
    if not others:
        yield Finding("keys", "ok", f"{path} is for its owner only")
        return
    may = "change" if others & 0o022 else "read"
    yield Finding(
        "keys", "warning", f"others may {may} {path} ({stat.filemode(mode)})", f"chmod go= {path}"
    )


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free"
    if free < _LITTLE_ROOM:
        return Finding("room", "warning", text, "free some: holdfast prune, then holdfast gc")
    return Finding("room", "ok", text)


def _store(manager: SessionManager) -> Iterator[Finding]:
    store = manager.store
    sessions = manager.list_sessions()
    count = f"{len(sessions):,} session{'' if len(sessions) == 1 else 's'}"
    yield Finding("store", "ok", f"opens, its schema is current, {count}")
    path = getattr(store, "path", None)
    if path is not None:
        yield _structure(path)
    held = [one for one in sessions if one.lease_owner]
    dead = [
        one.id
        for one in held
        if (process := process_in(one.lease_owner or "")) is not None and is_gone(process)
    ]
    if dead:
        yield Finding(
            "leases",
            "warning",
            f"the workers of {', '.join(dead[:5])} are gone",
            "holdfast recover",
        )
    elif held:
        who = ", ".join(f"{one.id} by {owner_name(one.lease_owner or '')}" for one in held[:5])
        yield Finding("leases", "ok", f"held: {who}")
    else:
        yield Finding("leases", "ok", "nobody holds a session")
    try:
        usage = manager.file_usage()
        unheld = manager.count_unheld()
    except HoldfastError as error:
        yield Finding("files", "warning", str(error))
    else:
        if unheld:
            yield Finding(
                "references",
                "bad",
                f"{unheld:,} of the snapshots that checkpoints name have lost their reference: git may "
                "free them",
                "holdfast gc, which writes the references anew",
            )
        level: Level = "warning" if usage.bytes > 0.9 * usage.quota_bytes else "ok"
        yield Finding(
            "files",
            level,
            f"{usage.snapshots:,} snapshots, {usage.bytes / 1e6:.1f} MB of {usage.quota_bytes / 1e9:.1f} GB",
            None if level == "ok" else "holdfast prune, then holdfast gc, or raise the quota",
        )


def _structure(path: Path) -> Finding:
    """Whether SQLite finds its own structures in order; what they hold is for `verify`."""
    import apsw

    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            said = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
        finally:
            connection.close()
    except apsw.Error as error:
        said = [str(error)]
    if said == ["ok"]:
        return Finding("structure", "ok", "the database file is sound")
    return Finding(
        "structure",
        "bad",
        f"the database file is damaged: {'; '.join(said)}",
        _SALVAGE,
    )


def _failed_saves(config: Config) -> Finding:
    log = FallbackLog(config.project_dir)
    if os.path.exists(log.path):
        return Finding(
            "failed saves",
            "warning",
            f"{log.path} tells of saves that the database could not take",
            "holdfast status",
        )
    return Finding("failed saves", "ok", "none outside the database")


def _numbers(text: str) -> tuple[int, ...]:
    found = []
    for part in text.split("."):
        digits = "".join(ch for ch in part if ch.isdigit())
        if not digits or not part[0].isdigit():
            break
        found.append(int(digits))
    return tuple(found)
