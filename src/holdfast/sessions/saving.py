"""Saving the checkpoints of a session, each at the cost of what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Final, cast

from holdfast.errors import (
    CheckpointExists,
    ForeignSession,
    IntegrityError,
    InvalidFilter,
    PackMissing,
    StateNotSerializable,
)
from holdfast.ids import check_name, check_uuid, is_shaped_thread, label_for, new_id
from holdfast.leases import Hold
from holdfast.model import (
    CHECKPOINT_TYPES,
    TYPE_OF_CLASS,
    CheckpointRecord,
    NewCheckpoint,
    PutResult,
    RetentionClass,
    SessionRecord,
    utc_now,
)
from holdfast.sessions.checkpoint import Checkpoint, Content
from holdfast.sessions.files import Captured
from holdfast.sessions.held import Surroundings
from holdfast.sessions.reading import ReadingSession
from holdfast.sessions.tasks import CARRIED, carried_tasks, completed_tasks
from holdfast.state.codec import dump_document
from holdfast.state.documented import tasks_in, validate_documented
from holdfast.state.stored import read_stored_lists
from holdfast.state.tags import normalise
from holdfast.stores.base import Store
from holdfast.workspace.base import Progress

_CLASS_OF_TYPE: Final[Mapping[str, RetentionClass]] = {
    "manual": "manual",
    "auto": "automatic",
    "failure": "failure",
}


class SavingSession(ReadingSession):
    """A session that remembers what it saved last, so that the next save pays for the difference."""

    def __init__(
        self,
        store: Store,
        record: SessionRecord,
        around: Surroundings,
        hold: Hold | None = None,
    ) -> None:
        super().__init__(store, record, around, hold)
        # Paths that the agent told of since the last save, whether it tells at all, and warnings given
        # already.
        self._wrote: set[str] = set()
        self._tells = False
        self._warned: set[str] = set()

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
        self._refuse_shaped_thread()
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

    def _refuse_shaped_thread(self) -> None:
        """Refuse to store a checkpoint that whoever the thread belongs to could not go on from."""
        if is_shaped_thread(self.agent_id, self.agent_type):
            raise ForeignSession(
                f"session {self.id} is a thread of a {self.agent_type}, which could not go on from what is "
                f"stored from here. Nothing was changed; name another session"
            )

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
                    record = result.record
                    if not result.created:
                        self._check_retry(record, title, state)
            self._completed = completed_tasks([*carried, *tasks_in(state)])
            self._head = record.id
            if not resumable or expires_in is not None:
                # Nobody can count on this one: the same state, saved by itself, is worth a save.
                self._recorder.forget()
            self._wrote.difference_update(captured.told or ())
            # What is stored counts: a repeated save changes nothing, whatever the files are now.
            self._files_context = about_files
            self._files_commit = record.workspace_commit
        return Checkpoint.of(record, self._store)

    def _put(self, draft: NewCheckpoint, captured: Captured) -> PutResult:
        self._work_on()
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

    # Inside ------------------------------------------------------------------------------

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

    def _check_retry(self, stored: CheckpointRecord, name: str, state: dict[str, Any]) -> None:
        """Accept a repeated save and refuse another one under the same id."""
        before = Content(self._store, stored.id).read().state
        state = dict(self._around.redaction.document(read_stored_lists(state)) or {})
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
        expiry = now + expires_in
    except (OverflowError, TypeError):
        expiry = now
    # What is gone at once would be acknowledged, and nobody could go on from it.
    if expiry <= now:
        raise InvalidFilter(f"expires_in must be a timedelta above 0 within reach: {expires_in!r}")
    return expiry


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
