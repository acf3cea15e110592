"""What every checkpointer does alike; a backend adds six ways to ask its database."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.closing import AsyncClosing
from holdfast.errors import (
    InvalidConfiguration,
    InvalidFilter,
    InvalidIdentifier,
    InvalidState,
    NothingToResume,
)
from holdfast.ids import (
    CHECKPOINTER,
    IdFactory,
    check_session_id,
    check_tenant,
    check_uuid,
    is_uuid,
    new_id,
)
from holdfast.model import CheckpointQuery, CheckpointRecord, NewCheckpoint, Trim
from holdfast.state import EncodedState
from holdfast.threads import ThreadRecorders, check_cap, thread_checkpoint, thread_session

DEFAULT_SCHEMA: Final = "public"
DEFAULT_TABLE: Final = "ziro_checkpoints"
# The same in every backend, so that a copy of one store to another keeps its checkpoints in place.
DEFAULT_NAMESPACE: Final = f"{DEFAULT_SCHEMA}.{DEFAULT_TABLE}"
DEFAULT_CAP: Final = 100
_INT32: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A checkpoint without its snapshot. ``size_bytes`` is the length of its JSON in UTF-8."""

    id: str
    thread_id: str
    created_at: datetime
    version: int
    size_bytes: int


class BaseCheckpointer(AsyncClosing):
    """Keeps snapshots by thread.

    ``max_checkpoints_per_thread`` is exact after every put, the oldest go, and the newest never
    does; None or infinity keep everything. ``now`` replaces the clock of ids and of
    ``created_at`` and returns seconds since the epoch or an aware datetime. With ``ttl_seconds`` a
    checkpoint is not returned any more when it is that old, and removed by the thread's next put.
    """

    def __init__(
        self,
        *,
        tenant: str,
        namespace: str,
        max_checkpoints_per_thread: float | None,
        now: Callable[[], float | datetime] | None,
        ttl_seconds: float | None,
    ) -> None:
        self._tenant = check_tenant(tenant)
        self._namespace = namespace
        self._trim = Trim(keep=check_cap(max_checkpoints_per_thread))
        self._ttl = _check_ttl(ttl_seconds)
        self._now = None if now is None else _seconds(now)
        # One look at a given clock serves a put's id and its time; ids keep to their own order.
        self._moment = 0.0
        self._new_id = new_id if self._now is None else IdFactory(lambda: self._moment)
        self._recorders = ThreadRecorders()

    async def put(
        self, thread_id: str, snapshot: Mapping[str, Any], *, consumes: str | None = None
    ) -> str:
        """Store a snapshot and return its id, a UUIDv7 made here. It is durable then.

        Ids of one process grow in the order of its puts, within a millisecond and when the clock
        steps back too. Raises `StateNotSerializable` naming the path of a value that has no exact
        stored form.

        ``consumes`` names the thread's checkpoint that this one goes on from. It is marked in the
        same transaction, so of any number of processes that go on from one checkpoint exactly one
        does: the others get `AlreadyResumed` and nothing is stored. A checkpoint that was trimmed,
        deleted or has expired cannot be gone on from: `CheckpointNotFound`.
        """
        check_session_id(thread_id)
        if consumes is not None:
            check_uuid(consumes, "id of the consumed checkpoint")
        version = _version(snapshot)
        created_at = None
        if self._now is not None:
            self._moment = self._now()
            created_at = datetime.fromtimestamp(self._moment, UTC)
        checkpoint_id = self._new_id()
        for attempt in self._memory().attempts((thread_id, self._namespace), snapshot):
            with attempt as encoded:
                draft = self._draft(thread_id, checkpoint_id, version, created_at, encoded)
                await self._send(replace(draft, consumes=consumes))
        return checkpoint_id

    async def get(self, thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any] | None:
        """Return a thread's snapshot, the latest without an id, or None if there is none.

        Raises `DigestMismatch` or `StateCorrupt` when what is stored is not what was saved.
        """
        found = await self.find(thread_id, checkpoint_id)
        return None if found is None else found[1]

    async def find(
        self, thread_id: str, checkpoint_id: str | None = None
    ) -> tuple[SnapshotInfo, dict[str, Any]] | None:
        """Return what `get` does together with what `list` says about it."""
        query = self._query(thread_id, checkpoint_id, limit=1)
        found = None if query is None else await self._load(query)
        if found is None or self._is_expired(found[0]):
            return None
        return _info(found[0]), found[1]

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any]:
        """Return what `get` does, or raise `NothingToResume`."""
        snapshot = await self.get(thread_id, checkpoint_id)
        if snapshot is None:
            which = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id}"
            raise NothingToResume(f"thread {thread_id!r} has {which}: nothing to resume from")
        return snapshot

    async def list(
        self, thread_id: str, limit: int | None = None, *, version: int | None = None
    ) -> Sequence[SnapshotInfo]:
        """List a thread's checkpoints, newest first, without reading their snapshots.

        ``version`` narrows it to snapshots of that version. Raises `InvalidFilter` for a negative
        limit.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidFilter(f"limit must be a whole number, not negative: {limit!r}")
        query = self._query(thread_id, None, limit=limit, version=version)
        if query is None or limit == 0:
            return []
        return [_info(record) for record in await self._list(query) if not self._is_expired(record)]

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> int:
        """Delete one checkpoint, or all of a thread with their content, and return how many.

        What is not there is no error. The content of a single one is freed by the next sweep.
        """
        check_session_id(thread_id)
        if checkpoint_id is None:
            return await self.delete_threads([thread_id])
        return await self._delete(thread_id, checkpoint_id) if _may_name(checkpoint_id) else 0

    async def delete_threads(self, thread_ids: Iterable[str]) -> int:
        """Delete all checkpoints of these threads with their content, and return how many."""
        if isinstance(thread_ids, str) or not isinstance(thread_ids, Iterable):
            raise InvalidIdentifier(f"thread_ids must be a list of ids: {thread_ids!r:.80}")
        wanted = sorted({check_session_id(thread_id) for thread_id in thread_ids})
        if not wanted:
            return 0
        for thread_id in wanted:
            self._recorders.forget_thread(thread_id)
        return await self._erase(wanted)

    async def purge_expired(self) -> int:
        """Remove what is older than its ``ttl_seconds`` and return how many.

        A put does so for its own thread; this is for threads that nobody puts to any more.
        """
        return await self._purge()

    async def close(self) -> None:
        """Release what the checkpointer opened itself."""
        return

    # What a backend adds -------------------------------------------------------------------------

    @abstractmethod
    async def _send(self, draft: NewCheckpoint) -> None:
        """Store a checkpoint, and remove expired ones of its thread if it expires itself.

        Raises `ChunksMissing` when an expected chunk is not stored, and `AlreadyResumed` or
        `CheckpointNotFound` when what the draft consumes is consumed or gone.
        """

    @abstractmethod
    async def _load(self, query: CheckpointQuery) -> tuple[CheckpointRecord, dict[str, Any]] | None:
        """Return the newest checkpoint of a query with its state."""

    @abstractmethod
    async def _list(self, query: CheckpointQuery) -> Sequence[CheckpointRecord]:
        """Return the checkpoints of a query, newest first."""

    @abstractmethod
    async def _delete(self, thread_id: str, checkpoint_id: str) -> int:
        """Delete one checkpoint and return how many there were."""

    @abstractmethod
    async def _erase(self, thread_ids: Sequence[str]) -> int:
        """Delete all checkpoints of threads, their content too, and return how many."""

    @abstractmethod
    async def _purge(self) -> int:
        """Remove expired checkpoints and return how many."""

    def _memory(self) -> ThreadRecorders:
        """Return what remembers the states that are known to be stored."""
        return self._recorders

    def _draft(
        self,
        thread_id: str,
        checkpoint_id: str,
        version: int,
        created_at: datetime | None,
        encoded: EncodedState,
    ) -> NewCheckpoint:
        # Expiry follows the real clock, since that is the one that databases look at.
        expires_at = None if self._ttl is None else datetime.now(UTC) + self._ttl
        return thread_checkpoint(
            thread_session(self._tenant, CHECKPOINTER, thread_id),
            encoded,
            checkpoint_id,
            external_id=checkpoint_id,
            namespace=self._namespace,
            version=version,
            expires_at=expires_at,
            created_at=created_at,
            trim=self._trim,
        )

    def _query(
        self,
        thread_id: str,
        checkpoint_id: str | None,
        *,
        limit: int | None,
        version: int | None = None,
    ) -> CheckpointQuery | None:
        check_session_id(thread_id)
        if checkpoint_id is not None and not _may_name(checkpoint_id):
            return None
        return CheckpointQuery(
            session_id=thread_id,
            namespace=self._namespace,
            id=checkpoint_id,
            version=version,
            limit=limit,
        )

    def _is_expired(self, record: CheckpointRecord) -> bool:
        """Judge by a replaced clock too; by the real one the store has judged."""
        if self._ttl is None or self._now is None:
            return False
        return record.created_at + self._ttl <= datetime.fromtimestamp(self._now(), UTC)


def _info(record: CheckpointRecord) -> SnapshotInfo:
    return SnapshotInfo(
        id=record.id,
        thread_id=record.session_id,
        created_at=record.created_at,
        version=record.version,
        size_bytes=record.size_bytes,
    )


def _seconds(now: Callable[[], float | datetime]) -> Callable[[], float]:
    def seconds() -> float:
        moment = now()
        return moment.timestamp() if isinstance(moment, datetime) else moment

    return seconds


def _may_name(checkpoint_id: str) -> bool:
    """Tell whether a text can be the id of a checkpoint; what is no text is refused."""
    if not isinstance(checkpoint_id, str):
        raise InvalidIdentifier(f"a checkpoint id must be a str: {checkpoint_id!r:.80}")
    return is_uuid(checkpoint_id)


def _check_ttl(ttl_seconds: float | None) -> timedelta | None:
    if ttl_seconds is None:
        return None
    if type(ttl_seconds) not in (int, float) or not 0 < ttl_seconds < float("inf"):
        raise InvalidConfiguration(f"ttl_seconds must be a number above 0: {ttl_seconds!r}")
    try:
        ttl = timedelta(seconds=ttl_seconds)
        datetime.now(UTC) + ttl
    except OverflowError:
        raise InvalidConfiguration(
            f"ttl_seconds reaches beyond the year 9999: {ttl_seconds!r}"
        ) from None
    return ttl


def _version(snapshot: object) -> int:
    """Return a snapshot's own version if it has one that is an integer, else 1."""
    version = snapshot.get("version", 1) if isinstance(snapshot, Mapping) else 1
    if type(version) is not int:
        return 1
    if not -_INT32 <= version < _INT32:
        raise InvalidState(f"$.version must fit into 32 bits: {version}")
    return version
