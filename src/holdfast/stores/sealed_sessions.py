"""Agents, sessions, leases, effects and logs of a sealed store: texts and documents are sealed.

Arguments are checked as they were given: sealed, everything could be stored.

A filter on the values of metadata cannot be left to the database, which sees them sealed: rows are opened
here, and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
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
from holdfast.stores.checks import (
    check_agent,
    check_agent_status,
    check_effect,
    check_fence,
    check_filter,
    check_finish,
    check_limit,
    check_log,
    check_session,
    check_session_change,
)
from holdfast.stores.memory_tables import wanted_values
from holdfast.stores.sealed_access import SealedAccess, has_metadata


class SealedSessions(SealedAccess):
    """Who works on what, who may write, and what came of it."""

    # Agents ----------------------------------------------------------------------------------

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        return self.rows.opened_agent(self.inner.create_agent(self.rows.agent(check_agent(draft))))

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        found = self.inner.find_agent(agent_id)
        return None if found is None else self.rows.opened_agent(found)

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        found = self.inner.list_agents(status=status, parent_id=parent_id, limit=limit)
        return [self.rows.opened_agent(one) for one in found]

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        check_filter(agent_id, "agent id", str)
        check_agent_status(status)
        sealed = self.rows.agent_metadata(metadata, agent_id.lower())
        return self.rows.opened_agent(
            self.inner.update_agent(agent_id, status=status, metadata=sealed)
        )

    # Sessions --------------------------------------------------------------------------------

    def create_session(self, draft: NewSession) -> SessionRecord:
        sealed = self.rows.session(check_session(draft))
        return self.rows.opened_session(self.inner.create_session(sealed))

    def find_session(self, session_id: str) -> SessionRecord | None:
        found = self.inner.find_session(session_id)
        return None if found is None else self.rows.opened_session(found)

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        wanted = wanted_values(query.metadata)
        if wanted is None:
            return [self.rows.opened_session(one) for one in self.inner.list_sessions(query)]
        limit = check_limit(query.limit)
        listed = self.inner.list_sessions(replace(query, metadata={}, limit=None))
        opened = map(self.rows.opened_session, listed)
        return [one for one in opened if has_metadata(one.metadata, wanted)][:limit]

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
        check_session_change(session_id, status, pause_reason, task_description, fence)
        rows = self.rows
        if metadata is not None:
            metadata = rows.session_metadata(metadata, session_id)
        if merge_metadata is not None:
            merge_metadata = rows.session_metadata(merge_metadata, session_id)
        return rows.opened_session(
            self.inner.update_session(
                session_id,
                status=status,
                expected=expected,
                resumed_at=resumed_at,
                paused_until=paused_until,
                pause_reason=rows.text(pause_reason, "pause reason", session_id),
                metadata=metadata,
                merge_metadata=merge_metadata,
                task_description=rows.text(task_description, "task", session_id),
                fence=fence,
            )
        )

    def delete_session(self, session_id: str, *, agent_prefix: str | None = None) -> bool:
        with self._forgetting():
            return self.inner.delete_session(session_id, agent_prefix=agent_prefix)

    def erase_threads(
        self, session_ids: Collection[str], *, namespace: str, agent_prefix: str
    ) -> int:
        with self._forgetting():
            return self.inner.erase_threads(
                session_ids, namespace=namespace, agent_prefix=agent_prefix
            )

    def erase_tenant(self) -> int:
        with self._forgetting():
            return self.inner.erase_tenant()

    def leftovers(self) -> list[str]:
        return self.inner.leftovers()

    def mark_session(self, session_id: str) -> None:
        """Mark a session whose own row was lost and made again. It keeps nothing of its metadata."""
        if self.inner.find_session(session_id) is not None:
            marked = self.rows.session_metadata(None, session_id)
            self.inner.update_session(session_id, metadata=marked)

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        return self.inner.session_usage(session_ids)

    # Leases ----------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        return self.inner.acquire_lease(session_id, owner, ttl=ttl, over=over)

    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        return self.inner.renew_leases(tokens, ttl=ttl)

    def release_lease(self, session_id: str, token: int) -> bool:
        return self.inner.release_lease(session_id, token)

    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        return self.inner.list_leases(session_id=session_id)

    def interrupt_session(
        self,
        session_id: str,
        token: int,
        *,
        most: int,
        message: str,
        data: Mapping[str, Any] | None = None,
    ) -> SessionRecord | None:
        check_filter(session_id, "session id", str)
        check_fence(token)
        check_log("warning", message)
        message, data = self.rows.log(session_id, "warning", message, data)
        found = self.inner.interrupt_session(
            session_id, token, most=most, message=message, data=data
        )
        return None if found is None else self.rows.opened_session(found)

    # Effects ---------------------------------------------------------------------------------

    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        check_effect(draft)
        return self.rows.opened_effect(self.inner.begin_effect(self.rows.effect(draft)))

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
        check_finish(session_id, key, outcome, fence)
        key = self.rows.effect_key(key)
        sealed = self.rows.outcome(outcome, session_id, key, occurrence, attempt_id)
        return self.inner.finish_effect(
            session_id, key, occurrence, attempt_id, sealed, fence=fence
        )

    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        if isinstance(query.key, str):
            query = replace(query, key=self.rows.effect_key(query.key))
        return [self.rows.opened_effect(one) for one in self.inner.list_effects(query)]

    def effect_places(self) -> list[tuple[str, str, int]]:
        return [
            (session_id, self.rows.opened_effect_key(key), occurrence)
            for session_id, key, occurrence in self.inner.effect_places()
        ]

    # Logs ------------------------------------------------------------------------------------

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_filter(session_id, "session id", str)
        check_log(level, message)
        message, data = self.rows.log(session_id, level, message, data)
        return self.rows.opened_log(self.inner.append_log(session_id, level, message, data))

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
        found = self.inner.list_logs(
            session_id, level=level, key=key, newest=newest, limit=limit, offset=offset
        )
        return [self.rows.opened_log(one) for one in found]
