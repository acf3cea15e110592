"""Sessions that travel: into a file, out of one, from one store into another.

State and files go together. Files come first, as in a save, and a sweep is kept away until the rows name
them: killed in between, there is nothing to be seen but what the next sweep takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.bundle import Bundle, BundleReport, open_bundle, write_bundle
from holdfast.bundle.moving import (
    Move,
    Progress,
    deliver,
    is_same,
    move_from,
    renamed,
    settled,
    verify_delivered,
    without_expired,
)
from holdfast.bundle.screening import ScreenedSource
from holdfast.bundle.writing import Source
from holdfast.crypto import Keys
from holdfast.errors import (
    AgentExists,
    BundleRefused,
    CheckpointExists,
    CheckpointNotFound,
    IntegrityError,
    PackMissing,
    SessionExists,
    SnapshotCorrupt,
    StoreBusy,
    WorkspaceRefused,
)
from holdfast.model import CheckpointQuery, SessionCopy, SessionRecord, utc_now
from holdfast.sessions.briefing import brief_to_go
from holdfast.sessions.files import ProjectFiles
from holdfast.sessions.held import Surroundings
from holdfast.sessions.lookup import get_checkpoint_record
from holdfast.sessions.rollback_request import without_file_rollbacks
from holdfast.sessions.upkeep import damaged_files
from holdfast.stores import keys_at_hand
from holdfast.stores.base import Store
from holdfast.stores.readable import list_readable_checkpoints, rows_of
from holdfast.verification import Damage, verify_session

Outcome: TypeAlias = Literal["imported", "present"]
Copied: TypeAlias = Literal["copied", "present", "different", "damaged"]

_NO_FILES: Final = (
    "has files, and files are left alone here (workspace=False, or capture = false in the "
    "settings). Nothing was changed; leave the files out on purpose (files=False, --no-files)"
)
_ONE_ALONE: Final = (
    "Nothing was written, and nothing is lost here. Leave out what is damaged: checkpoint= "
    "(--checkpoint NAME, or --latest for the newest one that is not in quarantine) exports one that is "
    "whole; `holdfast verify --deep` finds all that are not"
)
_FILES_STAY: Final = "The states alone go with files=False (--no-files)"
_ATTEMPTS: Final = 5
# How far the clocks of two machines may be apart.
_AHEAD: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What came of an import. ``outcome`` is ``present`` when the very session was there already.

    It still is the same when its files alone were put back meanwhile.

    ``checkpoints`` maps the ids of the bundle's, oldest first, to those that they have here, less those
    that have expired on the way. ``restored``: files are those of the latest one.
    """

    outcome: Outcome
    session_id: str
    bundle: BundleReport
    checkpoints: Mapping[str, str]
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """A way that files can take: from the project that has them to the one that gets them."""

    theirs: ProjectFiles
    ours: ProjectFiles


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What came of copying one session.

    ``different`` means that the target has a session of that id with other content, which was left as
    it is. ``damaged`` means that the session does not verify, and was left out: the findings are in
    ``damaged``. With ``dry_run`` it is what would come of it.
    """

    session_id: str
    outcome: Copied
    checkpoints: int
    chunks: int
    snapshots: int
    dry_run: bool = False
    damaged: tuple[Damage, ...] = ()


def export_session(
    store: Store,
    record: SessionRecord,
    around: Surroundings,
    target: Path,
    *,
    checkpoint: str | None = None,
    files: bool = True,
    overwrite: bool = False,
    keys: Keys | None = None,
) -> BundleReport:
    """See `SessionManager.export_session`."""
    chosen = None
    if checkpoint is not None:
        chosen = get_checkpoint_record(store, record.id, checkpoint).id
    out = None
    if files and around.files is not None:
        out = around.files.pack_out
    elif files and any(
        one.workspace_commit for one in list_readable_checkpoints(store, CheckpointQuery(record.id))
    ):
        raise _files_refused(record.id)
    open_source: Callable[[Store, str, str | None], Source] = Source
    redactor = around.redaction.leaving
    if redactor is not None:
        open_source = partial(ScreenedSource, redactor=redactor)
    with _refusing(f"session {record.id} was not exported", _ONE_ALONE):
        brief = brief_to_go(store, record, around, checkpoint=chosen).text
        return write_bundle(
            store,
            record.id,
            target,
            brief=brief if redactor is None else redactor.text(brief),
            checkpoint_id=chosen,
            files=out,
            overwrite=overwrite,
            keys=keys,
            open_source=open_source,
        )


@contextmanager
def _refusing(what: str, advice: str) -> Iterator[None]:
    """Say of damaged content what did not happen because of it, and how the rest can leave."""
    try:
        yield
    except IntegrityError as error:
        if isinstance(error, PackMissing | SnapshotCorrupt):
            advice = f"{advice}. {_FILES_STAY}"
        refused = type(error)(f"{what}: {error}. {advice}")
        refused.last_good = error.last_good
        raise refused from error


def import_bundle(
    store: Store,
    around: Surroundings,
    path: Path,
    *,
    session_id: str | None = None,
    files: bool = True,
    unsealed: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """See `SessionManager.import_bundle`."""
    with (
        _opened(path, store.keys, unsealed=unsealed) as bundle,
        ExitStack() as stack,
    ):
        report = bundle.report
        move = Move(
            bundle.copy,
            bundle.payload,
            report.states,
            bundle.indexes,
            bundle.leaves,
            bundle.read_chunks,
        )
        move = settled(without_expired(move), around.place)
        before = [one.id for one in move.copy.checkpoints]
        if session_id is not None and session_id != move.copy.session.id:
            move = renamed(move, session_id)
        same = is_same(store, move.copy, move.states, less=without_file_rollbacks)
        if same is False:
            raise _exists(move.copy)
        if files and report.trees:
            if around.files is None:
                raise WorkspaceRefused(f"the bundle {_NO_FILES}")
            stack.enter_context(around.files.workspace.saving())
            commits = list(dict.fromkeys(report.trees.values()))
            around.files.pack_in(commits, bundle.files, report.file_bytes)
        if same is None:
            required = files and around.files is not None and around.files.shared
            same = not _deliver(
                move, store, pack_required=required and bool(report.trees), progress=progress
            )
            if not same:
                verify_delivered(move, store, move.copy.session.id)
        return ImportReport(
            "present" if same else "imported",
            move.copy.session.id,
            report,
            dict(zip(before, (one.id for one in move.copy.checkpoints), strict=True)),
        )


def verify_bundle(path: Path, *, unsealed: bool = False) -> None:
    """Raise unless `import_bundle` would take a file into a new store, with the keys at hand."""
    with _opened(path, keys_at_hand(), unsealed=unsealed):
        pass


@contextmanager
def _opened(path: Path, keys: Keys | None, *, unsealed: bool) -> Iterator[Bundle]:
    """Open a bundle whose session may be among those of a store.

    Which one is meant where none is named depends on when each was begun: one from the future would be
    meant for ever, whatever is begun here after it.
    """
    with open_bundle(path, keys=keys, unsealed=unsealed) as bundle:
        begun = bundle.copy.session.created_at
        if begun > utc_now() + _AHEAD:
            raise BundleRefused(
                f"the session in the bundle was begun at {begun:%Y-%m-%d %H:%M} UTC, which is yet to "
                "come: it would be the most recent one from now on. Nothing was changed; see whether "
                "the clock here is right"
            )
        yield bundle


def _deliver(move: Move, store: Store, *, pack_required: bool, progress: Progress | None) -> bool:
    """Store a session. False when somebody else has stored the same meanwhile."""
    try:
        deliver(move, store, pack_required=pack_required, progress=progress)
    except SessionExists as error:
        if is_same(store, move.copy, move.states):
            return False
        raise _exists(move.copy) from error
    except AgentExists as error:
        raise AgentExists(
            f"{error}, as that of another tenant: in one database no two tenants have the same work. "
            f"Nothing of it was stored; give it a database of its own, or in PostgreSQL a schema"
        ) from error
    except CheckpointExists as error:
        raise CheckpointExists(
            f"{error}: this store has the same work under another id. Nothing was stored; give it a "
            f"new id (session_id=, --as NEW_ID) to have it twice"
        ) from error
    return True


def _exists(copy: SessionCopy) -> SessionExists:
    return SessionExists(
        f"there is a session {copy.session.id!r} already, with other content. Nothing was changed: "
        f"import it under another id (session_id=, --as NEW_ID), which is a fork of it"
    )


def copy_sessions(
    source: Store,
    target: Store,
    session_ids: Sequence[str],
    *,
    between: Sequence[Between] | None,
    place: str | None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Iterator[CopyReport]:
    """Copy sessions from one store into another, one after the other; see `SessionManager.copy_to`.

    ``between`` are the projects that files may come from, the likeliest first, each with the one that they
    go to: empty where files are left alone, None where they stay behind on purpose. ``place`` is the project
    that the sessions are of from now on, if another. A session that is erased meanwhile is passed over.
    """
    for session_id in session_ids:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                report = _copy_one(source, target, session_id, between, place, dry_run, progress)
                if report is not None:
                    yield report
                break
            except CheckpointNotFound:
                # Its rules removed one meanwhile; the next look sees it without.
                if attempt == _ATTEMPTS:
                    raise StoreBusy(
                        f"session {session_id} lost checkpoints faster than they could be copied; it "
                        f"was not copied. Pause it and repeat this"
                    ) from None


def _copy_one(
    origin: Store,
    store: Store,
    session_id: str,
    between: Sequence[Between] | None,
    place: str | None,
    dry_run: bool,
    progress: Progress | None,
) -> CopyReport | None:
    report = CopyReport(session_id, "damaged", 0, 0, 0, dry_run)
    delivered = False
    try:
        found = origin.read_session(session_id)
        if found is None:
            return None
        commits = _commits(found) if between is not None else []
        way = _way_of(session_id, commits, between) if commits and between is not None else None
        report = replace(report, checkpoints=len(found.checkpoints), snapshots=len(commits))
        with _there(store):
            new = store.find_session(session_id) is None
        if new:
            # All of it is looked at before any of it leaves.
            damaged = [*verify_session(origin, rows_of(found))]
            if way is not None:
                damaged += damaged_files(way.theirs, found.checkpoints)
            if damaged:
                return replace(report, damaged=tuple(damaged))
        move = move_from(origin, found)
        if place is not None:
            move = settled(move, place)
        report = replace(report, chunks=len(move.indexes) + len(move.leaves))
        with _there(store):
            same = is_same(store, move.copy, move.states)
        if same is not False and not dry_run:
            with ExitStack() as stack:
                if way is not None:
                    stack.enter_context(way.ours.workspace.saving())
                    way.ours.take_over(way.theirs, commits)
                if same is None:
                    required = way is not None and way.ours.shared
                    delivered = _deliver(move, store, pack_required=required, progress=progress)
    except IntegrityError as error:
        return replace(report, damaged=(Damage(None, error.code, str(error), session_id),))
    if delivered:
        verify_delivered(move, store, session_id)
    would = same is None and dry_run
    outcome: Copied = (
        "different" if same is False else "copied" if delivered or would else "present"
    )
    return replace(report, outcome=outcome)


def _way_of(session_id: str, commits: Sequence[str], between: Sequence[Between]) -> Between:
    """Return the first way on which all files of a session can be had, or else just the first."""
    if not between:
        raise _files_refused(session_id)
    for way in between[:-1]:
        if way.theirs.holds(commits):
            return way
    return between[-1]


def refuse_lost_files(
    store: Store, session_ids: Sequence[str], files: Sequence[ProjectFiles]
) -> None:
    """Raise `WorkspaceRefused` before anything is copied, if sessions have files and none of ``files`` has any.

    One that is there shows that this is where files are: what others lack then is damage of theirs.
    """
    named = False
    for session_id in session_ids:
        # What is damaged is said when it is its turn.
        with suppress(IntegrityError):
            for one in store.list_checkpoints(CheckpointQuery(session_id)):
                if one.workspace_commit is None:
                    continue
                if not files:
                    raise _files_refused(session_id)
                if any(project.holds([one.workspace_commit]) for project in files):
                    return
                named = True
    if named:
        where = " or ".join(str(project.workspace.root) for project in files)
        raise WorkspaceRefused(
            f"the files of these sessions are not in the private store of {where}: they were captured in "
            "another project. Nothing was written; name that one (project_dir=, --project-dir), let the "
            "sessions travel with export and import, or leave the files out on purpose (files=False, "
            "--no-files)"
        )


def _files_refused(session_id: str) -> WorkspaceRefused:
    return WorkspaceRefused(f"session {session_id} {_NO_FILES}")


def _commits(copy: SessionCopy) -> list[str]:
    """Return the snapshots that a session names, each once."""
    named = (one.workspace_commit for one in copy.checkpoints)
    return list(dict.fromkeys(commit for commit in named if commit))


@contextmanager
def _there(store: Store) -> Iterator[None]:
    """Say of what is damaged that it is in the target."""
    try:
        yield
    except IntegrityError as error:
        raise type(error)(f"{store.url} has it already, damaged: {error}") from error
