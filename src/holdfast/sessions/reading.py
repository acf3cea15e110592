"""Reading the checkpoints of a session: the state to go on from, verified, and what is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

from holdfast.collector import collection_paused
from holdfast.effects import Ledger
from holdfast.errors import (
    CheckpointNotFound,
    CheckpointQuarantined,
    IntegrityError,
    NotResumable,
)
from holdfast.ids import is_uuid
from holdfast.leases import Hold
from holdfast.locks import new_lock
from holdfast.model import CheckpointQuery, CheckpointRecord, SessionRecord
from holdfast.preflight import MemoryRefReport, check_memory_refs
from holdfast.recording import Recorder
from holdfast.redaction import Placeholder
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.files import context_of_files
from holdfast.sessions.held import HeldSession, Surroundings
from holdfast.sessions.lookup import find_unreadable_checkpoints, get_checkpoint_record
from holdfast.sessions.passed_over import PassedOver, find_passed_over
from holdfast.sessions.tasks import all_tasks, completed_tasks
from holdfast.state.documented import documented
from holdfast.stores.base import Store, first
from holdfast.stores.readable import list_readable_checkpoints, read_checkpoints


class ReadingSession(HeldSession):
    """A session that knows the checkpoint which it goes on from."""

    def __init__(
        self,
        store: Store,
        record: SessionRecord,
        around: Surroundings,
        hold: Hold | None = None,
    ) -> None:
        super().__init__(store, record, around, hold)
        self._lock = new_lock()
        self._recorder = Recorder(around.redaction.redactor)
        self._ledger = Ledger(
            store,
            record.id,
            self._fence,
            screen=around.redaction.redactor,
            fill=around.redaction.filled,
        )
        # The checkpoint that the next save builds on, and the tasks completed up to it.
        self._head: str | None = None
        self._completed: list[dict[str, Any]] = []
        self._fresh = True
        # What the last checkpoint says of the files, and their snapshot.
        self._files_context: dict[str, Any] = {}
        self._files_commit: str | None = None

    def load_checkpoint(self, reference: str, *, force: bool = False) -> Checkpoint:
        """Restore a checkpoint: return it with its state, and let the next save build on it.

        ``reference`` is a name, an id, a label or the beginning of an id. Sets ``restored_at`` and
        logs the restore. Raises `NotResumable` for one that was saved so, unless ``force`` is set.
        """
        record = get_checkpoint_record(self._store, self.id, reference)
        if not record.resumable and not force:
            raise NotResumable(
                f"checkpoint {record.name!r} was saved as not resumable; "
                "load an earlier one, or this one with force=True"
            )
        loaded = self._take_up(record)
        # To have gone back is a change that the next autosave records.
        self._recorder.forget()
        self.log("info", f"restored checkpoint {record.name}", data={"checkpoint": record.id})
        return loaded.filled(self._around.redaction.filled)

    def get_checkpoint(self, reference: str) -> Checkpoint:
        """Look at a checkpoint without restoring it."""
        return Checkpoint.of(get_checkpoint_record(self._store, self.id, reference), self._store)

    def latest_checkpoint(self, *, resumable: bool | None = None) -> Checkpoint:
        """Look at the newest checkpoint, or the newest resumable one, that is not damaged; see `passed_over`."""
        found = self._find_latest(resumable=resumable)
        if found is None:
            kind = "resumable checkpoint" if resumable else "checkpoint"
            raise CheckpointNotFound(f"session {self.id} has no {kind}")
        return found

    def list_checkpoints(
        self,
        *,
        limit: int | None = None,
        checkpoint_type: str | None = None,
        retention_class: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Checkpoint]:
        """List checkpoints, newest first. No payload is read until a ``state`` is asked for.

        Those whose rows cannot be read are left out; see `unreadable_checkpoints`.
        """
        query = CheckpointQuery(
            self.id,
            namespace="",
            checkpoint_type=checkpoint_type,
            retention_class=retention_class,
            metadata=metadata or {},
            limit=limit,
        )
        with collection_paused():
            found = list_readable_checkpoints(self._store, query)
            return [Checkpoint.of(one, self._store) for one in found]

    def unreadable_checkpoints(
        self, reference: str | None = None, *, limit: int | None = None
    ) -> dict[str, IntegrityError]:
        """Return the ids of checkpoints whose rows cannot be read, each with the reason.

        A ``reference`` is a name, a label, an id or its beginning: only those that it means. With ``limit``
        only the newest are looked at; if one of those cannot be read, all are.
        """
        return find_unreadable_checkpoints(self._store, self.id, reference, limit=limit)

    def passed_over(self) -> list[PassedOver]:
        """Return what is newer than the newest good checkpoint and cannot be used, newest first.

        It failed verification, or its row cannot be read: `latest_checkpoint` passes it over.
        """
        return find_passed_over(self._store, self.id)

    @property
    def state(self) -> dict[str, Any]:
        """The state to go on from, as `get_state` reads it."""
        return self.get_state()

    def get_state(self) -> dict[str, Any]:
        """Read the state of the checkpoint last saved or loaded here, else the latest resumable.

        A session that has none yet goes on from the latest of the session that it continues. Secrets
        that were taken out come back as far as they are at hand; see `missing_secrets`.
        """
        state: dict[str, Any] = self._around.redaction.filled(self._stored_state())
        return state

    def missing_secrets(self) -> list[Placeholder]:
        """Return the placeholders in the present state whose secrets are not at hand, each once."""
        return self._around.redaction.missing(self.present_state())

    def _stored_state(self) -> dict[str, Any]:
        if self._head is not None and (loaded := self._store.load(self._head)) is not None:
            return loaded[1].state
        for record in self.lineage():
            query = CheckpointQuery(record.id, namespace="", resumable=True, limit=1)
            if found := list_readable_checkpoints(self._store, query):
                return Checkpoint.of(found[0], self._store).state
        return self.latest_checkpoint(resumable=True).state

    def present_state(self) -> dict[str, Any]:
        """Return the state last saved or loaded, as it is stored; empty before the first save."""
        try:
            return self._stored_state()
        except CheckpointNotFound:
            return {}

    def outline(self) -> dict[str, Any]:
        """Return the state of the session's latest checkpoint with its large lists unread.

        A `StoredList` stands for each of them. Saved again, as it is or with items added (``plus``),
        it costs what was added, in a process too that has not read the rest. A session that has none
        yet goes on from the latest of the session that it continues, and else from nothing.
        """
        with self._lock:
            latest = self._find_latest()
            if latest is None:
                return self._inherited()
            content = latest.content.outline()
            self._completed = completed_tasks(all_tasks(content.state, content.context))
            self._head = latest.id
            self._files_context = context_of_files(content.context)
            self._files_commit = latest.workspace_commit
            self._fresh = False
            return content.state

    def look_at_files(self) -> tuple[bool, str | None]:
        """Tell whether the project's files are others than the latest checkpoint holds.

        Also return the snapshot that was taken to find out. False and none where files are not captured at
        all; where they cannot be any more, that counts as a difference from a checkpoint that has them.
        """
        files = self._around.files
        if files is None:
            return False, None
        latest = self._find_latest()
        return files.compared_with(latest.workspace_commit if latest else None)

    def check_paths(self, *paths: str | PathLike[str]) -> None:
        """Refuse paths of files that neither the project nor the latest checkpoint has, as `rollback` does.

        For those that somebody types before a save: it looks for changes there, and finds none.
        """
        files = self._around.files
        if files is None:
            return
        latest = self._find_latest()
        commit = None if latest is None else latest.workspace_commit
        commits = [commit] if commit is not None and files.holds([commit]) else []
        files.check_paths(commits, files.workspace.relatives(paths))

    def check_memory_refs(self) -> list[MemoryRefReport]:
        """Tell which memory references of the present state are present, missing or changed."""
        referred = documented(self.state).get("memory_refs", [])
        return check_memory_refs(referred, self._around.project_dir)

    # Inside ------------------------------------------------------------------------------

    def _inherited(self) -> dict[str, Any]:
        """Return the outline of what a session without a checkpoint of its own goes on from."""
        before = (ReadingSession(self._store, one, self._around) for one in self.lineage()[1:])
        found = (one._find_latest(resumable=True) for one in before)
        latest = next(filter(None, found), None)
        if latest is None:
            return {}
        try:
            return latest.content.outline().state
        except IntegrityError as error:
            # What is damaged there must not keep this session from beginning.
            self.log("warning", f"checkpoint {latest.name} cannot be read: {error}")
            return {}

    def _find_latest(self, *, resumable: bool | None = None) -> Checkpoint | None:
        query = CheckpointQuery(
            self.id, namespace="", resumable=resumable, quarantined=False, limit=1
        )
        record = first(list_readable_checkpoints(self._store, query))
        return Checkpoint.of(record, self._store) if record is not None else None

    def _restore(self, reference: str | None, *, force: bool) -> None:
        if reference is not None:
            self.load_checkpoint(reference, force=force)
            return
        passed_over: set[str] = set()
        newer = self._quarantine_unreadable()
        while (latest := self._find_latest(resumable=True)) is not None:
            try:
                self._take_up(latest)
            except IntegrityError as error:
                if latest.id in passed_over or error.last_good is None:
                    raise
                passed_over.add(latest.id)
                self._pass_over(latest, error)
                newer |= self._quarantine_unreadable()
                continue
            unused, unreadable = self._unused(latest.seq)
            self._tell_unused([one for one in unused if one.id not in passed_over])
            self._tell_unreadable(newer | unreadable)
            self.log("info", f"resumed from {latest.name}", data={"checkpoint": latest.id})
            return
        unused, unreadable = self._unused()
        if unused or unreadable:
            shown = _shown(unused) if unused else _shown_ids(unreadable)
            raise CheckpointQuarantined(
                f"session {self.id} has no good checkpoint to go on from: {shown} failed "
                f"verification. Nothing was changed or removed; {_RELEASED}"
            )

    def _unused(
        self, after_seq: int = 0
    ) -> tuple[list[CheckpointRecord], dict[str, IntegrityError]]:
        """Return what would be gone on from if it had not failed verification, newest first.

        Beside it stand those whose rows cannot be read: nobody knows what of them would be.
        """
        query = CheckpointQuery(self.id, namespace="", quarantined=True)
        found, unreadable = read_checkpoints(self._store, query)
        return [one for one in found if one.resumable and one.seq > after_seq], unreadable

    def _tell_unused(self, unused: list[CheckpointRecord]) -> None:
        """Say what had failed verification before this resume, and was passed over now."""
        if unused:
            self._notices.append(
                f"{_shown(unused)} failed verification earlier and was passed over. Nothing was removed; "
                f"{_RELEASED}"
            )
            self.log("warning", self._notices[-1], data={"quarantined": unused[0].id})

    def _quarantine_unreadable(self) -> dict[str, IntegrityError]:
        """Keep checkpoints whose rows cannot be read from standing before one that can be gone on from."""
        query = CheckpointQuery(self.id, namespace="", resumable=True, limit=1)
        found, unreadable = read_checkpoints(self._store, query)
        for id_, error in unreadable.items():
            # One without an id cannot be set aside.
            if not found or not is_uuid(id_):
                raise error
        self._store.quarantine(unreadable)
        return unreadable

    def _tell_unreadable(self, unreadable: dict[str, IntegrityError]) -> None:
        if unreadable:
            why = next(iter(unreadable.values()))
            self._notices.append(
                f"{_shown_ids(unreadable)} cannot be read and was passed over ({why}). It is in quarantine, "
                f"and nothing was removed"
            )
            self.log("warning", self._notices[-1], data={"quarantined": next(iter(unreadable))})

    def _pass_over(self, damaged: CheckpointRecord, error: IntegrityError) -> None:
        """Keep a damaged checkpoint from being used, and say so: there is a good one before it."""
        self._store.quarantine([damaged.id])
        self._notices.append(
            f"checkpoint {damaged.name!r} is damaged and was passed over. It is in quarantine until "
            f"`holdfast verify --deep` finds it whole again ({error.__cause__ or error})"
        )
        self.log("warning", self._notices[-1], data={"quarantined": damaged.id})

    def _take_up(self, record: CheckpointRecord) -> Checkpoint:
        """Continue from a stored checkpoint, its content verified before anything is marked."""
        taken = Checkpoint.of(record, self._store)
        with self._lock:
            self._build_on(taken)
            self._ledger.restart()
            # Whoever only looks may restore elsewhere; that it did is worth knowing.
            fence = None if self._hold is None else self._fence()
            restored = self._store.mark_restored(record.id, fence=fence)
        return Checkpoint(restored, taken.content)

    def _build_on(self, checkpoint: Checkpoint) -> None:
        """Let the next save be the child of this checkpoint and pay for the difference."""
        self._completed = completed_tasks(checkpoint.task_state["tasks"])
        self._recorder.continue_from(
            checkpoint.content.payload, self._store.read_chunks, self._store.cache
        )
        self._head = checkpoint.id
        self._files_context = context_of_files(checkpoint.content.read().context)
        self._files_commit = checkpoint.workspace_commit
        self._fresh = False


_RELEASED: Final = "`holdfast verify --deep` releases what it finds whole again"


def _shown(unused: list[CheckpointRecord]) -> str:
    """Return the newest of some checkpoints by its name, and how many others there are."""
    others = f", like {len(unused) - 1} before it," if len(unused) > 1 else ""
    return f"checkpoint {unused[0].name!r}{others}"


def _shown_ids(unreadable: dict[str, IntegrityError]) -> str:
    return f"checkpoint {', '.join(unreadable)}"
