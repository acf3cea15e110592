"""Chunks in SQLite: content, stored once under its digest, and swept when nothing refers to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

import apsw

from holdfast.errors import ChunksMissing, StateCorrupt
from holdfast.model import Buffer, GcReport
from holdfast.stores.base import ASIDE, aside_name
from holdfast.stores.compression import pack, size_of, unpack
from holdfast.stores.migrate import missing_objects
from holdfast.stores.rules import ORPHAN_AGE, reachable, sequence_behind
from holdfast.stores.sqlite_access import SqliteAccess, all_rows, hex_list, number_list
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_rows import Row, stamp

_PackedRow: TypeAlias = tuple[str, bytes, int, Buffer]


class SqliteChunks(SqliteAccess):
    """Chunks and what refers to them."""

    def _packed(self, chunks: Mapping[bytes, Buffer]) -> list[_PackedRow]:
        tenant, compress = self.tenant, self._compress
        return [(tenant, digest, *pack(chunks[digest], compress=compress)) for digest in chunks]

    def _add_chunks(self, connection: apsw.Connection, chunks: list[_PackedRow]) -> int:
        """Add the chunks that are not stored yet and return how many bytes they take."""
        size = 0
        for row in chunks:
            connection.execute(SQL["sqlite.put.chunk"], row)
            if connection.changes():
                size += size_of(row[-1])
        return size

    def _require_chunks(self, connection: apsw.Connection, expects: Collection[bytes]) -> None:
        if not expects:
            return
        missing = all_rows(connection, "sqlite.put.missing", (hex_list(expects), self.tenant))
        if missing:
            raise ChunksMissing(
                f"{len(missing)} of {len(expects)} chunks that the draft relies on are no longer "
                f"stored. Nothing was stored: repeat it with all chunks"
            )

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        if not digests:
            return {}
        return _unpacked(self._rows("chunks.read", (self.tenant, hex_list(digests))))

    def iter_digests(self) -> Iterator[bytes]:
        found = self._rows("chunks.digests", (self.tenant, ASIDE))
        # What is no digest is named by `check_structure`.
        return iter([digest for (digest,) in found if type(digest) is bytes])

    def set_chunk_aside(self, digest: bytes, stored: bytes | None) -> bool:
        def move(connection: apsw.Connection) -> bool:
            found = all_rows(connection, "chunks.read", (self.tenant, hex_list([digest])))
            if not found or _unpacked(found).get(digest) != stored:
                return False
            values = (aside_name(digest), self.tenant, digest)
            connection.execute(SQL["chunks.set_aside"], values)
            return True

        return self._file.write(move)

    def check_schema(self) -> list[str]:
        return missing_objects("sqlite", self._rows("sqlite.made", ()))

    def check_structure(self) -> list[str]:
        def check(connection: apsw.Connection) -> list[str]:
            said = [str(row[0]) for row in all_rows(connection, "sqlite.integrity_check", ())]
            refers = all_rows(connection, "sqlite.foreign_key_check", ())
            [(value, highest)] = all_rows(connection, "sqlite.check_sequence", ())
            return [
                *(line for line in said if line != "ok"),
                *(f"row {row} of {table} refers to nothing" for table, row, *_ in refers),
                *sequence_behind(value, highest),
            ]

        return self._file.read(check)

    def total_bytes(self) -> int:
        return int(self._rows("chunks.total_bytes", (self.tenant,))[0][0])

    def gc(self, *, dry_run: bool = False) -> GcReport:
        def sweep(connection: apsw.Connection) -> GcReport:
            [(quarantined,)] = all_rows(connection, "checkpoints.count_quarantined", (self.tenant,))
            if quarantined:
                return GcReport(0, 0, 0, dry_run, in_quarantine=quarantined)
            before = stamp(self._now() - ORPHAN_AGE)
            orphans = all_rows(connection, "sqlite.gc.orphaned_writes", (self.tenant, before))
            if not dry_run:
                connection.executemany(SQL["sqlite.gc.delete_write"], orphans)
            kept = self._roots(connection, without=[row[0] for row in orphans])
            live, whole = self._reachable(connection, kept)
            if not whole:
                raise StateCorrupt(
                    f"{self.url} has references that cannot be read, so what lies below them is "
                    f"unknown. Nothing was removed: delete the checkpoints that verify names"
                )
            dead = self._dead(connection, live)
            if not dry_run:
                connection.executemany(SQL["sqlite.gc.delete_chunk"], ((row[0],) for row in dead))
            return GcReport(
                chunks=len(dead),
                bytes=sum(size or 0 for _, size in dead),
                writes=len(orphans),
                dry_run=dry_run,
            )

        return self._file.read_consistently(sweep) if dry_run else self._erase(sweep)

    def _sweep(self, connection: apsw.Connection) -> None:
        """Remove every chunk that nothing refers to."""
        live, whole = self._reachable(connection, self._roots(connection))
        # Below an unreadable index anything may be shared; gc says so and removes nothing.
        if whole:
            dead = self._dead(connection, live)
            connection.executemany(SQL["sqlite.gc.delete_chunk"], ((row[0],) for row in dead))

    def _dead(self, connection: apsw.Connection, live: set[bytes]) -> list[tuple[int, int]]:
        """Return the row and the size of each chunk that is not needed."""
        stored = connection.execute(SQL["sqlite.gc.chunks"], (self.tenant,))
        return [(rowid, size) for rowid, digest, size in stored if digest not in live]

    def _roots(self, connection: apsw.Connection, without: Collection[int] = ()) -> list[Row]:
        values = (self.tenant, self.tenant, number_list(without), self.tenant)
        return all_rows(connection, "sqlite.gc.roots", values)

    def _reachable(self, connection: apsw.Connection, roots: list[Row]) -> tuple[set[bytes], bool]:
        def read(digests: Collection[bytes]) -> dict[bytes, bytes]:
            return _unpacked(all_rows(connection, "chunks.read", (self.tenant, hex_list(digests))))

        return reachable((refs for (refs,) in roots), read)


def _unpacked(found: list[Row]) -> dict[bytes, bytes]:
    stored = (row for row in found if type(row[2]) is bytes)
    plain = ((digest, unpack(codec, data)) for digest, codec, data in stored)
    return {digest: data for digest, data in plain if data is not None}
