"""A recorded effect: what it was, how it ended, and how that is told."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn
from uuid import UUID, uuid5

from holdfast.errors import (
    EffectFailed,
    EffectUnknown,
    IntegrityError,
    ResultNotStorable,
    StateCorrupt,
)
from holdfast.model import EffectRecord, EffectStatus, NewEffect
from holdfast.state import decode_state
from holdfast.stores.base import Store

# The result of a step is stored as a state with this one key.
RESULT: Final = "result"
_NAMESPACE: Final = UUID("5f0c9c8e-6d0b-5b8e-9a55-6f1f8f1c1c0a")
_TRACEBACK_CHARACTERS: Final = 64 * 1024


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


def error_document(error: BaseException) -> dict[str, Any]:
    """Return what is kept of an error: its type, its message and its traceback."""
    return {
        "type": _storable(type(error).__qualname__),
        "message": error_message(error),
        "traceback": _storable(_traceback(error)),
    }


def _traceback(error: BaseException) -> str:
    try:
        return _last(traceback.format_exception(error))
    except Exception:
        return "(its traceback cannot be read)"


def _last(parts: list[str]) -> str:
    """Return the last parts of a traceback, each whole: half a secret would be recognised by nobody."""
    kept: list[str] = []
    room = _TRACEBACK_CHARACTERS
    for part in reversed(parts):
        room -= len(part)
        if room < 0 and kept:
            break
        kept.append(part)
    return "".join(reversed(kept))


def error_message(error: BaseException | str) -> str:
    """Return the message of an error as it can be stored."""
    try:
        return _storable(str(error))
    except Exception:
        return "(its message cannot be read)"


def recorded_result(record: EffectRecord, store: Store) -> Any:
    """Return what a recorded step returned, or raise what stands against that."""
    if record.status != "done":
        refuse(record)
    if record.payload is None and record.error is None:
        raise StateCorrupt(
            f"the step {shown(record)} is recorded as done, and its result is gone. It was not run again"
        )
    if record.payload is None:
        raise ResultNotStorable(without_result(shown(record), (record.error or {}).get("message")))
    found = decode_state(record.payload, store.read_chunks, cache=store.cache).state
    if RESULT not in found:
        raise StateCorrupt(f"what is stored for the step {shown(record)} is no result of one")
    return found[RESULT]


def shown(effect: NewEffect | EffectRecord) -> str:
    """Return how messages name a step: by its name, and by its key if it was given one."""
    if effect.key.startswith(f"{effect.name}#"):
        return repr(effect.name)
    return f"{effect.name!r} (key {effect.key!r})"


def without_result(key: str, reason: object) -> str:
    """Say that a step happened and what it returned did not survive."""
    return (
        f"the step {key} did happen and is recorded as done, so it will not run again; but what "
        f"it returned cannot be stored ({reason}). Let it return what a state can hold"
    )


def refuse(record: EffectRecord) -> NoReturn:
    """Raise what an effect that is not done means for those who want to go on from it."""
    how_on = (
        "Find out whether it happened; then call the step with policy='retry' to run it (again), "
        "or with policy='ask' and reconcile= to say what happened"
    )
    if record.status == "failed":
        error = dict(record.error or {})
        raise EffectFailed(
            f"the step {shown(record)} failed at {record.finished_at}: {error.get('type')}: "
            f"{error.get('message')}. It was not run again. {how_on}",
            error,
        )
    raise EffectUnknown(
        f"the step {shown(record)} began at {record.started_at} and nobody recorded its end: it may "
        f"have happened or not. It was not run again. {how_on}"
    )


def _storable(text: str) -> str:
    """Return text from an error, with what cannot be stored spelled out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
