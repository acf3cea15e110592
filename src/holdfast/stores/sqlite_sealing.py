"""Sealing in SQLite: what says that a tenant is sealed, and rows that are sealed with another key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from holdfast.stores.rules import not_sealed
from holdfast.stores.sqlite_access import all_rows
from holdfast.stores.sqlite_chain import SqliteChain
from holdfast.stores.sqlite_file import SQL

if TYPE_CHECKING:
    from holdfast.stores.sealed_tables import Change, Row, Table


class SqliteSealing(SqliteChain):
    """The seal of a tenant."""

    def read_seal(self) -> str | None:
        found = self._rows("sealing.read", (self.tenant,))
        return str(found[0][0]) if found else None

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
        self, table: Table, change: Change, *, after: Row, limit: int
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

        return self._file.write(work)

    def reseal_checkpoints(self, session_id: str, change: Change) -> int:
        def work(connection: apsw.Connection) -> int:
            changed = 0
            for (id_,) in all_rows(connection, "reseal.checkpoints", (self.tenant, session_id)):
                row = all_rows(connection, "reseal.checkpoint", (id_,))[0]
                fresh = change(row)
                if fresh is not None:
                    # Whatever was altered must not become a link that fits.
                    self._verified(self._whole_row(connection, id_), quarantined=True)
                    connection.execute(SQL["reseal.change_checkpoint"], (*fresh, id_))
                    changed += 1
            if changed:
                self._relink(connection, session_id)
            return changed

        return self._file.write(work)
