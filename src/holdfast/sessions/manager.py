"""The door to a store: open it, start sessions, find them again, keep house."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.config import RedactionSettings, load_config
from holdfast.errors import (
    AgentNotFound,
    HoldfastError,
    IllegalTransition,
    InvalidFilter,
    InvalidIdentifier,
    SessionNotFound,
    WorkspaceRefused,
)
from holdfast.ids import NAME_BYTES, check_session_id, check_text, check_uuid, new_id
from holdfast.leases import Leases
from holdfast.model import (
    AGENT_STATUSES,
    LEASE_TTL,
    SESSION_STATUSES,
    AgentRecord,
    CheckpointQuery,
    GcReport,
    KeyReport,
    NewAgent,
    NewSession,
    SessionQuery,
    SessionRecord,
    SessionUsage,
)
from holdfast.redaction import Redact, Redaction, Secrets
from holdfast.retention import Decision, Policy
from holdfast.sessions import erasing, upkeep
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.comparison import Comparison, compare, compare_rollback, count_changes
from holdfast.sessions.erasing import Erasure
from holdfast.sessions.files import Capture, limits_from
from holdfast.sessions.held import TASK_BYTES, Surroundings
from holdfast.sessions.inspection import StoredSecret, find_stored_secrets
from holdfast.sessions.lookup import get_record_anywhere, get_session_record
from holdfast.sessions.rollback import RollbackReport
from holdfast.sessions.session import Session
from holdfast.sessions.travelling import TravellingSessions
from holdfast.sessions.unfinished import (
    MAX_RECOVERIES,
    interrupt_dead,
    interrupt_held,
    latest_unfinished,
)
from holdfast.sessions.upkeep import StorageReport
from holdfast.stores import Store, open_store
from holdfast.verification import VerifyReport
from holdfast.workspace.base import Limits, SavedFile, Skipped, Usage
from holdfast.workspace.git import Workspace

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys

_LEFT_ALONE = "files are left alone here (workspace=False, or capture = false in the settings)"


class SessionManager(TravellingSessions):
    """Creates, finds and resumes sessions in one store.

    with SessionManager.open() as manager:
        session = manager.create_session("implementer", task_description="Move to OAuth")
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | None = None,
        project_dir: str | Path | None = None,
        workspace: bool = True,
        limits: Limits | None = None,
        share: bool = True,
        owner: str | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        redact: Redact = None,
        rehydrate: Secrets = None,
        redaction: RedactionSettings | None = None,
    ) -> None:
        """Use an open store.

        ``workspace=False`` leaves the project's files and git alone. ``limits`` bounds what capturing
        them may cost. With ``share=False`` they stay on this machine even if the store is shared.

        ``owner`` names who holds the sessions: by default this process. All processes with the same
        ``agent:<kind>:<id>`` are one owner. ``lease_ttl`` is how long others wait for a holder of
        whom nothing is heard, an hour at most.

        With ``redact`` secrets are taken out of what is saved, by the rules of ``redaction``; how they
        come back when a session is resumed says ``rehydrate``. See `open`.
        """
        self._store = store
        self._leases = Leases(store, owner=owner, ttl=lease_ttl)
        project = Path(project_dir) if project_dir is not None else Path.cwd()
        self._capture = Capture(project, workspace, limits, share)
        self._around = Surroundings(
            policy=policy or Policy(),
            project_dir=project,
            files=self._capture.files(store),
            leases=self._leases,
            redaction=Redaction.of(
                project, redaction or RedactionSettings(), redact=redact, rehydrate=rehydrate
            ),
        )

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        project_dir: str | Path | None = None,
        workspace: bool = True,
        tenant: str | None = None,
        create: bool = True,
        owner: str | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        include: Sequence[str] = (),
        busy_timeout: float | None = None,
        redact: Redact = None,
        rehydrate: Secrets = None,
        keys: GivenKeys = None,
        as_it_is: bool = False,
    ) -> SessionManager:
        """Open a store: a URL, a path, or by default ``.agents/sessions.db`` of the project.

        With ``create=False`` it must exist and have the present schema: nothing is created.
        ``include`` names files or directories that are captured although they are ignored, besides
        those of the settings. ``busy_timeout`` is how many seconds a write to an embedded database
        waits for others.

        With ``redact=True``, or a `Redactor`, secrets never reach the store: placeholders stand for
        them in states, logs, metadata and results of steps. None means as the settings say, and else
        no. In ``session.state`` and what `load_checkpoint` returns they come back from the
        environment; ``rehydrate`` may be a function that is asked for each placeholder, values to look
        among, or False.

        ``keys`` seal what is stored (`holdfast.crypto.KeyRing`, the path of a file, or a function that
        returns one or its text). By default they come from ``HOLDFAST_KEY`` or ``HOLDFAST_KEY_FILE``,
        where one is set; False means none. With ``as_it_is`` a store of plain text is opened although
        there is a key, to copy it into a sealed one.
        """
        config = load_config(project_dir, url=url, tenant=tenant)
        store = open_store(
            config.url,
            tenant=config.tenant,
            create=create,
            busy_timeout=busy_timeout,
            keys=keys,
            as_it_is=as_it_is,
        )
        policy = Policy.from_settings(config.retention)
        return cls(
            store,
            policy=policy,
            project_dir=config.project_dir,
            workspace=workspace and config.workspace.capture,
            limits=limits_from(config.workspace, include),
            share=config.workspace.share,
            owner=owner,
            lease_ttl=lease_ttl,
            redact=redact,
            rehydrate=rehydrate,
            redaction=config.redaction,
        )

    @property
    def store(self) -> Store:
        """The store behind this manager."""
        return self._store

    @property
    def sealed(self) -> bool:
        """Whether a key seals what is stored."""
        return self._store.keys is not None

    @property
    def project_dir(self) -> Path:
        """The project that sessions work in."""
        return self._around.project_dir

    @property
    def place(self) -> str:
        """The project's directory, as sessions say where they were created."""
        return self._around.place

    @property
    def workspace(self) -> Workspace:
        """The project's files. Raises `WorkspaceRefused` where they are left alone."""
        if self._around.files is None:
            raise WorkspaceRefused(_LEFT_ALONE)
        return self._around.files.workspace

    def close(self) -> None:
        """Give back the leases of all sessions and release the store. Closing twice is fine."""
        self._leases.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Agents ----------------------------------------------------------------------------------

    def create_agent(
        self,
        name: str,
        *,
        agent_type: str,
        parent_id: str | None = None,
        status: str = "idle",
        metadata: Mapping[str, Any] | None = None,
        agent_id: str | None = None,
    ) -> AgentRecord:
        """Store an agent; below a parent, its depth is the parent's plus one."""
        return self._store.create_agent(
            NewAgent(
                id=check_uuid(agent_id, "agent id") if agent_id is not None else new_id(),
                name=check_text(name, "agent name", NAME_BYTES),
                agent_type=check_text(agent_type, "agent_type", NAME_BYTES),
                status=_one_of(status, AGENT_STATUSES, "status"),
                parent_id=check_uuid(parent_id, "parent id") if parent_id is not None else None,
                metadata=self._around.redaction.document(metadata),
            )
        )

    def get_agent(self, agent_id: str) -> AgentRecord:
        """Return an agent."""
        found = self._store.find_agent(check_uuid(agent_id, "agent id"))
        if found is None:
            raise AgentNotFound(f"no agent {agent_id}")
        return found

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        """List agents, most recently created first."""
        return self._store.list_agents(status=status, parent_id=parent_id, limit=limit)

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        """Change an agent's status or replace its metadata."""
        if status is not None:
            _one_of(status, AGENT_STATUSES, "status")
        return self._store.update_agent(
            agent_id, status=status, metadata=self._around.redaction.document(metadata)
        )

    def latest_checkpoint(self, agent_id: str) -> Checkpoint | None:
        """Return an agent's newest checkpoint over all of its sessions, or None."""
        record = self._store.latest_of_agent(check_uuid(agent_id, "agent id"))
        return Checkpoint.of(record, self._store) if record is not None else None

    def get_checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """Look at a checkpoint of whatever session by its id or label, without restoring it."""
        return Checkpoint.of(get_record_anywhere(self._store, checkpoint_id), self._store)

    # Sessions --------------------------------------------------------------------------------

    def create_session(
        self,
        agent_type: str,
        *,
        task_description: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        agent_name: str | None = None,
        parent_agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        continues: str | None = None,
    ) -> Session:
        """Start a session. Without ``agent_id`` an agent is created to go with it.

        ``continues`` names an earlier session whose work this one goes on with: its state is where to
        start from, and tasks completed there stay completed. It is not changed.
        """
        check_text(agent_type, "agent_type", NAME_BYTES)
        if task_description is not None:
            check_text(task_description, "task_description", TASK_BYTES, empty=True)
        before = None if continues is None else get_session_record(self._store, continues)
        agent = None
        if agent_id is None:
            agent = NewAgent(
                id=new_id(),
                name=check_text(agent_name or agent_type, "agent name", NAME_BYTES),
                agent_type=agent_type,
                status="running",
                parent_id=parent_agent_id,
            )
        elif agent_name is not None or parent_agent_id is not None:
            raise InvalidIdentifier("give either agent_id, or the name and parent of a new agent")
        draft = NewSession(
            id=check_session_id(session_id) if session_id is not None else new_id(),
            agent_id=agent.id if agent else check_uuid(agent_id, "agent id"),
            agent_type=agent_type,
            task_description=task_description and self._around.redaction.text(task_description),
            continues_id=None if before is None else before.id,
            project_dir=self._around.place,
            metadata=self._around.redaction.document(metadata),
            agent=agent,
            lease_owner=self._leases.owner,
            lease_ttl=self._leases.ttl,
        )
        record = self._store.create_session(draft)
        return Session(self._store, record, self._around, self._leases.adopt(record))

    def get_session(self, session_id: str) -> Session:
        """Look at a session without its lease; a UUID may be given by its beginning."""
        return Session(self._store, get_session_record(self._store, session_id), self._around)

    def resume_session(
        self,
        session_id: str | None = None,
        *,
        checkpoint: str | None = None,
        force: bool = False,
        take_over: bool = False,
        fork: bool = False,
        rehydrate: Secrets = None,
    ) -> Session:
        """Continue a session, from its latest resumable checkpoint or the one named.

        Without an id, the one that `latest_unfinished_session` finds. The session becomes
        active, ``session.state`` is what to go on from, and this process holds it. Of any number of
        workers one gets it: where somebody else holds it, `CheckpointBusy` says who. A holder that
        has died on this machine is no obstacle, another one until its lease expires; ``take_over``
        takes the session from anybody, who then can write no more. ``fork`` leaves it to whoever
        has it, and starts a second line of work from the same checkpoint. ``rehydrate`` says where the
        secrets of its state come back from, if not from where `open` says.
        """
        record = (
            get_session_record(self._store, session_id)
            if session_id is not None
            else self.latest_unfinished_session()
        )
        if record.status == "completed" and not fork:
            raise IllegalTransition(
                f"session {record.id} is completed and cannot be resumed; fork it instead"
            )
        around = self._around
        if rehydrate is not None:
            around = replace(around, redaction=around.redaction.bringing_back(rehydrate))
        if fork:
            return Session(self._store, record, around).fork(checkpoint)
        session = self._held(record.id, take_over=take_over, around=around)
        try:
            session.resume_from(checkpoint, force=force)
        except BaseException:
            with suppress(HoldfastError):
                session.close()
            raise
        return session

    def hold_session(
        self, session_id: str, *, take_over: bool = False, back_to: str | None = None
    ) -> Session:
        """Hold a session to change something about it, without resuming it: for commands.

        Whoever types a command comes before an agent: a lease of an owner ``agent:…`` is taken over,
        that of a live process with ``take_over`` only. ``back_to`` names the checkpoint that it is to be
        rolled back to: since a completed session is final, a fork of it is held then, which has that
        checkpoint under the same name.
        """
        record = get_session_record(self._store, session_id)
        if back_to is not None and record.status == "completed":
            done = Session(self._store, record, self._around)
            # Whose work it is, the fork knows too.
            return done.fork(back_to, with_latest=True, metadata=record.metadata)
        return self._held(record.id, take_over=take_over, over_agents=True)

    def join_session(self, session_id: str) -> Session:
        """Hold a session as one of the many processes of this manager's owner, without resuming it.

        For hooks, of which every event is a process: what the session is, it stays. Raises
        `CheckpointBusy` when somebody else has it.
        """
        return self._held(get_session_record(self._store, session_id).id)

    def _held(
        self,
        session_id: str,
        *,
        take_over: bool = False,
        over_agents: bool = False,
        around: Surroundings | None = None,
    ) -> Session:
        hold = self._leases.acquire(session_id, take_over=take_over, over_agents=over_agents)
        try:
            # As it is now that nobody else can change it.
            record = self._store.find_session(session_id)
            if record is None:
                raise SessionNotFound(f"session {session_id} was erased")
            return Session(self._store, record, around or self._around, hold)
        except BaseException:
            with suppress(HoldfastError):
                hold.release()
            raise

    def recover(self, *, max_attempts: int = MAX_RECOVERIES) -> list[SessionRecord]:
        """Find active sessions whose worker died, mark them as interrupted and return them.

        A worker is dead when its process on this machine has ended, or when its lease has expired. An
        agent whose hooks hold the session says in its metadata which process it is. Of many who look at
        once, one marks a session and has it in its answer. A session that was marked ``max_attempts``
        times before becomes failed instead, so that work which kills its workers does not do so for
        ever. Either can be resumed.
        """
        return interrupt_dead(self._store, self._leases.owner, most=max_attempts)

    def interrupt_session(self, session_id: str, *, message: str) -> SessionRecord | None:
        """Mark an active session as interrupted, for whoever knows that its worker has left it.

        None when it is not active, or nobody holds it.
        """
        return interrupt_held(self._store, session_id, message=message)

    def latest_unfinished_session(self, *, agent_type: str | None = None) -> SessionRecord:
        """Return the most recently created session of this project that is not completed.

        One whose last checkpoint was made on the present git branch comes before the others, and
        one that is paused until later does not count. Raises `NothingToResume` when there is none,
        or none of that kind of agent.
        """
        return latest_unfinished(self._store, self._around, agent_type=agent_type)

    def list_sessions(
        self,
        *,
        status: str | None = None,
        agent_type: str | None = None,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[SessionRecord]:
        """List sessions, most recently created first, completed ones included."""
        if status is not None:
            _one_of(status, SESSION_STATUSES, "status")
        query = SessionQuery(
            status=status,
            agent_type=agent_type,
            agent_id=agent_id,
            metadata=metadata or {},
            limit=limit,
        )
        return self._store.list_sessions(query)

    # Checkpoints and their files ------------------------------------------------------------

    def list_quarantined(self, session_id: str | None = None) -> list[Checkpoint]:
        """List checkpoints that failed verification and are not used, newest first.

        Those of one session, whose id must be given in full, or of all; in every namespace.
        """
        query = CheckpointQuery(session_id, quarantined=True)
        return [Checkpoint.of(one, self._store) for one in self._store.list_checkpoints(query)]

    def diff(
        self,
        before: Checkpoint | None = None,
        after: Checkpoint | None = None,
        *,
        state: bool = True,
        files: bool = True,
        text: bool = True,
        paths: Sequence[str] = (),
    ) -> Comparison:
        """Tell what differs between two checkpoints, or between one and the present.

        None is the present: the state that the session would go on from, and the project's files as
        they are. With ``paths`` (files or directories) only those are compared; without ``text`` no
        content is.
        """
        return compare(
            before,
            after,
            files=self._around.files,
            present_state=self._present_state,
            with_state=state,
            with_files=files,
            text=text,
            paths=paths,
        )

    def diff_of(self, report: RollbackReport, *, text: bool = True) -> Comparison:
        """Tell in full what a rollback that was only looked at (``dry_run``) would change."""
        return compare_rollback(
            report, files=self._around.files, present_state=self._present_state, text=text
        )

    def _present_state(self, session_id: str) -> dict[str, Any]:
        return self.get_session(session_id).present_state()

    def list_files(self, checkpoint: Checkpoint) -> list[SavedFile]:
        """List the files that a checkpoint holds. Raises `SnapshotNotFound` when it holds none."""
        return self.workspace.list_files(self._snapshot_of(checkpoint))

    def list_skipped(self, checkpoint: Checkpoint) -> list[Skipped]:
        """List what a checkpoint could not hold, with reasons."""
        return self.workspace.skipped(self._snapshot_of(checkpoint))

    def read_file(self, checkpoint: Checkpoint, path: str) -> bytes:
        """Return a file's bytes as a checkpoint holds them, verified; nothing is restored."""
        return self.workspace.read(self._snapshot_of(checkpoint), path)

    def count_changed_files(self, checkpoints: Sequence[Checkpoint]) -> dict[str, int]:
        """Count the files that changed before each checkpoint, by its id.

        ``checkpoints`` come newest first, as listed. One is left out if nothing before it is known, or
        its files are not on this machine.
        """
        if self._around.files is None or not any(one.workspace_commit for one in checkpoints):
            return {}
        return count_changes(self._around.files, checkpoints)

    def _snapshot_of(self, checkpoint: Checkpoint) -> str:
        if self._around.files is None:
            raise WorkspaceRefused(_LEFT_ALONE)
        return self._around.files.of(checkpoint.record)

    def delete_session(self, session_id: str) -> Erasure:
        """Erase a session with its checkpoints, logs, effects, and all content that nothing else shares.

        Its snapshots of files go from this project too. The id must be given in full. Raises
        `SessionNotFound`.
        """
        done = erasing.erase_session(
            self._store,
            self._around.files,
            self._around.project_dir,
            check_session_id(session_id),
        )
        if done is None:
            raise SessionNotFound(f"no session {session_id!r}; nothing was erased")
        return done

    def erase_tenant(self) -> Erasure:
        """Erase all that this tenant has in the store: sessions, agents, content, snapshots of files.

        Other tenants keep what is theirs, also where it is the same.
        """
        return erasing.erase_tenant(self._store, self._around.files, self._around.project_dir)

    # Upkeep ----------------------------------------------------------------------------------

    def usage(self) -> list[SessionUsage]:
        """Return counts and sizes per session."""
        return self._store.session_usage()

    def gc(self, *, dry_run: bool = False) -> GcReport:
        """Free chunks and file snapshots that nothing refers to; safe beside running saves."""
        return upkeep.collect(self._store, self._around.files, dry_run=dry_run)

    def count_keys(self) -> KeyReport:
        """Count the values that each key of a sealed store has sealed; nothing is changed."""
        from holdfast.rotation import count_keys

        return count_keys(self._store)

    def rotate_keys(self, *, progress: Callable[[int], None] | None = None) -> KeyReport:
        """Seal everything again that an older key than the current one has sealed.

        Safe beside running work; each batch is one transaction. What was done when it is interrupted
        stays done, and it can be repeated. ``progress`` is called with the number of values looked at.
        """
        from holdfast.rotation import rotate

        return rotate(self._store, progress=progress)

    def back_up(self, target: str | Path) -> None:
        """Write a consistent copy of an embedded database to a new file, beside running saves.

        Use this rather than copying the file: what is in its log only would be missing. The snapshots
        of files are in the project's ``.agents/workspace.git`` and are not in the copy.
        """
        self._store.back_up(Path(target))

    def file_usage(self) -> Usage:
        """Return what the snapshots of the project's files take on disk."""
        return self.workspace.usage()

    def storage(self) -> StorageReport:
        """Return what all of it takes: states, file snapshots, packs for other machines."""
        return upkeep.measure(self._store, self._around.files)

    def prune(
        self,
        *,
        dry_run: bool = False,
        keep: int | None = None,
        max_age: timedelta | None = None,
        max_bytes: int | None = None,
    ) -> list[Decision]:
        """Apply the retention rules everywhere and return each decision with its reason.

        ``keep`` bounds the checkpoints of class step per session; ``max_age`` and ``max_bytes``
        apply to all that is neither kept until deleted nor protected. With ``dry_run`` nothing is removed.
        """
        return upkeep.prune(
            self._store,
            self._around.policy,
            dry_run=dry_run,
            keep=keep,
            max_age=max_age,
            max_bytes=max_bytes,
        )

    def verify(
        self, *, deep: bool = False, progress: Callable[[int], None] | None = None
    ) -> VerifyReport:
        """Read every checkpoint, its files too, and re-derive every digest; nothing is changed.

        With ``deep`` every hash chain, every chunk and pending write and the structures of the database
        too. A checkpoint that fails is in quarantine then until it verifies again, and one that does is
        released; nothing is removed.
        """
        return upkeep.verify(self._store, self._around.files, deep=deep, progress=progress)

    def find_secrets(self, *, files: bool = False) -> list[StoredSecret]:
        """Find secrets that are stored, by the rules of redaction; nothing is changed.

        With ``files`` also in the files of each session's latest checkpoint.
        """
        chosen = self._around.files if files else None
        return list(find_stored_secrets(self._store, self._around.redaction.looking(), chosen))


def _one_of(value: str, allowed: tuple[Any, ...], what: str) -> Any:
    if value not in allowed:
        raise InvalidFilter(f"{what} must be one of {', '.join(allowed)}, not {value!r}")
    return value
