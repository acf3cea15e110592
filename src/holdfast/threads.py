"""Threads: what savers and checkpointers have in common.

A thread is a session that nobody opens: its first put creates it with an agent of its own, whose id follows
from its name, so a put needs no earlier question and stays one transaction. The agents of one kind of face
have ids that begin alike, which tells its threads from other sessions. One agent for all of them would be a
row that every put of every writer locks. Successive states of a thread
mostly repeat each other. `ThreadRecorders` remembers the last one of each thread, within a bound of
memory, so that a put sends only what changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.config import url_text
from holdfast.errors import InvalidConfiguration, InvalidUrl
from holdfast.ids import is_thread_agent, thread_agent_id
from holdfast.model import (
    TYPE_OF_CLASS,
    CheckpointRecord,
    NewAgent,
    NewCheckpoint,
    NewSession,
    Payload,
    Trim,
)
from holdfast.recording import Attempt, Recorder
from holdfast.state import EncodedState
from holdfast.state.cache import Cache, ChunkCache
from holdfast.state.refs import ReadChunks
from holdfast.stores import Store, open_store
from holdfast.stores.rules import foreign_session

ThreadKey: TypeAlias = tuple[str, str]
"""A thread id and a namespace."""

REMEMBERED_BYTES: Final = 64 * 1024 * 1024


@lru_cache(maxsize=1024)
def thread_session(tenant: str, kind: str, thread_id: str) -> NewSession:
    """Return the session that a put creates when the thread is new: the same one for every put."""
    agent = NewAgent(thread_agent_id(tenant, kind, thread_id), name=kind, agent_type=kind)
    return NewSession(id=thread_id, agent_id=agent.id, agent_type=kind, agent=agent)


def thread_checkpoint(
    session: NewSession,
    encoded: EncodedState,
    checkpoint_id: str,
    *,
    external_id: str | None = None,
    namespace: str = "",
    parent_id: str | None = None,
    parent_is_newest: bool = False,
    follows: str | None = None,
    replace: bool = False,
    run_id: str | None = None,
    version: int = 1,
    metadata: Mapping[str, Any] | None = None,
    created_at: datetime | None = None,
    expires_at: datetime | None = None,
    trim: Trim,
) -> NewCheckpoint:
    """Return the draft of a thread's next checkpoint; see `NewCheckpoint`.

    It is a step, named after the id by which its face knows it, and creates the session of a new thread.
    """
    return NewCheckpoint(
        id=checkpoint_id,
        session_id=session.id,
        name=external_id or checkpoint_id,
        manifest=encoded.manifest,
        refs=encoded.refs,
        chunks=encoded.chunks,
        expects=encoded.expects,
        size_bytes=encoded.size_bytes,
        checkpoint_type=TYPE_OF_CLASS["step"],
        retention_class="step",
        namespace=namespace,
        external_id=external_id,
        parent_id=parent_id,
        parent_is_newest=parent_is_newest,
        run_id=run_id,
        version=version,
        expires_at=expires_at,
        metadata=metadata,
        created_at=created_at,
        replace=replace,
        follows=follows,
        trim=trim,
        session=session,
    )


def refuse_foreign(
    store: Store, kind: str, session_id: str, record: CheckpointRecord | None = None
) -> None:
    """Raise `ForeignSession` for the session of somebody else than that kind of face.

    ``record`` is a checkpoint of it, which mostly tells without a question. It is for a session's own line of
    work: other namespaces of it are for anybody.
    """
    if record is not None and is_thread_agent(record.agent_id, kind):
        return
    found = store.find_session(session_id)
    if found is not None and not is_thread_agent(found.agent_id, kind):
        raise foreign_session(
            session_id,
            found.agent_type,
            "Nothing was read or stored: use an id that nothing else has, or another store",
        )


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
    text = url_text(path)
    if text == ":memory:":
        raise InvalidUrl(
            "SQLite keeps its data in a file here; for memory there is a class of its own"
        )
    # A path that looks like a URL is a path here.
    return open_store(Path(text).absolute(), tenant=tenant)


class ThreadRecorders:
    """A recorder for each thread, as far as ``max_bytes`` reach; the least used go first."""

    def __init__(self, max_bytes: int = REMEMBERED_BYTES) -> None:
        self._known: Cache[ThreadKey, Recorder] = Cache(max_bytes)

    def attempts(self, key: ThreadKey, state: Mapping[str, Any]) -> Iterator[Attempt]:
        """Yield attempts at a put of the thread's next state; see `Recorder.attempts`."""
        recorder = self._known.get(key) or Recorder()
        for attempt in recorder.attempts(state):
            yield attempt
            if not attempt.failed:
                self._remember(key, recorder, attempt.encoded.remembered_bytes)

    def adopt(
        self,
        key: ThreadKey,
        payload: Payload,
        read_chunks: ReadChunks,
        cache: ChunkCache | None = None,
    ) -> None:
        """Continue from a checkpoint that has just been read, unless the thread is known."""
        if not payload.refs or self._known.get(key) is not None:
            return
        recorder = Recorder()
        recorder.continue_from(payload, read_chunks, cache)
        self._remember(key, recorder, len(payload.refs))

    def forget_thread(self, thread_id: str) -> None:
        """Forget a thread in all its namespaces."""
        self._known.remove_where(lambda key: key[0] == thread_id)

    def _remember(self, key: ThreadKey, recorder: Recorder, size: int) -> None:
        if size:
            self._known.put(key, recorder, size)
        else:
            self._known.remove(key)
