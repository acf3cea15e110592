"""Saving and reading the checkpoints of a session, each at the cost of what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Final, cast

from holdfast.effects import Ledger
from holdfast.errors import (
    CheckpointExists,
    CheckpointNotFound,
    IntegrityError,
    InvalidFilter,
    NotResumable,
    PackMissing,
    StateNotSerializable,
)
from holdfast.ids import check_name, check_uuid, label_for, new_id
from holdfast.leases import Hold
from holdfast.locks import RLock
from holdfast.model import (
    CHECKPOINT_TYPES,
    TYPE_OF_CLASS,
    CheckpointQuery,
    CheckpointRecord,
    NewCheckpoint,
    PutResult,
    RetentionClass,
    SessionRecord,
    utc_now,
)
from holdfast.preflight import MemoryRefReport, check_memory_refs
from holdfast.recording import Recorder
from holdfast.redaction import Placeholder
from holdfast.sessions.checkpoint import Checkpoint, Content
from holdfast.sessions.files import Captured, context_of_files
from holdfast.sessions.held import HeldSession, Surroundings
from holdfast.sessions.lookup import get_checkpoint_record
from holdfast.sessions.tasks import CARRIED, all_tasks, carried_tasks, completed_tasks
from holdfast.state.codec import dump_document
from holdfast.state.documented import tasks_in, validate_documented
from holdfast.state.tags import normalise
from holdfast.stores.base import Store, first
from holdfast.workspace.base import Progress

_CLASS_OF_TYPE: Final[Mapping[str, RetentionClass]] = {
    "manual": "manual",
    "auto": "automatic",
    "failure": "failure",
}


class SavingSession(HeldSession):
    """A session that remembers what it saved last, so that the next save pays for the difference."""

    def __init__(
        self,
        store: Store,
        record: SessionRecord,
        around: Surroundings,
        hold: Hold | None = None,
    ) -> None:
        super().__init__(store, record, around, hold)
        self._lock = RLock()
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
        # Paths that the agent told of since the last save, whether it tells at all, and warnings given
        # already.
        self._wrote: set[str] = set()
        self._tells = False
        self._warned: set[str] = set()
        # What the last checkpoint says of the files, and their snapshot.
        self._files_context: dict[str, Any] = {}
        self._files_commit: str | None = None

    # Saving ------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        name: str | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        description: str | None = None,
        checkpoint_type: str | None = None,
        retention_class: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        resumable: bool = True,
        pinned: bool = False,
        expires_in: timedelta | None = None,
        checkpoint_id: str | None = None,
        workspace: bool = True,
        paths: Sequence[str | PathLike[str]] | None = None,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Save a checkpoint. When this returns, a power cut cannot take it back.

        Without a ``name`` one is made from the id; a name that exists raises `CheckpointExists`
        unless ``overwrite`` is set. ``retention_class`` decides how long it is kept and implies
        the ``checkpoint_type``; giving only the type picks the usual class. A retry with the same
        ``checkpoint_id``, name and state is safe: it stores nothing twice. A completed session
        takes no more checkpoints: fork it. Raises `LeaseLost`, and stores nothing, when another
        worker has taken the session over.

        The project's files are captured along with the state, unless ``workspace`` is false. With
        ``paths`` only those are looked at: for a caller that knows what it wrote. ``progress`` is
        called with how many files of how many are read, when a capture has many to read.
        """
        self._check_open()
        self._fence()
        kept_as = _retention_class(checkpoint_type, retention_class)
        if name is not None:
            check_name(name)
        document = _document(state)
        validate_documented(document)
        with ExitStack() as stack:
            captured = Captured()
            if self._around.files is not None and workspace:
                captured = stack.enter_context(
                    self._around.files.captured(
                        paths,
                        told=sorted(self._wrote) if self._tells else None,
                        progress=progress,
                    )
                )
            saved = self._save(
                state=document,
                captured=captured,
                name=name,
                description=description,
                retention_class=kept_as,
                metadata=metadata,
                overwrite=overwrite,
                resumable=resumable,
                pinned=pinned,
                expires_in=expires_in,
                checkpoint_id=checkpoint_id,
            )
        if captured.problem is not None:
            self._warn_once(f"files are not captured: {captured.problem}")
        return saved

    def _save(
        self,
        *,
        state: dict[str, Any],
        captured: Captured,
        name: str | None = None,
        description: str | None = None,
        retention_class: RetentionClass = "manual",
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        resumable: bool = True,
        pinned: bool = False,
        expires_in: timedelta | None = None,
        checkpoint_id: str | None = None,
    ) -> Checkpoint:
        """Store a checkpoint whose files are captured already."""
        identity = check_uuid(checkpoint_id, "checkpoint id") if checkpoint_id else new_id()
        title = name if name is not None else f"{retention_class}-{identity}"
        fence = self._fence()
        now = utc_now()
        git = captured.git
        redaction = self._around.redaction
        with self._lock:
            self._pick_up()
            carried = carried_tasks(self._completed, state)
            about_files = captured.context()
            context = {**({CARRIED: carried} if carried else {}), **about_files}
            for attempt in self._recorder.attempts(state, context or None):
                with attempt as encoded:
                    result = self._put(
                        NewCheckpoint(
                            id=identity,
                            session_id=self.id,
                            name=title,
                            manifest=encoded.manifest,
                            refs=encoded.refs,
                            chunks=encoded.chunks,
                            expects=encoded.expects,
                            size_bytes=encoded.size_bytes,
                            checkpoint_type=TYPE_OF_CLASS[retention_class],
                            retention_class=retention_class,
                            parent_id=self._head,
                            label=label_for(now) if retention_class != "step" else None,
                            description=description and redaction.text(description),
                            git_branch=git.branch if git else None,
                            git_commit=git.commit if git else None,
                            git_uncommitted=git.uncommitted if git else False,
                            workspace_commit=captured.commit,
                            pack_required=captured.packed,
                            resumable=resumable,
                            pinned=pinned,
                            expires_at=_expiry(now, expires_in),
                            metadata=redaction.document(metadata),
                            replace=overwrite,
                            fence=fence,
                            trim=self._around.policy.trim_for(retention_class),
                        ),
                        captured,
                    )
                    if not result.created:
                        self._check_retry(result.record, title, state)
            self._completed = completed_tasks([*carried, *tasks_in(state)])
            self._head = result.record.id
            if not resumable or expires_in is not None:
                # Nobody can count on this one: the same state, saved by itself, is worth a save.
                self._recorder.forget()
            self._wrote.difference_update(captured.told or ())
            # What is stored counts: a repeated save changes nothing, whatever the files are now.
            self._files_context = about_files
            self._files_commit = result.record.workspace_commit
        return Checkpoint.of(result.record, self._store)

    def _put(self, draft: NewCheckpoint, captured: Captured) -> PutResult:
        try:
            return self._store.put(draft)
        except PackMissing:
            if captured.snapshot is None or self._around.files is None:
                raise
            # A sweep came between the pack and its checkpoint.
            self._around.files.send(captured.snapshot.commit, captured.snapshot.before)
            return self._store.put(draft)

    def wrote(self, *paths: str | PathLike[str]) -> None:
        """Tell which files this session wrote, so that the next save records it.

        A rollback with ``only_mine`` goes by it. Sessions that never tell are taken to have written
        whatever changed before their saves. Called without paths it says that nothing was written.
        """
        self._tells = True
        if self._around.files is not None:
            relative = self._around.files.workspace.relative
            self._wrote.update(relative(path) for path in paths)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.log("warning", message)

    # Reading -----------------------------------------------------------------------------

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
        """Look at the newest checkpoint, or the newest resumable one."""
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
        """List checkpoints, newest first. No payload is read until a ``state`` is asked for."""
        query = CheckpointQuery(
            self.id,
            namespace="",
            checkpoint_type=checkpoint_type,
            retention_class=retention_class,
            metadata=metadata or {},
            limit=limit,
        )
        return [Checkpoint.of(one, self._store) for one in self._store.list_checkpoints(query)]

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
            if found := self._store.list_checkpoints(query):
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
        it costs what was added, in a process too that has not read the rest. Empty before the first
        save.
        """
        with self._lock:
            latest = self._find_latest()
            if latest is None:
                return {}
            content = latest.content.outline()
            self._completed = completed_tasks(all_tasks(content.state, content.context))
            self._head = latest.id
            self._files_context = context_of_files(content.context)
            self._files_commit = latest.workspace_commit
            self._fresh = False
            return content.state

    def look_at_files(self) -> tuple[bool, frozenset[str]]:
        """Tell whether the project's files are others than the latest checkpoint holds.

        Also return the paths that were found changed since this session's last save here, whoever
        changed them. False and none where files are not captured at all.
        """
        files = self._around.files
        if files is None:
            return False, frozenset()
        latest = self._find_latest()
        differ = files.differ_from(latest.workspace_commit if latest else None)
        return differ, files.seen_changed

    def check_memory_refs(self) -> list[MemoryRefReport]:
        """Tell which memory references of the present state are present, missing or changed."""
        return check_memory_refs(self.state.get("memory_refs", []), self._around.project_dir)

    # Inside ------------------------------------------------------------------------------

    def _find_latest(self, *, resumable: bool | None = None) -> Checkpoint | None:
        query = CheckpointQuery(
            self.id, namespace="", resumable=resumable, quarantined=False, limit=1
        )
        record = first(self._store.list_checkpoints(query))
        return Checkpoint.of(record, self._store) if record is not None else None

    def _differs(self, state: object) -> bool:
        """Tell whether this is another state than the session would go on from."""
        document = _document(state)
        validate_documented(document)
        with self._lock:
            self._pick_up()
            carried = carried_tasks(self._completed, document)
            context = {**({CARRIED: carried} if carried else {}), **self._files_context}
            if not self._recorder.is_current(document, context or None):
                return True
        files = self._around.files
        return files is not None and files.differ_from(self._files_commit)

    def _restore(self, reference: str | None, *, force: bool) -> None:
        if reference is not None:
            self.load_checkpoint(reference, force=force)
            return
        passed_over: set[str] = set()
        while (latest := self._find_latest(resumable=True)) is not None:
            try:
                self._take_up(latest)
            except IntegrityError as error:
                if latest.id in passed_over or error.last_good is None:
                    raise
                passed_over.add(latest.id)
                self._pass_over(latest, error)
                continue
            self.log("info", f"resumed from {latest.name}", data={"checkpoint": latest.id})
            return

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

    def _pick_up(self) -> None:
        """Before the first save of this object: find out what the session's latest save was."""
        latest = self._find_latest() if self._fresh else None
        if self._fresh and latest is None and self._record.continues_id is not None:
            # Its own first save: what was completed before stays completed.
            before = self.lineage()[1:]
            found = (SavingSession(self._store, one, self._around)._find_latest() for one in before)
            with suppress(IntegrityError):
                if (last := next(filter(None, found), None)) is not None:
                    self._completed = completed_tasks(last.task_state["tasks"])
        if latest is not None:
            try:
                self._build_on(latest)
            except IntegrityError as error:
                # What is damaged must not keep the next state from being saved, in full.
                self._head = latest.id
                self.log("warning", f"checkpoint {latest.name} cannot be read: {error}")
        self._fresh = False

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

    def _check_retry(self, stored: CheckpointRecord, name: str, state: dict[str, Any]) -> None:
        """Accept a repeated save and refuse another one under the same id."""
        before = Content(self._store, stored.id).read().state
        state = dict(self._around.redaction.document(state) or {})
        if stored.name != name or dump_document(before, "$") != dump_document(state, "$"):
            raise CheckpointExists(
                f"the id {stored.id} is taken by checkpoint {stored.name!r} with another name or "
                "state. Nothing was stored: use another id"
            )


def _document(state: object) -> dict[str, Any]:
    """Return a state as a dict of its own; a dataclass or pydantic object becomes one too."""
    if state is None:
        return {}
    if isinstance(state, Mapping):
        return dict(state)
    plain = normalise(state)
    if not isinstance(plain, dict):
        raise StateNotSerializable("$", f"a state must be a dict, not {type(state).__name__}")
    return plain


def _expiry(now: datetime, expires_in: timedelta | None) -> datetime | None:
    if expires_in is None:
        return None
    try:
        return now + expires_in
    except (OverflowError, TypeError):
        raise InvalidFilter(
            f"expires_in must be a timedelta within reach: {expires_in!r}"
        ) from None


def _retention_class(checkpoint_type: str | None, retention_class: str | None) -> RetentionClass:
    """Return the class that a save belongs to, from either of its two names."""
    if checkpoint_type is not None and checkpoint_type not in CHECKPOINT_TYPES:
        raise InvalidFilter(
            f"checkpoint_type must be one of {', '.join(CHECKPOINT_TYPES)}, not {checkpoint_type!r}"
        )
    if retention_class is None:
        return _CLASS_OF_TYPE[checkpoint_type or "manual"]
    if retention_class not in tuple(TYPE_OF_CLASS):
        raise InvalidFilter(
            f"retention_class must be one of {', '.join(TYPE_OF_CLASS)}, not {retention_class!r}"
        )
    kept_as = cast("RetentionClass", retention_class)
    if checkpoint_type not in (None, TYPE_OF_CLASS[kept_as]):
        raise InvalidFilter(
            f"class {kept_as!r} belongs to type {TYPE_OF_CLASS[kept_as]!r}, not {checkpoint_type!r}"
        )
    return kept_as
