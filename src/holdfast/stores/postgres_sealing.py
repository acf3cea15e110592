"""Sealing in PostgreSQL: what says that a tenant is sealed, and rows that are sealed with another key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreNotSealed
from holdfast.stores.postgres_chain import PostgresChain
from holdfast.stores.postgres_connection import AnyConnection, execute
from holdfast.stores.postgres_statements import Statement
from holdfast.stores.rules import not_sealed

if TYPE_CHECKING:
    from holdfast.stores.sealed_tables import Change, Row, Table


class PostgresSealing(PostgresChain):
    """The seal of a tenant."""

    def read_seal(self) -> str | None:
        rows = self._rows("sealing.read", again=True)
        return str(rows[0][0]) if rows else None

    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        try:
            [(standing,)] = self._rows(
                "postgres.seal", again=True, seal=seal, instead_of=instead_of
            )
        except StoreNotSealed:
            raise not_sealed(self.url) from None
        return str(standing)

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int
    ) -> tuple[Row | None, int]:
        columns = [*table.key, *table.beside, *table.sealed]
        keys = ", ".join(f"t.{name}" for name in table.key)
        marks = ", ".join(f"%({name})s" for name in table.key)
        following = f"AND ({keys}) > ({marks})" if after else ""
        read = self._sql["reseal.rows"].format(
            table=table.name,
            columns=", ".join(_read(table, name) for name in columns),
            following=following,
            keys=keys,
        )
        write = self._sql["reseal.row"].format(
            table=table.name,
            values=", ".join(f"{name} = {_written(table, name)}" for name in table.sealed),
            row=" AND ".join(f"t.{name} = %({name})s" for name in table.key),
        )

        def work(connection: AnyConnection) -> tuple[Row | None, int]:
            with connection.transaction():
                self._begin(connection)
                params = dict(zip(table.key, after, strict=False))
                rows = self._run(connection, read, limit=limit, **params)
                changed = 0
                for row in rows:
                    fresh = change(row)
                    if fresh is not None:
                        values = dict(zip(table.sealed, fresh, strict=True))
                        named = dict(zip(table.key, row, strict=False))
                        self._run(connection, write, **values, **named)
                        changed += 1
                last = rows[-1][: len(table.key)] if len(rows) == limit else None
                return last, changed

        return self._link.run(work, again=True)

    def reseal_checkpoints(self, session_id: str, change: Change) -> int:
        def work(connection: AnyConnection) -> int:
            with connection.transaction():
                self._begin(connection)
                sql = self._sql
                # The session's row is the lock that puts wait for.
                ids = self._run(connection, sql["reseal.checkpoints"], session_id=session_id)
                changed = 0
                for (id_,) in ids:
                    [row] = self._run(connection, sql["reseal.checkpoint"], id=id_)
                    fresh = change(row)
                    if fresh is not None:
                        # Whatever was altered must not become a link that fits.
                        self._verified(self._whole_row(connection, id_), quarantined=True)
                        description, metadata, manifest = fresh
                        self._run(
                            connection,
                            sql["reseal.change_checkpoint"],
                            id=id_,
                            description=description,
                            metadata=metadata,
                            manifest=manifest,
                        )
                        changed += 1
                if changed:
                    self._relink(connection, session_id)
                return changed

        return self._link.run(work, again=True)

    def _begin(self, connection: AnyConnection) -> None:
        self._run(connection, self._sql["postgres.reseal.begin"])

    def _run(self, connection: AnyConnection, text: str, **params: Any) -> list[Row]:
        return execute(connection, Statement(text, {"tenant": self.tenant, **params}))


def _read(table: Table, name: str) -> str:
    return f"t.{name}::text" if name in table.documents else f"t.{name}"


def _written(table: Table, name: str) -> str:
    return f"%({name})s::jsonb" if name in table.documents else f"%({name})s"
