"""Snapshots that arrived from elsewhere, in a bundle or through a shared database.

The files of one's own come back with every bit of their permissions. A stranger's snapshot may bring
programs too, but none that others could then run with the rights of whoever restored it: its files get no
set-user-id and no set-group-id bit. The few snapshots that this is about are noted when they arrive.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from holdfast.errors import SnapshotCorrupt
from holdfast.workspace.base import Skipped
from holdfast.workspace.details import Details
from holdfast.workspace.private_store import PrivateStore

_NOTE: Final = "arrived.json"
_RIGHTS: Final = stat.S_ISUID | stat.S_ISGID
_REASON: Final = "a snapshot from elsewhere gives no file the rights of its owner or group"


def note_arrivals(store: PrivateStore, commits: Iterable[str]) -> None:
    """Remember which snapshots from elsewhere hold files with such rights."""
    found = []
    for commit in commits:
        # One that cannot be read is not restored either.
        with suppress(SnapshotCorrupt):
            details = Details.from_message(store.read_commit(commit)[2])
            if _armed(details):
                found.append(commit)
    if found:
        store.notes.write(_NOTE, {"commits": sorted({*_noted(store), *found})}, durable=True)


def disarmed(store: PrivateStore, commit: str, details: Details) -> tuple[Details, list[Skipped]]:
    """Return a snapshot's details without such rights where it arrived, and what was taken from it."""
    paths = _armed(details)
    if not paths or commit not in _noted(store):
        return details, []
    first, second, third = details.defaults
    modes = {path: mode & ~_RIGHTS for path, mode in details.modes.items()}
    defaults = (first & ~_RIGHTS, second & ~_RIGHTS, third)
    return replace(details, defaults=defaults, modes=modes), [
        Skipped(path, _REASON) for path in paths
    ]


def _noted(store: PrivateStore) -> set[str]:
    found = store.notes.read(_NOTE).get("commits")
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def _armed(details: Details) -> list[str]:
    """Return the files with such rights; the project stands for those that have the usual modes."""
    usual = ["."] if any(mode & _RIGHTS for mode in details.defaults[:2]) else []
    return usual + sorted(path for path, mode in details.modes.items() if mode & _RIGHTS)
