"""Agents in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from holdfast.errors import AgentExists, AgentNotFound
from holdfast.model import AgentRecord, NewAgent
from holdfast.stores.checks import (
    check_agent,
    check_agent_filters,
    check_agent_status,
    check_filter,
    check_limit,
    document_text,
)
from holdfast.stores.memory_tables import Agent, MemoryTables, agent_record, by_age
from holdfast.stores.rules import FINAL_AGENT_STATUSES


class MemoryAgents(MemoryTables):
    """Agents: who works, and who started whom."""

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        draft = check_agent(draft)
        with self._open():
            return agent_record(self._insert_agent(draft))

    def _insert_agent(self, draft: NewAgent) -> Agent:
        depth = 0
        if draft.parent_id is not None:
            parent = self._agents.get(draft.parent_id)
            if parent is None:
                raise AgentNotFound(f"no agent has the id {draft.parent_id}, given as parent")
            depth = parent.record.depth_level + 1
        if draft.id in self._agents:
            raise AgentExists(f"an agent with the id {draft.id} exists already")
        now = self._now()
        record = AgentRecord(
            id=draft.id,
            name=draft.name,
            agent_type=draft.agent_type,
            status=draft.status,
            parent_id=draft.parent_id,
            depth_level=depth,
            metadata=None,
            created_at=now,
            updated_at=now,
            completed_at=now if draft.status in FINAL_AGENT_STATUSES else None,
        )
        agent = Agent(record, document_text(draft.metadata))
        self._agents[draft.id] = agent
        return agent

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        check_filter(agent_id, "agent id", str)
        with self._open():
            found = self._agents.get(agent_id.lower())
            return None if found is None else agent_record(found)

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        check_agent_filters(status, parent_id)
        limit = check_limit(limit)
        with self._open():
            found = sorted(self._agents.values(), key=by_age, reverse=True)
            chosen = (
                agent_record(agent)
                for agent in found
                if (status is None or agent.record.status == status)
                and (parent_id is None or agent.record.parent_id == parent_id.lower())
            )
            return list(islice(chosen, limit))

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        check_filter(agent_id, "agent id", str)
        check_agent_status(status)
        dumped = document_text(metadata)
        with self._open():
            agent = self._agents.get(agent_id.lower())
            if agent is None:
                raise AgentNotFound(f"no agent has the id {agent_id}")
            now = self._now()
            changes: dict[str, Any] = {"updated_at": now}
            if status is not None:
                changes["status"] = status
                changes["completed_at"] = now if status in FINAL_AGENT_STATUSES else None
            agent.record = replace(agent.record, **changes)
            if dumped is not None:
                agent.document = dumped
            return agent_record(agent)
