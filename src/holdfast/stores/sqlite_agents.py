"""Agents in SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import apsw

from holdfast.errors import AgentExists, AgentNotFound
from holdfast.model import AgentRecord, NewAgent
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.checks import (
    check_agent,
    check_agent_filters,
    check_agent_status,
    check_filter,
    document_text,
)
from holdfast.stores.rules import FINAL_AGENT_STATUSES
from holdfast.stores.sqlite_access import SqliteAccess, all_rows
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_errors import extended_code
from holdfast.stores.sqlite_rows import Row

_TAKEN: Final = (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE)


class SqliteAgents(SqliteAccess):
    """Agents: who works, and who started whom."""

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        draft = check_agent(draft)
        return self._file.write(lambda connection: self._insert_agent(connection, draft))

    def _insert_agent(self, connection: apsw.Connection, draft: NewAgent) -> AgentRecord:
        depth = 0
        if draft.parent_id is not None:
            parent = self._agent(connection, draft.parent_id)
            if parent is None:
                raise AgentNotFound(f"no agent has the id {draft.parent_id}, given as parent")
            depth = parent.depth_level + 1
        metadata = document_text(draft.metadata)
        now = self._clock()
        completed = now if draft.status in FINAL_AGENT_STATUSES else None
        row = (
            draft.id,
            draft.name,
            draft.agent_type,
            draft.status,
            draft.parent_id,
            depth,
            metadata,
            now,
            now,
            completed,
        )
        self._insert_agent_row(connection, row)
        return rows.agent(row)

    def _insert_agent_row(self, connection: apsw.Connection, row: Row) -> None:
        # An id is unique beyond the tenant, so an agent that is not to be seen can be in the way.
        try:
            connection.execute(SQL["agents.insert"], (self.tenant, *row))
        except apsw.ConstraintError as error:
            if extended_code(error) in _TAKEN:
                raise AgentExists(f"an agent with the id {row[0]} exists already") from None
            raise

    def _agent(self, connection: apsw.Connection, agent_id: str) -> AgentRecord | None:
        found = all_rows(connection, "agents.find", (self.tenant, agent_id.lower()))
        return rows.agent(found[0]) if found else None

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        check_filter(agent_id, "agent id", str)
        return self._file.read(lambda connection: self._agent(connection, agent_id))

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        statement, values = [SQL["agents.list"]], [self.tenant]
        check_agent_filters(status, parent_id)
        if status is not None:
            statement.append(SQL["agents.where.status"])
            values.append(status)
        if parent_id is not None:
            statement.append(SQL["agents.where.parent_id"])
            values.append(parent_id.lower())
        return self._list(rows.agent, statement, values, SQL["agents.order"], limit)

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

        def update(connection: apsw.Connection) -> AgentRecord:
            found = all_rows(connection, "agents.find", (self.tenant, agent_id.lower()))
            if not found:
                raise AgentNotFound(f"no agent has the id {agent_id}")
            row = list(found[0])
            row[8] = self._clock()
            if status is not None:
                row[3] = status
                row[9] = row[8] if status in FINAL_AGENT_STATUSES else None
            if dumped is not None:
                row[6] = dumped
            values = (row[3], row[6], row[8], row[9], self.tenant, row[0])
            connection.execute(SQL["agents.update"], values)
            return rows.agent(tuple(row))

        return self._file.write(update)
