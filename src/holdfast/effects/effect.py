"""A recorded effect: what it was, how it ended, and how that is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from holdfast.effects.result import recorded_result
from holdfast.errors import IntegrityError
from holdfast.model import EffectRecord, EffectStatus, NewEffect
from holdfast.stores.base import Store

_NAMESPACE: Final = UUID("5f0c9c8e-6d0b-5b8e-9a55-6f1f8f1c1c0a")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``reconcile`` found out; made by `Effect.happened` and `Effect.did_not_happen`."""

    happened: bool
    result: Any = None


class Effect:
    """A recorded effect: what it was, how it ended, and what it returned."""

    __slots__ = ("_damage", "_result", "_store", "record")

    def __init__(self, record: EffectRecord, store: Store) -> None:
        self.record = record
        self._store = store
        self._result: tuple[Any, ...] = ()
        self._damage: IntegrityError | None = None

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.record.name

    @property
    def key(self) -> str:
        """What the step is: the key that it was given, or its name and a digest of its arguments."""
        return self.record.key

    @property
    def occurrence(self) -> int:
        """Which use of the same step in a run it is, from 0."""
        return self.record.occurrence

    @property
    def status(self) -> EffectStatus:
        """started, done, failed or unknown. What a dead worker left behind says started."""
        return self.record.status

    @property
    def attempts(self) -> int:
        """How often the body was begun."""
        return self.record.attempts

    @property
    def error(self) -> Mapping[str, Any] | None:
        """Type, message and traceback of what the body raised."""
        return self.record.error

    @property
    def started_at(self) -> datetime:
        """When the last attempt was recorded as started."""
        return self.record.started_at

    @property
    def finished_at(self) -> datetime | None:
        """When its end was recorded."""
        return self.record.finished_at

    @property
    def result(self) -> Any:
        """What the body returned. Raises `EffectUnknown` or `EffectFailed` unless it is done."""
        if self._damage is not None:
            raise self._damage
        if not self._result:
            self._result = (recorded_result(self.record, self._store),)
        return self._result[0]

    def loaded(self) -> Effect:
        """Read the result now, if there is one, so that asking for it later blocks nobody.

        That it is damaged is told to who asks for it.
        """
        if self.record.payload is not None:
            try:
                _ = self.result
            except IntegrityError as error:
                self._damage = error
        return self

    @property
    def idempotency_key(self) -> str:
        """The key that the body was handed; the same in every attempt and every process."""
        return idempotency_key(self._store.tenant, self.record)

    def happened(self, result: Any = None) -> Verdict:
        """Say from ``reconcile`` that it happened, and what the step is to return."""
        return Verdict(True, result)

    def did_not_happen(self) -> Verdict:
        """Say from ``reconcile`` that it did not happen and is to run."""
        return Verdict(False)

    def __repr__(self) -> str:
        return f"<Effect {self.key} [{self.occurrence}] {self.status}>"


def idempotency_key(tenant: str, effect: NewEffect | EffectRecord) -> str:
    """Return the key that names an effect to other systems: always the same for the same effect."""
    place = (tenant, effect.session_id, effect.key, str(effect.occurrence))
    return str(uuid5(_NAMESPACE, "\0".join(place)))
