"""One session: everything that can be done with it, over what `stepping`, `saving`, `reading` and `held` know."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.autosave import INTERVAL, Autosave, Clock
from holdfast.brief import Brief
from holdfast.effects import error_document, error_message
from holdfast.errors import (
    AlreadyResumed,
    CheckpointProtected,
    HoldfastError,
    IntegrityError,
    InvalidFilter,
    SessionNotFound,
    SessionNotHeld,
)
from holdfast.ids import check_name, check_session_id, new_id
from holdfast.leases import Hold
from holdfast.model import (
    BRIEF_TOKENS,
    SESSION_TRANSITIONS,
    CheckpointQuery,
    NewSession,
    SessionRecord,
    utc_now,
)
from holdfast.preflight import Preflight
from holdfast.processes import owner_name
from holdfast.sessions.autosaved import AutosavedSession
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.files import Captured
from holdfast.sessions.guarded import end_guard, keep_for_guard
from holdfast.sessions.held import Surroundings
from holdfast.sessions.lookup import get_checkpoint_record
from holdfast.sessions.rollback import RollbackReport, Rollbacks, left_alone_notes
from holdfast.sessions.rollback_request import ROLLBACK, Request, landed_on
from holdfast.sessions.stepping import SteppingSession
from holdfast.sessions.upkeep import why_protected
from holdfast.stores.base import Store, first
from holdfast.stores.chain import breaks
from holdfast.stores.checks import as_utc, check_free_text


class Session(SteppingSession):
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
        super().__init__(store, record, around, hold)
        self._savers: weakref.WeakSet[Autosave[Checkpoint]] = weakref.WeakSet()

    # Guarding ----------------------------------------------------------------------------

    def record_failure(
        self, error: BaseException, *, state: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        """Save a ``failure`` checkpoint with what went wrong; without ``state``, with the latest."""
        if not isinstance(error, BaseException):
            raise InvalidFilter(f"the error must be an exception, not {type(error).__name__}")
        if state is None:
            state = self.present_state()
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
            before = self.present_state()
        saved = self.save_checkpoint(
            state=before, retention_class="automatic", metadata={"guard": name}
        )
        kept = self.begin_guard(saved)
        try:
            yield saved
        except GeneratorExit:
            # Nobody left the block: the context manager itself was thrown away.
            raise
        except BaseException as error:
            if self.fall_back(kept, error) is not None:
                self.end_guard(kept)
            raise
        self.end_guard(kept)

    def begin_guard(self, checkpoint: Checkpoint) -> Checkpoint:
        """Keep a checkpoint for `fall_back`, whatever is saved meanwhile, until `end_guard`.

        Returned with its content read: it can be gone back to even when it is deleted.
        """
        kept = Checkpoint.of(checkpoint.record, self._store)
        kept.content.read()
        keep_for_guard(self._store, kept.id, fence=self._fence())
        return kept

    def end_guard(self, checkpoint: Checkpoint) -> None:
        """Let go of what `begin_guard` keeps. A session that somebody else holds by now will do."""
        end_guard(self._store, checkpoint.id)

    def fall_back(
        self, checkpoint: Checkpoint, error: BaseException, *, move_head: bool = False
    ) -> RollbackReport | None:
        """Record a failure and return to a checkpoint from before it, as `guard` does.

        ``checkpoint`` may have been deleted since, if its content was read before. What goes wrong is
        added to the error as a note, and None is returned: the error that came first is not lost.
        Files that could not be put back, or that somebody else changed, are named in notes as well.
        """
        try:
            state = checkpoint.state
            self.record_failure(error, state=state)
            with self._lock:
                if first(self._store.list_checkpoints(CheckpointQuery(id=checkpoint.id))) is None:
                    again = Captured.again(checkpoint.record)
                    checkpoint = self._save(state=state, captured=again)
            report = self._rollbacks.roll_back(checkpoint.record, Request(move_head=move_head))
        except (HoldfastError, OSError) as second:
            error.add_note(f"it could not be rolled back: {second}")
            return None
        for note in (*report.notes, *left_alone_notes(report)):
            error.add_note(note)
        return report

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

    # Going on ----------------------------------------------------------------------------

    def brief(
        self,
        *,
        max_tokens: int = BRIEF_TOKENS,
        tools: Collection[Any] | Mapping[str, Any] | None = None,
        files: bool = False,
    ) -> Brief:
        """Return what to know before going on; ``.text`` has at most about ``max_tokens``.

        Task, progress, decisions, open files, memory references, last errors, the sessions before
        this one, and what is no longer as the checkpoint says. HEAD is compared always, the project's
        files with ``files`` only, since that reads the project.
        """
        from holdfast.sessions.briefing import brief_of

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
        from holdfast.sessions.briefing import preflight_of

        return preflight_of(
            self._store, self._record, self._around, head=self._head, tools=tools, files=files
        )

    # Going back --------------------------------------------------------------------------

    def rollback(
        self,
        reference: str | None = None,
        *,
        paths: Sequence[str] | None = None,
        dry_run: bool = False,
        move_head: bool = False,
        only_mine: bool = False,
        state: bool | None = None,
        files: bool = True,
    ) -> RollbackReport:
        """Put state and files back to a checkpoint; `undo` takes that back.

        Without a ``reference`` to the latest resumable one that neither a rollback nor a failure has
        stored. A safety checkpoint is stored first. With ``paths`` (files or directories) only those come
        back, and the state stays unless ``state=True``. ``only_mine`` leaves alone what other
        sessions or people wrote. HEAD, branch and index of the user's repository stay where they are
        unless ``move_head`` is set. With ``dry_run`` nothing changes; the report says what would. A
        checkpoint that cannot be restored exactly is refused, and the nearest good one is named.
        """
        self._may_change(dry_run=dry_run)
        notes: tuple[str, ...] = ()
        if reference is not None:
            record = get_checkpoint_record(self._store, self.id, reference)
        else:
            record = self._rollbacks.latest_target()
            notes = tuple(one.text for one in self.passed_over())
        request = Request(
            state=paths is None if state is None else state,
            files=files,
            paths=self._relative(paths),
            only_mine=only_mine,
            move_head=move_head,
            dry_run=dry_run,
        )
        report = self._logged(self._rollbacks.roll_back(record, request), "rolled back to")
        return replace(report, notes=(*report.notes, *notes))

    def go_on_from(self, reference: str) -> RollbackReport | None:
        """Make a checkpoint the one to go on from for good, here and for whoever resumes the session later.

        The state goes back to it by a rollback, which `undo` takes back; files stay as they are. None where
        resuming goes on from it anyway.
        """
        record = get_checkpoint_record(self._store, self.id, reference)
        latest = self._find_latest(resumable=True)
        if latest is not None and record.id in (latest.id, landed_on(latest.record)):
            return None
        with self._lock:
            # It goes back from the session's latest state, whichever this object has taken up.
            self._head = None
            self._fresh = True
        return self.rollback(record.id, files=False)

    def _relative(self, paths: Sequence[str] | None) -> list[str] | None:
        """Return paths as snapshots name them, which an undo finds again wherever the project is."""
        if paths is None or self._around.files is None:
            return None
        return self._around.files.workspace.relatives(paths)

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
        self._refuse_shaped_thread()
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
            present=self.present_state,
            unsaved=lambda: self._wrote,
            fence=self._fence,
        )

    def _logged(self, report: RollbackReport, what: str) -> RollbackReport:
        if not report.dry_run:
            checkpoint = report.checkpoint
            data = {"checkpoint": checkpoint.id, ROLLBACK: report.title}
            self.log("info", f"{what} {checkpoint.name}", data=data)
        return report

    # Changing ----------------------------------------------------------------------------

    def delete_checkpoint(self, reference: str, *, force: bool = False) -> None:
        """Remove a checkpoint.

        Pinned and feature checkpoints need ``force``, and so do those that others are computed from. One whose
        row cannot be read is of no use to anybody, and goes when it is named.
        """
        try:
            record = get_checkpoint_record(self._store, self.id, reference)
        except IntegrityError:
            unreadable = list(self.unreadable_checkpoints(reference))
            if len(unreadable) != 1:
                raise
            self._store.delete_checkpoints(unreadable, fence=self._fence())
            return
        why = None if force else why_protected(self._store, record)
        if why is not None:
            raise CheckpointProtected(
                f"checkpoint {record.name!r} is {why}; nothing was removed. Delete it all the same with "
                "force=True (on the command line: --force)"
            )
        self._store.delete_checkpoints([record.id], fence=self._fence())

    def fork(
        self,
        reference: str | None = None,
        *,
        session_id: str | None = None,
        task_description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        with_latest: bool = False,
    ) -> Session:
        """Start a second line of work from a checkpoint (the latest resumable one by default).

        The new session is held by this process; whoever holds this one is not disturbed. Using
        ``with_latest`` it goes on from the latest resumable checkpoint, and has the other one to
        roll back to. A damaged checkpoint is refused with an `IntegrityError` that names the last good one.
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
            task_description=(
                self._around.redaction.text(task_description)
                if task_description
                else self.task_description
            ),
            forked_from=source.id,
            project_dir=self._around.place,
            metadata=self._around.redaction.document(metadata),
            lease_owner=self._around.leases.owner,
            lease_ttl=self._around.leases.ttl,
        )
        copied = {source.id}
        if with_latest:
            copied.add(self.latest_checkpoint(resumable=True).id)
        for one in sorted(copied):
            # Nobody could go on from a copy of what is damaged, and the refusal names the last good one.
            self._store.load(one)
        record = self._store.copy_session(self.id, draft, checkpoint_ids=sorted(copied))
        hold = self._around.leases.adopt(record)
        forked = Session(self._store, record, self._around, hold)
        if reference is None:
            forked._notices += [one.text for one in self.passed_over()]
        return forked

    def pause(
        self,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Save a checkpoint, mark the session as paused and give it back; work stops here.

        ``state`` is by default what was last saved or loaded; within an `autosave`, what is unsaved is
        saved first. ``reason`` and ``until`` are for whoever looks: a session that is paused until
        later is not picked by `SessionManager.resume_session` unless it is named. One that is paused
        already, by a signal within an `autosave` for instance, gets the new ones. From now on this
        object raises `SessionPaused`; resuming the session, in whatever process, goes on from the
        checkpoint and tells how long it was paused.
        """
        if until is not None:
            as_utc(until, "until")
        check_free_text(reason, "pause reason")
        self._check_move_to("paused")
        if state is None:
            self._flush()
        saved = self.save_checkpoint(
            state=self.present_state() if state is None else state,
            retention_class="session",
            metadata={"paused": reason},
        )
        self._move_to("paused", pause_reason=reason, paused_until=until)
        self.log("info", f"paused: {reason}" if reason else "paused", data={"checkpoint": saved.id})
        self.close(release=True)
        return saved

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
            self.log("error", error_message(error) or type(error).__name__)

    # Inside ------------------------------------------------------------------------------

    def resume_from(self, reference: str | None, *, force: bool = False) -> None:
        """Take up the named or the latest resumable checkpoint; none at all is a fresh start.

        Raises `CheckpointQuarantined` where all that there is has failed verification.
        The session becomes active. Its lease is held already.
        """
        if self._hold is not None and (before := self._hold.taken_from) is not None:
            self.log("warning", f"taken over from {owner_name(before.owner)}")
        self.settle()
        paused_at = self._record.paused_at
        self._restore(reference, force=force)
        self._look_at_chain()
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

    def rejoin(self) -> bool:
        """Hold the session again if others had it meanwhile, and go on from what they left.

        For a worker whose owner gives way to commands. Tells whether somebody had it. Raises
        `CheckpointBusy` while that one still has it, and `AlreadyResumed` once somebody has resumed it:
        the work is with that one, then. Who was taken for dead meanwhile is not, so that its session
        is active again.
        """
        hold = self._hold
        if hold is None:
            raise SessionNotHeld(f"session {self.id} was opened to look at it, and never held")
        with self._lock:
            if self._still_ours().lease_token == hold.token:
                return False
            hold.retake()
            try:
                # As it is now that nobody else can change it.
                self._record = self._still_ours()
            except BaseException:
                hold.release(unused=True)
                raise
            self._head = None
            self._fresh = True
            if self.status == "interrupted":
                self._move_to("active")
        return True

    def _still_ours(self) -> SessionRecord:
        """Read the session's row. Raises when another worker goes on with it, or it is another session."""
        record = self._store.find_session(self.id)
        if record is None or record.created_at != self.created_at:
            raise SessionNotFound(f"session {self.id} was erased")
        if record.resumed_at != self._record.resumed_at:
            raise AlreadyResumed(
                f"session {self.id} was resumed by another worker, which goes on with it. Nothing was "
                f"written: what was saved before is intact"
            )
        return record

    def _look_at_chain(self) -> None:
        chain = self._store.read_chain(self.id)
        wrong = [] if chain is None else [reason for _, reason in breaks(chain)]
        if wrong:
            self._notices.append(
                f"the history of session {self.id} is not whole: {wrong[0]}. `holdfast verify "
                f"--deep` tells more"
            )
            self.log("warning", self._notices[-1])

    def settle(self) -> None:
        """Store what a rollback of this session that was killed had still to store."""
        self._rollbacks.settle()

    def _flush(self) -> None:
        for saver in list(self._savers):
            if saver.is_running:
                saver.flush()
