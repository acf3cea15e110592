"""Short ways to write drafts, and the fixtures that a store's tests override."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.ids import new_id
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    NewAgent,
    NewCheckpoint,
    NewSession,
    NewWrite,
)
from holdfast.state.refs import Ref, digest_of, pack_refs
from holdfast.stores.base import Store

MANIFEST = '{"step":1}'


class Contract:
    """What all parts of the suite share: two stores on one database."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store; override it."""
        raise NotImplementedError("override the fixture 'store'")

    @pytest.fixture
    def neighbour(self) -> Store:
        """An empty store of another tenant in the same database; override it."""
        raise NotImplementedError("override the fixture 'neighbour'")


def agent(**changes: Any) -> NewAgent:
    """Return an agent to store."""
    values: dict[str, Any] = {"id": new_id(), "name": "worker", "agent_type": "implementer"}
    return NewAgent(**(values | changes))


def session(**changes: Any) -> NewSession:
    """Return a session to store, which brings its agent unless it names one."""
    values: dict[str, Any] = {"id": new_id(), "agent_type": "implementer"}
    if "agent_id" not in changes:
        values["agent"] = agent()
        values["agent_id"] = values["agent"].id
    return NewSession(**(values | changes))


def checkpoint(session_id: str, name: str | None = None, **changes: Any) -> NewCheckpoint:
    """Return a checkpoint to store, without chunks unless they are given as ``contents``.

    ``contents`` are plain bytes that become one chunk each.
    """
    contents: Iterable[bytes] = changes.pop("contents", ())
    chunks = {digest_of(data): data for data in contents}
    values: dict[str, Any] = {
        "id": new_id(),
        "session_id": session_id,
        "name": name or f"checkpoint {new_id()}",
        "manifest": MANIFEST,
        "refs": refs_to(*chunks.values()),
        "chunks": chunks,
        "expects": (),
        "size_bytes": sum(map(len, chunks.values())),
    }
    return NewCheckpoint(**(values | changes))


def write(task_id: str = "task", index: int = 0, **changes: Any) -> NewWrite:
    """Return a pending write to store; ``contents`` as for `checkpoint`."""
    contents: Iterable[bytes] = changes.pop("contents", ())
    chunks = {digest_of(data): data for data in contents}
    values: dict[str, Any] = {
        "task_id": task_id,
        "index": index,
        "channel": "messages",
        "manifest": MANIFEST,
        "refs": refs_to(*chunks.values()),
        "chunks": chunks,
        "expects": (),
    }
    return NewWrite(**(values | changes))


def refs_to(*contents: bytes) -> bytes:
    """Return packed references to leaves."""
    return pack_refs(Ref(digest_of(data), 0, 0, len(data)) for data in contents)


def index_of(*contents: bytes) -> tuple[bytes, bytes]:
    """Return an index chunk over leaves, and packed references to it."""
    data = refs_to(*contents)
    return data, pack_refs([Ref(digest_of(data), 1, 0, sum(map(len, contents)))])


def names(records: Iterable[CheckpointRecord]) -> list[str]:
    """Return the names of checkpoints in the order given."""
    return [record.name for record in records]


def stored(store: Store, session_id: str, **filters: Any) -> list[str]:
    """Return the names of a session's checkpoints, newest first."""
    return names(store.list_checkpoints(CheckpointQuery(session_id=session_id, **filters)))
