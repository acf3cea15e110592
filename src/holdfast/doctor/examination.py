"""How an installation and a project are: versions, permissions, room, locks, schema, leases.

Each check is one small function that returns what it found in a sentence, and what to do about it. None of
them changes anything, and none needs what another has found to be in order.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from holdfast.autosave.fallback import FallbackLog
from holdfast.config import (
    AGENTS_DIR,
    Config,
    find_project_root,
    load_config,
    refuse_empty,
    without_password,
)
from holdfast.doctor.finding import Finding, Level
from holdfast.doctor.locks import look_at_snapshot_locks, look_at_waits, look_at_write_lock
from holdfast.doctor.places import (
    look_at_key_file,
    look_at_links,
    look_at_permissions,
    look_at_room,
    snapshots_of,
    stated_file,
    store_file,
)
from holdfast.errors import (
    HoldfastError,
    IntegrityError,
    InvalidConfiguration,
    LogMisplaced,
    NotADatabase,
    StoreBusy,
    StoreUnavailable,
)
from holdfast.leases import describe_holder
from holdfast.model import CheckpointQuery, SessionQuery
from holdfast.processes import owner_name
from holdfast.sessions import SessionManager
from holdfast.sessions.unfinished import is_abandoned
from holdfast.stores import Store
from holdfast.stores.readable import read_checkpoints, read_sessions
from holdfast.workspace.base import STORE

# A race in resetting the log could damage a database, from when there were logs until it was mended, in two
# older lines too.
_FIRST_LOGS: Final = (3, 7)
_MENDED_SQLITE: Final = (3, 51, 3)
_MENDED_LINES: Final = ((3, 44, 6), (3, 50, 7))
# Older ones cannot be told to sync what they write.
_OLDEST_GIT: Final = (2, 36)
# So many of what may be many are named.
_SHOWN: Final = 5
_PRIVATE: Final = f"{AGENTS_DIR}/{STORE}"
_SALVAGE: Final = "save what still verifies into a new file: holdfast doctor --salvage NEW"
_COPIED: Final = "put them back from a copy of the database; holdfast copy URL NEW takes all other sessions into a new one"
_REMADE: Final = (
    "have the owner of the tables run what holdfast schema prints for each; what a table held comes back "
    "from a copy of the database only"
)
_SERVER: Final = "see that the server runs and that the store named above is the right one"
_EXTRAS: Final = {
    "postgres": "psycopg",
    "mcp": "mcp",
    "langgraph": "langgraph-checkpoint",
    "crypto": "cryptography",
}


def examine_project(
    project_dir: str | Path | None,
    open_manager: Callable[[], SessionManager],
    *,
    url: str | None = None,
    tenant: str | None = None,
) -> list[Finding]:
    """Look at everything in a project; settings that cannot be read are a finding, too."""
    refuse_empty(url, tenant)
    root = find_project_root(project_dir)
    try:
        config = load_config(root, url=url, tenant=tenant)
    except InvalidConfiguration as error:
        advice = "put it right: without its settings nobody knows which store the project has"
        return [*_installation(), Finding("settings", "bad", str(error), advice)]
    return examine(config, open_manager)


def _installation() -> list[Finding]:
    return [_versions(), _sqlite(), _git(), _extras()]


def examine(config: Config, open_manager: Callable[[], SessionManager]) -> list[Finding]:
    """Look at everything; an error in one check is a finding of its own."""
    found = _installation()
    found.append(_project(config))
    found += look_at_links(config)
    found += look_at_permissions(config)
    found += look_at_key_file(config)
    found.append(look_at_room(config))
    try:
        with open_manager() as manager:
            found += _locks(manager.store)
            found += _store(manager)
    except (NotADatabase, IntegrityError) as error:
        advice = None if store_file(config) is None else _SALVAGE
        found.append(Finding("store", "bad", str(error), advice))
    except LogMisplaced as error:
        found.append(Finding("store", "bad", str(error)))
    except HoldfastError as error:
        path = store_file(config)
        absent = path is None and isinstance(error, StoreUnavailable)
        found.append(Finding("store", "warning", str(error), _SERVER if absent else None))
        if isinstance(error, StoreBusy) and path is not None:
            found.append(look_at_write_lock(path))
    if (snapshots := look_at_snapshot_locks(snapshots_of(config))) is not None:
        found.append(snapshots)
    found.append(_failed_saves(config))
    return found


def _project(config: Config) -> Finding:
    text = f"{config.project_dir}, store {without_password(config.stated_url)}"
    named, real = stated_file(config), store_file(config)
    if named is not None and os.path.islink(named):
        text += f", which is a link to {real}"
    return Finding("project", "ok", text)


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
    if _can_damage(_numbers(found)):
        return Finding(
            "sqlite",
            "warning",
            f"SQLite {found} can damage a database when its log is reset while others write",
            "install a newer apsw, which brings its own SQLite",
        )
    return Finding("sqlite", "ok", f"SQLite {found}, by apsw {apsw.apsw_version()}")


def _can_damage(sqlite: tuple[int, ...]) -> bool:
    mended = any(sqlite[:2] == line[:2] and sqlite >= line for line in _MENDED_LINES)
    return _FIRST_LOGS <= sqlite < _MENDED_SQLITE and not mended


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


def _locks(store: Store) -> Iterator[Finding]:
    path = getattr(store, "path", None)
    if path is not None:
        yield look_at_write_lock(Path(os.path.realpath(path)))
    elif store.shared:
        yield look_at_waits(store)


def _store(manager: SessionManager) -> Iterator[Finding]:
    store = manager.store
    if missing := store.check_schema():
        told = f"not there any more: {', '.join(missing[:_SHOWN])}{_more(missing)}"
        yield Finding("schema", "bad", told, _REMADE if store.shared else _SALVAGE)
    sessions, unreadable = read_sessions(store, SessionQuery())
    sealed = "" if store.read_seal() is None else ", sealed"
    current = "its schema is incomplete" if missing else "its schema is current"
    text = f"opens, {current}, {_count(len(sessions), 'session')}{sealed}"
    yield Finding("store", "ok", text)
    if unreadable:
        yield Finding(
            "sessions",
            "bad",
            f"rows that cannot be read: {', '.join(unreadable)}",
            _COPIED if store.shared else _SALVAGE,
        )
    path = getattr(store, "path", None)
    if path is not None:
        yield _structure(path)
    yield _leases(store)
    yield from _quarantine(store)
    try:
        usage = manager.file_usage()
        unheld = manager.count_unheld()
        absent = manager.count_absent()
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
        if absent:
            yield Finding(
                "snapshots",
                "bad",
                f"{absent:,} of the snapshots that checkpoints name are not in {_PRIVATE}: their states are "
                "whole, their files cannot be put back",
                f"bring {_PRIVATE} back from a copy, if it was removed; holdfast verify names the checkpoints",
            )
        level: Level = "warning" if usage.bytes > 0.9 * usage.quota_bytes else "ok"
        yield Finding(
            "files",
            level,
            f"{_count(usage.snapshots, 'snapshot')}, {usage.bytes / 1e6:.1f} MB of {usage.quota_bytes / 1e9:.1f} GB",
            None if level == "ok" else "holdfast prune, then holdfast gc, or raise the quota",
        )


def _leases(store: Store) -> Finding:
    leases = store.list_leases()
    gone = [one for one in leases if is_abandoned(store, one)]
    if gone:
        told = "; ".join(f"{one.session_id}: {describe_holder(one)}" for one in gone[:_SHOWN])
        return Finding("leases", "warning", f"{told}{_more(gone)}", "holdfast recover")
    if not leases:
        return Finding("leases", "ok", "nobody holds a session")
    who = ", ".join(f"{one.session_id} by {owner_name(one.owner)}" for one in leases[:_SHOWN])
    return Finding("leases", "ok", f"held: {who}{_more(leases)}")


def _quarantine(store: Store) -> Iterator[Finding]:
    count = sum(map(len, read_checkpoints(store, CheckpointQuery(quarantined=True))))
    if count:
        yield Finding(
            "quarantine",
            "warning",
            f"{_count(count, 'checkpoint')} failed verification, neither loaded nor resumed from",
            "holdfast status, which says what resuming goes on from",
        )


def _more(found: Sequence[object]) -> str:
    return f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""


def _structure(path: Path) -> Finding:
    """Whether SQLite finds its own structures in order; what they hold is for `verify`."""
    import apsw

    from holdfast.stores.sqlite_still import connect_to_read

    try:
        connection = connect_to_read(path)
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


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _numbers(text: str) -> tuple[int, ...]:
    found = []
    for part in text.split("."):
        digits = "".join(ch for ch in part if ch.isdigit())
        if not digits or not part[0].isdigit():
            break
        found.append(int(digits))
    return tuple(found)
