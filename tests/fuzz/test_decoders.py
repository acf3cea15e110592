"""Every decoder keeps its promise for the inputs that fuzzing began with and those that it found."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from holdfast.errors import HoldfastError
from tests.fuzz.contract import MEMORY_LIMIT, Target, hold_to
from tests.fuzz.targets import TARGETS

# Python has something to say of some regular expressions.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


# Of each seed. Whoever has many seeds has as many kinds of documents.
_RESHAPED = 20


def inputs(target: Target) -> Iterator[bytes]:
    yield from (b"", b"\0", b"[" * 20_000, b'{"a":' * 20_000, b"9" * 5000, b"\xff" * 600)
    yield from (path.read_bytes() for path in target.kept)
    chance = Random(target.name)
    for seed in target.seeds():
        yield seed
        spoilt = bytearray(seed)
        for _ in range(3):
            if spoilt:
                spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
                yield bytes(spoilt)
        yield seed[: len(seed) // 2]
        yield from {target.reshape(seed, chance) for _ in range(_RESHAPED)} - {seed}


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_returns_or_raises_an_error_of_its_own(name: str) -> None:
    target = TARGETS[name]
    for data in inputs(target):
        hold_to(target, data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_reads_what_fuzzing_begins_with(name: str) -> None:
    """One that refused everything would keep its promise as well."""
    target = TARGETS[name]
    outcomes = []
    for seed in target.seeds():
        try:
            target.decode(seed)
            outcomes.append(True)
        except HoldfastError:
            outcomes.append(False)
    assert any(outcomes)


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_takes_no_more_than_twice_the_memory_it_may_unpack(name: str) -> None:
    target = TARGETS[name]
    given = list(inputs(target))
    tracemalloc.start()
    try:
        for data in given:
            hold_to(target, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * MEMORY_LIMIT
