"""Effects in SQLite."""

from __future__ import annotations

from typing import Any

import apsw

from holdfast.errors import SessionNotFound
from holdfast.model import EffectOutcome, EffectQuery, EffectRecord, NewEffect
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.checks import (
    check_effect,
    check_effect_query,
    check_finish,
    document_text,
)
from holdfast.stores.sqlite_access import all_rows
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_rows import Row
from holdfast.stores.sqlite_sessions import SqliteSessions
from holdfast.stores.sums import begun_sum

_PLACE = "\n".join(
    SQL[f"effects.{name}"] for name in ("list", "where.session_id", "where.key", "where.occurrence")
)


class SqliteEffects(SqliteSessions):
    """Steps with side effects, and how they ended."""

    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        check_effect(draft)
        outcome = draft.outcome
        chunks = self._packed(outcome.chunks)
        error = document_text(outcome.error, "error")
        sums = self.sums
        place = (draft.session_id, draft.key, draft.occurrence)
        attempt = (*place, draft.attempt_id)
        content = (outcome.status, outcome.manifest, outcome.refs, error)
        beginning = sums.beginning(*attempt, draft.name, draft.fingerprint)
        own_sums = (begun_sum(beginning, 1), sums.outcome(*attempt, *content))

        def begin(connection: apsw.Connection) -> EffectRecord:
            self._fence(connection, draft.session_id, draft.fence)
            now = self._clock()
            begun = all_rows(
                connection,
                "effects.begin",
                (
                    draft.key,
                    draft.occurrence,
                    draft.name,
                    draft.fingerprint,
                    outcome.status,
                    draft.attempt_id,
                    outcome.manifest,
                    outcome.refs,
                    error,
                    now,
                    None if outcome.status == "started" else now,
                    *own_sums,
                    self.tenant,
                    draft.session_id,
                    draft.instead_of,
                ),
            )
            if begun:
                self._add_chunks(connection, chunks)
                record = rows.effect(begun[0])
                if record.attempts > 1:
                    counted = begun_sum(beginning, record.attempts)
                    connection.execute(SQL["sqlite.effects.count"], (counted, self.tenant, *place))
                return record
            present: list[Row] = connection.execute(_PLACE, (self.tenant, *place)).fetchall()
            if not present:
                raise SessionNotFound(f"no session has the id {draft.session_id!r}")
            return self._checked_effect(present[0])

        return self._file.write(begin)

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
        chunks = self._packed(outcome.chunks)
        error = document_text(outcome.error, "error")
        place = (session_id, key, occurrence, attempt_id)
        content = (outcome.status, outcome.manifest, outcome.refs, error)
        outcome_sum = self.sums.outcome(*place, *content)

        def finish(connection: apsw.Connection) -> bool:
            self._fence(connection, session_id, fence)
            values = (*content, outcome_sum, self._clock(), self.tenant, *place)
            if not all_rows(connection, "effects.finish", values):
                return False
            self._add_chunks(connection, chunks)
            return True

        return self._file.write(finish)

    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        check_effect_query(query)
        statement = [SQL["effects.list"]]
        values: list[Any] = [self.tenant]
        for field in ("session_id", "key", "occurrence", "status"):
            if (value := getattr(query, field)) is not None:
                statement.append(SQL[f"effects.where.{field}"])
                values.append(value)
        order = SQL["effects.order"]
        return self._list(self._checked_effect, statement, values, order, query.limit)

    def effect_places(self) -> list[tuple[str, str, int]]:
        found = self._rows("effects.places", (self.tenant,))
        return [(session_id, key, occurrence) for session_id, key, occurrence in found]

    def _checked_effect(self, row: Row) -> EffectRecord:
        """Read a stored effect. Raises `EffectAltered` unless it is as it was stored."""
        self.sums.check_effect(row, row[13:])
        return rows.effect(row)
