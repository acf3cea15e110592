"""`SyncCheckpointManager`: save points of one project, thin over one session.

All that is stored is stored by `Session`; a rollback is `Session.rollback` with HEAD and branch moved too.
What is added here: the document that readers of ``.claude/checkpoints`` know, feature lists, and names
that need not be unique. Every call takes the session for itself and gives it back, so that scripts, agents
and the command line can share one project.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from holdfast.closing import Closing
from holdfast.config import (
    AGENTS_DIR,
    DATABASE,
    Config,
    ManagerSettings,
    check_project_path,
    load_config,
)
from holdfast.effects import error_document
from holdfast.errors import (
    AmbiguousReference,
    CheckpointBusy,
    CheckpointNotFound,
    HoldfastError,
    InvalidIdentifier,
    SchemaMissing,
    SessionExists,
    SessionNotFound,
    SnapshotNotFound,
    StoreClosed,
    StoreUnavailable,
)
from holdfast.ids import check_name
from holdfast.locks import new_lock
from holdfast.manager.documents import (
    AGENT_TYPE,
    FOLDER,
    KINDS,
    TITLE,
    CheckpointKind,
    SavePoint,
    folder_name,
    save_point,
)
from holdfast.manager.folder import Folder, keep_out_of_git
from holdfast.manager.guards import Guard, OnFailure, Verdict
from holdfast.manager.observation import Observer, check_count
from holdfast.manager.reports import Mode, Rollback, SessionStart, rollback_of
from holdfast.manager.turns import turn_at
from holdfast.sessions import Checkpoint, Session, SessionManager
from holdfast.sessions.rollback_request import is_of_rollback

_STARTED: Final = "started"
_FEATURES: Final = "features"
_LONGEST_NAME: Final = 120
_PATIENCE: Final = 60.0
_PAUSE: Final = 0.05


class SyncCheckpointManager(Closing):
    """The save points of the project that ``project_dir`` lies in; see `CheckpointManager`.

    with SyncCheckpointManager(".") as manager:
        checkpoint = manager.create_checkpoint("before-refactor")
        manager.rollback(checkpoint.id)
    """

    def __init__(
        self,
        project_dir: str | Path | None = None,
        *,
        url: str | Path | None = None,
        tenant: str | None = None,
        session_id: str | None = None,
        feature_list: str | None = None,
        progress: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """See `CheckpointManager`. Nothing is opened or created before the first call."""
        config = load_config(project_dir, url=url, tenant=tenant)
        self._root = config.project_dir
        self._url = url
        self._tenant = tenant
        self._settings = ManagerSettings(
            check_project_path(feature_list or config.manager.feature_list, "feature_list"),
            check_project_path(progress or config.manager.progress, "progress"),
        )
        self._session_id = session_id or _session_of(config)
        self._on_failure = on_failure
        self._observer = Observer(self._root, self._settings)
        self._lock = new_lock()
        self._opened: SessionManager | None = None
        self._closed = False
        own = self._root / AGENTS_DIR / DATABASE
        self._own_database = own if config.url == str(own) else None

    @property
    def project_dir(self) -> Path:
        """The top directory of the project."""
        return self._root

    @property
    def session_id(self) -> str:
        """The session that holds the save points, as the command line knows it."""
        return self._session_id

    # Saving ----------------------------------------------------------------------------------

    def create_checkpoint(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        type: CheckpointKind = "manual",
        session_number: int | None = None,
        token_usage: int | None = None,
    ) -> SavePoint:
        """Save files, feature list, progress file and context. When this returns, it is durable.

        ``type`` decides how long it stays: the last 5 ``automatic``, the last 3 ``session``, ``manual``
        until it is deleted, ``feature`` for good. If a feature has become complete since the last
        save point, one of type ``feature`` is made first. Names need not be unique; ids are.
        """
        _check_kind(type)
        told = _numbers(session_number, token_usage)
        with self._held() as session:
            if type != "feature":
                self._notice_features(session, told)
            return save_point(self._save(session, name, description, type, told))

    def feature_complete(
        self,
        feature: str | None = None,
        *,
        description: str | None = None,
        session_number: int | None = None,
        token_usage: int | None = None,
    ) -> SavePoint:
        """Save a permanent checkpoint of a feature, by default of what became complete last."""
        told = _numbers(session_number, token_usage)
        with self._held() as session:
            completed = (feature,) if feature is not None else self._flipped(session)
            return save_point(self._save_feature(session, completed, told, description))

    def start_session(
        self, *, session_number: int | None = None, token_usage: int | None = None
    ) -> SessionStart:
        """Save the start of an agent's session and tell how it begins.

        ``CONTINUE`` when the project has a feature list, else ``INIT``. The session's number is
        remembered for later save points, until `end_session`.
        """
        mode: Mode = "CONTINUE" if self._observer.has_feature_list else "INIT"
        told = _numbers(session_number, token_usage)
        with self._held() as session:
            session.update_metadata({_STARTED: {"session_number": told["session_number"]}})
            self._notice_features(session, told)
            saved = save_point(self._save(session, "session-start", None, "session", told))
        return SessionStart(mode, saved.context["session_number"], saved)

    def end_session(
        self,
        *,
        description: str | None = None,
        session_number: int | None = None,
        token_usage: int | None = None,
    ) -> SavePoint:
        """Save the end of an agent's session, as an automatic checkpoint."""
        told = _numbers(session_number, token_usage)
        with self._held() as session:
            self._notice_features(session, told)
            saved = self._save(session, "session-end", description, "automatic", told)
            session.update_metadata({_STARTED: None})
            return save_point(saved)

    def add_provider(self, name: str, provider: Callable[[], Any]) -> None:
        """Have ``provider()`` called at every save and its answer kept with the checkpoint.

        Where it returns a dict with ``session_number`` or ``token_usage``, those become the context.
        An exception is recorded, and the checkpoint is made all the same.
        """
        self._observer.add_provider(check_name(name), provider)

    def remove_provider(self, name: str) -> None:
        """Stop calling a provider."""
        self._observer.remove_provider(name)

    # Looking ---------------------------------------------------------------------------------

    def list_checkpoints(self, *, type: CheckpointKind | None = None) -> list[SavePoint]:
        """List save points, newest first; what rollbacks store for themselves is left out."""
        if type is not None:
            _check_kind(type)
        session = self._look()
        found = _chosen(session) if session is not None else []
        return [save_point(one) for one in found if type in (None, one.retention_class)]

    def get_checkpoint(self, reference: str) -> SavePoint:
        """Look at one save point by id, name, or the id that other faces use."""
        return save_point(self._find(self._look(), reference))

    def get_state(self, reference: str) -> dict[str, Any]:
        """Read what was saved beside the files: feature list, progress files, providers' answers."""
        return self._find(self._look(), reference).state

    # Going back ------------------------------------------------------------------------------

    def rollback(self, reference: str, *, dry_run: bool = False) -> Rollback:
        """Put files, HEAD, branch and index back to a save point; `undo` takes that back.

        A safety checkpoint comes first. Later commits stay reachable under the report's ``backup``.
        Ignored files stay as they are. What cannot be restored exactly is refused before anything is
        touched. With ``dry_run`` nothing changes.
        """
        with self._held(create=False) as session:
            return self._roll_back(session, self._find(session, reference), dry_run=dry_run)

    def rollback_to_latest(self, *, dry_run: bool = False) -> Rollback:
        """Roll back to the newest save point. Raises `CheckpointNotFound` when there is none."""
        with self._held(create=False) as session:
            found = _chosen(session)
            if not found:
                raise self._none_yet()
            return self._roll_back(session, found[0], dry_run=dry_run)

    def undo(self, *, dry_run: bool = False) -> Rollback:
        """Take back the last rollback. Raises `NothingToUndo` when there is none."""
        with self._held(create=False) as session:
            return rollback_of(session.undo(dry_run=dry_run))

    def delete(self, reference: str, *, force: bool = False) -> None:
        """Delete a save point and its folder. One of type ``feature`` needs ``force``."""
        with self._held(create=False) as session:
            session.delete_checkpoint(self._find(session, reference).id, force=force)

    def guard(
        self,
        name: str,
        *,
        description: str | None = None,
        verdict: Verdict | None = None,
        on_failure: OnFailure | None = None,
        attempts: int = 3,
    ) -> Guard:
        """Protect a risky operation: a block (``with``, ``async with``) or a function (``@``).

        An automatic checkpoint comes first. An exception, Ctrl-C or a ``verdict`` that is false rolls
        back; success keeps the checkpoint. ``on_failure(error)`` may choose ``retry`` (functions only,
        at most ``attempts`` runs), ``rollback``, ``skip`` or ``escalate``.
        """
        return Guard(
            self,
            check_name(name),
            description=description,
            verdict=verdict,
            on_failure=on_failure or self._on_failure,
            attempts=attempts,
        )

    # What a guard needs ----------------------------------------------------------------------

    def save_guarded(self, name: str, description: str | None) -> Checkpoint:
        """Save the checkpoint of a guard, and keep it until `end_guarded`."""
        told = _numbers(None, None)
        with self._held() as session:
            self._notice_features(session, told)
            saved = self._save(session, name, description, "automatic", told)
            return session.begin_guard(saved)

    def end_guarded(self, checkpoint: Checkpoint) -> None:
        """Let go of a guard's checkpoint when its block need not go back to it any more."""
        # What cannot be reached now ends by itself, and the outcome of the block matters more.
        with suppress(HoldfastError):
            session = self._look()
            if session is not None:
                session.end_guard(checkpoint)

    def keep_guarded(self, checkpoint: Checkpoint) -> None:
        """After a guarded block that went well: see whether it completed a feature.

        What the block did matters more: if that cannot be seen or saved, it is logged.
        """
        self.end_guarded(checkpoint)
        try:
            with self._held() as session:
                self._notice_features(session, _numbers(None, None))
        except HoldfastError as error:
            with suppress(HoldfastError):
                if (seen := self._look()) is not None:
                    why = error_document(error)["message"]
                    seen.log("warning", f"completed features were not looked for: {why}")

    def fall_back(self, checkpoint: Checkpoint, error: BaseException) -> Rollback | None:
        """Return to a guard's checkpoint; None, and a note on the error, when that fails too."""
        with self._held() as session:
            report = session.fall_back(checkpoint, error, move_head=True)
        return rollback_of(report) if report is not None else None

    def report_failure(
        self, checkpoint: SavePoint, error: BaseException, rolled_back: Rollback | None
    ) -> dict[str, Any]:
        """Return what somebody who is called for help needs to know."""
        return {
            "error": dict(error_document(error)),
            "notes": list(getattr(error, "__notes__", ())),
            "checkpoint": checkpoint.to_document(),
            "rollback": rolled_back.to_document() if rolled_back is not None else None,
        }

    def log_failure(self, report: Mapping[str, Any]) -> None:
        """Log such a report."""
        error = report["error"]
        with self._held() as session:
            session.log("error", f"escalated: {error['type']}: {error['message']}", data=report)

    # Ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the database. Closing twice is fine."""
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    # Inside ----------------------------------------------------------------------------------

    def _sessions(self, *, create: bool) -> SessionManager:
        if self._closed:
            raise StoreClosed("this checkpoint manager was closed")
        if self._opened is None:
            self._opened = SessionManager.open(
                self._url,
                project_dir=self._root,
                tenant=self._tenant,
                create=create,
            )
        return self._opened

    def _look(self) -> Session | None:
        """Return the session to read from, None while nothing was ever saved."""
        try:
            with self._lock:
                return self._sessions(create=False).get_session(self.session_id)
        except (SessionNotFound, SchemaMissing, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable) and self._has_database():
                raise
            return None

    def _has_database(self) -> bool:
        return not self._own_database or self._own_database.exists()

    @contextmanager
    def _held(self, *, create: bool = True) -> Iterator[Session]:
        """Have the session for one call; afterwards the folder shows what is stored."""
        with self._lock:
            if create:
                self._sessions(create=True)
            elif self._look() is None:
                raise self._none_yet()
            store = self._sessions(create=False).store
        # First the turn, then the lock: whoever waits for a turn keeps nobody from looking.
        with turn_at(store, self.session_id), self._lock:
            if create and self._look() is None:
                self._start()
            with self._take() as session:
                # Asked every time: files that fit the pattern come and go.
                self._sessions(create=False).include(
                    self._observer.paths(), patterns=self._observer.patterns()
                )
                session.settle()
                yield session
                self._show(session)

    def _take(self) -> Session:
        """Hold the session, if need be after whoever is at it now; others take as long as we do."""
        sessions = self._sessions(create=False)
        give_up = time.monotonic() + _PATIENCE
        while True:
            try:
                return sessions.hold_session(self.session_id)
            except CheckpointBusy:
                if time.monotonic() > give_up:
                    raise
                time.sleep(_PAUSE)

    def _none_yet(self) -> CheckpointNotFound:
        return CheckpointNotFound(f"{self._root} has no checkpoint yet; nothing was changed")

    def _start(self) -> None:
        sessions = self._sessions(create=False)
        if self._own_database:
            keep_out_of_git(self._own_database.parent)
        # Somebody else may be faster: then it is there as well.
        with suppress(SessionExists):
            sessions.create_session(
                AGENT_TYPE,
                session_id=self.session_id,
                task_description=f"save points of {self._root.name}",
                metadata={"project_dir": str(self._root)},
            ).close()

    def _save(
        self,
        session: Session,
        name: str | None,
        description: str | None,
        kind: CheckpointKind,
        told: Mapping[str, int | None],
        **metadata: Any,
    ) -> Checkpoint:
        if name is not None:
            check_name(name)
        known = (session.metadata.get(_STARTED) or {}).get("session_number")
        observed = self._observer.look(**told)
        if observed.context["session_number"] is None:
            observed.context["session_number"] = known
        if name is not None:
            metadata[TITLE] = name
        return session.save_checkpoint(
            _unused(name, session) if name is not None else None,
            state=observed.to_state(),
            description=description,
            retention_class=kind,
            metadata=metadata or None,
        )

    def _flipped(self, session: Session) -> tuple[str, ...]:
        """Return the features that are complete now and were not in the state that is present."""
        try:
            before = session.get_state().get("features")
        except CheckpointNotFound:
            # Nobody has looked before, so nobody has seen anything change.
            return ()
        known = set(before.get("completed", ())) if isinstance(before, Mapping) else set()
        return tuple(one for one in self._observer.features().completed if one not in known)

    def _notice_features(self, session: Session, told: Mapping[str, int | None]) -> None:
        if flipped := self._flipped(session):
            self._save_feature(session, flipped, told, None)

    def _save_feature(
        self,
        session: Session,
        features: tuple[str, ...],
        told: Mapping[str, int | None],
        description: str | None,
    ) -> Checkpoint:
        name = f"feature-{'+'.join(features) or 'complete'}"
        if len(name) > _LONGEST_NAME:
            name = f"{name[:_LONGEST_NAME]}…"
        return self._save(
            session,
            name,
            description or (f"complete: {', '.join(features)}" if features else None),
            "feature",
            told,
            **{_FEATURES: list(features)},
        )

    def _roll_back(self, session: Session, target: Checkpoint, *, dry_run: bool) -> Rollback:
        if target.workspace_commit is None:
            why = save_point(target).problem or "files were not captured"
            raise SnapshotNotFound(
                f"checkpoint {target.label} has no files to go back to ({why}). Nothing was changed; "
                f"its feature list and progress file are in {FOLDER}/{folder_name(target)}"
            )
        return rollback_of(session.rollback(target.id, move_head=True, dry_run=dry_run))

    def _find(self, session: Session | None, reference: str) -> Checkpoint:
        check_name(reference)
        if session is None:
            raise self._none_yet()
        titled = session.list_checkpoints(metadata={TITLE: reference})
        if len(titled) > 1:
            listed = ", ".join(str(one.label) for one in titled)
            raise AmbiguousReference(f"{reference!r} names several checkpoints: {listed}")
        return titled[0] if titled else session.get_checkpoint(reference)

    def _show(self, session: Session) -> None:
        wanted = {folder_name(one): one for one in _chosen(session) if one.label is not None}
        Folder(self._root, session.id).show(wanted, lambda text: session.log("warning", text))


def _chosen(session: Session) -> list[Checkpoint]:
    """Return what the agent or its user saved, newest first: no failures, no rollbacks' own."""
    return [
        one
        for one in session.list_checkpoints()
        if one.retention_class in KINDS and not is_of_rollback(one.record)
    ]


def _unused(name: str, session: Session) -> str:
    """Return a name to store it under: those are unique in a session, given ones need not be."""
    taken = {one.name for one in session.list_checkpoints()}
    return next(one for one in (name, *_numbered(name, len(taken))) if one not in taken)


def _numbered(name: str, most: int) -> Iterator[str]:
    return (f"{name} ({number})" for number in range(2, most + 3))


def _session_of(config: Config) -> str:
    """Return the usual session; a database outside of the project may serve many projects."""
    own = config.url == str(config.project_dir / AGENTS_DIR / DATABASE)
    return AGENT_TYPE if own else f"{AGENT_TYPE}:{config.project_dir}"


def _check_kind(kind: object) -> None:
    if kind not in KINDS:
        raise InvalidIdentifier(f"type must be one of {', '.join(KINDS)}, not {kind!r}")


def _numbers(session_number: int | None, token_usage: int | None) -> dict[str, int | None]:
    return {
        "session_number": check_count(session_number, "session_number"),
        "token_usage": check_count(token_usage, "token_usage"),
    }
