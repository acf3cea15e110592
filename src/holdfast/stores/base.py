"""The contract of a store: the docstrings here are its specification.

A store keeps agents, sessions, checkpoints, chunks, pending writes, effects, workspace packs and logs
of one *tenant*. It
knows nothing about what a state means: it is handed a manifest, references and chunks, and gives
back the same bytes. Every method is atomic and, where it changes something, durable when it
returns. Every method may be called from several threads. Driver errors never leave a store; they
become members of the tree in `holdfast.errors`.

`holdfast.testing.StoreContract` checks all of this for any implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from holdfast.errors import IntegrityError, InvalidUrl
from holdfast.model import (
    LEASE_TTL,
    AgentRecord,
    Buffer,
    Chain,
    CheckpointQuery,
    CheckpointRecord,
    EffectOutcome,
    EffectQuery,
    EffectRecord,
    GcReport,
    Lease,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    PackReport,
    Payload,
    PutResult,
    SessionCopy,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    WorkspacePack,
    WriteRecord,
)
from holdfast.state import DecodedState, decode_state, decode_states
from holdfast.state.cache import ChunkCache
from holdfast.state.refs import digest_of
from holdfast.stores.chain import RowDigest, plain_digest

if TYPE_CHECKING:
    from holdfast.crypto import Keys
    from holdfast.stores.sealed_tables import Change, Row, Table


# How many checkpoints before a damaged one are tried.
_LOOKED_AT: Final = 50
ASIDE: Final = b"\xff"


class Store(ABC):
    """A place for checkpoints. Reading methods never change anything."""

    tenant: str
    """The boundary of everything this store object sees and of chunk sharing."""

    url: str
    """Where the data is, without secrets: fit for messages and logs."""

    row_digest: RowDigest = staticmethod(plain_digest)
    """What digests the content of a checkpoint's row for the hash chain: the place for a key."""

    keys: Keys | None = None
    """What seals the content on its way into the database; None where nothing does."""

    shared: ClassVar[bool] = False
    """Whether other machines read the same store, so that files have to travel through it."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two store objects have in common that work on the same data."""
        return (self.url, self.tenant)

    @cached_property
    def cache(self) -> ChunkCache:
        """The chunks that were read through this object and verified."""
        return ChunkCache()

    # Agents ----------------------------------------------------------------------------------

    @abstractmethod
    def create_agent(self, draft: NewAgent) -> AgentRecord:
        """Store an agent. Its depth is its parent's plus one.

        Raises `AgentExists` for a taken id, `AgentNotFound` for an unknown parent.
        """

    @abstractmethod
    def find_agent(self, agent_id: str) -> AgentRecord | None:
        """Return the agent, or None."""

    @abstractmethod
    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        """List agents, most recently created first."""

    @abstractmethod
    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        """Change what is given; ``updated_at`` moves, and ``completed_at`` is set on a final status.

        Final are completed, failed and terminated; leaving them clears ``completed_at``.
        Raises `AgentNotFound`.
        """

    # Sessions --------------------------------------------------------------------------------

    @abstractmethod
    def create_session(self, draft: NewSession) -> SessionRecord:
        """Store a session, and its agent when the draft brings one that does not exist yet.

        Raises `SessionExists` for a taken id and `AgentNotFound` for an unknown agent; then
        nothing is stored.
        """

    @abstractmethod
    def find_session(self, session_id: str) -> SessionRecord | None:
        """Return the session, or None."""

    @abstractmethod
    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        """List sessions, most recently created first."""

    @abstractmethod
    def update_session(
        self,
        session_id: str,
        *,
        status: str | None = None,
        expected: Collection[str] | None = None,
        resumed_at: datetime | None = None,
        paused_until: datetime | None = None,
        pause_reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        merge_metadata: Mapping[str, Any] | None = None,
        task_description: str | None = None,
        fence: int | None = None,
    ) -> SessionRecord:
        """Change what is given; ``updated_at`` moves.

        ``metadata`` replaces what is there. ``merge_metadata`` sets its top-level keys and leaves
        the others, in the same transaction, so that nobody's concurrent merge is lost. The status
        paused sets ``paused_at``, ``paused_until`` and ``pause_reason``; any other status clears them.
        With ``expected`` the present status must be one of those, checked in the same transaction,
        or `IllegalTransition` is raised; that a completed session stays completed is always checked.
        Raises `SessionNotFound`, and `LeaseLost` for a ``fence`` that is not the lease's token.
        """

    @abstractmethod
    def delete_session(self, session_id: str) -> bool:
        """Erase a session: checkpoints, writes, logs, and every chunk that nothing refers to then.

        Its agent goes too unless somebody needs it, and what went on from it says so no more.
        Chunks that were left over before go too, as with `gc`: a writer who remembers an index chunk
        relies on what is below it, so one may never be removed without the other. Where an index
        chunk is unreadable no chunk is removed. Returns false when there is no such session.
        """

    @abstractmethod
    def erase_threads(self, session_ids: Collection[str], *, namespace: str, agent_id: str) -> int:
        """Erase what a namespace holds in some sessions, and chunks as `delete_session` does.

        A session of that agent that is left without checkpoints, writes and effects goes too. Sessions that
        do not exist are no error. Returns how many checkpoints there were.
        """

    @abstractmethod
    def erase_tenant(self) -> int:
        """Erase all that the tenant has, agents and packs included; return how many sessions it had.

        A seal stays, so that what comes next is sealed too.
        """

    def leftovers(self) -> list[str]:
        """Name files that may still hold what was erased, each with the reason."""
        return []

    @abstractmethod
    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        """Copy a session's checkpoints and pending writes into a new one; chunks are shared.

        Effects stay: what the one session did to the world, the other has not done.
        Copies get new ids and sequence numbers, keep their order, names, labels, external ids,
        workspace commits and times,
        and parents are rewired to the copies where those exist. ``checkpoint_ids`` restricts what
        is copied. Raises `SessionNotFound`, `CheckpointNotFound`, `SessionExists`.
        """

    @abstractmethod
    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        """Count checkpoints and bytes per session, most recently created session first."""

    # Leases ----------------------------------------------------------------------------------

    # A lease says who may write to a session. Its token rises whenever it changes hands, also when it is
    # given back, and every write that carries a ``fence`` compares it with the token in its own
    # transaction. Expiry alone takes nothing from a holder: it lets somebody else take the session. The
    # time is the database's own: of the server, or of the machine since it was started, so a wall clock
    # that is set neither shortens nor prolongs a lease.

    @abstractmethod
    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        """Take the session's lease, or join it: an equal owner gets the same token and a new expiry.

        It is given when nobody has it, when it has expired, to its owner, and to whoever takes it
        ``over`` from the holder with that token, which is what one passes who has seen that the
        holder is dead. Otherwise `CheckpointBusy`, whose ``lease`` is the present one. Of any number
        of callers at once exactly one takes it. Raises `SessionNotFound`.
        """

    @abstractmethod
    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        """Let leases, tokens by session, expire later; return the sessions that are still held so.

        An expired lease that nobody has taken is renewed like any other.
        """

    @abstractmethod
    def release_lease(self, session_id: str, token: int) -> bool:
        """Give a lease back, which raises the token too. False when it was not held with that one."""

    @abstractmethod
    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        """Return the leases that stand, expired ones included, by session id."""

    @abstractmethod
    def interrupt_session(
        self,
        session_id: str,
        token: int,
        *,
        most: int,
        message: str,
        data: Mapping[str, Any] | None = None,
    ) -> SessionRecord | None:
        """Mark an active session whose holder is dead as interrupted, and end its lease.

        In one transaction: the status becomes interrupted, or failed when that happened ``most``
        times before; ``recoveries`` counts it; ``message`` is logged as a warning. None, and nothing is
        changed, unless the session is active and held with ``token``: of many callers one wins.
        """

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

    def find_good(self, bad: CheckpointRecord) -> CheckpointRecord | None:
        """Return the newest checkpoint before one that cannot be loaded which can be, or None.

        Looks at the fifty before it, of the same session and namespace.
        """
        place = CheckpointQuery(bad.session_id, namespace=bad.namespace, limit=_LOOKED_AT)
        for record in self.list_checkpoints(replace(place, before_seq=bad.seq)):
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
        spare_restoring: bool = False,
    ) -> int:
        """Remove checkpoints by id and return how many there were; `gc` frees their chunks.

        The writes that tasks left at them go too. With ``spare_restoring`` those that are being restored stay.

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
    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        """Return the writes of those checkpoints by (task path, task, index)."""

    # Workspace packs -------------------------------------------------------------------------

    # A pack brings the git objects of one snapshot to where the private git store is not. Packs are
    # shared within the tenant. Two things hold at every moment: a stored pack's needs are stored, and
    # so is the pack of every checkpoint that was put with ``pack_required``. Both are checked where they
    # could break, under the lock that every removal of packs takes exclusively.

    @abstractmethod
    def workspace_commits(self) -> set[str]:
        """Return every commit that a stored checkpoint of the tenant names, expired ones included."""

    @abstractmethod
    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        """Store the pack that brings ``commit`` to where the commits ``needs`` are; tell if it is new.

        Where one is stored for the commit it stays, and counts as just put; with ``replace`` it is
        exchanged, for example for one that needs nothing. Put the pack before the checkpoint, and
        the checkpoint with ``pack_required``: should a sweep have come in between, that put raises
        `PackMissing` and both are repeated. Raises `PackMissing` for a need that is not stored, and
        `InvalidIdentifier` for what is no commit, needs itself or is larger than 512 MiB.
        """

    @abstractmethod
    def find_packs(self, commits: Collection[str]) -> set[str]:
        """Return those of the commits whose pack is stored, which saves sending it.

        A sweep may remove one the next moment; ``pack_required`` is what one can rely on.
        """

    @abstractmethod
    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        """Return the packs that ``commit`` is made of in the order in which they must be applied.

        Bases come first, each pack once. What ``have`` names is there already: neither it nor what only
        it needs is returned. Packs are read one by one, so that one at a time is in memory. Raises
        `PackMissing`, which names the commit, before the first pack if one is not stored, and later
        if one is removed while they are being read. Raises `StateCorrupt` for packs that need each
        other, or more than 100,000.
        """

    @abstractmethod
    def delete_packs(self, commits: Collection[str]) -> PackReport:
        """Remove those of the packs that neither a checkpoint nor a pack that stays needs."""

    @abstractmethod
    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        """Remove packs that neither a checkpoint nor a pack that stays needs.

        Packs that were put within the last day stay, since their checkpoint may be on its way.
        Erasing a session removes the packs that only it needed at once, whatever their age.
        """

    @abstractmethod
    def pack_usage(self) -> PackReport:
        """Count the packs of the tenant and their bytes."""

    # Effects ---------------------------------------------------------------------------------

    @abstractmethod
    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        """Record an attempt at an effect, and return what is recorded under its key and occurrence.

        That is the draft's own attempt if nothing was recorded, or the attempt that it is to take the
        place of; otherwise what was there, unchanged: compare the ``attempt_id``. Beginning the same
        attempt again changes nothing. Raises `SessionNotFound`, and `LeaseLost` by the draft's fence.
        """

    @abstractmethod
    def finish_effect(
        self,
        session_id: str,
        key: str,
        occurrence: int,
        attempt_id: str,
        outcome: EffectOutcome,
        *,
        fence: int | None = None,
    ) -> bool:
        """Record how an attempt ended. False when another attempt, or none, is recorded there.

        Raises `LeaseLost` for a ``fence`` that is not the lease's token.
        """

    @abstractmethod
    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        """List effects in the order of their last start."""

    # Logs ------------------------------------------------------------------------------------

    @abstractmethod
    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        """Append a line. Raises `SessionNotFound`."""

    @abstractmethod
    def list_logs(
        self,
        session_id: str,
        *,
        level: str | None = None,
        key: str | None = None,
        newest: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[LogRecord]:
        """Return log lines in the order of the calls, or with ``newest`` the other way round.

        ``key`` asks for those whose data has it at the top.
        """

    # From store to store ---------------------------------------------------------------------

    # A session moves in two steps. Its content goes ahead, in as many calls as it takes: nothing refers to
    # it yet, so a sweep may take it away again. Then one transaction adds all rows, and refuses to if
    # any content is missing: whoever looks sees the whole session or none of it.

    @abstractmethod
    def read_session(self, session_id: str) -> SessionCopy | None:
        """Return all rows of a session as of one moment, or None. What has expired is left out."""

    @abstractmethod
    def find_chunks(self, digests: Collection[bytes]) -> set[bytes]:
        """Return those of the chunks that are stored, without reading them."""

    @abstractmethod
    def stage_chunks(self, chunks: Mapping[bytes, Buffer]) -> None:
        """Store content ahead of what will refer to it. Not for index chunks.

        A sweep that removes a leaf that nothing refers to must find the index chunks above it, which
        is why those come with `add_session`.
        """

    @abstractmethod
    def add_session(
        self,
        copy: SessionCopy,
        payloads: Callable[[str], Payload],
        *,
        indexes: Mapping[bytes, Buffer],
        leaves: Collection[bytes],
        pack_required: bool = False,
    ) -> SessionRecord:
        """Store a session that another store had, whole or not at all.

        Ids, names, labels, parents, times and counts are those of the copy; sequence numbers are new
        and keep its order; nobody holds the session. Agents that are there already stay as they are.
        ``payloads`` is called for each checkpoint, in order. ``indexes`` are the index chunks
        that the session needs, and ``leaves`` all other chunks, which must be stored. With
        ``pack_required`` so must the packs of all workspace commits.

        Raises `SessionExists`, `CheckpointExists` for the id of a checkpoint that another session
        has, `AgentExists`, `ChunksMissing`, `PackMissing`, and `InvalidIdentifier` for rows that no
        store could have.
        """

    # Sealing ---------------------------------------------------------------------------------

    # A store that holds sealed rows says so itself: opened without a key it raises `KeyRequired`.
    # What is sealed, and how, is the matter of `holdfast.stores.sealed` alone.

    @abstractmethod
    def read_seal(self) -> str | None:
        """Return what says that the tenant is sealed, or None."""

    @abstractmethod
    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        """Say durably that the tenant is sealed, and return what says so then.

        That is ``seal`` if nothing said so before, or if ``instead_of`` did. From then on no session
        is added without the mark of a sealed one. Raises `StoreNotSealed` when there is plain text.
        """

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int
    ) -> tuple[Row | None, int]:
        """Let ``change`` see the next rows of a table, and store what it returns, in one transaction.

        Rows come in the order of their keys, so many after the key ``after``. Returns the last key,
        None when there are no more, and how many rows were changed. Raises `InvalidUrl` for a store that
        ends with its process.
        """
        raise InvalidUrl(f"{self.url} is gone when its process ends; there is nothing to seal anew")

    def reseal_checkpoints(self, session_id: str, change: Change) -> int:
        """Do the same with all checkpoints of a session at once, and return how many were changed."""
        raise InvalidUrl(f"{self.url} is gone when its process ends; there is nothing to seal anew")

    # Upkeep ----------------------------------------------------------------------------------

    @abstractmethod
    def purge_expired(self) -> int:
        """Remove checkpoints past their ``expires_at`` and return how many."""

    @abstractmethod
    def gc(self, *, dry_run: bool = False) -> GcReport:
        """Remove chunks that nothing refers to and writes whose checkpoint never came.

        Safe beside running puts: a chunk that any committed checkpoint needs is never removed.
        Writes are orphans only when they are a day old.
        """

    @abstractmethod
    def iter_checkpoint_ids(self) -> Iterator[str]:
        """Yield the ids of all checkpoints of the tenant, oldest first."""

    @abstractmethod
    def iter_digests(self) -> Iterator[bytes]:
        """Yield the digests of all chunks of the tenant, needed or not, but not of what was set aside."""

    def find_damaged_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes | None]:
        """Return those chunks that do not have the bytes that their digests say, with what they have.

        None stands for one that cannot be read, or is not there.
        """
        found = self.read_chunks(digests)
        return {
            digest: found.get(digest)
            for digest in digests
            if digest not in found or digest_of(found[digest]) != digest
        }

    @abstractmethod
    def set_chunk_aside(self, digest: bytes, stored: bytes | None) -> bool:
        """Take a damaged chunk out of the way if it still is as `find_damaged_chunks` said; tell if so.

        It counts as missing then, so that the next put that brings the right bytes stores them. The
        wrong ones stay, under `aside_name` of the digest, until `gc` removes them.
        """

    def check_structure(self) -> list[str]:
        """Return what the database finds wrong with its own structures, beyond what rows say."""
        return []

    @abstractmethod
    def total_bytes(self) -> int:
        """Return the bytes that all chunks of the tenant take as stored."""

    def back_up(self, target: Path) -> None:
        """Write a consistent copy of the database to a new file, beside running saves.

        Raises `InvalidUrl` for a store that is not a file, or a target that exists.
        """
        raise InvalidUrl(
            f"{self.url} is not a file that can be copied; nothing was written. Copy a PostgreSQL "
            "database with pg_dump"
        )

    @abstractmethod
    def close(self) -> None:
        """Release connections. Closing twice is fine; using a closed store raises `StoreClosed`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def aside_name(digest: bytes) -> bytes:
    """Return the name under which a damaged chunk is set aside; no algorithm has this number."""
    return ASIDE + digest[1:]


def first(records: Iterable[CheckpointRecord]) -> CheckpointRecord | None:
    """Return the first record of a listing, or None when it is empty."""
    return next(iter(records), None)
