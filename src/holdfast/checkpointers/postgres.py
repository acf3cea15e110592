"""The checkpointer for PostgreSQL: one statement for each call, through the user's own driver.

The statements are those of the PostgreSQL store, sent as they are; four shapes are all there is:

    put      SELECT holdfast.put(…)                   one text: what became of the checkpoint
    get      SELECT … one checkpoint and its chunks   one row or none: record, link, manifest,
                                                      refs, chunks
    list     SELECT … the columns of a record         a row for each checkpoint
    delete   one row: how many were deleted (also for delete_threads and purge_expired)

With a key there is a fifth, before the first of them: one row with the text that says that the tenant is sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.checkpointers.base import (
    DEFAULT_CAP,
    DEFAULT_SCHEMA,
    DEFAULT_TABLE,
    BaseCheckpointer,
)
from holdfast.checkpointers.queryable import Connector, Poolable
from holdfast.checkpointers.schema import namespace_of, statements
from holdfast.ids import CHECKPOINTER, check_sql_name, thread_agents
from holdfast.model import CheckpointQuery, CheckpointRecord, NewCheckpoint
from holdfast.sql import DEFAULT_SCHEMA as HOLDFAST
from holdfast.sql import queries
from holdfast.state import decode_state
from holdfast.stores import sealing
from holdfast.stores.chain import plain_digest
from holdfast.stores.checks import check_checkpoint
from holdfast.stores.postgres_listing import list_statement, read_statement
from holdfast.stores.postgres_rows import parse_checkpoint, parse_read
from holdfast.stores.postgres_statements import put_statement
from holdfast.threads import ThreadRecorders

if TYPE_CHECKING:
    from holdfast.crypto import GivenKeys
    from holdfast.stores.sealed_rows import Seal


class PostgresCheckpointer(BaseCheckpointer):
    """Keeps snapshots in PostgreSQL.

    ``pool`` is a psycopg pool or connection or any `PgQueryable`; the caller keeps it and closes it. On
    a single connection everything happens in the caller's transaction. ``schema`` and ``table`` name
    the view to read with SQL, and keep the checkpoints of different tables apart. Tables are
    never created here: run `ensure_checkpoints_schema` once, or the text of `schema_sql`. ``keys`` seal
    what is stored, as for `holdfast.stores.open_store`; the view then says that it is sealed.
    """

    def __init__(
        self,
        pool: Poolable,
        schema: str = DEFAULT_SCHEMA,
        table: str = DEFAULT_TABLE,
        max_checkpoints_per_thread: float | None = DEFAULT_CAP,
        now: Callable[[], float | datetime] | None = None,
        ttl_seconds: float | None = None,
        *,
        tenant: str = "default",
        holdfast_schema: str = HOLDFAST,
        keys: GivenKeys = None,
    ) -> None:
        super().__init__(
            tenant=tenant,
            namespace=namespace_of(schema, table),
            max_checkpoints_per_thread=max_checkpoints_per_thread,
            now=now,
            ttl_seconds=ttl_seconds,
        )
        self._connector = Connector(pool)
        self._schema = check_sql_name(holdfast_schema, "Holdfast's schema")
        self._seal = sealing(tenant, keys)
        self._agreed = False

    def _memory(self) -> ThreadRecorders:
        # A transaction that may yet be rolled back stores nothing that a later put could rely on,
        # and a put that fails for want of a chunk would take the caller's transaction with it.
        return self._recorders if self._connector.commits else ThreadRecorders(max_bytes=0)

    async def _agree(self) -> Seal | None:
        """Find out once that the keys are those of the tenant, or make them so if it is empty."""
        seal = self._seal
        if seal is not None and not self._agreed:
            params = {"tenant": self._tenant, "seal": seal.proof(), "instead_of": None}
            text = queries("postgres", self._schema)["postgres.seal"]
            [(proof,)] = await self._connector.rows(text, params)
            seal.check(proof, "the database")
            # Not for good while the caller may yet take it back.
            self._agreed = self._connector.commits
        return seal

    async def _send(self, draft: NewCheckpoint) -> None:
        seal = await self._agree()
        if seal is not None:
            draft = seal.checkpoint(check_checkpoint(draft))
        statement = put_statement(
            draft,
            self._tenant,
            self._schema,
            row_digest=plain_digest if seal is None else seal.names.digest_row,
            purge_expired=draft.expires_at is not None,
        )
        await self._connector.rows(*statement)

    async def _load(self, query: CheckpointQuery) -> tuple[CheckpointRecord, dict[str, Any]] | None:
        seal = await self._agree()
        rows = await self._connector.rows(*read_statement(query, self._tenant, self._schema))
        if not rows:
            return None
        digest = plain_digest if seal is None else seal.names.digest_row
        record, payload, chunks = parse_read(rows[0], self._tenant, row_digest=digest)
        if seal is not None:
            payload = seal.payload_of(record, payload)
            record = seal.opened_checkpoint(record)
            chunks = {seal.digest(name): seal.opened_chunk(name, chunks[name]) for name in chunks}
        state = decode_state(payload, lambda _: chunks).state
        if self._connector.commits:
            key = (record.session_id, record.namespace)
            self._recorders.adopt(key, payload, lambda _: chunks)
        return record, state

    async def _list(self, query: CheckpointQuery) -> Sequence[CheckpointRecord]:
        seal = await self._agree()
        rows = await self._connector.rows(*list_statement(query, self._tenant, self._schema))
        found = [parse_checkpoint(row) for row in rows]
        return found if seal is None else [seal.opened_checkpoint(one) for one in found]

    async def _delete(self, thread_id: str, checkpoint_id: str) -> int:
        params = {
            "tenant": self._tenant,
            "thread_id": thread_id,
            "namespace": self._namespace,
            "id": checkpoint_id,
        }
        return _count(await self._connector.rows(statements(self._schema)["delete"], params))

    async def _erase(self, thread_ids: Sequence[str]) -> int:
        params = {
            "tenant": self._tenant,
            "thread_ids": [*thread_ids],
            "namespace": self._namespace,
            "agent_prefix": thread_agents(CHECKPOINTER),
        }
        return _count(await self._connector.rows(statements(self._schema)["erase"], params))

    async def _purge(self) -> int:
        params = {"tenant": self._tenant, "namespace": self._namespace}
        return _count(await self._connector.rows(statements(self._schema)["purge"], params))


def _count(rows: Sequence[Sequence[Any]]) -> int:
    return int(rows[0][0]) if rows else 0
