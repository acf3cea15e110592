"""The door to a store: open it, start sessions and find them again.

What else a manager can do stands in its parts: `agents`, `looking`, `travelling`, `housekeeping`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.closing import Closing
from holdfast.config import RedactionSettings, load_config
from holdfast.errors import (
    HoldfastError,
    IllegalTransition,
    IntegrityError,
    InvalidIdentifier,
    SessionNotFound,
    WorkspaceRefused,
)
from holdfast.ids import NAME_BYTES, check_session_id, check_text, check_uuid, new_id
from holdfast.leases import Leases
from holdfast.model import (
    LEASE_TTL,
    SESSION_STATUSES,
    NewAgent,
    NewSession,
    SessionQuery,
    SessionRecord,
)
from holdfast.redaction import Redact, Redaction, Secrets
from holdfast.retention import Policy
from holdfast.sessions.agents import ManagedAgents, one_of
from holdfast.sessions.files import Capture, limits_from
from holdfast.sessions.held import TASK_BYTES, Surroundings
from holdfast.sessions.housekeeping import KeptStore
from holdfast.sessions.looking import StoredCheckpoints
from holdfast.sessions.lookup import get_session_record
from holdfast.sessions.session import Session
from holdfast.sessions.travelling import TravellingSessions
from holdfast.sessions.unfinished import (
    MAX_RECOVERIES,
    interrupt_dead,
    interrupt_held,
    latest_unfinished,
)
from holdfast.stores import Store, open_store
from holdfast.stores.readable import find_unreadable, list_readable
from holdfast.workspace.base import Limits

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys


class SessionManager(ManagedAgents, StoredCheckpoints, TravellingSessions, KeptStore, Closing):
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
            files=self._capture.files(store) if workspace else None,
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

    def include(self, paths: Sequence[str], *, patterns: Sequence[str] = ()) -> None:
        """Capture these files or directories from now on, in place of those of the last call.

        Those of the settings, and the ``include`` of `open`, are captured all the same. What fits one
        of the ``patterns`` and appears after a checkpoint is removed by a rollback to it.
        """
        if self._around.files is not None:
            # A directory that is no project is told of by the capture.
            with suppress(WorkspaceRefused):
                self._around.files.include(paths, patterns)

    def close(self) -> None:
        """Give back the leases of all sessions and release the store. Closing twice is fine."""
        self._leases.close()
        self._store.close()

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
                session._give_up(record.lease_token)
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
        agent whose hooks hold the session says in its metadata which process it is: as long as that is
        seen to live, an expired lease means nothing. Of many who look at once, one marks a session and
        has it in its answer. A session that was marked ``max_attempts`` times before becomes failed
        instead, so that work which kills its workers does not do so for ever. Either can be resumed.
        """
        return interrupt_dead(self._store, self._leases.owner, most=max_attempts)

    def interrupt_session(self, session_id: str, *, message: str) -> SessionRecord | None:
        """Mark an active session as interrupted, for whoever knows that its worker has left it.

        None when it is not active, or nobody holds it.
        """
        return interrupt_held(self._store, check_session_id(session_id), message=message)

    def latest_unfinished_session(
        self, *, agent_type: str | None = None, parked: bool = False
    ) -> SessionRecord:
        """Return the most recently created session of this project that is not completed.

        Where none was created in this directory, those of one that is gone count, if the store is in the
        project's own ``.agents``: it was moved. One whose last checkpoint was made on the present git branch
        comes before the others, and
        one that is paused until later does not count; with ``parked`` it does where there is no
        other. Raises `NothingToResume` when there is none, or none of that kind of agent.
        """
        return latest_unfinished(self._store, self._around, agent_type=agent_type, parked=parked)

    def list_sessions(
        self,
        *,
        status: str | None = None,
        agent_type: str | None = None,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> list[SessionRecord]:
        """List sessions, most recently created first, completed ones included.

        One whose row is damaged hides none of the others: `unreadable_sessions` names it.
        """
        if status is not None:
            one_of(status, SESSION_STATUSES, "status")
        query = SessionQuery(
            status=status,
            agent_type=agent_type,
            agent_id=agent_id,
            metadata=metadata or {},
            limit=limit,
        )
        return list_readable(self._store, query)

    def unreadable_sessions(self, *, limit: int | None = None) -> dict[str, IntegrityError]:
        """Return the sessions that `list_sessions` leaves out, each with what is wrong with its row.

        With ``limit`` only the newest are looked at; if one of those cannot be read, all are.
        """
        return find_unreadable(self._store, limit=limit)
