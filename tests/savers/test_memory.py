"""What the saver in memory does besides keeping the contract."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from holdfast.savers import CheckpointConfig, MemoryCheckpointSaver, memory
from holdfast.state.codec import dump as real


def test_a_thread_that_is_large_is_not_serialised_whole_at_every_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serialised: list[str] = []

    def dump(document: Any, path: str) -> tuple[bytes, bool]:
        serialised.append(path)
        return real(document, path)

    monkeypatch.setattr(memory, "dump", dump)
    saver = MemoryCheckpointSaver()
    config = CheckpointConfig("thread")
    messages = [{"role": "user", "content": "x" * 1000} for _ in range(20)]
    states: list[dict[str, Any]] = [
        {"messages": messages},
        {"messages": [*messages, {"role": "user", "content": "more"}]},
        {"messages": []},
        {"messages": ["small again"]},
        {"messages": messages},
    ]
    tries = []
    for state in states:
        serialised.clear()
        saved = saver.put(config, state)
        tries.append(serialised.count("$"))
        assert saver.get(saved) == state
    assert tries == [1, 0, 0, 1, 1]
    # Another namespace is another line.
    serialised.clear()
    saver.put(CheckpointConfig("thread", namespace="other"), {"n": 1})
    assert serialised.count("$") == 1


def test_small_checkpoints_take_little_memory() -> None:
    saver = MemoryCheckpointSaver()
    tracemalloc.start()
    try:
        for n in range(1000):
            saver.put(CheckpointConfig("thread"), {"n": n})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000 * 1000
