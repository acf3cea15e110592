"""Keeping house in a store and its project: what it takes, what may go, what is damaged.

``files`` are the project's, None where they are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Final

from holdfast.errors import (
    IntegrityError,
    SnapshotCorrupt,
    StoreError,
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
from holdfast.retention import Decision, Needs, Policy, plan_prune
from holdfast.sessions.files import ProjectFiles
from holdfast.sessions.rollback_request import is_landing
from holdfast.stores import Store
from holdfast.stores.readable import list_readable_checkpoints, read_checkpoints
from holdfast.verification import (
    NOT_READ,
    SCHEMA_INCOMPLETE,
    SNAPSHOT_UNHELD,
    Damage,
    VerifyReport,
    verify_store,
)
from holdfast.workspace.base import Usage

_ROWS_AT_ONCE: Final = 200
# How often what is removed is decided anew while others save and delete.
_PLANS: Final = 4
_NOT_NOW: Final = "being restored, or others worked on its session meanwhile"
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
        if altered:
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
    policy = policy.bounded(keep=keep, max_age=max_age, max_bytes=max_bytes)
    plans: list[list[Decision]] = []

    def plan() -> tuple[Sequence[str], Sequence[str]]:
        decisions, unreadable = _plan(store, policy)
        plans.append(decisions)
        staying = [one.record.id for one in decisions if one.keep]
        return [one.record.id for one in decisions if not one.keep], [*staying, *unreadable]

    if dry_run:
        plan()
        return plans[0]
    removed = carry_out(store, plan)
    if len(plans) == 1 and removed == sum(not one.keep for one in plans[0]):
        return plans[0]
    there = {*store.iter_checkpoint_ids(), *(one.id for one in _list_expired(store))}
    told = {one.record.id: one for one in plans[-1]}
    for one in chain.from_iterable(plans[:-1]):
        if not one.keep:
            told.setdefault(one.record.id, one)
    return [
        replace(one, keep=True, reason=_NOT_NOW) if not one.keep and one.record.id in there else one
        for one in sorted(told.values(), key=lambda one: one.record.seq, reverse=True)
    ]


def carry_out(
    store: Store,
    plan: Callable[[], tuple[Sequence[str], Sequence[str]]],
    *,
    newest_too: bool = False,
) -> int:
    """Remove what a plan says, and return how many those were. ``plan`` names what goes and what stays.

    Where others save or delete meanwhile, what they changed is left alone, and the next plan is for that.
    ``newest_too`` is as for `Store.delete_checkpoints`.
    """
    total = 0
    for attempt in range(_PLANS):
        going, staying = plan()
        if not going:
            break
        removed = store.delete_checkpoints(going, beside=staying, newest_too=newest_too)
        total += removed
        if removed == len(going) or (attempt and not removed):
            break
    return total


def _plan(store: Store, policy: Policy) -> tuple[list[Decision], Collection[str]]:
    """Decide about all checkpoints; the ids of those that cannot be read, which nobody decides about: they stay."""
    expired = _list_expired(store)
    readable, unreadable = read_checkpoints(store, CheckpointQuery())
    records = [*expired, *readable]
    quarantined = list_readable_checkpoints(store, CheckpointQuery(quarantined=True))
    damaged = {one.id for one in quarantined}
    # What has expired is for the clock of the store to say.
    now = max([utc_now(), *(one.expires_at for one in expired if one.expires_at is not None)])
    landings = {one.id for one in records if is_landing(one)}
    decisions = plan_prune(records, policy, now=now, quarantined=damaged, landings=landings)
    return decisions, unreadable


def _list_expired(store: Store) -> list[CheckpointRecord]:
    with suppress(IntegrityError):
        return store.list_expired()
    return []


def why_protected(store: Store, record: CheckpointRecord) -> str | None:
    """Return what speaks against deleting a checkpoint without force, or None."""
    if record.pinned:
        return "pinned"
    if record.retention_class == "feature":
        return "permanent (class feature)"
    # Others are computed from a checkpoint by the name that another system gave it.
    if record.external_id is None:
        return None
    query = CheckpointQuery(record.session_id, namespace=record.namespace)
    line = list_readable_checkpoints(store, query)
    needs = Needs(line)
    for one in line:
        if any(ancestor.id == record.id for ancestor in needs.of(one)):
            return f"what delta channels of {one.name!r} are computed from"
    return None


def verify(
    store: Store,
    files: ProjectFiles | None,
    *,
    deep: bool = False,
    progress: Callable[[int], None] | None,
) -> VerifyReport:
    """Read everything back; see `SessionManager.verify`."""
    report = verify_store(store, deep=deep, progress=progress)
    if files is None or report.notes:
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
    except StoreError:
        if not any(one.code == SCHEMA_INCOMPLETE for one in report.damaged):
            raise
        return replace(report, notes=(NOT_READ,))
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
