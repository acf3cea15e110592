"""Hash chains in PostgreSQL: rows that prove themselves, and what a session has of links and tombstones."""

from __future__ import annotations

from typing import Any

from holdfast.model import Chain, ChainLink, CheckpointRecord, Payload, Tombstone
from holdfast.stores.checks import check_filter
from holdfast.stores.postgres_access import PostgresAccess
from holdfast.stores.postgres_connection import AnyConnection, execute
from holdfast.stores.postgres_rows import verified
from holdfast.stores.postgres_statements import Statement


class PostgresChain(PostgresAccess):
    """The links of checkpoints."""

    def read_chain(self, session_id: str) -> Chain | None:
        check_filter(session_id, "session id", str)

        def read(connection: AnyConnection) -> Chain | None:
            with connection.transaction():
                self._of_chain(connection, "postgres.transfer.begin")
                return self._chain(connection, session_id)

        return self._link.run(read, again=True)

    def _chain(self, connection: AnyConnection, session_id: str) -> Chain | None:
        found, links, tombstones = (
            self._of_chain(connection, name, session_id=session_id)
            for name in ("chain.session", "chain.links", "chain.tombstones")
        )
        if not found:
            return None
        [(length, head)] = found
        return Chain(
            session_id,
            length,
            bytes(head),
            links=tuple(
                ChainLink(str(id_), seq, number, bytes(previous), bytes(link))
                for id_, seq, number, previous, link in links
                if None not in (number, previous, link)
            ),
            tombstones=tuple(
                Tombstone(first, last, seq, bytes(link)) for first, last, seq, link in tombstones
            ),
            unlinked=tuple(str(row[0]) for row in links if None in row),
        )

    def _verified(
        self, row: tuple[Any, ...], *, quarantined: bool = False
    ) -> tuple[CheckpointRecord, Payload]:
        return verified(row, self.tenant, row_digest=self.row_digest, quarantined=quarantined)

    def _of_chain(
        self, connection: AnyConnection, name: str, **params: Any
    ) -> list[tuple[Any, ...]]:
        return execute(connection, Statement(self._sql[name], {"tenant": self.tenant, **params}))
