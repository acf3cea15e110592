"""One session: save, load, list, log, fork, finish."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, cast, overload

from holdfast.autosave import INTERVAL, Autosave, Clock
from holdfast.brief import MAX_TOKENS, Brief
from holdfast.effects import Call, Declaration, Effect, Ledger, Verdict, error_document
from holdfast.errors import (
    CheckpointExists,
    CheckpointNotFound,
    CheckpointProtected,
    HoldfastError,
    IllegalTransition,
    IntegrityError,
    InvalidFilter,
    NotResumable,
    PackMissing,
    SessionNotFound,
    SessionNotHeld,
    SessionPaused,
    StateNotSerializable,
)
from holdfast.ids import check_name, check_session_id, check_uuid, label_for, new_id
from holdfast.leases import Hold, Leases
from holdfast.locks import RLock
from holdfast.model import (
    CHECKPOINT_TYPES,
    LOG_LEVELS,
    SESSION_TRANSITIONS,
    TYPE_OF_CLASS,
    CheckpointQuery,
    CheckpointRecord,
    LogRecord,
    NewCheckpoint,
    NewSession,
    PutResult,
    RetentionClass,
    SessionRecord,
    SessionStatus,
    utc_now,
)
from holdfast.preflight import MemoryRefReport, Preflight, check_memory_refs
from holdfast.processes import owner_name
from holdfast.recording import Recorder
from holdfast.retention import Policy
from holdfast.sessions.autosaved import AutosavedSession
from holdfast.sessions.briefing import DECISION, brief_of, note_data, preflight_of
from holdfast.sessions.checkpoint import Checkpoint, Content
from holdfast.sessions.files import Captured, ProjectFiles, context_of_files
from holdfast.sessions.lookup import get_checkpoint_record
from holdfast.sessions.rollback import Request, RollbackReport, Rollbacks
from holdfast.sessions.tasks import CARRIED, carried_tasks, completed_tasks
from holdfast.state.codec import dump_document
from holdfast.state.documented import tasks_in, validate_documented
from holdfast.state.tags import normalise
from holdfast.stores.base import Store, first
from holdfast.stores.checks import as_utc
from holdfast.workspace.base import Progress

P = ParamSpec("P")
R = TypeVar("R")

_CLASS_OF_TYPE: Final[Mapping[str, RetentionClass]] = {
    "manual": "manual",
    "auto": "automatic",
    "failure": "failure",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a session needs besides its store: rules, leases, and the project it works in, if any."""

    policy: Policy
    project_dir: Path
    files: ProjectFiles | None
    leases: Leases

    @property
    def place(self) -> str:
        """The project's directory, as sessions say where they were created."""
        # A name need not be valid text, and only text can be stored.
        return os.fsencode(self.project_dir.resolve()).decode("utf-8", "backslashreplace")


class Session:
    """One line of work of one agent. Get one from a `SessionManager`.

    A session object may be used from several threads; each call is atomic on its own. One that was
    created or resumed holds the session's lease until it is closed, at the latest when its manager
    is closed or the program ends; with ``with`` at the end of the block. One that was only looked up
    holds none, and every call that would write raises `SessionNotHeld`.
    """

    def __init__(
        self,
        store: Store,
        record: SessionRecord,
        around: Surroundings,
        hold: Hold | None = None,
    ) -> None:
        self._store = store
        self._around = around
        self._record = record
        self._hold = hold
        if hold is not None:
            # An object that nobody can reach any more cannot write, and must not keep others waiting.
            weakref.finalize(self, hold.abandon).atexit = False
        self._recorder = Recorder()
        self._fence = functools.partial(_fence, hold, record.id)
        self._ledger = Ledger(store, record.id, self._fence)
        self._paused_for: timedelta | None = None
        self._lock = RLock()
        # The checkpoint that the next save builds on, and the tasks completed up to it.
        self._head: str | None = None
        self._completed: list[dict[str, Any]] = []
        self._fresh = True
        self._savers: weakref.WeakSet[Autosave[Checkpoint]] = weakref.WeakSet()
        # Paths that the agent told of since the last save, and warnings given already.
        self._wrote: set[str] = set()
        # What the last checkpoint says of the files, and their snapshot.
        self._files_context: dict[str, Any] = {}
        self._files_commit: str | None = None
        self._warned: set[str] = set()

    # What it is ------------------------------------------------------------------------------

    @property
    def record(self) -> SessionRecord:
        """The session's row as this object last saw it; `refresh` reads it again."""
        return self._record

    @property
    def id(self) -> str:
        """The session's id, also called its thread id."""
        return self._record.id

    @property
    def agent_id(self) -> str:
        """The agent that works here."""
        return self._record.agent_id

    @property
    def agent_type(self) -> str:
        """What kind of agent works here."""
        return self._record.agent_type

    @property
    def task_description(self) -> str | None:
        """What the work is about."""
        return self._record.task_description

    @property
    def status(self) -> SessionStatus:
        """Where the session stands: active, paused, interrupted, completed, failed or stopped."""
        return self._record.status

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The session's own metadata."""
        return self._record.metadata or {}

    @property
    def created_at(self) -> datetime:
        """When the session was created."""
        return self._record.created_at

    @property
    def is_held(self) -> bool:
        """Whether this object holds the session's lease, as far as this process knows."""
        return self._hold is not None and self._hold.is_held

    @property
    def paused_for(self) -> timedelta | None:
        """How long the session was paused before it was resumed here; None if it was not."""
        return self._paused_for

    def close(self, *, release: bool | None = None) -> None:
        """Give the session's lease back; nothing can be written through this object any more.

        Others can resume the session at once. Closing twice is fine. The lease of an owner
        ``agent:…`` is given back only with ``release=True``, since other processes may share it.
        """
        if self._hold is not None:
            self._hold.release(whole=release)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A lease that cannot be given back expires; what went wrong in the block matters more.
        with suppress(HoldfastError):
            self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.agent_type} {self.status}>"

    def refresh(self) -> Session:
        """Read the session's row again."""
        record = self._store.find_session(self.id)
        if record is None:
            raise SessionNotFound(f"session {self.id} was erased")
        self._record = record
        return self

    # Saving ----------------------------------------------------------------------------------

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
                    self._around.files.captured(paths, told=sorted(self._wrote), progress=progress)
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
                            description=description,
                            git_branch=git.branch if git else None,
                            git_commit=git.commit if git else None,
                            git_uncommitted=git.uncommitted if git else False,
                            workspace_commit=captured.commit,
                            pack_required=captured.packed,
                            resumable=resumable,
                            pinned=pinned,
                            expires_at=_expiry(now, expires_in),
                            metadata=metadata,
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
            self._wrote.difference_update(captured.told)
            self._files_context, self._files_commit = about_files, captured.commit
        return Checkpoint.of(result.record, self._store)

    def _put(self, draft: NewCheckpoint, captured: Captured) -> PutResult:
        try:
            return self._store.put(draft)
        except PackMissing:
            if captured.snapshot is None or self._around.files is None:
                raise
            # A sweep came between the pack and its checkpoint.
            self._around.files.send(captured.snapshot)
            return self._store.put(draft)

    def wrote(self, *paths: str | PathLike[str]) -> None:
        """Tell which files this session wrote, so that the next save records it.

        A rollback with ``only_mine`` goes by it. Sessions that never tell are taken to have written
        whatever changed before their saves.
        """
        if self._around.files is not None:
            relative = self._around.files.workspace.relative
            self._wrote.update(relative(path) for path in paths)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.log("warning", message)

    def record_failure(
        self, error: BaseException, *, state: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        """Save a ``failure`` checkpoint with what went wrong; without ``state``, with the latest."""
        if state is None:
            state = self._present_state()
        details = error_document(error)
        saved = self.save_checkpoint(
            state=state, retention_class="failure", metadata={"error": details}
        )
        self.log("error", f"{details['type']}: {details['message']}", data={"checkpoint": saved.id})
        return saved

    @contextmanager
    def guard(
        self, name: str, *, state: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None
    ) -> Iterator[Checkpoint]:
        """Save an automatic checkpoint, then run the block.

        If the block raises, a ``failure`` checkpoint keeps the error together with the files as they
        were then; files and state go back to what they were before the block, and the exception goes
        on. Both can be looked at later, and the rollback can be undone.
        """
        check_name(name)
        before = state() if callable(state) else state
        if before is None:
            before = self._present_state()
        saved = self.save_checkpoint(
            state=before, retention_class="automatic", metadata={"guard": name}
        )
        # Read now and kept aside: the block may change its state, and further guards within it may
        # trim this checkpoint.
        kept = Content(self._store, saved.id).read().state
        try:
            yield saved
        except GeneratorExit:
            # Nobody left the block: the context manager itself was thrown away.
            raise
        except BaseException as error:
            self._fall_back(saved, kept, error)
            raise

    def _fall_back(self, saved: Checkpoint, state: dict[str, Any], error: BaseException) -> None:
        """Record a failure and return to the checkpoint from before it; say so if that fails too."""
        try:
            self.record_failure(error, state=state)
            with self._lock:
                if first(self._store.list_checkpoints(CheckpointQuery(id=saved.id))) is None:
                    saved = self._save(state=state, captured=Captured.again(saved.record))
            self._rollbacks.roll_back(saved.record, Request())
        except HoldfastError as second:
            error.add_note(f"it could not be rolled back: {second}")

    def autosave(
        self,
        provider: Callable[[], Any],
        *,
        interval: float | None = INTERVAL,
        critical: Collection[str] = (),
        timeout: float = 10.0,
        child_grace: float = 5.0,
        signals: bool = True,
        clock: Clock | None = None,
    ) -> Autosave[Checkpoint]:
        """Save by itself within a block: automatic checkpoints of what ``provider`` returns.

        Every ``interval`` seconds if anything changed (0 or None turns the timer off); at once on
        ``saver.notify("task_completed")``, ``"agent_spawned"``, the lifecycle events and those named
        in ``critical``; and when the block is left, normally, by an exception, or because of SIGINT,
        SIGTERM or SIGHUP (``signals=False`` leaves those alone). A failure to save does not disturb
        the block; it is logged, written to stderr, ``saver.last_error``, and made up for as soon as
        possible.

        ``provider`` is called in another thread, so it should return a copy, or something that is not
        changed any more. Nobody waits for a save longer than ``timeout`` seconds. Registered children
        have ``child_grace`` seconds to end.
        """
        saver = Autosave(
            AutosavedSession(self, self._store, self._around.project_dir),
            provider,
            interval=interval,
            critical=critical,
            timeout=timeout,
            child_grace=child_grace,
            signals=signals,
            clock=clock,
        )
        self._savers.add(saver)
        return saver

    # Effects ---------------------------------------------------------------------------------

    def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        key: str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
        **kwargs: Any,
    ) -> R:
        """Call ``function`` with the arguments and record it, so that it runs once, over crashes too.

        A step that an earlier run has finished returns what it returned then. Which one that is
        follows from name and arguments, or from ``key``, which names one effect of this session:
        with other arguments it raises `EffectMismatch`. A step that began and whose end nobody
        recorded, or that failed, follows its ``policy``: ``"fail"`` raises `EffectUnknown` or
        `EffectFailed`, ``"retry"`` runs it again, ``"ask"`` does what ``reconcile(effect)`` answers:
        ``effect.happened(result)``, ``effect.did_not_happen()``, or None for neither.

        A function with a parameter ``idempotency_key`` is handed one that is the same in every
        attempt. A step declared ``idempotent`` may run twice without harm: only its end is recorded.
        """
        call = Call(name, function, args, kwargs, key, policy, reconcile, idempotent)
        return cast("R", self.open_ledger().run(call))

    @overload
    def effect(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def effect(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def effect(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        key: Callable[..., str] | str | None = None,
        policy: str = "fail",
        reconcile: Callable[[Effect], Verdict | None] | None = None,
        idempotent: bool = False,
    ) -> Callable[..., Any]:
        """Make every call of a function a `step`, called like the function; also with options.

        ``key`` may be a function of the same arguments: ``@session.effect(key=lambda order: order.id)``.
        """

        declared = Declaration(name, key, policy, reconcile, idempotent)

        def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(body)
            def recorded(*args: Any, **kwargs: Any) -> Any:
                return self.open_ledger().run(declared.call(body, args, kwargs))

            return recorded

        return decorate if function is None else decorate(function)

    def effects(self, *, status: str | None = None, limit: int | None = None) -> list[Effect]:
        """List the recorded effects of the session, in the order of their last start."""
        return self._ledger.effects(status=status, limit=limit)

    # Reading ---------------------------------------------------------------------------------

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
        return loaded

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

        A session that has none yet goes on from the latest of the session that it continues.
        """
        if self._head is not None and (loaded := self._store.load(self._head)) is not None:
            return loaded[1].state
        for record in self.lineage():
            query = CheckpointQuery(record.id, namespace="", resumable=True, limit=1)
            if found := self._store.list_checkpoints(query):
                return Checkpoint.of(found[0], self._store).state
        return self.latest_checkpoint(resumable=True).state

    def check_memory_refs(self) -> list[MemoryRefReport]:
        """Tell which memory references of the present state are present, missing or changed."""
        return check_memory_refs(self.state.get("memory_refs", []), self._around.project_dir)

    def brief(
        self,
        *,
        max_tokens: int = MAX_TOKENS,
        tools: Collection[Any] | Mapping[str, Any] | None = None,
        files: bool = False,
    ) -> Brief:
        """Return what to know before going on; ``.text`` has at most about ``max_tokens``.

        Task, progress, decisions, open files, memory references, last errors, the sessions before
        this one, and what is no longer as the checkpoint says. HEAD is compared always, the project's
        files with ``files`` only, since that reads the project.
        """
        return brief_of(
            self._store,
            self._record,
            self._around,
            head=self._head,
            max_tokens=max_tokens,
            tools=tools,
            files=files,
        )

    def preflight(
        self,
        *,
        tools: Collection[Any] | Mapping[str, Any] | None = None,
        files: bool = True,
    ) -> Preflight:
        """Compare the checkpoint to go on from with what is there now, and change nothing.

        The ``verdict`` is clean, drifted or unsafe; ``reasons`` have stable codes. ``tools`` are the
        names of those available, or their versions by name; the state's ``execution_context`` says
        which it needs.
        """
        return preflight_of(
            self._store, self._record, self._around, head=self._head, tools=tools, files=files
        )

    # Going back ------------------------------------------------------------------------------

    def rollback(
        self,
        reference: str,
        *,
        paths: Sequence[str] | None = None,
        dry_run: bool = False,
        move_head: bool = False,
        only_mine: bool = False,
        state: bool | None = None,
        files: bool = True,
    ) -> RollbackReport:
        """Put state and files back to a checkpoint; `undo` takes that back.

        A safety checkpoint is stored first. With ``paths`` (files or directories) only those come
        back, and the state stays unless ``state=True``. ``only_mine`` leaves alone what other
        sessions or people wrote. HEAD, branch and index of the user's repository stay where they are
        unless ``move_head`` is set. With ``dry_run`` nothing changes; the report says what would. A
        checkpoint that cannot be restored exactly is refused, and the nearest good one is named.
        """
        self._may_change(dry_run=dry_run)
        record = get_checkpoint_record(self._store, self.id, reference)
        request = Request(
            state=paths is None if state is None else state,
            files=files,
            paths=paths,
            only_mine=only_mine,
            move_head=move_head,
            dry_run=dry_run,
        )
        return self._logged(self._rollbacks.roll_back(record, request), "rolled back to")

    def undo(self, *, dry_run: bool = False) -> RollbackReport:
        """Take back the last rollback. Raises `NothingToUndo` when there is none."""
        self._may_change(dry_run=dry_run)
        return self._logged(self._rollbacks.undo(dry_run=dry_run), "undid a rollback:")

    def redo(self, *, dry_run: bool = False) -> RollbackReport:
        """Take back the last undo. Raises `NothingToUndo` when there is none."""
        self._may_change(dry_run=dry_run)
        return self._logged(self._rollbacks.redo(dry_run=dry_run), "redid a rollback:")

    def _may_change(self, *, dry_run: bool) -> None:
        """Refuse to touch files for whoever does not hold the session; all may ask what would be."""
        if not dry_run:
            self._fence()

    @property
    def _rollbacks(self) -> Rollbacks:
        # Made when it is needed: kept, it and the session would keep each other alive.
        return Rollbacks(
            self._store,
            self._around.files,
            self.id,
            save=self._save,
            take_up=self._take_up,
            present=self._present_state,
            unsaved=lambda: self._wrote,
            fence=self._fence,
        )

    def _logged(self, report: RollbackReport, what: str) -> RollbackReport:
        if not report.dry_run:
            name = report.checkpoint.name
            self.log("info", f"{what} {name}", data={"checkpoint": report.checkpoint.id})
        return report

    def _present_state(self) -> dict[str, Any]:
        """Return the state last saved or loaded, an empty one before the first save."""
        try:
            return self.get_state()
        except CheckpointNotFound:
            return {}

    # Changing --------------------------------------------------------------------------------

    def delete_checkpoint(self, reference: str, *, force: bool = False) -> None:
        """Remove a checkpoint. Pinned and feature checkpoints need ``force``."""
        record = get_checkpoint_record(self._store, self.id, reference)
        if (record.pinned or record.retention_class == "feature") and not force:
            why = "pinned" if record.pinned else "permanent (class feature)"
            raise CheckpointProtected(
                f"checkpoint {record.name!r} is {why}; nothing was removed. Use force to delete it"
            )
        self._store.delete_checkpoints([record.id], fence=self._fence())

    def fork(
        self,
        reference: str | None = None,
        *,
        session_id: str | None = None,
        task_description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Start a second line of work from a checkpoint (the latest resumable one by default).

        The new session is held by this process; whoever holds this one is not disturbed.
        """
        source = (
            get_checkpoint_record(self._store, self.id, reference)
            if reference is not None
            else self.latest_checkpoint(resumable=True)
        )
        draft = NewSession(
            id=check_session_id(session_id) if session_id is not None else new_id(),
            agent_id=self.agent_id,
            agent_type=self.agent_type,
            task_description=task_description or self.task_description,
            forked_from=source.id,
            project_dir=self._around.place,
            metadata=metadata,
            lease_owner=self._around.leases.owner,
            lease_ttl=self._around.leases.ttl,
        )
        record = self._store.copy_session(self.id, draft, checkpoint_ids=[source.id])
        hold = self._around.leases.adopt(record)
        return Session(self._store, record, self._around, hold)

    def pause(
        self,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Save a checkpoint, mark the session as paused and give it back; work stops here.

        ``state`` is by default what was last saved or loaded; within an `autosave`, what is unsaved is
        saved first. ``reason`` and ``until`` are for whoever
        looks: a session that is paused until later is not picked by `SessionManager.resume_session`
        unless it is named. From now on this object raises `SessionPaused`; resuming the session, in
        whatever process, goes on from the checkpoint and tells how long it was paused.
        """
        if until is not None:
            as_utc(until, "until")
        if state is None:
            self._flush()
        saved = self.save_checkpoint(
            state=self._present_state() if state is None else state,
            retention_class="session",
            metadata={"paused": reason},
        )
        self._move_to("paused", pause_reason=reason, paused_until=until)
        self.log("info", f"paused: {reason}" if reason else "paused", data={"checkpoint": saved.id})
        self.close(release=True)
        return saved

    def lineage(self) -> list[SessionRecord]:
        """Return this session and those that it continues, one after the other, this one first."""
        found = [self._record]
        seen = {self.id}
        while (before := found[-1].continues_id) is not None and before not in seen:
            record = self._store.find_session(before)
            if record is None:
                break
            seen.add(before)
            found.append(record)
        return found

    def complete(self) -> None:
        """Mark the work as done. A completed session is final; fork it to go on.

        Within an `autosave`, what is unsaved is saved first.
        """
        self._flush()
        self._move_to("completed")

    def fail(self, error: BaseException | str | None = None) -> None:
        """Mark the work as failed; it can be resumed later."""
        self._move_to("failed")
        if error is not None:
            self.log("error", str(error) or type(error).__name__)

    def update_metadata(self, changes: Mapping[str, Any]) -> None:
        """Merge ``changes`` into the session's metadata."""
        self._record = self._store.update_session(
            self.id, merge_metadata=changes, fence=self._fence()
        )

    # Logs ------------------------------------------------------------------------------------

    def log(self, level: str, message: str, *, data: Mapping[str, Any] | None = None) -> LogRecord:
        """Append a line to the session's log; levels are debug, info, warning and error."""
        if level not in LOG_LEVELS:
            raise InvalidFilter(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
        return self._store.append_log(self.id, level, message, data)

    def decision(
        self, text: str, *, rationale: str | None = None, alternatives: Sequence[str] = ()
    ) -> LogRecord:
        """Record a decision, so that whoever comes next knows of it, and why.

        It is durable at once and independent of checkpoints: a rollback does not take it back. Briefs
        of this session and of those that continue it list it, and so does the handoff.
        """
        data = note_data(DECISION, text, rationale, alternatives)
        return self.log("info", f"decision: {text}", data=data)

    def logs(
        self, *, level: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[LogRecord]:
        """Return log lines in the order of the calls."""
        return self._store.list_logs(self.id, level=level, limit=limit, offset=offset)

    # Inside ----------------------------------------------------------------------------------

    def resume_from(self, reference: str | None, *, force: bool = False) -> None:
        """Take up the named or the latest resumable checkpoint; none at all is a fresh start.

        The session becomes active. Its lease is held already.
        """
        if self._hold is not None and (before := self._hold.taken_from) is not None:
            self.log("warning", f"taken over from {owner_name(before.owner)}")
        self._rollbacks.settle()
        paused_at = self._record.paused_at
        self._restore(reference, force=force)
        allowed = [old for old, new in SESSION_TRANSITIONS.items() if "active" in new]
        resumed_at = utc_now()
        self._record = self._store.update_session(
            self.id,
            status="active",
            expected=[*allowed, "active"],
            resumed_at=resumed_at,
            fence=self._fence(),
        )
        if paused_at is not None:
            self._paused_for = max(resumed_at - paused_at, timedelta(0))

    def _restore(self, reference: str | None, *, force: bool) -> None:
        if reference is not None:
            self.load_checkpoint(reference, force=force)
            return
        latest = self._find_latest(resumable=True)
        if latest is not None:
            self._take_up(latest)
            self.log("info", f"resumed from {latest.name}", data={"checkpoint": latest.id})

    def open_ledger(self) -> Ledger:
        """Return what runs and records the steps of this session; a completed one takes none."""
        self._check_open()
        return self._ledger

    def _flush(self) -> None:
        for saver in list(self._savers):
            if saver.is_running:
                saver.flush()

    def _check_open(self) -> None:
        if self.status == "paused" and self._hold is not None and self._hold.released:
            raise SessionPaused(
                f"session {self.id} is paused. Nothing was written: resume it to go on"
            )
        if self.status == "completed":
            raise IllegalTransition(f"session {self.id} is completed; fork it to go on")

    def _find_latest(self, *, resumable: bool | None = None) -> Checkpoint | None:
        query = CheckpointQuery(self.id, namespace="", resumable=resumable, limit=1)
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
            found = (Session(self._store, one, self._around)._find_latest() for one in before)
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
        if stored.name != name or dump_document(before, "$") != dump_document(state, "$"):
            raise CheckpointExists(
                f"the id {stored.id} is taken by checkpoint {stored.name!r} with another name or "
                "state. Nothing was stored: use another id"
            )

    def _move_to(
        self,
        status: SessionStatus,
        *,
        pause_reason: str | None = None,
        paused_until: datetime | None = None,
    ) -> None:
        allowed = [old for old, new in SESSION_TRANSITIONS.items() if status in new]
        self._record = self._store.update_session(
            self.id,
            status=status,
            expected=allowed,
            pause_reason=pause_reason,
            paused_until=paused_until,
            fence=self._fence(),
        )


def _fence(hold: Hold | None, session_id: str) -> int:
    """Return the token that a write carries."""
    if hold is None:
        raise SessionNotHeld(
            f"session {session_id} was opened to look at it. Nothing was written: "
            f"manager.resume_session(…) goes on with it"
        )
    return hold.fence


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
