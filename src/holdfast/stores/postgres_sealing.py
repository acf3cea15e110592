"""Sealing in PostgreSQL: what says that a tenant is sealed, and rows that are sealed with another key."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import CheckpointAltered, SchemaMissing, StoreNotSealed
from holdfast.model import CheckpointRecord
from holdfast.state.document import SEALED_START
from holdfast.stores.chain import link_of, record_row
from holdfast.stores.postgres_chain import PostgresChain
from holdfast.stores.postgres_connection import execute
from holdfast.stores.postgres_pool import AnyConnection
from holdfast.stores.postgres_statements import Statement
from holdfast.stores.rules import not_sealed, standing_seal

if TYPE_CHECKING:
    from holdfast.stores.sealed_tables import Change, Row, Table

# Where a row's place in the chain follows its record.
_LINK: Final = len(fields(CheckpointRecord))


class PostgresSealing(PostgresChain):
    """The seal of a tenant."""

    def read_seal(self) -> str | None:
        try:
            rows = self._rows("sealing.standing", again=True, start=SEALED_START)
        except SchemaMissing:
            # The checkpoints cannot be looked at: verification names what is wrong with them.
            rows = self._rows("sealing.read", again=True)
        return standing_seal(rows, self.url)

    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        try:
            [(standing,)] = self._rows(
                "postgres.seal", again=True, seal=seal, instead_of=instead_of
            )
        except StoreNotSealed:
            raise not_sealed(self.url) from None
        return str(standing)

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int, look_only: bool = False
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
            locked="" if look_only else "FOR UPDATE",
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

    def reseal_checkpoints(
        self, session_id: str, change: Change, *, look_only: bool = False
    ) -> int:
        key = {"session_id": session_id}

        def work(connection: AnyConnection) -> int:
            with connection.transaction():
                self._begin(connection)
                # The session's row is the lock that puts wait for.
                standing = (
                    []
                    if look_only
                    else self._of_chain(connection, "postgres.reseal.session", **key)
                )
                moved: dict[bytes, bytes] = {}
                changed = 0
                for id_, *_ in self._of_chain(connection, "chain.links", **key):
                    changed += self._reseal_link(connection, str(id_), change, moved)
                for (head,) in standing:
                    if (fresh := moved.get(bytes(head))) is not None:
                        self._of_chain(connection, "postgres.chain.set", head=fresh, **key)
                return changed

        return self._link.run(work, again=True)

    def _reseal_link(
        self, connection: AnyConnection, id_: str, change: Change, moved: dict[bytes, bytes]
    ) -> bool:
        """Seal one checkpoint anew, and make it the link that follows those that have moved."""
        [row] = self._of_chain(connection, "checkpoints.payload", id=id_, anyway=True)
        number, previous, link, stored = row[_LINK : _LINK + 4]
        sealed = (id_, row[1], row[9], row[23], stored)
        try:
            record, payload = self._verified(row, quarantined=True)
        except CheckpointAltered as error:
            # It stays what it is: with a new link it would seem to be right. But it has a key.
            change(sealed, error)
            return False
        fresh = change(sealed)
        before = moved.get(bytes(previous), bytes(previous))
        if fresh is None and before == bytes(previous):
            return False
        description, metadata, manifest = fresh or sealed[2:]
        # A link has the document as the database writes it.
        [(written,)] = self._of_chain(connection, "postgres.reseal.document", document=metadata)
        columns = record_row(replace(record, description=description), written)
        moved[bytes(link)] = link_of(
            self.row_digest,
            self.tenant,
            columns,
            number,
            before,
            manifest.encode(),
            payload.refs,
        )
        self._of_chain(
            connection,
            "reseal.checkpoint",
            id=id_,
            description=description,
            metadata=metadata,
            manifest=manifest,
            previous=before,
            link=moved[bytes(link)],
        )
        return fresh is not None

    def _begin(self, connection: AnyConnection) -> None:
        self._run(connection, self._sql["postgres.reseal.begin"])

    def _run(self, connection: AnyConnection, text: str, **params: Any) -> list[Row]:
        return execute(connection, Statement(text, {"tenant": self.tenant, **params}))


def _read(table: Table, name: str) -> str:
    return f"t.{name}::text" if name in table.documents else f"t.{name}"


def _written(table: Table, name: str) -> str:
    return f"%({name})s::jsonb" if name in table.documents else f"%({name})s"
