"""Keeping house in a store and its project: what it takes, what may go, what is damaged.

``files`` are the project's, None where they are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from holdfast.errors import (
    IntegrityError,
    InvalidFilter,
    SnapshotCorrupt,
    WorkspaceError,
    WorkspaceRefused,
)
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    GcReport,
    PackReport,
    SessionUsage,
    utc_now,
)
from holdfast.retention import Decision, Policy, plan_prune
from holdfast.sessions.files import ProjectFiles
from holdfast.stores import Store
from holdfast.verification import SNAPSHOT_UNHELD, Damage, VerifyReport, verify_store
from holdfast.workspace.base import Usage

_ROWS_AT_ONCE: Final = 200
# What keeps files from being looked at: no git, another who works on them, no project.
_NOT_SEEN: Final = (WorkspaceError, WorkspaceRefused)
_UNHELD: Final = (
    "the reference to its files in .agents/workspace.git is missing or unreadable; holdfast gc writes it "
    "anew"
)


@dataclass(frozen=True, slots=True)
class StorageReport:
    """What is stored: states per session, file snapshots here, and packs of them for elsewhere.

    ``files`` is None where files are left alone, and where they cannot be looked at: ``notes`` say why.
    """

    sessions: tuple[SessionUsage, ...]
    files: Usage | None
    packs: PackReport
    notes: tuple[str, ...] = ()


def measure(store: Store, files: ProjectFiles | None) -> StorageReport:
    """Return what all of it takes."""
    report = StorageReport(tuple(store.session_usage()), None, store.pack_usage())
    if files is None:
        return report
    try:
        return replace(report, files=files.workspace.usage())
    except _NOT_SEEN as error:
        return replace(report, notes=(f"files were not measured: {error}",))


def collect(store: Store, files: ProjectFiles | None, *, dry_run: bool) -> GcReport:
    """Free what nothing refers to; see `SessionManager.gc`."""
    altered = find_altered(store)
    if altered and dry_run:
        report = GcReport(0, 0, 0, dry_run, in_quarantine=len(altered))
    else:
        store.quarantine(altered)
        report = store.gc(dry_run=dry_run)
    if files is None:
        return report
    try:
        # A row that is not as it was may name another snapshot than it did.
        snapshots, packs = files.sweep(dry_run=dry_run, release=not report.in_quarantine)
    except WorkspaceError as error:
        # What was freed until here is freed, and has to be told.
        return replace(report, notes=(f"files were left alone: {error}",))
    return replace(
        report,
        snapshots=snapshots.snapshots,
        packs=packs.packs,
        file_bytes=snapshots.bytes + packs.bytes,
        held_again=snapshots.mended,
    )


def find_altered(store: Store) -> set[str]:
    """Return the checkpoints that are in quarantine, or belong there: their rows do not fit their links."""
    ids = list(store.iter_checkpoint_ids())
    found: set[str] = set()
    for at in range(0, len(ids), _ROWS_AT_ONCE):
        batch = ids[at : at + _ROWS_AT_ONCE]
        try:
            store.read_payloads(batch)
        except IntegrityError:
            found.update(one for one in batch if not _fits(store, one))
    return found


def _fits(store: Store, checkpoint_id: str) -> bool:
    try:
        store.read_payload(checkpoint_id)
    except IntegrityError:
        return False
    return True


def prune(
    store: Store,
    policy: Policy,
    *,
    dry_run: bool,
    keep: int | None,
    max_age: timedelta | None,
    max_bytes: int | None,
) -> list[Decision]:
    """Apply retention rules to every session; see `SessionManager.prune`."""
    for value, what in ((keep, "keep"), (max_bytes, "max_bytes")):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidFilter(f"{what} must be a whole number, not negative: {value!r}")
    policy = policy.bounded(keep=keep, max_age=max_age, max_bytes=max_bytes)
    records = store.list_checkpoints(CheckpointQuery())
    damaged = {one.id for one in store.list_checkpoints(CheckpointQuery(quarantined=True))}
    decisions = plan_prune(records, policy, now=utc_now(), quarantined=damaged)
    if not dry_run:
        store.purge_expired()
        going = [one.record.id for one in decisions if not one.keep]
        store.delete_checkpoints(going, spare_restoring=True)
    return decisions


def verify(
    store: Store,
    files: ProjectFiles | None,
    *,
    deep: bool = False,
    progress: Callable[[int], None] | None,
) -> VerifyReport:
    """Read everything back; see `SessionManager.verify`."""
    report = verify_store(store, deep=deep, progress=progress)
    if files is None:
        return report
    try:
        unheld = [
            Damage(checkpoint, SNAPSHOT_UNHELD, _UNHELD)
            for checkpoint in files.unheld_checkpoints()
        ]
        damaged = damaged_files(files, deep=deep)
    except _NOT_SEEN as error:
        # Nobody may take what was found so far for all there is, nor lose it.
        return replace(report, notes=(f"files were not looked at: {error}",))
    if deep and damaged:
        # Who may not write, or has no room for it, is told all the same.
        with suppress(WorkspaceError, OSError):
            files.workspace.set_damaged_aside()
    return replace(report, damaged=(*report.damaged, *damaged, *unheld))


def damaged_files(
    files: ProjectFiles, records: Iterable[CheckpointRecord] | None = None, *, deep: bool = False
) -> list[Damage]:
    """Return the checkpoints, of those or of all, whose files are damaged."""
    return [
        Damage(checkpoint, SnapshotCorrupt.code, why)
        for checkpoint, why in files.problems(records, deep=deep).items()
    ]
