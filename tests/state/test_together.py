"""States that are read together come back exactly as each of them does alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.model import Payload
from holdfast.state import EncodedState, StateEncoder, decode_states
from tests.state.simulation import Chunks, exact, message


def _edited(messages: list[Any], chance: random.Random, step: int) -> list[Any]:
    """Return the next conversation: mostly one message more, sometimes something else."""
    kind = chance.randrange(10)
    if kind == 0:
        return messages[: chance.randrange(len(messages) + 1)]
    if kind == 1 and messages:
        at = chance.randrange(len(messages))
        return [*messages[:at], message(step, 300), *messages[at + 1 :]]
    if kind == 2:
        return list(messages)
    if kind == 3:
        # A tag makes it a list of another kind from here on.
        return [*messages, ("a tuple", step)]
    return [*messages, message(step, chance.choice((3, 700, 9_000)))]


def _histories(seed: int) -> tuple[Chunks, list[tuple[dict[str, Any], EncodedState]]]:
    chance, chunks, encoder = random.Random(seed), Chunks(), StateEncoder()
    history = []
    messages: list[Any] = []
    for step in range(40):
        messages = _edited(messages, chance, step)
        # The same list under two names, and one that begins in the same way.
        state = {"messages": messages, "copy": messages, "short": messages[:3], "step": step}
        encoded = encoder.encode(state)
        chunks.put(encoded)
        encoder.accept(encoded)
        history.append((state, encoded))
    return chunks, history


@pytest.mark.parametrize("seed", range(12))
def test_any_history_comes_back_in_any_order(seed: int) -> None:
    chunks, history = _histories(seed)
    for order in (history, history[::-1], random.Random(seed).sample(history, len(history))):
        payloads = [Payload(encoded.manifest, encoded.refs) for _, encoded in order]
        decoded = decode_states(payloads, chunks.read)
        assert [exact(one.state) for one in decoded] == [exact(state) for state, _ in order]
