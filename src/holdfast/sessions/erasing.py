"""Erasing for good: rows, content, snapshots of files, and the lines that a project's error log has.

First the packs of other sessions' files are made to need none of this one's, which changes nothing of what
they hold. Then comes the database, in one transaction. What is left of the project's own files is then found
by what the database no longer names, so a kill in between, or a store that is busy, is made good by erasing
again, although the session is not there any more; what could not be freed is said.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.autosave.fallback import FallbackLog
from holdfast.errors import HoldfastError, WorkspaceError, WorkspaceRefused
from holdfast.sessions.detaching import detach
from holdfast.sessions.files import ProjectFiles
from holdfast.stores import Store
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
    going, problem = detach(store, session_id) if _is_there(store, session_id) else (set(), None)
    # Also where there is none: the log of a file may still have what was deleted.
    erased = store.delete_session(session_id)
    left = []
    if going or problem is not None:
        store.delete_packs(going)
        if problem is not None or store.find_packs(going - store.workspace_commits()):
            why = problem or "somebody saved meanwhile; erase another session to repeat it"
            left.append(f"packs of files in the database that others need: {why}")
    return _clean_up(
        store, files, project_dir, erased=int(erased), sessions=[session_id], left=left
    )


def _is_there(store: Store, session_id: str) -> bool:
    # One that cannot be read can be erased all the same.
    with suppress(HoldfastError):
        return store.find_session(session_id) is not None
    return True


def erase_tenant(store: Store, files: ProjectFiles | None, project_dir: Path) -> Erasure:
    """Erase all that the store's tenant has."""
    return _clean_up(store, files, project_dir, erased=store.erase_tenant(), sessions=None, left=[])


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
