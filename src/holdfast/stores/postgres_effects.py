"""Effects in PostgreSQL: every write is one statement in a transaction of its own, one round trip."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any

from holdfast.errors import SessionNotFound
from holdfast.model import EffectOutcome, EffectQuery, EffectRecord, NewEffect
from holdfast.stores.checks import (
    check_effect,
    check_effect_query,
    check_finish,
)
from holdfast.stores.postgres_access import PostgresAccess
from holdfast.stores.postgres_prepared import Prepared
from holdfast.stores.postgres_rows import parse_begun, parse_effect
from holdfast.stores.postgres_statements import Statement, outcome_params


class PostgresEffects(PostgresAccess):
    """Steps with side effects, and how they ended."""

    @cached_property
    def _begin_effect(self) -> Prepared:
        return Prepared(self._sql["effects.begin"])

    @cached_property
    def _finish_effect(self) -> Prepared:
        return Prepared(self._sql["effects.finish"])

    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        check_effect(draft)
        sums, outcome, told = self.sums, draft.outcome, outcome_params(draft.outcome)
        place = (draft.session_id, draft.key, draft.occurrence, draft.attempt_id)
        content = (outcome.status, outcome.manifest, outcome.refs, told["error"])
        params = {
            **told,
            "beginning": sums.beginning(*place, draft.name, draft.fingerprint),
            "outcome_sum": sums.outcome(*place, *content),
            "tenant": self.tenant,
            "session_id": draft.session_id,
            "key": draft.key,
            "occurrence": str(draft.occurrence),
            "name": draft.name,
            "fingerprint": draft.fingerprint,
            "attempt_id": draft.attempt_id,
            "instead_of": draft.instead_of,
            "fence": _number(draft.fence),
        }
        statement = Statement(self._sql["effects.begin"], params)
        rows = self._link.prepared_rows(self._begin_effect, statement, again=True)
        if rows:
            return parse_begun(draft, rows[0])
        self._check_fence(draft.session_id, draft.fence)
        present = self.list_effects(EffectQuery(draft.session_id, draft.key, draft.occurrence))
        if not present:
            raise SessionNotFound(f"{self.url} has no session {draft.session_id!r}")
        return present[0]

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
        told = outcome_params(outcome)
        place = (session_id, key, occurrence, attempt_id)
        content = (outcome.status, outcome.manifest, outcome.refs, told["error"])
        params = {
            **told,
            "outcome_sum": self.sums.outcome(*place, *content),
            "tenant": self.tenant,
            "session_id": session_id,
            "key": key,
            "occurrence": str(occurrence),
            "attempt_id": attempt_id,
            "fence": _number(fence),
        }
        statement = Statement(self._sql["effects.finish"], params)
        if self._link.prepared_rows(self._finish_effect, statement, again=True):
            return True
        with suppress(SessionNotFound):
            self._check_fence(session_id, fence)
        return False

    def _check_fence(self, session_id: str, fence: int | None) -> None:
        if fence is not None:
            params = {"tenant": self.tenant, "session_id": session_id, "fence": fence}
            self._link.rows(Statement(self._sql["postgres.effects.fence"], params), again=True)

    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        limit = check_effect_query(query)
        params: dict[str, Any] = {"tenant": self.tenant, "limit": limit}
        parts = [self._sql["effects.list"]]
        for field in ("session_id", "key", "occurrence", "status"):
            if (value := getattr(query, field)) is not None:
                parts.append(self._sql[f"effects.where.{field}"])
                params[field] = value
        parts.append(self._sql["effects.order"])
        rows = self._link.rows(Statement("\n".join(parts), params), again=True)
        return [self._checked_effect(row) for row in rows]

    def effect_places(self) -> list[tuple[str, str, int]]:
        found = self._rows("effects.places", again=True)
        return [(session_id, key, occurrence) for session_id, key, occurrence in found]

    def _checked_effect(self, row: tuple[Any, ...]) -> EffectRecord:
        """Read a stored effect. Raises `EffectAltered` unless it is as it was stored."""
        self.sums.check_effect(row, row[13:])
        return parse_effect(row)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)
