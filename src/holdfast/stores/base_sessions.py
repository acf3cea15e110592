"""The contract of a store, what is about sessions: agents, sessions, leases, effects and logs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.model import (
    LEASE_TTL,
    AgentRecord,
    EffectOutcome,
    EffectQuery,
    EffectRecord,
    Lease,
    LogRecord,
    NewAgent,
    NewEffect,
    NewSession,
    SessionQuery,
    SessionRecord,
    SessionUsage,
)


class SessionStore(ABC):
    """The part of a `Store` that says who works on what, who may write, and what came of it."""

    # Agents ----------------------------------------------------------------------------------

    @abstractmethod
    def create_agent(self, draft: NewAgent) -> AgentRecord:
        """Store an agent. Its depth is its parent's plus one.

        Raises `AgentExists` for a taken id, `AgentNotFound` for an unknown parent.
        """

    @abstractmethod
    def find_agent(self, agent_id: str) -> AgentRecord | None:
        """Return the agent, or None."""

    @abstractmethod
    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        """List agents, most recently created first."""

    @abstractmethod
    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        """Change what is given; ``updated_at`` moves, and ``completed_at`` is set on a final status.

        Final are completed, failed and terminated; leaving them clears ``completed_at``.
        Raises `AgentNotFound`.
        """

    # Sessions --------------------------------------------------------------------------------

    @abstractmethod
    def create_session(self, draft: NewSession) -> SessionRecord:
        """Store a session, and its agent when the draft brings one that does not exist yet.

        Raises `SessionExists` for a taken id and `AgentNotFound` for an unknown agent; then
        nothing is stored.
        """

    @abstractmethod
    def find_session(self, session_id: str) -> SessionRecord | None:
        """Return the session, or None."""

    @abstractmethod
    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        """List sessions, most recently created first."""

    @abstractmethod
    def update_session(
        self,
        session_id: str,
        *,
        status: str | None = None,
        expected: Collection[str] | None = None,
        resumed_at: datetime | None = None,
        paused_until: datetime | None = None,
        pause_reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        merge_metadata: Mapping[str, Any] | None = None,
        task_description: str | None = None,
        fence: int | None = None,
    ) -> SessionRecord:
        """Change what is given; ``updated_at`` moves.

        ``metadata`` replaces what is there. ``merge_metadata`` sets its top-level keys and leaves
        the others, in the same transaction, so that nobody's concurrent merge is lost. The status
        paused sets ``paused_at``, ``paused_until`` and ``pause_reason``; any other status clears them.
        With ``expected`` the present status must be one of those, checked in the same transaction,
        or `IllegalTransition` is raised; that a completed session stays completed is always checked.
        Raises `SessionNotFound`, and `LeaseLost` for a ``fence`` that is not the lease's token.
        """

    @abstractmethod
    def delete_session(self, session_id: str, *, agent_prefix: str | None = None) -> bool:
        """Erase a session: checkpoints, writes, logs, and every chunk that nothing refers to then.

        Its agent goes too unless somebody needs it, and what went on from it says so no more.
        Chunks that were left over before go too, as with `gc`: a writer who remembers an index chunk
        relies on what is below it, so one may never be removed without the other. Where an index
        chunk is unreadable no chunk is removed. Nor does this object remember any chunk that it has
        read. Returns false when there is no such session. With ``agent_prefix`` raises
        `ForeignSession`, and erases nothing, if the id of the session's agent does not begin so; none begins
        with "" here.
        """

    @abstractmethod
    def erase_threads(
        self, session_ids: Collection[str], *, namespace: str, agent_prefix: str
    ) -> int:
        """Erase what a namespace holds in some sessions, and chunks as `delete_session` does.

        A session whose agent's id begins so and that is left without checkpoints, writes and effects goes too,
        with its agent unless somebody needs it. Sessions that do not exist are no error. Returns how many
        checkpoints there were. The namespace "" is a session's own line of work: raises `ForeignSession`, and
        erases nothing, if that is another agent's; none begins with "" here. Any other belongs to whoever uses
        it, in sessions of others too.
        """

    @abstractmethod
    def erase_tenant(self) -> int:
        """Erase all that the tenant has, agents and packs included; return how many sessions it had.

        A seal stays, so that what comes next is sealed too.
        """

    def leftovers(self) -> list[str]:
        """Name files that may still hold what was erased, each with the reason."""
        return []

    @abstractmethod
    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        """Copy a session's checkpoints and pending writes into a new one; chunks are shared.

        Effects stay: what the one session did to the world, the other has not done.
        Copies get new ids and sequence numbers, keep their order, names, labels, external ids,
        workspace commits and times,
        and parents are rewired to the copies where those exist. ``checkpoint_ids`` restricts what
        is copied. Raises `SessionNotFound`, `CheckpointNotFound`, `SessionExists`.
        """

    @abstractmethod
    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        """Count checkpoints and bytes per session, most recently created session first."""

    # Leases ----------------------------------------------------------------------------------

    # A lease says who may write to a session. Its token rises whenever it changes hands, also when it is
    # given back, from a number that is drawn when the session is stored, so that an erased session's holder
    # is none of the next one with the same id. Every write that carries a ``fence`` compares it with the
    # token in its own transaction. Expiry alone takes nothing from a holder: it lets somebody else take the
    # session. The time is the database's own: of the server, or of the machine since it was started, so a
    # wall clock that is set neither shortens nor prolongs a lease.

    @abstractmethod
    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        """Take the session's lease, or join it: an equal owner gets the same token and a new expiry.

        It is given when nobody has it, when it has expired, to its owner, and to whoever takes it
        ``over`` from the holder with that token, which is what one passes who has seen that the
        holder is dead. Otherwise `CheckpointBusy`, whose ``lease`` is the present one. Of any number
        of callers at once exactly one takes it. Raises `SessionNotFound`.
        """

    @abstractmethod
    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        """Let leases, tokens by session, expire later; return the sessions that are still held so.

        An expired lease that nobody has taken is renewed like any other.
        """

    @abstractmethod
    def release_lease(self, session_id: str, token: int) -> bool:
        """Give a lease back, which raises the token too. False when it was not held with that one."""

    @abstractmethod
    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        """Return the leases that stand, expired ones included, by session id."""

    @abstractmethod
    def interrupt_session(
        self,
        session_id: str,
        token: int,
        *,
        most: int,
        message: str,
        data: Mapping[str, Any] | None = None,
    ) -> SessionRecord | None:
        """Mark an active session whose holder is dead as interrupted, and end its lease.

        In one transaction: the status becomes interrupted, or failed when that happened ``most``
        times before; ``recoveries`` counts it; ``message`` is logged as a warning. None, and nothing is
        changed, unless the session is active and held with ``token``: of many callers one wins.
        """

    # Effects ---------------------------------------------------------------------------------

    @abstractmethod
    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        """Record an attempt at an effect, and return what is recorded under its key and occurrence.

        That is the draft's own attempt if nothing was recorded, or the attempt that it is to take the
        place of; otherwise what was there, unchanged: compare the ``attempt_id``. Beginning the same
        attempt again changes nothing. Raises `SessionNotFound`, and `LeaseLost` by the draft's fence.
        """

    @abstractmethod
    def finish_effect(
        self,
        session_id: str,
        key: str,
        occurrence: int,
        attempt_id: str,
        outcome: EffectOutcome,
        *,
        fence: int | None = None,
    ) -> bool:
        """Record how an attempt ended. False when another attempt, or none, is recorded there.

        Raises `LeaseLost` for a ``fence`` that is not the lease's token.
        """

    @abstractmethod
    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        """List effects in the order of their last start.

        Raises `EffectAltered` for one that is not as it was stored, as `begin_effect` does.
        """

    @abstractmethod
    def effect_places(self) -> list[tuple[str, str, int]]:
        """Name all effects by session, key and occurrence. None of them is looked at."""

    # Logs ------------------------------------------------------------------------------------

    @abstractmethod
    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        """Append a line. Raises `SessionNotFound`."""

    @abstractmethod
    def list_logs(
        self,
        session_id: str,
        *,
        level: str | None = None,
        key: str | None = None,
        newest: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[LogRecord]:
        """Return log lines in the order of the calls, or with ``newest`` the other way round.

        ``key`` asks for those whose data has it at the top.
        """
