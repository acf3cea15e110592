"""Checkpoints in PostgreSQL, 14 or later.

A put is one statement: the function ``put`` of the schema locks the session, stores the checkpoint
and trims, in one round trip. What writes goes through such functions, because inside one every
statement sees what was committed before it; reading is plain SQL. Chunks are stored as they are and
left to TOAST to compress, so that ``checkpoint_state(id)`` can read a state without this package.

    store = PostgresStore("postgresql://me@db.example/agents?schema=holdfast&tenant=acme")
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson

from holdfast.errors import (
    AgentNotFound,
    CheckpointNotFound,
    IllegalTransition,
    PackMissing,
    SessionNotFound,
)
from holdfast.ids import check_sql_name, check_tenant, new_id
from holdfast.model import (
    LEASE_TTL,
    AgentRecord,
    CheckpointQuery,
    CheckpointRecord,
    GcReport,
    Lease,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewSession,
    NewWrite,
    PackReport,
    Payload,
    PutResult,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    WorkspacePack,
    WriteRecord,
)
from holdfast.sql import DEFAULT_SCHEMA, queries
from holdfast.stores import postgres_statements as statements
from holdfast.stores.checks import (
    as_utc,
    check_agent_status,
    check_commit,
    check_fence,
    check_filter,
    check_free_text,
    check_lease,
    check_limit,
    check_log,
    check_pack,
    check_session_status,
    document_text,
    merged_text,
)
from holdfast.stores.postgres_connection import (
    AnyConnection,
    Link,
    Pool,
    check_schema,
    execute,
    migrate_schema,
    parse_url,
)
from holdfast.stores.postgres_statements import (
    Statement,
    StoredCheckpoint,
    parse_agent,
    parse_checkpoint,
    parse_lease,
    parse_log,
    parse_put,
    parse_read,
    parse_session,
    parse_write,
    uuid_or_none,
)
from holdfast.stores.postgres_transfer import PostgresTransfer
from holdfast.stores.rules import (
    MOST_PACKS,
    ORPHAN_AGE,
    lease_busy,
    lease_lost,
    pack_order,
    session_completed,
)


class PostgresStore(PostgresTransfer):
    """A store in one schema of a PostgreSQL database.

    The URL's ``schema`` and ``tenant`` parameters win over the arguments of the same name. A pool
    that is handed in is used and never closed; its connections should be in autocommit mode and
    must not ask for another isolation level than READ COMMITTED. With ``ensure_schema=False``
    nothing is created, and `SchemaMissing` is raised if something would have to be.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        tenant: str = "default",
        pool: Pool | None = None,
        ensure_schema: bool = True,
    ) -> None:
        target = parse_url(url)
        self.schema = check_sql_name(target.schema or schema, "schema")
        self.tenant = check_tenant(tenant if target.tenant is None else target.tenant)
        self.url = target.shown
        self._sql = queries("postgres", self.schema)
        self._link = Link(target.conninfo, self.schema, self.url, pool)
        prepare = migrate_schema if ensure_schema else check_schema
        prepare(self._link)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.url, self.schema, self.tenant)

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
        statement = statements.list_agents_statement(
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
        statement = statements.list_sessions_statement(query, self.tenant, self.schema)
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
        fence: int | None = None,
    ) -> SessionRecord:
        check_filter(session_id, "session id", str)
        check_session_status(status)
        check_free_text(pause_reason, "pause reason")
        check_fence(fence)
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
        rows = self._link.run(work, again=expected is None)
        if rows:
            return parse_session(rows[0])
        present = self.find_session(session_id)
        if present is None:
            raise SessionNotFound(f"{self.url} has no session {session_id!r}")
        if fence is not None and present.lease_token != fence:
            raise lease_lost(session_id)
        if expected is None or present.status in expected:
            raise session_completed(session_id)
        raise IllegalTransition(
            f"session {session_id!r} is {present.status}, not {' or '.join(expected or ())}; "
            f"it was not changed"
        )

    def delete_session(self, session_id: str) -> bool:
        check_filter(session_id, "session id", str)
        [(erased,)] = self._rows("sessions.delete", id=session_id)
        return bool(erased)

    def erase_threads(self, session_ids: Collection[str], *, namespace: str, agent_id: str) -> int:
        for session_id in session_ids:
            check_filter(session_id, "session id", str)
        check_filter(namespace, "namespace", str)
        [(erased,)] = self._rows(
            "postgres.erase_threads",
            ids=list(session_ids),
            namespace=namespace,
            agent_id=uuid_or_none(agent_id),
        )
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
        document = statements.session_document(draft)

        def work(connection: AnyConnection) -> tuple[Any, ...]:
            with connection.transaction():
                execute(connection, Statement(self._sql["postgres.lock_tenant"], source))
                if not execute(connection, Statement(self._sql["postgres.copy.lock"], source)):
                    raise SessionNotFound(f"{self.url} has no session {source_id!r}")
                found = execute(connection, Statement(self._sql["postgres.copy.sources"], source))
                ids = _chosen([str(row[0]) for row in found], checkpoint_ids, source_id)
                params = {
                    "tenant": self.tenant,
                    "source": source_id,
                    "draft": document,
                    "ids": ids,
                    "new_ids": [new_id() for _ in ids],
                    "whole": checkpoint_ids is None,
                }
                [row] = execute(connection, Statement(self._sql["postgres.copy"], params))
                return row

        return parse_session(self._link.run(work))

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

    # Leases ----------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        check_filter(session_id, "session id", str)
        check_lease(owner, ttl)
        check_fence(over)
        # May be sent again after a lost reply: the owner joins what it has taken.
        [(granted, *lease)] = self._rows(
            "postgres.leases.acquire",
            again=True,
            id=session_id,
            owner=owner,
            seconds=ttl.total_seconds(),
            over=over,
        )
        if not granted:
            raise lease_busy(parse_lease(lease))
        return parse_lease(lease)

    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        check_lease("renewed", ttl)
        rows = self._rows(
            "leases.renew",
            again=True,
            ids=list(tokens),
            tokens=list(tokens.values()),
            seconds=ttl.total_seconds(),
        )
        return {row[0] for row in rows}

    def release_lease(self, session_id: str, token: int) -> bool:
        check_filter(session_id, "session id", str)
        check_fence(token)
        return bool(self._rows("leases.release", id=session_id, token=token))

    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        parts, params = [self._sql["leases.list"]], {"tenant": self.tenant}
        if session_id is not None:
            check_filter(session_id, "session id", str)
            parts.append(self._sql["leases.where.id"])
            params["id"] = session_id
        rows = self._link.rows(Statement("\n".join(parts), params), again=True)
        return sorted(map(parse_lease, rows), key=lambda lease: lease.session_id)

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
        rows = self._rows(
            "postgres.leases.interrupt",
            id=session_id,
            token=token,
            most=most,
            message=message,
            data=document_text(data, "log data"),
        )
        return parse_session(rows[0]) if rows else None

    # Checkpoints -----------------------------------------------------------------------------

    def put(self, draft: NewCheckpoint) -> PutResult:
        statement = statements.put_statement(draft, self.tenant, self.schema)
        [row] = self._link.rows(statement, again=True)
        return parse_put(row)

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        statement = statements.list_statement(query, self.tenant, self.schema)
        return [parse_checkpoint(row) for row in self._link.rows(statement, again=True)]

    def read_checkpoint(self, query: CheckpointQuery) -> StoredCheckpoint | None:
        """Return the newest checkpoint of a query with its whole payload, in one round trip."""
        statement = statements.read_statement(query, self.tenant, self.schema)
        rows = self._link.rows(statement, again=True)
        return parse_read(rows[0]) if rows else None

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        rows = self._rows(
            "checkpoints.latest_of_agent", again=True, agent_id=uuid_or_none(agent_id)
        )
        return parse_checkpoint(rows[0]) if rows else None

    def read_payload(self, checkpoint_id: str) -> Payload | None:
        rows = self._rows("checkpoints.payload", again=True, id=uuid_or_none(checkpoint_id))
        return Payload(*rows[0]) if rows else None

    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        ids = [uuid_or_none(checkpoint_id) for checkpoint_id in checkpoint_ids]
        rows = self._rows("checkpoints.payloads", again=True, ids=ids)
        return {str(id_): Payload(manifest, refs) for id_, manifest, refs in rows}

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        rows = self._rows("chunks.read", again=True, digests=list(digests))
        return {digest: data for digest, codec, data in rows if codec == 0}

    def mark_restored(self, checkpoint_id: str, *, fence: int | None = None) -> CheckpointRecord:
        check_fence(fence)
        rows = self._rows(
            "checkpoints.mark_restored", again=True, id=uuid_or_none(checkpoint_id), fence=fence
        )
        if not rows:
            raise CheckpointNotFound(f"{self.url} has no checkpoint {checkpoint_id!r}")
        return parse_checkpoint(rows[0])

    def mark_restoring(
        self, checkpoint_id: str, *, seconds: float, fence: int | None = None
    ) -> None:
        check_fence(fence)
        rows = self._rows(
            "checkpoints.mark_restoring",
            again=True,
            id=uuid_or_none(checkpoint_id),
            seconds=seconds,
            fence=fence,
        )
        if not rows:
            raise CheckpointNotFound(f"{self.url} has no checkpoint {checkpoint_id!r}")

    def delete_checkpoints(
        self,
        checkpoint_ids: Sequence[str],
        *,
        fence: int | None = None,
        spare_restoring: bool = False,
    ) -> int:
        statement = statements.delete_statement(
            checkpoint_ids,
            self.tenant,
            self.schema,
            fence=fence,
            spare_restoring=spare_restoring,
        )
        [(count,)] = self._link.rows(statement)
        return int(count)

    # Pending writes --------------------------------------------------------------------------

    def put_writes(
        self,
        session: NewSession,
        namespace: str,
        external_id: str,
        writes: Sequence[NewWrite],
        *,
        fence: int | None = None,
    ) -> None:
        statement = statements.put_writes_statement(
            session, namespace, external_id, writes, self.tenant, self.schema, fence=fence
        )
        self._link.rows(statement, again=True)

    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        check_filter(session_id, "session id", str)
        check_filter(namespace, "namespace", str)
        for external_id in external_ids:
            check_filter(external_id, "external id", str)
        rows = self._rows(
            "writes.list",
            again=True,
            session_id=session_id,
            namespace=namespace,
            external_ids=list(external_ids),
        )
        return [parse_write(row) for row in rows]

    # Workspace packs -------------------------------------------------------------------------

    def workspace_commits(self) -> set[str]:
        return {row[0] for row in self._rows("checkpoints.workspace_commits", again=True)}

    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        check_pack(commit, needs, data)
        [(stored,)] = self._rows(
            "postgres.packs.put", commit=commit, needs=list(needs), data=data, replace=replace
        )
        return bool(stored)

    def find_packs(self, commits: Collection[str]) -> set[str]:
        for commit in commits:
            check_commit(commit, "commit")
        return {row[0] for row in self._rows("packs.find", again=True, commits=list(commits))}

    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        check_commit(commit, "commit")
        rows = self._rows(
            "packs.below", again=True, commit=commit, have=list(have), limit=MOST_PACKS + 1
        )
        needs = {row[0]: tuple(orjson.loads(row[1])) for row in rows}
        return (self._read_pack(one, needs[one]) for one in pack_order(commit, needs, have))

    def _read_pack(self, commit: str, needs: tuple[str, ...]) -> WorkspacePack:
        rows = self._rows("packs.data", again=True, commit=commit)
        if not rows:
            raise PackMissing(f"the workspace pack of commit {commit} was removed meanwhile")
        return WorkspacePack(commit, needs, rows[0][0])

    def delete_packs(self, commits: Collection[str]) -> PackReport:
        for commit in commits:
            check_commit(commit, "commit")
        return self._remove_packs(commits=list(commits), dry_run=False)

    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        return self._remove_packs(commits=None, dry_run=dry_run)

    def _remove_packs(self, *, commits: list[str] | None, dry_run: bool) -> PackReport:
        [(packs, size)] = self._rows(
            "postgres.packs.remove", commits=commits, grace=ORPHAN_AGE, dry_run=dry_run
        )
        return PackReport(packs, size)

    def pack_usage(self) -> PackReport:
        [(packs, size)] = self._rows("packs.usage", again=True)
        return PackReport(packs, size)

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
        if level is not None:
            check_filter(level, "level", str)
            parts.append(self._sql["logs.where.level"])
            params["level"] = level
        if key is not None:
            check_filter(key, "key", str)
            parts.append(self._sql["logs.where.key"])
            params["key"] = key
        parts.append(self._sql["logs.order.newest" if newest else "logs.order"])
        rows = self._link.rows(Statement("\n".join(parts), params), again=True)
        return [parse_log(row) for row in rows]

    # Upkeep ----------------------------------------------------------------------------------

    def purge_expired(self) -> int:
        [(count,)] = self._rows("checkpoints.purge_expired")
        return int(count)

    def gc(self, *, dry_run: bool = False) -> GcReport:
        [(chunks, size, writes)] = self._rows("postgres.gc", again=True, dry_run=dry_run)
        return GcReport(chunks, size, writes, dry_run)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        return (str(row[0]) for row in self._rows("checkpoints.ids", again=True))

    def total_bytes(self) -> int:
        [(size,)] = self._rows("chunks.total_bytes", again=True)
        return int(size)

    def close(self) -> None:
        self._link.close()

    def _rows(self, name: str, *, again: bool = False, **params: Any) -> list[tuple[Any, ...]]:
        statement = Statement(self._sql[name], {"tenant": self.tenant, **params})
        return self._link.rows(statement, again=again)


def _chosen(found: list[str], wanted: Sequence[str] | None, source_id: str) -> list[str]:
    """Return the checkpoints to copy, oldest first."""
    if wanted is None:
        return found
    chosen = {checkpoint_id.lower() for checkpoint_id in wanted}
    if missing := sorted(chosen.difference(found)):
        raise CheckpointNotFound(f"session {source_id!r} has no checkpoint {missing[0]}")
    return [checkpoint_id for checkpoint_id in found if checkpoint_id in chosen]
