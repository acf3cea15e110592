"""Sealing in SQLite: what says that a tenant is sealed, and rows that are sealed with another key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from holdfast.errors import CheckpointAltered, StoreError
from holdfast.state.document import SEALED_START
from holdfast.stores.chain import link_of
from holdfast.stores.rules import not_sealed, standing_seal
from holdfast.stores.sqlite_access import all_rows
from holdfast.stores.sqlite_chain import SqliteChain
from holdfast.stores.sqlite_connection import SQL

if TYPE_CHECKING:
    from holdfast.stores.sealed_tables import Change, Row, Table


class SqliteSealing(SqliteChain):
    """The seal of a tenant."""

    def read_seal(self) -> str | None:
        key = (self.tenant,)
        try:
            rows = self._rows("sealing.standing", (*key, SEALED_START))
        except StoreError:
            # The checkpoints cannot be looked at: verification names what is wrong with them.
            rows = self._rows("sealing.read", key)
        return standing_seal(rows, self.url)

    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        def write(connection: apsw.Connection) -> str:
            found = all_rows(connection, "sealing.read", (self.tenant,))
            if found and found[0][0] != instead_of:
                return str(found[0][0])
            if not found and all_rows(connection, "sqlite.seal.is_used", (self.tenant,))[0][0]:
                raise not_sealed(self.url)
            connection.execute(SQL["sqlite.seal"], (self.tenant, seal, self._clock()))
            return seal

        return self._file.write(write)

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int, look_only: bool = False
    ) -> tuple[Row | None, int]:
        names = ", ".join((*table.key, *table.beside, *table.sealed))
        keys = ", ".join(table.key)
        marks = ", ".join("?" * len(table.key))
        following = f"AND ({keys}) > ({marks})" if after else ""
        read = SQL["reseal.rows"].format(
            table=table.name, columns=names, following=following, keys=keys
        )
        write = SQL["reseal.row"].format(
            table=table.name,
            values=", ".join(f"{name} = ?" for name in table.sealed),
            row=" AND ".join(f"{name} = ?" for name in table.key),
        )

        def work(connection: apsw.Connection) -> tuple[Row | None, int]:
            rows = connection.execute(read, (self.tenant, *after, limit)).fetchall()
            changed = 0
            for row in rows:
                fresh = change(row)
                if fresh is not None:
                    connection.execute(write, (*fresh, self.tenant, *row[: len(table.key)]))
                    changed += 1
            last = rows[-1][: len(table.key)] if len(rows) == limit else None
            return last, changed

        return self._file.read_consistently(work) if look_only else self._file.write(work)

    def reseal_checkpoints(
        self, session_id: str, change: Change, *, look_only: bool = False
    ) -> int:
        key = (self.tenant, session_id)

        def work(connection: apsw.Connection) -> int:
            changed = 0
            moved: dict[bytes, bytes] = {}
            for id_, *_ in all_rows(connection, "chain.links", key):
                changed += self._reseal_link(connection, id_, change, moved)
            for length, head in all_rows(connection, "chain.session", key):
                if head in moved:
                    self._set_chain(connection, session_id, length, moved[head])
            return changed

        return self._file.read_consistently(work) if look_only else self._file.write(work)

    def _reseal_link(
        self, connection: apsw.Connection, id_: str, change: Change, moved: dict[bytes, bytes]
    ) -> bool:
        """Seal one checkpoint anew, and make it the link that follows those that have moved."""
        row = all_rows(connection, "checkpoints.payload", (id_, self.tenant, self._clock(), True))[
            0
        ]
        number, previous, link, manifest, refs = row[26:31]
        sealed = (*row[:2], row[9], row[23], manifest)
        try:
            self._verified(row, quarantined=True)
        except CheckpointAltered as error:
            # It stays what it is: with a new link it would seem to be right. But it has a key.
            change(sealed, error)
            return False
        fresh = change(sealed)
        before = moved.get(bytes(previous), bytes(previous))
        if fresh is None and before == previous:
            return False
        description, metadata, manifest = fresh or (row[9], row[23], manifest)
        columns = (*row[:9], description, *row[10:23], metadata, *row[24:26])
        moved[link] = link_of(
            self.row_digest, self.tenant, columns, number, before, manifest.encode(), refs
        )
        values = (description, metadata, manifest, before, moved[link], id_)
        connection.execute(SQL["reseal.checkpoint"], values)
        return fresh is not None
