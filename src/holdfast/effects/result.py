"""What a step returned: how that is stored, how it comes back, and what stands in its place."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import orjson

from holdfast.errors import EffectFailed, EffectUnknown, ResultNotStorable, StateCorrupt
from holdfast.model import EffectOutcome, EffectRecord, NewEffect, Payload
from holdfast.state import StateEncoder, decode_state
from holdfast.state.document import write_manifest
from holdfast.state.encoder import INLINE_BYTES
from holdfast.state.plain import is_plain
from holdfast.state.screen import Screen
from holdfast.stores.base import Store

# The result of a step is stored as a state with this one key.
_RESULT: Final = "result"


def encoded_result(result: Any, screen: Screen | None = None) -> EffectOutcome:
    """Return what is stored of a result. Raises `StateNotSerializable`."""
    if is_plain(result):
        try:
            text = orjson.dumps({_RESULT: result if screen is None else screen.value(result)})
        except TypeError:
            text = b""  # the encoder says why
        if 0 < len(text) < INLINE_BYTES:
            # Nothing to take apart: what the encoder would come to, without its walk.
            return EffectOutcome("done", write_manifest(text, b"", (), ()).manifest)
    encoded = StateEncoder(screen=screen).encode({_RESULT: result})
    return EffectOutcome("done", encoded.manifest, encoded.refs, encoded.chunks)


def result_as_stored(outcome: EffectOutcome) -> Any:
    """Return a result as it comes back from its record, from what was sent there."""
    payload = Payload(outcome.manifest or "", outcome.refs)
    found = decode_state(
        payload, lambda wanted: {one: bytes(outcome.chunks[one]) for one in wanted}
    )
    return found.state[_RESULT]


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
    if _RESULT not in found:
        raise StateCorrupt(f"what is stored for the step {shown(record)} is no result of one")
    return found[_RESULT]


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
