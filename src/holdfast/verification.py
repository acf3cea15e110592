"""Verification: does everything that is stored still say what was saved?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import IntegrityError
from holdfast.model import CheckpointQuery, EffectQuery
from holdfast.state import decode_state
from holdfast.stores.base import Store


@dataclass(frozen=True, slots=True)
class Damage:
    """A checkpoint that cannot be restored, or an effect that cannot be replayed, and why.

    An effect has no ``checkpoint_id``; it is named by its session and key.
    """

    checkpoint_id: str | None
    code: str
    reason: str
    session_id: str | None = None
    effect_key: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How many checkpoints and effects were read back in full, and what of them is damaged."""

    checked: int
    damaged: tuple[Damage, ...]
    effects: int = 0

    @property
    def ok(self) -> bool:
        """True when every checkpoint can be restored, and every effect replayed, exactly."""
        return not self.damaged


def verify_store(store: Store, *, progress: Callable[[int], None] | None = None) -> VerifyReport:
    """Decode every checkpoint and every result of the tenant.

    ``progress`` is called with the count of checkpoints so far. What is removed while this runs is
    passed over.
    """
    checked = 0
    damaged = []
    for checkpoint_id in store.iter_checkpoint_ids():
        try:
            payload = store.read_payload(checkpoint_id)
            if payload is None:
                continue
            decode_state(payload, store.read_chunks)
        except IntegrityError as error:
            if _is_gone(store, checkpoint_id):
                continue
            damaged.append(Damage(checkpoint_id, error.code, str(error)))
        checked += 1
        if progress is not None:
            progress(checked)
    effects = 0
    try:
        done = store.list_effects(EffectQuery(status="done"))
    except IntegrityError as error:
        done = []
        damaged.append(Damage(None, error.code, str(error)))
    for record in done:
        if record.payload is None:
            continue
        try:
            decode_state(record.payload, store.read_chunks)
        except IntegrityError as error:
            place = EffectQuery(record.session_id, record.key, record.occurrence)
            if store.list_effects(place) != [record]:
                continue
            damaged.append(
                Damage(None, error.code, str(error), record.session_id, effect_key=record.key)
            )
        effects += 1
    return VerifyReport(checked, tuple(damaged), effects)


def _is_gone(store: Store, checkpoint_id: str) -> bool:
    try:
        return store.read_payload(checkpoint_id) is None
    except IntegrityError:
        return False
