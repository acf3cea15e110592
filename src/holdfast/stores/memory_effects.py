"""Effects in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from operator import attrgetter

from holdfast.model import EffectOutcome, EffectQuery, EffectRecord, NewEffect, Payload
from holdfast.state.codec import load_document
from holdfast.stores.checks import (
    check_effect,
    check_effect_query,
    check_finish,
    document_text,
)
from holdfast.stores.memory_sessions import MemorySessions
from holdfast.stores.memory_tables import RecordedEffect
from holdfast.stores.sums import effect_row


class MemoryEffects(MemorySessions):
    """Steps with side effects, and how they ended."""

    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        check_effect(draft)
        outcome = draft.outcome
        error = document_text(outcome.error, "error")
        with self._open():
            session = self._session(draft.session_id)
            self._fence(session, draft.fence)
            place = (draft.key, draft.occurrence)
            attempts = 0
            if place in session.effects:
                present = self._checked(session.effects[place])
                if present.attempt_id != draft.instead_of:
                    return present
                attempts = present.attempts
            self._add_chunks(outcome.chunks)
            now = self._now()
            record = EffectRecord(
                session_id=draft.session_id,
                key=draft.key,
                occurrence=draft.occurrence,
                name=draft.name,
                fingerprint=draft.fingerprint,
                status=outcome.status,
                attempt_id=draft.attempt_id,
                attempts=attempts + 1,
                payload=_payload(outcome),
                error=None,
                started_at=now,
                finished_at=None if outcome.status == "started" else now,
            )
            sums = self.sums.effect(effect_row(record, error))
            session.effects[place] = RecordedEffect(record, error, sums)
            return _read(record, error)

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
        error = document_text(outcome.error, "error")
        with self._open():
            session = self._sessions.get(session_id)
            found = None if session is None else session.effects.get((key, occurrence))
            if session is not None:
                self._fence(session, fence)
            if session is None or found is None or found.record.attempt_id != attempt_id:
                return False
            self._add_chunks(outcome.chunks)
            changed = replace(
                found.record,
                status=outcome.status,
                payload=_payload(outcome),
                finished_at=self._now(),
            )
            place = (session_id, key, occurrence, attempt_id)
            content = (outcome.status, outcome.manifest, outcome.refs, error)
            sums = (found.sums[0], self.sums.outcome(*place, *content))
            session.effects[key, occurrence] = RecordedEffect(changed, error, sums)
            return True

    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        limit = check_effect_query(query)
        with self._open():
            stored = [
                effect
                for session_id, session in self._sessions.items()
                if query.session_id in (None, session_id)
                for effect in session.effects.values()
            ]
        stored.sort(key=_order)
        wanted = (
            self._checked(one)
            for one in stored
            if query.key in (None, one.record.key)
            and query.occurrence in (None, one.record.occurrence)
            and query.status in (None, one.record.status)
        )
        return list(islice(wanted, limit))

    def effect_places(self) -> list[tuple[str, str, int]]:
        with self._open():
            return [
                (session_id, one.record.key, one.record.occurrence)
                for session_id, session in sorted(self._sessions.items())
                for one in sorted(session.effects.values(), key=_order)
            ]

    def _checked(self, stored: RecordedEffect) -> EffectRecord:
        self.sums.check_effect(effect_row(stored.record, stored.error), stored.sums)
        return _read(stored.record, stored.error)


_order = attrgetter("record.started_at", "record.key", "record.occurrence")


def _payload(outcome: EffectOutcome) -> Payload | None:
    return None if outcome.manifest is None else Payload(outcome.manifest, outcome.refs)


def _read(record: EffectRecord, error: str | None) -> EffectRecord:
    return record if error is None else replace(record, error=load_document(error))
