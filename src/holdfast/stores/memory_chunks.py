"""Chunks in memory: content, held once under its digest, and swept when nothing refers to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import ChunksMissing, StateCorrupt
from holdfast.model import Buffer, GcReport, WriteRecord
from holdfast.stores.base import ASIDE, aside_name
from holdfast.stores.memory_tables import MemoryTables, roots_of
from holdfast.stores.rules import ORPHAN_AGE, reachable


class MemoryChunks(MemoryTables):
    """Chunks and what refers to them."""

    def _add_chunks(self, chunks: Mapping[bytes, Buffer]) -> int:
        added = 0
        for digest, data in chunks.items():
            if digest not in self._chunks:
                self._chunks[digest] = plain = bytes(data)
                added += len(plain)
        return added

    def _require_chunks(self, expects: Sequence[bytes], brought: Collection[bytes]) -> None:
        stored = self._chunks
        missing = [digest for digest in expects if digest not in stored and digest not in brought]
        if missing:
            raise ChunksMissing(
                f"{len(missing)} of {len(expects)} chunks that the draft relies on are no longer "
                f"stored. Nothing was stored: repeat it with all chunks"
            )

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        with self._open():
            return self._read(digests)

    def _read(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        stored = self._chunks
        return {digest: stored[digest] for digest in digests if digest in stored}

    def iter_digests(self) -> Iterator[bytes]:
        with self._open():
            return iter(sorted(one for one in self._chunks if one < ASIDE))

    def set_chunk_aside(self, digest: bytes, stored: bytes | None) -> bool:
        with self._open():
            if stored is None or self._chunks.get(digest) != stored:
                return False
            self._chunks[aside_name(digest)] = self._chunks.pop(digest)
            return True

    def total_bytes(self) -> int:
        with self._open():
            return sum(map(len, self._chunks.values()))

    def gc(self, *, dry_run: bool = False) -> GcReport:
        with self._open(), self._forgetting():
            quarantined = sum(one.quarantined_at is not None for one in self._checkpoints.values())
            if quarantined:
                return GcReport(0, 0, 0, dry_run, in_quarantine=quarantined)
            orphans = self._orphaned_writes(self._now() - ORPHAN_AGE)
            gone = {id(record) for _, _, record in orphans}
            live, whole = reachable(self._all_roots(gone), self._read)
            if not whole:
                raise StateCorrupt(
                    f"{self.url} has references that cannot be read, so what lies below them is "
                    f"unknown. Nothing was removed: delete the checkpoints that verify names"
                )
            dead = [digest for digest in self._chunks if digest not in live]
            report = GcReport(
                chunks=len(dead),
                bytes=sum(len(self._chunks[digest]) for digest in dead),
                writes=len(orphans),
                dry_run=dry_run,
            )
            if not dry_run:
                for digest in dead:
                    del self._chunks[digest]
                for stored, key, _ in orphans:
                    del stored[key]
            return report

    def _sweep(self) -> None:
        """Remove every chunk that nothing refers to."""
        live, whole = reachable(self._all_roots(), self._read)
        # Below an unreadable index anything may be shared; gc says so and removes nothing.
        if whole:
            for digest in self._chunks.keys() - live:
                del self._chunks[digest]

    def _orphaned_writes(
        self, before: datetime
    ) -> list[tuple[dict[tuple[str, int], Any], tuple[str, int], WriteRecord]]:
        return [
            (stored, key, one.record)
            for session in self._sessions.values()
            for (namespace, external_id), stored in session.writes.items()
            if namespace not in session.lines
            or external_id not in session.lines[namespace].by_external_id
            for key, one in stored.items()
            if one.created_at <= before
        ]

    def _all_roots(self, without: Collection[int] = ()) -> Iterator[bytes]:
        for session in self._sessions.values():
            yield from roots_of(session, without)
