"""Recording: from a state to an acknowledged put, at the cost of what changed.

A recorder remembers the last acknowledged state of one line of work. If it relies on chunks that a
sweep has removed meanwhile (its checkpoint was deleted by somebody else), the store says so without
having written anything, and the recorder sends everything once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import ChunksMissing
from holdfast.model import NewCheckpoint, Payload, PutResult
from holdfast.state import EncodedState, StateEncoder
from holdfast.stores.base import Store


class Recorder:
    """Puts the successive states of one line of work; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._encoder = StateEncoder()
        self._lock = threading.Lock()

    def continue_from(self, payload: Payload) -> None:
        """Compare the next state with a stored checkpoint."""
        with self._lock:
            self._encoder.adopt(payload, self._store.read_chunks)

    def put(
        self,
        state: Mapping[str, Any],
        draft: Callable[[EncodedState], NewCheckpoint],
        *,
        context: Mapping[str, Any] | None = None,
    ) -> PutResult:
        """Encode ``state``, let ``draft`` make a checkpoint of it, and store that."""
        with self._lock:
            encoded = self._encoder.encode(state, context)
            try:
                result = self._store.put(draft(encoded))
            except ChunksMissing:
                self._encoder.forget()
                encoded = self._encoder.encode(state, context)
                result = self._store.put(draft(encoded))
            self._encoder.accept(encoded)
            return result
