"""Leases in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from holdfast.errors import SessionNotFound
from holdfast.model import LEASE_TTL, Lease, LogRecord, SessionRecord
from holdfast.stores.checks import check_fence, check_filter, check_lease, check_log, document_text
from holdfast.stores.memory_tables import MemoryTables, Session, session_record
from holdfast.stores.rules import lease_busy, lease_clock, lease_expired, lease_lost


class MemoryLeases(MemoryTables):
    """Who may write to a session."""

    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        check_filter(session_id, "session id", str)
        check_lease(owner, ttl)
        check_fence(over)
        with self._open():
            session = self._sessions.get(session_id)
            if session is None:
                raise SessionNotFound(f"no session has the id {session_id!r}")
            standing = self._lease(session)
            if standing is None or standing.owner != owner:
                if standing is not None and not standing.expired and standing.token != over:
                    raise lease_busy(standing)
                self._hold(session, owner, session.record.lease_token + 1)
            self._prolong(session, ttl)
            return cast("Lease", self._lease(session))

    def _hold(self, session: Session, owner: str | None, token: int) -> None:
        since = None if owner is None else self._now()
        session.record = replace(
            session.record,
            lease_owner=owner,
            lease_token=token,
            lease_since=since,
            lease_expires_at=None,
        )

    def _prolong(self, session: Session, ttl: timedelta) -> None:
        session.record = replace(session.record, lease_expires_at=self._now() + ttl)
        session.lease_clock = lease_clock(self._uptime(), ttl)

    def _lease(self, session: Session) -> Lease | None:
        record = session.record
        if record.lease_owner is None or record.lease_since is None:
            return None
        expires_at = record.lease_expires_at or record.lease_since
        expired = lease_expired(session.lease_clock, self._uptime())
        return Lease(
            record.id,
            record.lease_owner,
            record.lease_token,
            record.lease_since,
            expires_at,
            expired,
        )

    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        check_lease("renewed", ttl)
        with self._open():
            held = {one for one, token in tokens.items() if self._is_held(one, token)}
            for session_id in held:
                self._prolong(self._sessions[session_id], ttl)
            return held

    def _is_held(self, session_id: str, token: int) -> bool:
        session = self._sessions.get(session_id)
        return (
            session is not None
            and session.record.lease_owner is not None
            and session.record.lease_token == token
        )

    def release_lease(self, session_id: str, token: int) -> bool:
        check_filter(session_id, "session id", str)
        check_fence(token)
        with self._open():
            held = self._is_held(session_id, token)
            if held:
                self._hold(self._sessions[session_id], None, token + 1)
            return held

    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        if session_id is not None:
            check_filter(session_id, "session id", str)
        with self._open():
            standing = map(self._lease, self._sessions.values())
            found = [one for one in standing if one and session_id in (None, one.session_id)]
        return sorted(found, key=lambda lease: lease.session_id)

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
        document = document_text(data, "log data")
        with self._open():
            session = self._sessions.get(session_id)
            if session is None or session.record.status != "active":
                return None
            if not self._is_held(session_id, token):
                return None
            self._hold(session, None, token + 1)
            recoveries = session.record.recoveries
            now = self._now()
            session.record = replace(
                session.record,
                status="interrupted" if recoveries < most else "failed",
                recoveries=recoveries + 1,
                updated_at=now,
            )
            self._log_id += 1
            line = LogRecord(self._log_id, session_id, "warning", message, None, now)
            session.logs.append((line, document))
            return session_record(session)

    def _check_fence(self, session: Session, fence: int | None) -> bool:
        """Refuse what may not be written now; tell whether an expired lease ends with the write."""
        record = session.record
        if fence is not None:
            if record.lease_token != fence:
                raise lease_lost(record.id)
            return False
        standing = self._lease(session)
        if standing is not None and not standing.expired:
            raise lease_busy(standing)
        return standing is not None

    def _fence(self, session: Session, fence: int | None) -> None:
        """Raise `LeaseLost` unless the session is held with the fence, if there is one."""
        check_fence(fence)
        if fence is not None:
            self._check_fence(session, fence)

    def _end_lease(self, session: Session) -> None:
        self._hold(session, None, session.record.lease_token + 1)
