"""A sealed store: any store, and a key without which what is in it cannot be read.

It stands around a store and looks like one: what goes in is sealed, what comes out is opened
(`holdfast.stores.sealed_rows`). So no backend knows of keys, and nothing above a store either: manifests,
references, digests and chunks are outside what they are anywhere.

That a tenant is sealed is written in the database itself, with a value that only its own keys open.
Whoever has another key, or none, is told so when the store is opened; and a store in which there is
plain text already is not sealed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import IntegrityError
from holdfast.model import CheckpointRecord, GcReport, Wait
from holdfast.stores.sealed_transfer import SealedTransfer

if TYPE_CHECKING:
    from holdfast.stores.sealed_tables import Change, Row, Table


class SealedStore(SealedTransfer):
    """A store around ``inner`` that seals what it is given. Closing it closes that one."""

    # The seal --------------------------------------------------------------------------------

    def read_seal(self) -> str | None:
        return self.inner.read_seal()

    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        return self.inner.write_seal(seal, instead_of=instead_of)

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int, look_only: bool = False
    ) -> tuple[Row | None, int]:
        return self.inner.reseal(table, change, after=after, limit=limit, look_only=look_only)

    def reseal_checkpoints(
        self, session_id: str, change: Change, *, look_only: bool = False
    ) -> int:
        return self.inner.reseal_checkpoints(session_id, change, look_only=look_only)

    # Upkeep ----------------------------------------------------------------------------------

    def list_expired(self) -> list[CheckpointRecord]:
        return [self._named(one) for one in self.inner.list_expired()]

    def _named(self, record: CheckpointRecord) -> CheckpointRecord:
        """Open a checkpoint that nobody reads any more; what does not open is left out."""
        try:
            return self.rows.opened_checkpoint(record)
        except IntegrityError:
            return replace(record, description=None, metadata=None)

    def purge_expired(self) -> int:
        return self.inner.purge_expired()

    def gc(self, *, dry_run: bool = False) -> GcReport:
        with self._forgetting():
            return self.inner.gc(dry_run=dry_run)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        return self.inner.iter_checkpoint_ids()

    def iter_digests(self) -> Iterator[bytes]:
        return map(self.rows.digest, self.inner.iter_digests())

    def check_schema(self) -> list[str]:
        return self.inner.check_schema()

    def check_structure(self) -> list[str]:
        return self.inner.check_structure()

    def list_waits(self) -> list[Wait]:
        return self.inner.list_waits()

    def total_bytes(self) -> int:
        return self.inner.total_bytes()

    def back_up(self, target: Path) -> None:
        self.inner.back_up(target)

    def close(self) -> None:
        self.inner.close()
