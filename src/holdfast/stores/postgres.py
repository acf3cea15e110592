"""Checkpoints in PostgreSQL, 14 or later.

A put is one statement: the function ``put`` of the schema locks the session, stores the checkpoint
and trims, in one round trip. What writes goes through such functions, because inside one every
statement sees what was committed before it; reading is plain SQL. Chunks are stored as they are and
left to TOAST to compress, so that ``checkpoint_state(id)`` can read a state without this package.

    store = PostgresStore("postgresql://me@db.example/agents?schema=holdfast&tenant=acme")
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from holdfast.errors import CheckpointNotFound
from holdfast.ids import check_sql_name, check_tenant
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    GcReport,
    NewCheckpoint,
    NewSession,
    NewWrite,
    Payload,
    PutResult,
    Wait,
    WritePlace,
    WriteRecord,
)
from holdfast.sql import DEFAULT_SCHEMA, queries
from holdfast.stores import postgres_listing as listing
from holdfast.stores import postgres_statements as statements
from holdfast.stores.base import ASIDE, aside_name
from holdfast.stores.checks import check_fence, check_place
from holdfast.stores.migrate import missing_objects
from holdfast.stores.postgres_connection import (
    Link,
    check_schema,
    execute,
    migrate_schema,
    parse_url,
)
from holdfast.stores.postgres_leases import PostgresLeases
from holdfast.stores.postgres_packs import PostgresPacks
from holdfast.stores.postgres_pool import AnyConnection, Pool
from holdfast.stores.postgres_prepared import Prepared
from holdfast.stores.postgres_rows import parse_checkpoint
from holdfast.stores.postgres_sealing import PostgresSealing
from holdfast.stores.postgres_sessions import PostgresSessions
from holdfast.stores.postgres_statements import Statement, parse_put, uuid_or_none
from holdfast.stores.postgres_transfer import PostgresTransfer
from holdfast.stores.rules import key_required, sequence_behind


class PostgresStore(
    PostgresSessions, PostgresLeases, PostgresPacks, PostgresTransfer, PostgresSealing
):
    """A store in one schema of a PostgreSQL database.

    The URL's ``schema`` and ``tenant`` parameters win over the arguments of the same name. A pool
    that is handed in is used and never closed; its connections should be in autocommit mode and
    must not ask for another isolation level than READ COMMITTED. With ``ensure_schema=False``
    nothing is created, and `SchemaMissing` is raised if something would have to be. ``sealed`` is for
    `holdfast.stores.sealed`; without it a sealed tenant raises `KeyRequired`.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        tenant: str = "default",
        pool: Pool | None = None,
        ensure_schema: bool = True,
        sealed: bool = False,
    ) -> None:
        target = parse_url(url)
        self.schema = check_sql_name(target.schema or schema, "schema")
        self.tenant = check_tenant(tenant if target.tenant is None else target.tenant)
        self.url = target.shown
        self._sql = queries("postgres", self.schema)
        self._put = Prepared(self._sql["postgres.put"])
        self._link = Link(target.conninfo, self.schema, self.url, pool)
        prepare = migrate_schema if ensure_schema else check_schema
        prepare(self._link)
        try:
            if not sealed and self.read_seal() is not None:
                raise key_required(self.url)
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.url, self.schema, self.tenant)

    # Checkpoints -----------------------------------------------------------------------------

    def put(self, draft: NewCheckpoint) -> PutResult:
        statement = statements.put_statement(
            draft, self.tenant, self.schema, row_digest=self.row_digest
        )
        [(answer,)] = self._link.prepared_rows(self._put, statement, again=True)
        return parse_put(answer, draft)

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        statement = listing.list_statement(query, self.tenant, self.schema)
        return [parse_checkpoint(row) for row in self._link.rows(statement, again=True)]

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        rows = self._rows(
            "checkpoints.latest_of_agent", again=True, agent_id=uuid_or_none(agent_id)
        )
        return parse_checkpoint(rows[0]) if rows else None

    def read_payload(self, checkpoint_id: str, *, anyway: bool = False) -> Payload | None:
        id_ = uuid_or_none(checkpoint_id)
        rows = self._rows("checkpoints.payload", again=True, id=id_, anyway=anyway)
        return self._verified(rows[0], quarantined=anyway)[1] if rows else None

    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        ids = [uuid_or_none(checkpoint_id) for checkpoint_id in checkpoint_ids]
        rows = self._rows("checkpoints.payloads", again=True, ids=ids)
        return {record.id: payload for record, payload in map(self._verified, rows)}

    def read_newest(self, query: CheckpointQuery) -> tuple[CheckpointRecord, Payload] | None:
        statement = listing.newest_statement(query, self.tenant, self.schema)
        rows = self._link.rows(statement, again=True)
        return self._verified(rows[0]) if rows else None

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        rows = self._rows("chunks.read", again=True, digests=list(digests))
        return {digest: data for digest, codec, data in rows if codec == 0}

    def quarantine(self, checkpoint_ids: Collection[str], *, lift: bool = False) -> set[str]:
        name = "checkpoints.lift_quarantine" if lift else "checkpoints.quarantine"
        ids = [uuid_or_none(checkpoint_id) for checkpoint_id in checkpoint_ids]
        return {str(row[0]) for row in self._rows(name, again=True, ids=ids)}

    def iter_digests(self) -> Iterator[bytes]:
        rows = self._rows("chunks.digests", again=True, aside=ASIDE)
        return (bytes(row[0]) for row in rows)

    def set_chunk_aside(self, digest: bytes, stored: bytes | None) -> bool:
        aside = aside_name(digest)
        return bool(self._rows("chunks.set_aside", digest=digest, aside=aside, stored=stored))

    def check_schema(self) -> list[str]:
        return missing_objects("postgres", self._rows("postgres.made", again=True))

    def check_structure(self) -> list[str]:
        [(value, highest)] = self._rows("postgres.check_sequence", again=True)
        return [
            *(
                f"checkpoint {row[0]}: its state_snapshot is another document than its manifest"
                for row in self._rows("postgres.check_structure", again=True)
            ),
            *(() if value is None else sequence_behind(value, highest)),
        ]

    def list_waits(self) -> list[Wait]:
        rows = self._rows("postgres.waits", again=True)
        return [Wait(pid, tuple(blockers), seconds) for pid, blockers, seconds in rows]

    def mark_restored(self, checkpoint_id: str, *, fence: int | None = None) -> CheckpointRecord:
        check_fence(fence)
        rows = self._rows(
            "checkpoints.mark_restored", again=True, id=uuid_or_none(checkpoint_id), fence=fence
        )
        if not rows:
            raise CheckpointNotFound(f"{self.url} has no checkpoint {checkpoint_id!r}")
        return parse_checkpoint(rows[0])

    def mark_restoring(
        self, checkpoint_id: str, *, seconds: float, fence: int | None = None
    ) -> None:
        check_fence(fence)
        rows = self._rows(
            "checkpoints.mark_restoring",
            again=True,
            id=uuid_or_none(checkpoint_id),
            seconds=seconds,
            fence=fence,
        )
        if not rows:
            raise CheckpointNotFound(f"{self.url} has no checkpoint {checkpoint_id!r}")

    def delete_checkpoints(
        self,
        checkpoint_ids: Sequence[str],
        *,
        fence: int | None = None,
        beside: Collection[str] | None = None,
        newest_too: bool = False,
    ) -> int:
        delete = statements.delete_statement(
            checkpoint_ids, self.tenant, self.schema, fence=fence, planned=beside is not None
        )
        if beside is None:
            [(count,)] = self._link.rows(delete)
            return int(count)
        others = [uuid_or_none(one, "checkpoint id") for one in beside]
        plan = {**delete.params, "beside": others, "newest_too": newest_too}

        def work(connection: AnyConnection) -> int:
            # Each has a snapshot of its own: the plan is looked at when nobody can change its sessions any more.
            with connection.transaction():
                execute(connection, Statement(self._sql["postgres.lock_owners"], plan))
                found = execute(connection, Statement(self._sql["checkpoints.still_to_go"], plan))
                going = {**delete.params, "ids": [id_ for (id_,) in found]}
                [(count,)] = execute(connection, Statement(delete.sql, going))
                return int(count)

        return self._link.run(work)

    # Pending writes --------------------------------------------------------------------------

    def put_writes(
        self,
        session: NewSession,
        namespace: str,
        external_id: str,
        writes: Sequence[NewWrite],
        *,
        fence: int | None = None,
    ) -> None:
        statement = statements.put_writes_statement(
            session, namespace, external_id, writes, self.sums, self.schema, fence=fence
        )
        self._link.rows(statement, again=True)

    def read_writes(self, places: Collection[WritePlace]) -> dict[WritePlace, list[WriteRecord]]:
        wanted = {check_place(place) for place in places}
        session_ids, namespaces, external_ids = (
            [place[part] for place in wanted] for part in range(3)
        )
        rows = self._rows(
            "writes.read",
            again=True,
            session_ids=session_ids,
            namespaces=namespaces,
            external_ids=external_ids,
        )
        found: dict[WritePlace, list[WriteRecord]] = {}
        for row in rows:
            session_id, namespace, external_id = row[:3]
            place = (session_id, namespace, external_id)
            found.setdefault(place, []).append(self.sums.check_write(row))
        return found

    def write_places(self) -> list[WritePlace]:
        found = self._rows("writes.places", again=True)
        return [
            (session_id, namespace, external_id) for session_id, namespace, external_id in found
        ]

    # Upkeep ----------------------------------------------------------------------------------

    def list_expired(self) -> list[CheckpointRecord]:
        return [parse_checkpoint(row) for row in self._rows("checkpoints.expired", again=True)]

    def purge_expired(self) -> int:
        [(count,)] = self._rows("checkpoints.purge_expired")
        return int(count)

    def gc(self, *, dry_run: bool = False) -> GcReport:
        [(quarantined,)] = self._rows("checkpoints.count_quarantined", again=True)
        if quarantined:
            return GcReport(0, 0, 0, dry_run, in_quarantine=quarantined)
        [(chunks, size, writes)] = self._erase("postgres.gc", again=True, dry_run=dry_run)
        return GcReport(chunks, size, writes, dry_run)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        return (str(row[0]) for row in self._rows("checkpoints.ids", again=True))

    def total_bytes(self) -> int:
        [(size,)] = self._rows("chunks.total_bytes", again=True)
        return int(size)

    def close(self) -> None:
        self._link.close()
