"""The contract of a store: the docstrings here, and in its three parts, are its specification.

A store keeps of one *tenant* agents, sessions, leases, effects and logs (`base_sessions`), checkpoints
with their chunks and pending writes (`base_checkpoints`) and workspace packs (`base_packs`). It
knows nothing about what a state means: it is handed a manifest, references and chunks, and gives
back the same bytes. Every method is atomic and, where it changes something, durable when it
returns. Every method may be called from several threads. Driver errors never leave a store; they
become members of the tree in `holdfast.errors`.

`holdfast.testing.StoreContract` checks all of this for any implementation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from holdfast.closing import Closing
from holdfast.errors import InvalidUrl
from holdfast.model import (
    Buffer,
    CheckpointRecord,
    GcReport,
    Payload,
    SessionCopy,
    SessionRecord,
    Wait,
)
from holdfast.state.refs import digest_of
from holdfast.stores.base_checkpoints import CheckpointStore, first
from holdfast.stores.base_packs import PackStore
from holdfast.stores.base_sessions import SessionStore
from holdfast.stores.chain import RowDigest, plain_digest
from holdfast.stores.sums import Sums

if TYPE_CHECKING:
    from holdfast.crypto import Keys
    from holdfast.stores.sealed_tables import Change, Row, Table

__all__ = ["ASIDE", "Store", "aside_name", "first"]

ASIDE: Final = b"\xff"


class Store(SessionStore, CheckpointStore, PackStore, Closing):
    """A place for checkpoints. Reading methods never change anything."""

    tenant: str
    """The boundary of everything this store object sees and of chunk sharing."""

    url: str
    """Where the data is, without secrets: fit for messages and logs."""

    row_digest: RowDigest = staticmethod(plain_digest)
    """What digests rows for the hash chain and for their sums: the place for a key."""

    keys: Keys | None = None
    """What seals the content on its way into the database; None where nothing does."""

    shared: ClassVar[bool] = False
    """Whether other machines read the same store, so that files have to travel through it."""

    passing: ClassVar[bool] = False
    """Whether all of it is gone with this object, and with it whoever needs the files that it names."""

    @property
    def sums(self) -> Sums:
        """What gives the rows of effects and pending writes their sums, and compares them."""
        return Sums(self.row_digest, self.tenant)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two store objects have in common that work on the same data."""
        return (self.url, self.tenant)

    # From store to store ---------------------------------------------------------------------

    # A session moves in two steps. Its content goes ahead, in as many calls as it takes: nothing refers to
    # it yet, so a sweep may take it away again. Then one transaction adds all rows, and refuses to if
    # any content is missing: whoever looks sees the whole session or none of it.

    @abstractmethod
    def read_session(
        self, session_id: str, *, checkpoint_ids: Collection[str] | None = None
    ) -> SessionCopy | None:
        """Return all rows of a session as of one moment, or None. What has expired is left out.

        With ``checkpoint_ids`` no other checkpoints are looked at, so that one whose row cannot be read does
        not stand in the way; those of them that are not there are left out.
        """

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
        """Return what says that the tenant is sealed, or None.

        Raises `SealRemoved` where that was taken away from sealed checkpoints.
        """

    @abstractmethod
    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        """Say durably that the tenant is sealed, and return what says so then.

        That is ``seal`` if nothing said so before, or if ``instead_of`` did. From then on no session
        is added without the mark of a sealed one. Raises `StoreNotSealed` when there is plain text.
        """

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int, look_only: bool = False
    ) -> tuple[Row | None, int]:
        """Let ``change`` see the next rows of a table, and store what it returns, in one transaction.

        Rows come in the order of their keys, so many after the key ``after``. Returns the last key,
        None when there are no more, and how many rows were changed. With ``look_only``, ``change``
        returns nothing, no row is locked, and who may only read may do it. Raises `InvalidUrl` for a store
        that ends with its process.
        """
        raise InvalidUrl(f"{self.url} is gone when its process ends; there is nothing to seal anew")

    def reseal_checkpoints(
        self, session_id: str, change: Change, *, look_only: bool = False
    ) -> int:
        """Do the same with all checkpoints of a session at once, and return how many were changed."""
        raise InvalidUrl(f"{self.url} is gone when its process ends; there is nothing to seal anew")

    # Upkeep ----------------------------------------------------------------------------------

    @abstractmethod
    def list_expired(self) -> list[CheckpointRecord]:
        """List what `purge_expired` would remove, newest first: no other listing shows it."""

    @abstractmethod
    def purge_expired(self) -> int:
        """Remove checkpoints past their ``expires_at`` and return how many."""

    @abstractmethod
    def gc(self, *, dry_run: bool = False) -> GcReport:
        """Remove chunks that nothing refers to and writes whose checkpoint never came.

        Safe beside running puts: a chunk that any committed checkpoint needs is never removed.
        Writes are orphans only when they are a day old. This object forgets the chunks that it has read.

        The references of a checkpoint in quarantine may be what is damaged, so nobody knows what it needs:
        as long as there is one, nothing is removed and the report counts them.
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

    def check_schema(self) -> list[str]:
        """Name what of the schema is not there any more, such as a table that somebody has dropped."""
        return []

    def check_structure(self) -> list[str]:
        """Return what is wrong with the database's own structures, beyond what rows say."""
        return []

    def list_waits(self) -> list[Wait]:
        """Return who has waited for others at the store's tables for a while, where a server can tell."""
        return []

    @abstractmethod
    def total_bytes(self) -> int:
        """Return the bytes that all chunks of the tenant take as stored."""

    def back_up(self, target: Path) -> None:
        """Write a consistent copy of the database to a new file, beside running saves.

        Raises `InvalidUrl` for a store that is not a file, or a target that exists or can be none, and
        `StoreError` for one that cannot be written.
        """
        raise InvalidUrl(
            f"{self.url} is not a file that can be copied; nothing was written. Copy a PostgreSQL "
            "database with pg_dump"
        )

    @abstractmethod
    def close(self) -> None:
        """Release connections. Closing twice is fine; using a closed store raises `StoreClosed`."""


def aside_name(digest: bytes) -> bytes:
    """Return the name under which a damaged chunk is set aside; no algorithm has this number."""
    return ASIDE + digest[1:]
