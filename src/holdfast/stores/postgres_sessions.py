"""Sessions in PostgreSQL: their agents, their life, their log, and copying or erasing one whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.errors import AgentNotFound, CheckpointNotFound, SessionNotFound
from holdfast.ids import new_id
from holdfast.model import (
    AgentRecord,
    CheckpointRecord,
    LogRecord,
    NewAgent,
    NewSession,
    Payload,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    WriteCopy,
)
from holdfast.stores import postgres_listing as listing
from holdfast.stores import postgres_statements as statements
from holdfast.stores.chain import content_digest, record_row
from holdfast.stores.checks import (
    as_utc,
    check_agent_status,
    check_filter,
    check_level,
    check_limit,
    check_log,
    check_session_change,
    checkpoint_keys,
    document_text,
    merged_text,
)
from holdfast.stores.postgres_chain import PostgresChain
from holdfast.stores.postgres_connection import execute
from holdfast.stores.postgres_pool import AnyConnection
from holdfast.stores.postgres_rows import parse_agent, parse_log, parse_session
from holdfast.stores.postgres_statements import Statement, uuid_or_none
from holdfast.stores.rules import refuse_change


class PostgresSessions(PostgresChain):
    """Agents, sessions and logs."""

    # Agents ----------------------------------------------------------------------------------

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        [row] = self._rows("agents.insert", draft=statements.agent_document(draft))
        return parse_agent(row)

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        rows = self._rows("agents.find", again=True, id=uuid_or_none(agent_id))
        return parse_agent(rows[0]) if rows else None

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        statement = listing.list_agents_statement(
            status, parent_id, limit, self.tenant, self.schema
        )
        return [parse_agent(row) for row in self._link.rows(statement, again=True)]

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        check_agent_status(status)
        rows = self._rows(
            "agents.update",
            again=True,
            id=uuid_or_none(agent_id),
            status=status,
            metadata=document_text(metadata),
        )
        if not rows:
            raise AgentNotFound(f"{self.url} has no agent {agent_id!r}")
        return parse_agent(rows[0])

    # Sessions --------------------------------------------------------------------------------

    def create_session(self, draft: NewSession) -> SessionRecord:
        [row] = self._rows("sessions.insert", draft=statements.session_document(draft))
        return parse_session(row)

    def find_session(self, session_id: str) -> SessionRecord | None:
        check_filter(session_id, "session id", str)
        rows = self._rows("sessions.find", again=True, id=session_id)
        return parse_session(rows[0]) if rows else None

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        statement = listing.list_sessions_statement(query, self.tenant, self.schema)
        return [parse_session(row) for row in self._link.rows(statement, again=True)]

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
        dumped, merged = document_text(metadata), document_text(merge_metadata)
        params = {
            "tenant": self.tenant,
            "id": session_id,
            "status": status,
            "expected": None if expected is None else list(expected),
            "resumed_at": None if resumed_at is None else as_utc(resumed_at, "resumed_at"),
            "paused_until": None if paused_until is None else as_utc(paused_until, "paused_until"),
            "pause_reason": pause_reason,
            "metadata": dumped,
            "task_description": task_description,
            "fence": fence,
        }

        def work(connection: AnyConnection) -> list[tuple[Any, ...]]:
            update = self._sql["sessions.update"]
            if merged is None:
                return execute(connection, Statement(update, params))
            key = {"tenant": self.tenant, "id": session_id}
            with connection.transaction():
                held = execute(connection, Statement(self._sql["postgres.session.metadata"], key))
                if not held:
                    return []
                base = held[0][0] if dumped is None else dumped
                whole = {**params, "metadata": merged_text(base, merged)}
                return execute(connection, Statement(update, whole))

        # Not repeated after a lost reply: the second time its own effect would stand against it.
        while not (rows := self._link.run(work, again=expected is None)):
            found = self.find_session(session_id)
            if found is None:
                raise SessionNotFound(f"{self.url} has no session {session_id!r}")
            present, token = found.status, found.lease_token
            refuse_change(session_id, present, token, status=status, expected=expected, fence=fence)
            # What stood against it is gone by now.
        return parse_session(rows[0])

    def delete_session(self, session_id: str, *, agent_prefix: str | None = None) -> bool:
        check_filter(session_id, "session id", str)
        check_filter("" if agent_prefix is None else agent_prefix, "agent prefix", str)
        [(erased,)] = self._erase("sessions.delete", id=session_id, agent_prefix=agent_prefix)
        return bool(erased)

    def erase_threads(
        self, session_ids: Collection[str], *, namespace: str, agent_prefix: str
    ) -> int:
        for session_id in session_ids:
            check_filter(session_id, "session id", str)
        check_filter(namespace, "namespace", str)
        check_filter(agent_prefix, "agent prefix", str)
        [(erased,)] = self._erase(
            "postgres.erase_threads",
            ids=list(session_ids),
            namespace=namespace,
            agent_prefix=agent_prefix,
        )
        return int(erased)

    def erase_tenant(self) -> int:
        [(erased,)] = self._erase("postgres.erase_tenant", again=True)
        return int(erased)

    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        check_filter(source_id, "session id", str)
        source = {"tenant": self.tenant, "id": source_id}
        wanted = None if checkpoint_ids is None else checkpoint_keys(checkpoint_ids)
        document = statements.session_document(draft)

        def work(connection: AnyConnection) -> tuple[Any, ...]:
            with connection.transaction():
                execute(connection, Statement(self._sql["postgres.lock_tenant"], source))
                if not execute(connection, Statement(self._sql["postgres.copy.lock"], source)):
                    raise SessionNotFound(f"{self.url} has no session {source_id!r}")
                sources = Statement(self._sql["postgres.copy.sources"], {**source, "ids": wanted})
                rows = {str(row[0]): row for row in execute(connection, sources)}
                ids = list(rows)
                if missing := sorted(set(wanted or ()).difference(ids)):
                    raise CheckpointNotFound(
                        f"session {source_id!r} has no checkpoint {missing[0]}"
                    )
                copies = {id_: new_id() for id_ in ids}
                params = {
                    "tenant": self.tenant,
                    "source": source_id,
                    "draft": document,
                    "ids": ids,
                    "new_ids": list(copies.values()),
                    "contents": [
                        self._content_of_copy(*self._verified(rows[id_]), draft.id, copies)
                        for id_ in ids
                    ],
                }
                [row] = execute(connection, Statement(self._sql["postgres.copy"], params))
                kept = (
                    None
                    if checkpoint_ids is None
                    else {(rows[id_][3], rows[id_][5]) for id_ in ids}
                )
                self._copy_writes(connection, source_id, draft.id, kept)
                return row

        return parse_session(self._link.run(work))

    def _copy_writes(
        self,
        connection: AnyConnection,
        source_id: str,
        session_id: str,
        kept: Collection[tuple[str, str | None]] | None,
    ) -> None:
        """Copy pending writes, all of them or those of some checkpoints; each is bound to its session."""
        source = {"tenant": self.tenant, "session_id": source_id}
        found = execute(connection, Statement(self._sql["writes.session"], source))
        copies = [
            WriteCopy(row[1], self.sums.check_write(row[:-1]), row[-1])
            for row in found
            if kept is None or (row[1], row[2]) in kept
        ]
        with connection.cursor() as cursor:
            cursor.executemany(
                self._sql["postgres.transfer.write"],
                [statements.write_columns(one, session_id, self.sums) for one in copies],
            )

    def _content_of_copy(
        self, record: CheckpointRecord, payload: Payload, session_id: str, copies: Mapping[str, str]
    ) -> bytes:
        """Return the digest of what a copy says: it has its own id and session."""
        copy = replace(record, id=copies[record.id], session_id=session_id)
        row = record_row(copy, None)
        manifest = payload.manifest.encode()
        return content_digest(self.row_digest, self.tenant, row, manifest, payload.refs)

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        for session_id in session_ids or ():
            check_filter(session_id, "session id", str)
        parts = [self._sql["sessions.usage"]]
        if session_ids is not None:
            parts.append(self._sql["sessions.usage.where.ids"])
        parts.append(self._sql["sessions.usage.order"])
        params = {"tenant": self.tenant, "ids": list(session_ids or ())}
        return [
            SessionUsage(session_id, count, size, stored, latest and str(latest))
            for session_id, count, size, stored, latest in self._link.rows(
                Statement("\n".join(parts), params), again=True
            )
        ]

    # Logs ------------------------------------------------------------------------------------

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_filter(session_id, "session id", str)
        check_log(level, message)
        rows = self._rows(
            "logs.insert",
            session_id=session_id,
            level=level,
            message=message,
            data=document_text(data, "log data"),
        )
        if not rows:
            raise SessionNotFound(f"{self.url} has no session {session_id!r}")
        return parse_log(rows[0])

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
        check_filter(session_id, "session id", str)
        params = {
            "tenant": self.tenant,
            "session_id": session_id,
            "limit": check_limit(limit),
            "offset": check_limit(offset, "offset"),
        }
        parts = [self._sql["logs.list"]]
        check_level(level)
        if level is not None:
            parts.append(self._sql["logs.where.level"])
            params["level"] = level
        if key is not None:
            check_filter(key, "key", str)
            parts.append(self._sql["logs.where.key"])
            params["key"] = key
        parts.append(self._sql["logs.order.newest" if newest else "logs.order"])
        rows = self._link.rows(Statement("\n".join(parts), params), again=True)
        return [parse_log(row) for row in rows]
