"""Verification: does everything that is stored still say what was saved?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import IntegrityError
from holdfast.state import decode_state
from holdfast.stores.base import Store


@dataclass(frozen=True, slots=True)
class Damage:
    """A checkpoint that cannot be restored, and why."""

    checkpoint_id: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How many checkpoints were read back in full, and which of them are damaged."""

    checked: int
    damaged: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        """True when every checkpoint can be restored exactly."""
        return not self.damaged


def verify_store(store: Store, *, progress: Callable[[int], None] | None = None) -> VerifyReport:
    """Decode every checkpoint of the tenant; ``progress`` is called with the count so far.

    Checkpoints that are removed while this runs are passed over.
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
            if store.read_payload(checkpoint_id) is None:
                continue
            damaged.append(Damage(checkpoint_id, error.code, str(error)))
        checked += 1
        if progress is not None:
            progress(checked)
    return VerifyReport(checked, tuple(damaged))
