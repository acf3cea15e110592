"""Recording: from a state to an acknowledged put, at the cost of what changed.

A recorder remembers the last acknowledged state of one line of work. If it relies on chunks that a
sweep has removed meanwhile (somebody else deleted its checkpoint), the store says so without having
written anything, and a second attempt sends everything:

    for attempt in recorder.attempts(state):
        with attempt as encoded:
            store.put(…)

The loop fits a blocking put and an awaited one alike. What is remembered is replaced and never changed,
so several threads may share a recorder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import ChunksMissing
from holdfast.model import Payload
from holdfast.state import EncodedState, StateEncoder
from holdfast.state.cache import ChunkCache
from holdfast.state.document import seal_of
from holdfast.state.refs import ReadChunks
from holdfast.state.screen import Screen
from holdfast.state.stored import read_stored_lists


class Recorder:
    """Encodes the successive states of one line of work."""

    def __init__(self, screen: Screen | None = None) -> None:
        """``screen`` sees what is about to be stored, once, and may replace parts of it."""
        self._screen = screen
        self._encoder = StateEncoder(screen=screen)
        self._forgotten = True

    def attempts(
        self, state: Mapping[str, Any], context: Mapping[str, Any] | None = None
    ) -> Iterator[Attempt]:
        """Yield up to two attempts at a put: what changed, then everything."""
        first = Attempt(self, self._encoder.encode(state, context), last=False)
        yield first
        if first.failed:
            encoder = StateEncoder(screen=self._screen)
            everything = encoder.encode(read_stored_lists(dict(state)), context)
            yield Attempt(self, everything, last=True)

    def accept(self, encoded: EncodedState) -> None:
        """Remember what has been stored."""
        self._encoder.accept(encoded)
        self._forgotten = False

    def is_current(
        self, state: Mapping[str, Any], context: Mapping[str, Any] | None = None
    ) -> bool:
        """Tell whether this is what was last stored or continued from; at the cost of a look."""
        if self._forgotten:
            return False
        encoded = self._encoder.encode(state, context)
        return seal_of(encoded.manifest) == encoded.continues

    def forget(self) -> None:
        """Take the next state for a new one, whatever it is."""
        self._forgotten = True

    def continue_from(
        self, payload: Payload, read_chunks: ReadChunks, cache: ChunkCache | None = None
    ) -> None:
        """Compare the next state with a stored checkpoint."""
        self._encoder.adopt(payload, read_chunks, cache)
        self._forgotten = False


class Attempt:
    """One attempt at a put: remembered when its block ends well, repeated when chunks are missing."""

    __slots__ = ("_last", "_recorder", "encoded", "failed")

    def __init__(self, recorder: Recorder, encoded: EncodedState, *, last: bool) -> None:
        self._recorder = recorder
        self._last = last
        self.encoded = encoded
        self.failed = False

    def __enter__(self) -> EncodedState:
        return self.encoded

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: object
    ) -> bool:
        if exc_type is None:
            self._recorder.accept(self.encoded)
        self.failed = isinstance(exc, ChunksMissing) and not self._last
        return self.failed
