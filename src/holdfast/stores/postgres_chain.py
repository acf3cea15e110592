"""Hash chains in PostgreSQL: rows that prove themselves, and what a session has of links and tombstones."""

from __future__ import annotations

from typing import Any

from holdfast.model import Chain, CheckpointRecord, Payload
from holdfast.stores.checks import check_filter
from holdfast.stores.postgres_access import PostgresAccess
from holdfast.stores.postgres_connection import execute
from holdfast.stores.postgres_pool import AnyConnection
from holdfast.stores.postgres_rows import parse_chain, verified
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
        return parse_chain(session_id, found[0], links, tombstones) if found else None

    def _verified(
        self, row: tuple[Any, ...], *, quarantined: bool = False
    ) -> tuple[CheckpointRecord, Payload]:
        return verified(row, self.tenant, row_digest=self.row_digest, quarantined=quarantined)

    def _of_chain(
        self, connection: AnyConnection, name: str, **params: Any
    ) -> list[tuple[Any, ...]]:
        return execute(connection, Statement(self._sql[name], {"tenant": self.tenant, **params}))
