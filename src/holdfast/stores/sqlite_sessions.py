"""Sessions in SQLite: their life, their log, and copying or erasing one with all it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import apsw

from holdfast.errors import (
    AgentNotFound,
    CheckpointNotFound,
    SessionExists,
    SessionNotFound,
)
from holdfast.ids import new_id
from holdfast.model import (
    LogRecord,
    NewSession,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    WriteRecord,
)
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.chain import GENESIS, link_of
from holdfast.stores.checks import (
    check_filter,
    check_level,
    check_limit,
    check_log,
    check_session,
    check_session_change,
    checkpoint_keys,
    document_text,
    merged_text,
)
from holdfast.stores.rules import first_token, foreign_session, lease_lost, refuse_change
from holdfast.stores.sqlite_access import all_rows, narrow, text_list
from holdfast.stores.sqlite_agents import SqliteAgents
from holdfast.stores.sqlite_chain import SqliteChain
from holdfast.stores.sqlite_chunks import SqliteChunks
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_leases import SqliteLeases
from holdfast.stores.sqlite_packs import SqlitePacks
from holdfast.stores.sqlite_rows import Row, stamp, stamp_given

_SESSION_FILTERS: Final = (
    ("status", str),
    ("agent_type", str),
    ("agent_id", str),
    ("agent_prefix", str),
    ("id_prefix", str),
    ("continued", bool),
)


class SqliteSessions(SqliteAgents, SqliteChunks, SqlitePacks, SqliteLeases, SqliteChain):
    """Sessions and their logs."""

    def create_session(self, draft: NewSession) -> SessionRecord:
        draft = check_session(draft)
        return self._file.write(lambda connection: self._insert_session(connection, draft))

    def _insert_session(self, connection: apsw.Connection, draft: NewSession) -> SessionRecord:
        if self._session_row(connection, draft.id) is not None:
            raise SessionExists(f"a session with the id {draft.id!r} exists already")
        if self._agent(connection, draft.agent_id) is None:
            if draft.agent is None:
                raise AgentNotFound(f"no agent has the id {draft.agent_id}")
            self._insert_agent(connection, draft.agent)
        metadata = document_text(draft.metadata)
        moment = self._now()
        now = stamp(moment)
        owner = draft.lease_owner
        token = first_token()
        lease: Row = (None, token, None, None, None)
        if owner is not None:
            lease = (owner, token, now, *self._expiry(moment, draft.lease_ttl))
        connection.execute(
            SQL["sessions.insert"],
            (
                self.tenant,
                draft.id,
                draft.agent_id,
                draft.agent_type,
                draft.task_description,
                draft.continues_id,
                draft.forked_from,
                metadata,
                now,
                now,
                draft.project_dir,
                *lease,
            ),
        )
        return rows.session(
            (
                draft.id,
                draft.agent_id,
                draft.agent_type,
                draft.task_description,
                "active",
                draft.continues_id,
                draft.forked_from,
                None,
                None,
                None,
                None,
                metadata,
                now,
                now,
                *lease[:4],
                0,
                draft.project_dir,
            )
        )

    def _session_row(self, connection: apsw.Connection, session_id: str) -> Row | None:
        found = all_rows(connection, "sessions.find", (self.tenant, session_id))
        return found[0] if found else None

    def find_session(self, session_id: str) -> SessionRecord | None:
        check_filter(session_id, "session id", str)
        row = self._file.read(lambda connection: self._session_row(connection, session_id))
        return None if row is None else rows.session(row)

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        statement, values = [SQL["sessions.list"]], [self.tenant]
        narrow("sessions.where.", query, _SESSION_FILTERS, statement, values)
        return self._list(rows.session, statement, values, SQL["sessions.order"], query.limit)

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
        resumed = stamp_given(resumed_at, "resumed_at")
        until = stamp_given(paused_until, "paused_until")

        def update(connection: apsw.Connection) -> SessionRecord:
            found = self._session_row(connection, session_id)
            if found is None:
                raise SessionNotFound(f"no session has the id {session_id!r}")
            row = list(found)
            refuse_change(
                session_id, row[4], row[15], status=status, expected=expected, fence=fence
            )
            if status is not None:
                row[4] = status
                paused = status == "paused"
                row[7:10] = (self._clock(), until, pause_reason) if paused else (None, None, None)
            row[3] = row[3] if task_description is None else task_description
            row[10] = row[10] if resumed is None else resumed
            row[11] = row[11] if dumped is None else dumped
            if merged is not None:
                row[11] = merged_text(row[11], merged)
            row[13] = self._clock()
            values = (row[3], row[4], *row[7:12], row[13], self.tenant, session_id)
            connection.execute(SQL["sessions.update"], values)
            return rows.session(tuple(row))

        return self._file.write(update)

    def _lock_session(
        self,
        connection: apsw.Connection,
        session_id: str,
        draft: NewSession | None,
        fence: int | None,
    ) -> tuple[str, str, int, bytes]:
        """Return a session that may be written with this fence: agent, status and end of its chain.

        It is created if the draft brings it.
        """
        found = all_rows(connection, "sqlite.put.session", (self.tenant, session_id))
        if found:
            agent_id, status, length, head, *lease = rows.standing_session(found[0], session_id)
            if lease[0] != fence:
                self._refuse_fence(connection, session_id, lease, fence)
            return agent_id, status, length, head
        if draft is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        if fence is not None:
            raise lease_lost(session_id)
        created = self._insert_session(connection, draft)
        return created.agent_id, created.status, 0, GENESIS

    def delete_session(self, session_id: str, *, agent_prefix: str | None = None) -> bool:
        check_filter(session_id, "session id", str)
        check_filter("" if agent_prefix is None else agent_prefix, "agent prefix", str)

        def erase(connection: apsw.Connection) -> bool:
            found = self._session_row(connection, session_id)
            if found is None:
                return False
            if agent_prefix is not None:
                self._refuse_foreign(connection, text_list([session_id]), agent_prefix)
            snapshots = self._snapshots_of(connection, text_list([session_id]))
            connection.execute(SQL["sessions.delete"], (self.tenant, session_id))
            self._forget_sessions(connection, [(session_id, found[1])])
            self._remove_snapshots(connection, snapshots)
            self._sweep(connection)
            return True

        return self._erase(erase)

    def erase_threads(
        self, session_ids: Collection[str], *, namespace: str, agent_prefix: str
    ) -> int:
        sessions = text_list(session_ids, "session id")
        check_filter(namespace, "namespace", str)
        check_filter(agent_prefix, "agent prefix", str)

        def erase(connection: apsw.Connection) -> int:
            if not all_rows(connection, "sqlite.erase.found", (self.tenant, sessions)):
                return 0
            if not namespace:
                self._refuse_foreign(connection, sessions, agent_prefix)
            snapshots = self._snapshots_of(connection, sessions)
            part = (self.tenant, sessions, namespace)
            erased = self._bury(connection, all_rows(connection, "sqlite.erase.checkpoints", part))
            connection.execute(SQL["sqlite.erase.writes"], part)
            values = (self.tenant, sessions, agent_prefix.lower())
            emptied = all_rows(connection, "sqlite.erase.empty_sessions", values)
            self._forget_sessions(connection, emptied)
            self._remove_snapshots(connection, snapshots)
            self._sweep(connection)
            return erased

        return self._erase(erase)

    def _forget_sessions(
        self, connection: apsw.Connection, erased: Collection[Sequence[Any]]
    ) -> None:
        """Let go of what other rows say of sessions, of which the id and the agent's are given.

        An agent whom nobody needs any more goes with them, and then perhaps the one above it.
        """
        sessions = text_list([session_id for session_id, _ in erased])
        connection.execute(SQL["sqlite.erase.links"], (self.tenant, sessions))
        agents = text_list({agent_id for _, agent_id in erased})
        while all_rows(connection, "sqlite.erase.agents", (self.tenant, agents)):
            pass

    def _refuse_foreign(
        self, connection: apsw.Connection, sessions: str, agent_prefix: str
    ) -> None:
        """Raise `ForeignSession` if one of these sessions (as JSON) has an agent whose id begins otherwise."""
        values = (self.tenant, sessions, agent_prefix.lower())
        for session_id, agent_type in all_rows(connection, "sqlite.erase.foreign", values):
            raise foreign_session(session_id, agent_type)

    def erase_tenant(self) -> int:
        def erase(connection: apsw.Connection) -> int:
            erased = len(all_rows(connection, "sqlite.sessions.ids", (self.tenant,)))
            connection.execute(SQL["sqlite.erase.tenant"], {"tenant": self.tenant})
            while True:
                connection.execute(SQL["sqlite.erase.deepest_agents"], (self.tenant,))
                if not connection.changes():
                    return erased

        return self._erase(erase)

    def leftovers(self) -> list[str]:
        return self._file.leftovers()

    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        check_filter(source_id, "session id", str)
        draft = check_session(draft)
        chosen = None if checkpoint_ids is None else set(checkpoint_keys(checkpoint_ids))

        def copy(connection: apsw.Connection) -> SessionRecord:
            if self._session_row(connection, source_id) is None:
                raise SessionNotFound(f"no session has the id {source_id!r}")
            key = (self.tenant, source_id)
            sources = all_rows(connection, "sqlite.copy.sources", (*key, self._clock()))
            if chosen is not None:
                sources = [row for row in sources if row[0] in chosen]
                missing = chosen - {row[0] for row in sources}
                if missing:
                    raise CheckpointNotFound(
                        f"session {source_id!r} has no checkpoint {', '.join(sorted(missing))}"
                    )
            session = self._insert_session(connection, draft)
            copies = {row[0]: new_id() for row in sources}
            head = GENESIS
            for number, source in enumerate(sources, 1):
                head = self._copy_checkpoint(connection, draft, source, copies, number, head)
            self._set_chain(connection, draft.id, len(sources), head)
            kept = {(row[3], row[5]) for row in sources}
            for *row, created_at in all_rows(connection, "writes.session", key):
                if chosen is None or (row[1], row[2]) in kept:
                    write = self.sums.check_write(tuple(row))
                    self._add_write(connection, draft.id, row[1], write, created_at)
            return session

        return self._file.write(copy)

    def _add_write(
        self,
        connection: apsw.Connection,
        session_id: str,
        namespace: str,
        write: WriteRecord,
        created_at: str,
    ) -> None:
        """Add a pending write that another session or store had."""
        place = (session_id, namespace, write.external_id)
        content = (write.task_path, write.channel, write.payload.manifest, write.payload.refs)
        row_sum = self.sums.write(*place, write)
        connection.execute(
            SQL["sqlite.write.insert"],
            (self.tenant, *place, write.task_id, write.index, *content, created_at, row_sum),
        )

    def _copy_checkpoint(
        self,
        connection: apsw.Connection,
        draft: NewSession,
        source: Row,
        copies: Mapping[str, str],
        number: int,
        previous: bytes,
    ) -> bytes:
        """Copy a checkpoint that is as it was stored into the session of the draft; return its link."""
        payload = self._verified(source)
        seq = self._next_seq(connection, draft.id, source[3])
        manifest = payload.manifest.encode()
        row = list(source[:25])
        row[0:3] = copies[source[0]], draft.id, draft.agent_id
        row[4] = seq
        row[6] = copies.get(source[6], source[6])
        row[15] = len(manifest) + len(payload.refs)
        link = link_of(
            self.row_digest, self.tenant, tuple(row), number, previous, manifest, payload.refs
        )
        values = (self.tenant, *row, number, previous, link, *source[29:31], source[32])
        connection.execute(SQL["sqlite.copy.checkpoint"], values)
        return link

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        statement, values = [SQL["sessions.usage"]], [self._clock(), self.tenant]
        if session_ids is not None:
            statement.append(SQL["sessions.usage.where.ids"])
            values.append(text_list(session_ids, "session id"))
        statement.append(SQL["sessions.usage.order"])
        found: list[Row] = self._file.read(
            lambda connection: connection.execute("\n".join(statement), values).fetchall()
        )
        return [SessionUsage(*row[:5]) for row in found]

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_filter(session_id, "session id", str)
        check_log(level, message)
        dumped = document_text(data, "log data")

        def append(connection: apsw.Connection) -> LogRecord:
            if self._session_row(connection, session_id) is None:
                raise SessionNotFound(f"no session has the id {session_id!r}")
            line = (session_id, level, message, dumped, self._clock())
            ((id_,),) = all_rows(connection, "logs.insert", (self.tenant, *line))
            return rows.log((id_, *line))

        return self._file.write(append)

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
        statement, values = [SQL["logs.list"]], [self.tenant, session_id]
        check_level(level)
        if level is not None:
            statement.append(SQL["logs.where.level"])
            values.append(level)
        if key is not None:
            check_filter(key, "key", str)
            statement.append(SQL["logs.where.key"])
            values.append(key)
        most = check_limit(limit)
        paging = (-1 if most is None else most, check_limit(offset, "offset"))
        text = "\n".join((*statement, SQL["logs.order.newest" if newest else "logs.order"]))
        found: list[Row] = self._file.read(
            lambda connection: connection.execute(text, (*values, *paging)).fetchall()
        )
        return [rows.log(row) for row in found]
