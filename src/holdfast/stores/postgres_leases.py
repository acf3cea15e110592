"""Leases in PostgreSQL: the server's clock decides, and every change is one statement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from holdfast.model import LEASE_TTL, Lease, SessionRecord
from holdfast.stores.checks import check_fence, check_filter, check_lease, check_log, document_text
from holdfast.stores.postgres_access import PostgresAccess
from holdfast.stores.postgres_rows import parse_lease, parse_session
from holdfast.stores.postgres_statements import Statement
from holdfast.stores.rules import lease_busy


class PostgresLeases(PostgresAccess):
    """Who may write to a session."""

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
