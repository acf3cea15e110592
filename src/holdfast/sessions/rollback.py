"""Going back: state and files of a session as a checkpoint holds them, and forward again.

A rollback adds to the history and takes nothing from it. It stores a *safety* checkpoint of how things
are, puts the files back, and stores a *landing* checkpoint with the old state and files: from then on that
is the latest. Undoing it is a rollback to the safety checkpoint, redoing one to the undo's own.

Killed in between, the safety checkpoint is the latest. If the files had begun to change, whoever comes next
finishes them (`Workspace.recover`) and this session's next start stores the landing; if not, nothing had
happened. A line in the log says so, as it does of a rollback that failed and was taken back: of those there
is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from holdfast.errors import (
    CheckpointNotFound,
    HoldfastError,
    IntegrityError,
    LookupFailedError,
    NothingToUndo,
    SnapshotNotFound,
)
from holdfast.model import CheckpointQuery, CheckpointRecord
from holdfast.retention import ROLLBACK_AGE
from holdfast.sessions.checkpoint import Checkpoint, Content
from holdfast.sessions.files import Captured, ProjectFiles, paths_written
from holdfast.sessions.guarded import is_kept_for_guard
from holdfast.sessions.lookup import get_checkpoint_record
from holdfast.sessions.rollback_request import (
    CAME_TO_NOTHING,
    ROLLBACK,
    Kind,
    Request,
    facts_of,
    is_of_rollback,
    request_of,
)
from holdfast.stores.base import Store, first
from holdfast.stores.readable import list_readable_checkpoints, read_checkpoints
from holdfast.workspace.base import Change, RestoreReport, Snapshot, readable

if TYPE_CHECKING:
    from holdfast.workspace.plan import Keep

_LOOKED_AT: Final = 200
# So many files that were left alone are named one by one.
_LISTED: Final = 20
# A landing's id follows from its safety checkpoint's, so that storing it again is the same landing.
_LANDINGS: Final = UUID("0c6a4b52-3f0e-5d0b-8f7b-6f1d2f6f3a11")
# For so long, in seconds, a checkpoint that is being restored is not trimmed; longer than any restore.
_RESTORING: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """What a rollback did, or with ``dry_run`` would do.

    ``files`` is None when no files were asked for, the checkpoint holds none or file snapshots are off;
    ``notes`` say which.
    ``title`` is what it is called; ``safety`` holds how things were; ``landed`` is the new latest
    checkpoint.
    """

    title: str
    checkpoint: Checkpoint
    files: RestoreReport | None
    state: bool
    safety: Checkpoint | None = None
    landed: Checkpoint | None = None
    notes: tuple[str, ...] = ()
    dry_run: bool = False


def left_alone_notes(report: RollbackReport) -> list[str]:
    """Return a sentence for each file that is not as the checkpoint has it, for a person to read."""
    found = report.files.left_alone if report.files is not None else ()
    notes = [f"left as it is: {readable(one.path)}: {one.reason}" for one in found[:_LISTED]]
    if len(found) > _LISTED:
        notes.append(f"left as they are: {len(found) - _LISTED:,} more files")
    return notes


class Rollbacks:
    """The rollbacks of one session.

    ``save(state, captured, metadata, …)`` stores a checkpoint of it, ``take_up(record)`` lets it go on
    from one, and ``present()`` returns its state now.
    """

    def __init__(
        self,
        store: Store,
        files: ProjectFiles | None,
        session_id: str,
        *,
        save: Callable[..., Checkpoint],
        take_up: Callable[[CheckpointRecord], Checkpoint],
        present: Callable[[], dict[str, Any]],
        unsaved: Callable[[], set[str]],
        fence: Callable[[], int],
    ) -> None:
        self._store = store
        self._files = files
        self._session_id = session_id
        self._save = save
        self._take_up = take_up
        self._present = present
        self._unsaved = unsaved
        self._fence = fence

    # There and back --------------------------------------------------------------------------

    def roll_back(self, record: CheckpointRecord, request: Request) -> RollbackReport:
        """Go back to a checkpoint. What cannot be read stops it before anything is touched."""
        target = Checkpoint.of(record, self._store)
        if request.kind == "rollback":
            request = replace(request, title=f"rollback to {record.name}")
        with self._naming_a_good_one(record):
            target.content.read()
            commit, notes = self._commit_to_restore(record, request)
        files = self._files
        if commit is None or files is None:
            return self._roll_state_back(target, request, tuple(notes))
        stored: dict[str, Checkpoint] = {}
        restored: set[str] = set()

        def before(safety: Snapshot) -> Mapping[str, Any]:
            nonlocal request
            if request.only_mine:
                request = replace(request, restored=sorted(restored))
            stored["safety"] = self._save_safety(files.describe(safety), target, request)
            return {"id": stored["safety"].id}

        def after(landed: Snapshot) -> None:
            stored["landed"] = self._land(files.describe(landed), target, request, stored["safety"])

        with (
            self._naming_a_good_one(record, unless=stored),
            self._noting_failure(files, stored),
            self._spared(record, request),
            files.workspace.saving(),
        ):
            report = files.workspace.restore(
                commit,
                paths=request.paths,
                keep=self._keep_others(record, restored) if request.only_mine else None,
                move_head=request.move_head,
                dry_run=request.dry_run,
                before=before,
                after=after,
            )
        if not request.move_head:
            notes += self._head_that_stays(files, report)
        return RollbackReport(
            title=request.title,
            checkpoint=target,
            files=report,
            state=request.state,
            safety=stored.get("safety"),
            landed=stored.get("landed"),
            notes=tuple(notes),
            dry_run=request.dry_run,
        )

    def latest_target(self) -> CheckpointRecord:
        """Return the latest checkpoint that the agent saved as a good one."""
        query = CheckpointQuery(self._session_id, namespace="", resumable=True)
        for record in list_readable_checkpoints(self._store, query):
            if not is_of_rollback(record) and record.checkpoint_type != "failure":
                return record
        raise CheckpointNotFound(f"session {self._session_id} has no checkpoint to go back to")

    def undo(self, *, dry_run: bool = False) -> RollbackReport:
        """Take back the last rollback that was not taken back yet."""
        undone: set[str] = set()
        for safety_id, facts in self._steps():
            if facts["kind"] == "undo":
                undone.add(facts["undoes"])
            elif safety_id not in undone:
                return self._reverse(safety_id, facts, "undo", dry_run=dry_run)
        raise NothingToUndo(f"session {self._session_id} has no rollback to undo")

    def redo(self, *, dry_run: bool = False) -> RollbackReport:
        """Take back the last undo, unless another rollback came after it."""
        redone: set[str] = set()
        for safety_id, facts in self._steps():
            if facts["kind"] == "redo":
                redone.add(facts["undoes"])
            elif facts["kind"] == "rollback":
                break
            elif safety_id not in redone:
                return self._reverse(safety_id, facts, "redo", dry_run=dry_run)
        raise NothingToUndo(f"session {self._session_id} has no undo to redo")

    def settle(self) -> None:
        """Store the landing of a rollback that was killed after its files had begun to change."""
        query = CheckpointQuery(self._session_id, namespace="", limit=1)
        found, unreadable = read_checkpoints(self._store, query)
        # What cannot be read may be what the rollback has stored since.
        latest = None if unreadable else first(found)
        facts = facts_of(latest) if latest is not None else None
        if latest is None or facts is None or facts["phase"] != "safety":
            return
        if latest.workspace_commit is None:
            # It was about the state alone, and has stored none.
            self._note_nothing(latest)
            return
        if self._files is None:
            return
        try:
            workspace = self._files.workspace
            workspace.recover()
            if not workspace.was_finished(latest.id):
                self._note_nothing(latest)
                return
        except HoldfastError as error:
            # The state can be gone on with; whoever rolls back or saves files next is told again.
            self._store.append_log(
                self._session_id,
                "warning",
                f"an interrupted rollback is not finished: {error}",
                {ROLLBACK: latest.id},
            )
            return
        record = first(self._store.list_checkpoints(CheckpointQuery(id=facts["target"])))
        if record is not None:
            target = Checkpoint.of(record, self._store)
            with self._files.captured() as captured:
                safety = Checkpoint.of(latest, self._store)
                self._land(captured, target, request_of(facts), safety)
        # Only now: killed before this, the next start does it again, under the same id.
        workspace.forget_finished(latest.id)

    # Inside ----------------------------------------------------------------------------------

    def _commit_to_restore(
        self, record: CheckpointRecord, request: Request
    ) -> tuple[str | None, list[str]]:
        """Return the snapshot to restore; where there is none, None and a note that says why."""
        if not request.files:
            return None, []
        commit, files = record.workspace_commit, self._files
        if commit is not None and files is not None:
            files.fetch(commit)
            if request.kind == "rollback":
                files.check_paths([commit], request.paths or ())
            return commit, []
        why = "file snapshots are off here"
        if commit is None:
            why = f"checkpoint {record.name!r} was saved without files"
        if not request.state:
            raise SnapshotNotFound(f"{why}: no file can be restored")
        return None, [f"{why}: only the state changes"]

    @staticmethod
    def _head_that_stays(files: ProjectFiles, report: RestoreReport) -> list[str]:
        now, then = map(files.workspace.position, (report.safety, report.target))
        if now is None or then is None or now == then:
            return []
        return [f"HEAD stays on {now}; when the checkpoint was saved it was on {then}"]

    def _roll_state_back(
        self, target: Checkpoint, request: Request, notes: tuple[str, ...]
    ) -> RollbackReport:
        if request.dry_run:
            return RollbackReport(
                request.title, target, None, request.state, notes=notes, dry_run=True
            )
        nothing = Captured()
        safety = self._save_safety(nothing, target, request)
        landed = self._land(nothing, target, request, safety)
        return RollbackReport(request.title, target, None, request.state, safety, landed, notes)

    def _save_safety(self, captured: Captured, target: Checkpoint, request: Request) -> Checkpoint:
        return self._save(
            state=self._present_or_nothing(),
            captured=captured,
            retention_class="manual",
            expires_in=ROLLBACK_AGE,
            description=f"before the {request.title}",
            metadata=request.to_metadata("safety", target.id),
        )

    def _land(
        self, captured: Captured, target: Checkpoint, request: Request, safety: Checkpoint
    ) -> Checkpoint:
        state = self._take_up(target.record).state if request.state else self._present_or_nothing()
        metadata = request.to_metadata("landed", target.id)
        metadata[ROLLBACK]["safety"] = safety.id
        return self._save(
            checkpoint_id=str(uuid5(_LANDINGS, safety.id)),
            state=state,
            captured=captured,
            # Counted among the last automatic ones, it would push one of them out. Nor does it expire: the
            # session goes on from it, however late.
            retention_class="manual",
            description=request.title,
            metadata=metadata,
        )

    def _present_or_nothing(self) -> dict[str, Any]:
        try:
            return self._present()
        except IntegrityError:
            # The latest state is damaged. That must not stand between us and one that is not.
            return {}

    def _steps(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the ids of the safety checkpoints, newest first: one for each rollback, undo and redo.

        One whose row cannot be read is known from its landing: to pass it over would undo another rollback.
        """
        query = CheckpointQuery(self._session_id, namespace="", retention_class="manual")
        nothing = self._came_to_nothing()
        found, unreadable = read_checkpoints(self._store, query)
        steps = []
        for one in found:
            facts = facts_of(one)
            if facts is None:
                continue
            if facts["phase"] == "safety" and one.id not in nothing:
                steps.append((one.id, facts))
            elif facts.get("safety") in unreadable:
                steps.append((str(facts["safety"]), facts))
        return steps

    @contextmanager
    def _noting_failure(
        self, files: ProjectFiles, stored: Mapping[str, Checkpoint]
    ) -> Iterator[None]:
        """Note that a rollback came to nothing, when it fails and its files are as before."""
        try:
            yield
        except BaseException:
            safety = stored.get("safety")
            if safety and "landed" not in stored and not files.workspace.is_interrupted():
                # What went wrong matters more. The next start notes it too.
                with suppress(HoldfastError):
                    self._note_nothing(safety.record)
            raise

    def _note_nothing(self, safety: CheckpointRecord) -> None:
        if safety.id not in self._came_to_nothing():
            said = f"{safety.description}: it came to nothing"
            self._store.append_log(self._session_id, "warning", said, {CAME_TO_NOTHING: safety.id})

    def _came_to_nothing(self) -> set[str]:
        """Return the safety checkpoints of rollbacks that failed, or were killed before they began."""
        found = self._store.list_logs(self._session_id, key=CAME_TO_NOTHING)
        return {str(line.data[CAME_TO_NOTHING]) for line in found if line.data}

    def _reverse(
        self, safety_id: str, facts: dict[str, Any], kind: Kind, *, dry_run: bool
    ) -> RollbackReport:
        safety = get_checkpoint_record(self._store, self._session_id, safety_id)
        if (restored := facts.get("restored")) is not None:
            # Others' files were left alone on the way there, and are on the way back.
            facts = {**facts, "paths": restored, "restored": None}
        whole = facts["title"]
        what = whole.removeprefix("undo of the ").removeprefix("redo of the ")
        request = replace(
            request_of(facts),
            kind=kind,
            title=f"{kind} of the {what}",
            undoes=safety.id,
            dry_run=dry_run,
        )
        return self.roll_back(safety, request)

    def _keep_others(self, target: CheckpointRecord, restored: set[str]) -> Keep:
        """Return a rule that spares what this session did not write, or others wrote after it.

        What it does not spare is added to ``restored``.
        """
        mine: dict[str, str] = {}
        query = CheckpointQuery(self._session_id, namespace="")
        for record in reversed(list_readable_checkpoints(self._store, query)):
            if record.seq <= target.seq or is_of_rollback(record):
                continue
            if record.workspace_commit is not None:
                # One that is removed meanwhile says nothing of paths any more.
                with suppress(CheckpointNotFound):
                    paths, _ = paths_written(Content(self._store, record.id).read().context)
                    mine |= dict.fromkeys(paths, record.workspace_commit)
        unsaved = self._unsaved()
        changed_since: dict[str, set[str]] = {}

        def reason_to_keep(change: Change, safety: str) -> str | None:
            if change.path in unsaved:
                return None
            if change.path not in mine:
                return "this session did not write it"
            commit = mine[change.path]
            if commit not in changed_since and self._files is not None:
                changed_since[commit] = self._files.workspace.differing(commit, safety)
            if change.path in changed_since[commit]:
                return "it was changed by somebody else after this session wrote it"
            return None

        def keep(change: Change, safety: str) -> str | None:
            reason = reason_to_keep(change, safety)
            if reason is None:
                restored.add(change.path)
            return reason

        return keep

    @contextmanager
    def _spared(self, record: CheckpointRecord, request: Request) -> Iterator[None]:
        """Keep a checkpoint from being trimmed or pruned while it is restored."""
        if request.dry_run or is_kept_for_guard(record.id):
            yield
            return
        fence = self._fence()
        self._store.mark_restoring(record.id, seconds=_RESTORING, fence=fence)
        yield
        with suppress(LookupFailedError):
            self._store.mark_restoring(record.id, seconds=0, fence=fence)

    @contextmanager
    def _naming_a_good_one(
        self, record: CheckpointRecord, *, unless: Mapping[str, Checkpoint] | None = None
    ) -> Iterator[None]:
        """Let a refusal to restore a damaged checkpoint tell which other one can be restored.

        Once the safety checkpoint is stored it is no refusal any more.
        """
        try:
            yield
        except (IntegrityError, SnapshotNotFound) as error:
            if unless:
                raise
            cause = error.__cause__ if getattr(error, "last_good", None) is not None else error
            raise type(error)(f"{cause}{self._nearest_good(record)}") from error

    def _nearest_good(self, bad: CheckpointRecord) -> str:
        """Return a sentence that names the nearest checkpoint that can be restored."""
        query = CheckpointQuery(self._session_id, namespace="", limit=_LOOKED_AT)
        listed = list_readable_checkpoints(self._store, query)
        others = [one for one in listed if one.id != bad.id]
        for record in sorted(others, key=lambda one: abs(one.seq - bad.seq)):
            try:
                if self._store.load(record.id) is None:
                    continue
                if record.workspace_commit is not None and self._files is not None:
                    self._files.fetch(record.workspace_commit)
                    if self._files.workspace.verify([record.workspace_commit]):
                        continue
            except (IntegrityError, LookupFailedError):
                continue
            return f". Nothing was changed; the nearest good checkpoint is {record.name!r}"
        return ". Nothing was changed; no other checkpoint of the session can be restored"
