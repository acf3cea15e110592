"""Leases in SQLite. Whoever uses the file is on this machine, so its own clock decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import apsw

from holdfast.errors import SessionNotFound
from holdfast.model import LEASE_TTL, Lease, SessionRecord
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.checks import check_fence, check_filter, check_lease, check_log, document_text
from holdfast.stores.rules import lease_busy, lease_clock, lease_expired, lease_lost
from holdfast.stores.sqlite_access import SqliteAccess, all_rows
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_rows import Row, moment, stamp


class SqliteLeases(SqliteAccess):
    """Who may write to a session."""

    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        check_filter(session_id, "session id", str)
        check_lease(owner, ttl)
        check_fence(over)

        def acquire(connection: apsw.Connection) -> Lease:
            found = all_rows(connection, "sqlite.put.session", (self.tenant, session_id))
            if not found:
                raise SessionNotFound(f"no session has the id {session_id!r}")
            standing = rows.standing_session(found[0], session_id)
            _, _, _, _, token, holder, clock, since, expires_at = standing
            now = self._now()
            if holder != owner:
                if holder is not None and token != over:
                    lease = self._lease((session_id, holder, token, since, expires_at, clock))
                    if not lease.expired:
                        raise lease_busy(lease)
                token, since = token + 1, stamp(now)
            values = (owner, token, since, *self._expiry(now, ttl))
            connection.execute(SQL["sqlite.leases.set"], (*values, self.tenant, session_id))
            return self._lease((session_id, *values))

        return self._file.write(acquire)

    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        check_lease("renewed", ttl)
        if not tokens:
            return set()

        def renew(connection: apsw.Connection) -> set[str]:
            expiry = self._expiry(self._now(), ttl)
            held = set()
            for session_id, token in tokens.items():
                key = (self.tenant, session_id, token)
                connection.execute(SQL["leases.renew"], (*expiry, *key))
                if connection.changes():
                    held.add(session_id)
            return held

        return self._file.write(renew)

    def release_lease(self, session_id: str, token: int) -> bool:
        check_filter(session_id, "session id", str)
        check_fence(token)

        def release(connection: apsw.Connection) -> bool:
            connection.execute(SQL["leases.release"], (self.tenant, session_id, token))
            return bool(connection.changes())

        return self._file.write(release)

    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        statement, values = SQL["leases.list"], [self.tenant]
        if session_id is not None:
            check_filter(session_id, "session id", str)
            statement += "\n" + SQL["leases.where.id"]
            values.append(session_id)
        found: list[Row] = self._file.read(
            lambda connection: connection.execute(statement, values).fetchall()
        )
        return sorted(map(self._lease, found), key=lambda lease: lease.session_id)

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
        dumped = document_text(data, "log data")
        key = (self.tenant, session_id)

        def interrupt(connection: apsw.Connection) -> SessionRecord | None:
            found = all_rows(connection, "sessions.find", key)
            if not found:
                return None
            session = rows.session(found[0])
            held = session.lease_owner is not None and session.lease_token == token
            if not held or session.status != "active":
                return None
            status = "interrupted" if session.recoveries < most else "failed"
            now = self._clock()
            connection.execute(SQL["sqlite.leases.interrupt"], (status, now, *key))
            connection.execute(SQL["logs.insert"], (*key, "warning", message, dumped, now))
            return rows.session(all_rows(connection, "sessions.find", key)[0])

        return self._file.write(interrupt)

    def _expiry(self, now: datetime, ttl: timedelta) -> tuple[str, str]:
        """Return when a lease that begins now expires: for people, and for the clock that decides."""
        return stamp(now + ttl), lease_clock(self._uptime(), ttl)

    def _lease(self, row: Row) -> Lease:
        session_id, owner, token, since, expires_at, clock = row
        return Lease(
            session_id,
            owner,
            token,
            moment(since),
            moment(expires_at),
            lease_expired(clock, self._uptime()),
        )

    def _refuse_fence(
        self, connection: apsw.Connection, session_id: str, lease: Sequence[Any], fence: int | None
    ) -> None:
        """Refuse a write whose fence is not the token, unless it has none and nobody is there."""
        if fence is not None:
            raise lease_lost(session_id)
        token, holder, clock, since, expires_at = lease
        if holder is None:
            return
        standing = self._lease((session_id, holder, token, since, expires_at, clock))
        if not standing.expired:
            raise lease_busy(standing)
        # Should its holder wake up, it is told that others have written.
        connection.execute(SQL["leases.release"], (self.tenant, session_id, token))

    def _fence_checkpoints(
        self, connection: apsw.Connection, checkpoint_ids: str, fence: int | None
    ) -> None:
        """Raise `LeaseLost` unless the sessions of checkpoints (as JSON) are held with the fence."""
        if fence is None:
            return
        values = (self.tenant, checkpoint_ids)
        for (session_id,) in all_rows(connection, "sqlite.fence.checkpoints", values):
            self._fence(connection, session_id, fence)

    def _fence(self, connection: apsw.Connection, session_id: str, fence: int | None) -> None:
        """Raise `LeaseLost` unless the session is held with the fence, if there is one."""
        if fence is None:
            return
        found = all_rows(connection, "sqlite.put.session", (self.tenant, session_id))
        if found and found[0][4] != fence:
            raise lease_lost(session_id)
