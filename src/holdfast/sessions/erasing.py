"""Erasing for good: rows, content, snapshots of files, and the lines that a project's error log has.

First the packs of other sessions' files are made to need none of this one's, which changes nothing of what
they hold. Then comes the database, in one transaction. What is left of the project's own files is then found
by what the database no longer names, so a kill in between, or a store that is busy, is made good by erasing
again, although the session is not there any more; what could not be freed is said.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.autosave.fallback import FallbackLog
from holdfast.config import AGENTS_DIR, find_project_root
from holdfast.errors import HoldfastError, WorkspaceError, WorkspaceRefused
from holdfast.model import SessionQuery
from holdfast.sessions.detaching import detach
from holdfast.sessions.files import ProjectFiles
from holdfast.stores import Store
from holdfast.stores.readable import list_readable
from holdfast.workspace.base import STORE
from holdfast.workspace.restore import SAFETY_GROUP


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was erased, and what may be left.

    ``left`` names files that may still hold something, each with the reason: a log that somebody was
    reading, copies from before a migration, snapshots that could not be freed now.
    """

    sessions: int
    snapshots: int
    file_bytes: int
    left: tuple[str, ...]


def erase_session(
    store: Store, files: ProjectFiles | None, project_dir: Path, session_id: str
) -> Erasure:
    """Erase one session. If there is none of that id, what an interrupted erasure has left of it goes."""
    there, places = _look(store, session_id)
    going, problem = detach(store, session_id) if there else (set(), None)
    # Also where there is none: the log of a file may still have what was deleted.
    erased = store.delete_session(session_id)
    left = _elsewhere(places, files, f"--session {shlex.quote(session_id)}")
    if going or problem is not None:
        store.delete_packs(going)
        if problem is not None or store.find_packs(going - store.workspace_commits()):
            why = problem or "somebody saved meanwhile; erase another session to repeat it"
            left.append(f"packs of files in the database that others need: {why}")
    return _clean_up(
        store, files, project_dir, erased=int(erased), sessions=[session_id], left=left
    )


def _look(store: Store, session_id: str) -> tuple[bool, set[str | None]]:
    """Tell whether a session is there, and which project it is of."""
    # One that cannot be read can be erased all the same.
    with suppress(HoldfastError):
        found = store.find_session(session_id)
        return (False, set()) if found is None else (True, {found.project_dir})
    return True, set()


def erase_tenant(store: Store, files: ProjectFiles | None, project_dir: Path) -> Erasure:
    """Erase all that the store's tenant has."""
    places = {one.project_dir for one in list_readable(store, SessionQuery())}
    erased = store.erase_tenant()
    left = _elsewhere(places, files, "--all")
    return _clean_up(store, files, project_dir, erased=erased, sessions=None, left=left)


def _elsewhere(places: Collection[str | None], files: ProjectFiles | None, what: str) -> list[str]:
    """Name the projects on this machine that may have snapshots and are not looked into here."""
    own = None
    if files is not None:
        # A directory that is no project has none.
        with suppress(WorkspaceRefused):
            own = _snapshots_of(str(files.workspace.root))
    return [
        f"{folder}: the snapshots of files there, and what hooks and failed saves left; run holdfast erase "
        f"{what} in that project"
        for place in sorted(filter(None, places))
        if (folder := _snapshots_of(place)) not in (None, own)
    ]


def _snapshots_of(place: str) -> str | None:
    """Return where the project that a directory lies in has its snapshots, if it has any."""
    # It may be on another machine, or gone.
    with suppress(HoldfastError, OSError, ValueError):
        found = os.path.realpath(find_project_root(place) / AGENTS_DIR / STORE)
        return found if os.path.isdir(found) else None
    return None


def _clean_up(
    store: Store,
    files: ProjectFiles | None,
    project_dir: Path,
    *,
    erased: int,
    sessions: Collection[str] | None,
    left: list[str],
) -> Erasure:
    left = [*left, *store.leftovers()]
    snapshots = file_bytes = 0
    if files is not None:
        try:
            swept, packs = files.sweep(last=False)
            snapshots, file_bytes = swept.snapshots, swept.bytes + packs.bytes
            if swept.mended:
                left.append("snapshots of files: references were lost; holdfast gc frees them")
            left += [
                f"snapshot {one} of files, which a rollback that failed or was interrupted has kept: once nobody "
                f"needs it, git --git-dir={files.workspace.store_dir} update-ref -d "
                f"refs/snapshots/{SAFETY_GROUP}/{one} lets go of it, and holdfast gc frees it after the next save"
                for one in sorted(files.workspace.rescued())
            ]
        except (WorkspaceError, WorkspaceRefused) as error:
            left.append(f"snapshots of files: {error}; holdfast gc frees them")
    try:
        FallbackLog(project_dir).forget(store.tenant, sessions)
    except OSError as error:
        left.append(f"{FallbackLog(project_dir).path}: {error.strerror}")
    return Erasure(erased, snapshots, file_bytes, tuple(left))
