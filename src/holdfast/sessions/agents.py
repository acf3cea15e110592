"""What a manager can do with agents: who works, below whom, and where each was last."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any

from holdfast.errors import AgentNotFound, InvalidFilter
from holdfast.ids import NAME_BYTES, check_text, check_uuid, new_id
from holdfast.model import AGENT_STATUSES, AgentRecord, NewAgent
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.held import Surroundings
from holdfast.stores import Store


class ManagedAgents(ABC):
    """The agents of a store."""

    _store: Store
    _around: Surroundings

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
                status=one_of(status, AGENT_STATUSES, "status"),
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
            one_of(status, AGENT_STATUSES, "status")
        return self._store.update_agent(
            agent_id, status=status, metadata=self._around.redaction.document(metadata)
        )

    def latest_checkpoint(self, agent_id: str) -> Checkpoint | None:
        """Return an agent's newest checkpoint over all of its sessions, or None."""
        record = self._store.latest_of_agent(check_uuid(agent_id, "agent id"))
        return Checkpoint.of(record, self._store) if record is not None else None


def one_of(value: str, allowed: tuple[Any, ...], what: str) -> Any:
    """Return a value that must be one of some. Raises `InvalidFilter`."""
    if value not in allowed:
        raise InvalidFilter(f"{what} must be one of {', '.join(allowed)}, not {value!r}")
    return value
