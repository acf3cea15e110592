"""Threads: what savers and checkpointers have in common.

A thread is a session that nobody opens: its first put creates it, under one fixed agent for each kind
of face, so a put needs no earlier question and stays one transaction. Successive states of a thread
mostly repeat each other. `ThreadEncoders` remembers the last one of each thread, within a bound of
memory, so that a put sends only what changed.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID, uuid5

from holdfast.errors import ChunksMissing, InvalidConfiguration, InvalidUrl
from holdfast.model import NewAgent, NewSession, Payload
from holdfast.state import EncodedState, StateEncoder
from holdfast.stores import Store

T = TypeVar("T")
ThreadKey: TypeAlias = tuple[str, str]
"""A thread id and a namespace."""

REMEMBERED_BYTES: Final = 64 * 1024 * 1024
# An encoder holds a state's large values for comparison, and their places and cuts besides.
_COPIES: Final = 2
_AGENTS: Final = UUID("6c1d9f6a-51f4-5b0e-9d1c-0f2b7a6f3f60")
_END: Final = object()


@lru_cache(maxsize=256)
def thread_agent(tenant: str, kind: str) -> NewAgent:
    """Return the agent that all threads of one kind of face belong to."""
    agent_id = str(uuid5(_AGENTS, f"{kind}\0{tenant}"))
    return NewAgent(id=agent_id, name=kind, agent_type=kind)


def thread_session(tenant: str, kind: str, thread_id: str) -> NewSession:
    """Return the session that a put creates when the thread is new."""
    agent = thread_agent(tenant, kind)
    return NewSession(id=thread_id, agent_id=agent.id, agent_type=kind, agent=agent)


def check_cap(cap: float | None) -> int | None:
    """Return ``max_checkpoints_per_thread`` as a count; None and infinity mean no cap.

    Raises `InvalidConfiguration`, a ValueError, for what would keep nothing.
    """
    if cap is None or cap == math.inf:
        return None
    if type(cap) is not int or not 0 < cap < 1 << 31:
        raise InvalidConfiguration(
            f"max_checkpoints_per_thread must be a whole number above 0, or None: {cap!r}"
        )
    return cap


def open_file(path: str | Path, tenant: str) -> Store:
    """Open the SQLite store of a file, which must be one."""
    from holdfast.stores.sqlite import SqliteStore

    if str(path) == ":memory:":
        raise InvalidUrl(
            "SQLite keeps its data in a file here; for memory there is a class of its own"
        )
    return SqliteStore(path, tenant=tenant)


class ThreadEncoders:
    """The last state of each thread, as far as ``max_bytes`` reach; the least used go first.

    A remembered state is never changed, only replaced, so threads of one process may share it.
    """

    def __init__(self, max_bytes: int = REMEMBERED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[ThreadKey, tuple[StateEncoder, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def encode(self, key: ThreadKey, state: Mapping[str, Any]) -> EncodedState:
        """Encode what changed since the thread's last accepted state, or all of it."""
        known = self._known.get(key)
        return (known[0] if known is not None else StateEncoder()).encode(state)

    def accept(self, key: ThreadKey, encoded: EncodedState) -> None:
        """Remember what a put has stored."""
        if encoded.refs:
            encoder = StateEncoder()
            encoder.accept(encoded)
            self._remember(key, encoder, encoded.size_bytes)
        elif key in self._known:
            self._forget(key)

    def adopt(
        self, key: ThreadKey, payload: Payload, size_bytes: int, chunks: Mapping[bytes, bytes]
    ) -> None:
        """Continue from a checkpoint that has just been read, unless the thread is known."""
        if not payload.refs or key in self._known:
            return
        encoder = StateEncoder()
        encoder.adopt(payload, lambda digests: {d: chunks[d] for d in digests if d in chunks})
        self._remember(key, encoder, size_bytes)

    def forget_thread(self, thread_id: str) -> None:
        """Forget a thread in all its namespaces."""
        for key in [key for key in tuple(self._known) if key[0] == thread_id]:
            self._forget(key)

    def attempts(self, key: ThreadKey, state: Mapping[str, Any]) -> Iterator[Attempt]:
        """Yield up to two attempts at a put: what changed, then everything.

        The second comes only if chunks that the first relied on are no longer stored.

            for attempt in encoders.attempts(key, state):
                with attempt as encoded:
                    store.put(…)
        """
        first = Attempt(self, key, self.encode(key, state), last=False)
        yield first
        if first.failed:
            yield Attempt(self, key, StateEncoder().encode(state), last=True)

    def _remember(self, key: ThreadKey, encoder: StateEncoder, size_bytes: int) -> None:
        size = size_bytes * _COPIES
        with self._lock:
            _, before = self._known.pop(key, (None, 0))
            self._bytes -= before
            if size > self._max_bytes:
                return
            self._known[key] = (encoder, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self._known.popitem(last=False)[1][1]

    def _forget(self, key: ThreadKey) -> None:
        with self._lock:
            _, before = self._known.pop(key, (None, 0))
            self._bytes -= before


class Attempt:
    """One attempt at a put: accepted when its block ends well, repeated when chunks are missing."""

    __slots__ = ("_encoders", "_key", "_last", "encoded", "failed")

    def __init__(
        self, encoders: ThreadEncoders, key: ThreadKey, encoded: EncodedState, *, last: bool
    ) -> None:
        self._encoders = encoders
        self._key = key
        self._last = last
        self.encoded = encoded
        self.failed = False

    def __enter__(self) -> EncodedState:
        return self.encoded

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: object
    ) -> bool:
        if exc_type is None:
            self._encoders.accept(self._key, self.encoded)
        self.failed = isinstance(exc, ChunksMissing) and not self._last
        return self.failed


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a blocking call in a worker thread, with the caller's context variables.

    A caller that is cancelled still waits for the outcome, so that a write is whole or absent, and
    over, when the cancellation goes on.
    """
    import asyncio
    from contextvars import copy_context

    loop = asyncio.get_running_loop()
    call = partial(copy_context().run, function, *args, **kwargs)
    future = loop.run_in_executor(None, call)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # seen, or the loop would complain about it
        raise


async def iterate_in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Draw items one by one in a worker thread."""
    while (item := await in_thread(next, items, _END)) is not _END:
        yield item
