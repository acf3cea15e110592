"""The contract of a store, what is about checkpoints: their rows, their content, pending writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from holdfast.errors import IntegrityError
from holdfast.model import (
    Chain,
    CheckpointQuery,
    CheckpointRecord,
    NewCheckpoint,
    NewSession,
    NewWrite,
    Payload,
    PutResult,
    WritePlace,
    WriteRecord,
)
from holdfast.state import DecodedState, decode_state, decode_states
from holdfast.state.cache import ChunkCache

if TYPE_CHECKING:
    from holdfast.stores.base import Store

# How many checkpoints before a damaged one are tried.
_LOOKED_AT: Final = 50


class CheckpointStore(ABC):
    """The part of a `Store` that keeps save points and gives them back, verified."""

    @cached_property
    def cache(self) -> ChunkCache:
        """The chunks that were read through this object and verified."""
        return ChunkCache()

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Forget the chunks however the block ends: what is erased is not to stay in memory."""
        try:
            yield
        finally:
            self.cache.clear()

    # Checkpoints -----------------------------------------------------------------------------

    @abstractmethod
    def put(self, draft: NewCheckpoint) -> PutResult:
        """Store a checkpoint, whole or not at all, and trim as its ``trim`` says.

        In one transaction, with the session locked against other puts and its ``updated_at``
        moved: create the session if the draft brings it and it is missing; compare the draft's fence
        with the token of the lease, or without one end a lease that has expired and refuse one that
        has not; return the stored record if the id exists already (a
        retry after a lost reply changes nothing); refuse a completed session; mark the checkpoint that it consumes, of the same
        session and namespace, as consumed for ever; refuse or replace an equal name or external id
        (a replaced external id hands its ``seq`` on); refuse a stale writer; number the label if it is taken; add the
        chunks; check that the expected ones and the required pack are there; draw ``seq``; insert
        the row; trim.

        Raises `SessionNotFound`, `AgentNotFound`, `CheckpointExists`, `ChunksMissing` when an
        expected chunk is not stored, `PackMissing` when the required pack is not, and for the
        checkpoint that it consumes `CheckpointNotFound` or, when another one has consumed it,
        `AlreadyResumed`; `StaleWriter`; `LeaseLost`, `CheckpointBusy`, and `IllegalTransition` for a
        completed session.
        """

    @abstractmethod
    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        """List checkpoints by ``seq``, newest first, without reading payload."""

    @abstractmethod
    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        """Return an agent's newest checkpoint by ``created_at``, ties broken by id.

        What is in quarantine is passed over.
        """

    @abstractmethod
    def read_payload(self, checkpoint_id: str, *, anyway: bool = False) -> Payload | None:
        """Return the manifest and references of a checkpoint, or None.

        Raises `CheckpointAltered` unless the row as a whole fits its link in the hash chain, and
        `CheckpointQuarantined` for one in quarantine. With ``anyway``, which is for verification, also
        one in quarantine is returned, and one that has expired.
        """

    @abstractmethod
    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        """Return the manifests and references of those checkpoints that are stored, by id.

        Raises as `read_payload` does.
        """

    @abstractmethod
    def read_newest(self, query: CheckpointQuery) -> tuple[CheckpointRecord, Payload] | None:
        """Return the newest checkpoint of a query with its manifest and references, or None.

        It is one question, between whose parts nothing can be removed. Raises as `read_payload` does.
        """

    @abstractmethod
    def read_chain(self, session_id: str) -> Chain | None:
        """Return the hash chain of a session as of one moment, or None without a session.

        Rows prove themselves when they are read; this is for whoever asks whether they are all there.
        """

    @abstractmethod
    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the plain bytes of those chunks that are stored.

        The caller verifies them. What cannot be decompressed within bounds is left out.
        """

    def load(self, checkpoint_id: str) -> tuple[Payload, DecodedState] | None:
        """Return a checkpoint's payload and content, verified by digest.

        None when there is no such checkpoint, also when it is removed while it is being read.
        Raises `IntegrityError` when what is stored is not what was saved.
        """
        try:
            payload = self.read_payload(checkpoint_id)
            if payload is None:
                return None
            return payload, decode_state(payload, self.read_chunks, cache=self.cache)
        except IntegrityError as error:
            found = first(self.list_checkpoints(CheckpointQuery(id=checkpoint_id)))
            if found is None:
                return None
            good = self.find_good(found)
            if good is None:
                raise
            named = type(error)(
                f"{error}. The last good checkpoint before it is {good.name!r} ({good.id})"
            )
            named.last_good = good.id
            raise named from error

    def load_newest(
        self, query: CheckpointQuery
    ) -> tuple[CheckpointRecord, Payload, DecodedState] | None:
        """Return the newest checkpoint of a query with its payload and content, verified, or None.

        One that is removed while it is being read gives way to the next. Raises as `load` does.
        """
        loaded = self.load_newest_unless(None, query)
        return cast("tuple[CheckpointRecord, Payload, DecodedState] | None", loaded)

    def load_newest_unless(
        self, known: Payload | None, query: CheckpointQuery
    ) -> tuple[CheckpointRecord, Payload, DecodedState | None] | None:
        """Return what `load_newest` does; in place of the content that of ``known`` is, which the caller has, None."""
        missed = None
        while True:
            try:
                found = self.read_newest(query)
                if found is None:
                    return None
                record, payload = found
                if payload == known:
                    return record, payload, None
                return record, payload, decode_state(payload, self.read_chunks, cache=self.cache)
            except IntegrityError:
                # It was removed meanwhile, or is damaged: by itself it tells which.
                listed = first(self.list_checkpoints(replace(query, limit=1)))
                if listed is None:
                    return None
                if (loaded := self.load(listed.id)) is not None:
                    return listed, *loaded
                if listed.id == missed:
                    # It is there, and not where its id says: the id itself is damaged.
                    raise
                missed = listed.id

    def find_good(self, bad: CheckpointRecord) -> CheckpointRecord | None:
        """Return the newest checkpoint before one that cannot be loaded which can be, or None.

        Looks at the fifty before it, of the same session and namespace, less those whose rows cannot be read.
        """
        # It imports what imports this.
        from holdfast.stores.readable import list_readable_checkpoints

        place = CheckpointQuery(bad.session_id, namespace=bad.namespace, limit=_LOOKED_AT)
        before = replace(place, before_seq=bad.seq)
        for record in list_readable_checkpoints(cast("Store", self), before):
            with suppress(IntegrityError):
                payload = self.read_payload(record.id)
                if payload is not None:
                    decode_state(payload, self.read_chunks, cache=self.cache)
                    return record
        return None

    def load_all(self, checkpoint_ids: Sequence[str]) -> dict[str, DecodedState]:
        """Return the contents of checkpoints by id, verified, in a few reads however many they are.

        Those that are not there, or are removed meanwhile, are left out. Name the oldest first, and
        change nothing of what you get: the contents share what they have in common. Raises
        `IntegrityError` as `load` does.
        """
        ids = list(checkpoint_ids)
        try:
            payloads = self.read_payloads(ids)
            ids = [id_ for id_ in ids if id_ in payloads]
            states = decode_states(
                [payloads[id_] for id_ in ids], self.read_chunks, cache=self.cache
            )
            return dict(zip(ids, states, strict=True))
        except IntegrityError:
            # Something was removed meanwhile, or is damaged: one by one tells which.
            found = {id_: self.load(id_) for id_ in ids}
            return {id_: loaded[1] for id_, loaded in found.items() if loaded is not None}

    @abstractmethod
    def quarantine(self, checkpoint_ids: Collection[str], *, lift: bool = False) -> set[str]:
        """Keep checkpoints that failed verification from being used, or ``lift`` that.

        They are neither resumable nor loaded meanwhile, but stay as they are. Returns the ids of those
        for which that is new. It asks for no lease.
        """

    @abstractmethod
    def mark_restored(self, checkpoint_id: str, *, fence: int | None = None) -> CheckpointRecord:
        """Set ``restored_at`` to now. Raises `CheckpointNotFound`, and `LeaseLost` by ``fence``."""

    @abstractmethod
    def mark_restoring(
        self, checkpoint_id: str, *, seconds: float, fence: int | None = None
    ) -> None:
        """Keep a checkpoint from being trimmed or pruned for so many seconds; 0 ends that.

        Raises `CheckpointNotFound`, and `LeaseLost` by ``fence``.
        """

    @abstractmethod
    def delete_checkpoints(
        self,
        checkpoint_ids: Sequence[str],
        *,
        fence: int | None = None,
        beside: Collection[str] | None = None,
        newest_too: bool = False,
    ) -> int:
        """Remove checkpoints by id and return how many there were; `gc` frees their chunks.

        The writes that tasks left at them go too.

        With ``beside`` they go by a plan, which was made of them and of those named there: these stay. So
        does what is being restored, and, with all others of its session and namespace, what the plan
        cannot have meant: the newest that can be resumed from, unless with ``newest_too`` it may mean that,
        or the parent of one that is not in the plan, which may be computed from it. Whoever gets a smaller
        number plans again.

        With ``fence`` all of them must be of a session whose lease has that token, or `LeaseLost` is
        raised and none is removed. Upkeep has no fence and asks for none.
        """

    # Pending writes --------------------------------------------------------------------------

    @abstractmethod
    def put_writes(
        self,
        session: NewSession,
        namespace: str,
        external_id: str,
        writes: Sequence[NewWrite],
        *,
        fence: int | None = None,
    ) -> None:
        """Store pending writes of a checkpoint, which may itself not be stored yet.

        The session is created if it is missing. A write whose task and index exist already is
        ignored, or replaces the old one if it says so. Raises `ChunksMissing`, and by ``fence``, or
        for want of one, what a put raises.
        """

    @abstractmethod
    def read_writes(self, places: Collection[WritePlace]) -> dict[WritePlace, list[WriteRecord]]:
        """Return the writes at those checkpoints that have any, by (task path, task, index).

        It is one question, however many they are and wherever they stand.
        """

    @abstractmethod
    def write_places(self) -> list[WritePlace]:
        """Name where there are pending writes. None of them is looked at."""

    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        """Return the writes of checkpoints of one line by (task path, task, index)."""
        found = self.read_writes([(session_id, namespace, one) for one in external_ids])
        writes = [write for at_one in found.values() for write in at_one]
        return sorted(writes, key=attrgetter("task_path", "task_id", "index", "external_id"))


def first(records: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the first record of a listing, or None when it is empty."""
    return next(iter(records), None)
