"""Sessions on their way from or to another store, in PostgreSQL: each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import AgentExists, CheckpointExists, SessionExists
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointQuery,
    CheckpointRecord,
    EffectRecord,
    Payload,
    SessionCopy,
    SessionRecord,
    WriteCopy,
)
from holdfast.stores.chain import content_digest, record_row
from holdfast.stores.checks import as_utc, check_filter, document_text
from holdfast.stores.copy_checks import check_copied, check_copy
from holdfast.stores.postgres_connection import execute
from holdfast.stores.postgres_effects import PostgresEffects
from holdfast.stores.postgres_listing import list_statement
from holdfast.stores.postgres_pool import AnyConnection
from holdfast.stores.postgres_rows import (
    parse_agent,
    parse_checkpoint,
    parse_log,
    parse_session,
)
from holdfast.stores.postgres_statements import Statement, sorted_chunks, write_columns
from holdfast.stores.sums import effect_row

_DOCUMENTS: Final = {"metadata", "data"}
_EFFECT_COLUMNS: Final = (
    *("session_id", "key", "occurrence", "name", "fingerprint", "status", "attempt_id", "attempts"),
    *("result", "refs", "error"),
)


class PostgresTransfer(PostgresEffects):
    """All rows of a session at once."""

    def read_session(
        self, session_id: str, *, checkpoint_ids: Collection[str] | None = None
    ) -> SessionCopy | None:
        check_filter(session_id, "session id", str)

        def read(connection: AnyConnection) -> SessionCopy | None:
            with connection.transaction():
                self._ask(connection, "postgres.transfer.begin")
                return self._read(connection, session_id, checkpoint_ids)

        return self._link.run(read, again=True)

    def _read(
        self, connection: AnyConnection, session_id: str, checkpoint_ids: Collection[str] | None
    ) -> SessionCopy | None:
        found = self._ask(connection, "sessions.find", id=session_id)
        if not found:
            return None
        session = parse_session(found[0])
        whole = CheckpointQuery(session_id)
        queries = [whole]
        if checkpoint_ids is not None:
            queries = [replace(whole, id=one) for one in checkpoint_ids]
        listings = [list_statement(one, self.tenant, self.schema) for one in queries]
        checkpoints = [
            parse_checkpoint(row) for one in listings for row in execute(connection, one)
        ]
        ids = {one.id for one in checkpoints}
        key = {"session_id": session_id}
        listed = {**key, "limit": None, "offset": 0}
        effects = ("effects.list", "effects.where.session_id", "effects.order")
        logs = ("logs.list", "logs.order")
        return SessionCopy(
            session=session,
            agents=self._agents_above(connection, session.agent_id),
            checkpoints=tuple(sorted(checkpoints, key=lambda one: one.seq)),
            consumed={
                str(row[0]): row[1].astimezone(UTC)
                for row in self._ask(connection, "postgres.transfer.consumed", **key)
                if str(row[0]) in ids
            },
            writes=tuple(
                WriteCopy(row[1], self.sums.check_write(row[:-1]), row[-1].astimezone(UTC))
                for row in self._ask(connection, "writes.session", **key)
            ),
            effects=tuple(map(self._checked_effect, self._ask(connection, *effects, **listed))),
            logs=tuple(map(parse_log, self._ask(connection, *logs, **listed))),
        )

    def _agents_above(self, connection: AnyConnection, agent_id: str) -> tuple[AgentRecord, ...]:
        found: list[AgentRecord] = []
        above: str | None = agent_id
        while above is not None:
            [row] = self._ask(connection, "agents.find", id=above)
            found.append(parse_agent(row))
            above = found[-1].parent_id
        return tuple(reversed(found))

    def find_chunks(self, digests: Collection[bytes]) -> set[bytes]:
        statement = self._statement("chunks.find", digests=list(digests))
        return {bytes(row[0]) for row in self._link.rows(statement, again=True)}

    def stage_chunks(self, chunks: Mapping[bytes, Buffer]) -> None:
        digests, data = sorted_chunks(chunks)
        statement = self._statement("postgres.transfer.stage", digests=digests, data=data)
        self._link.rows(statement, again=True)

    def add_session(
        self,
        copy: SessionCopy,
        payloads: Callable[[str], Payload],
        *,
        indexes: Mapping[bytes, Buffer],
        leaves: Collection[bytes],
        pack_required: bool = False,
    ) -> SessionRecord:
        check_copy(copy)
        commits = {one.workspace_commit for one in copy.checkpoints} - {None}

        def add(connection: AnyConnection) -> SessionRecord:
            with connection.transaction():
                self._ask(connection, "postgres.lock_tenant")
                digests, data = sorted_chunks(indexes)
                session = self._add_owner(connection, copy)
                self._ask(
                    connection,
                    "postgres.transfer.content",
                    digests=digests,
                    data=data,
                    expects=list(leaves),
                )
                if pack_required:
                    self._ask(connection, "postgres.transfer.packs", commits=list(commits))
                self._add_rows(connection, copy, payloads)
                return session

        return self._link.run(add)

    def _add_owner(self, connection: AnyConnection, copy: SessionCopy) -> SessionRecord:
        for agent in copy.agents:
            self._ask(connection, "postgres.transfer.agent", **_columns(agent))
            if not self._ask(connection, "agents.find", id=agent.id):
                raise AgentExists(f"an agent with the id {agent.id} exists already")
        stored = self._ask(connection, "postgres.transfer.session", **_columns(copy.session))
        if not stored:
            raise SessionExists(f"a session with the id {copy.session.id!r} exists already")
        return parse_session(stored[0])

    def _add_rows(
        self, connection: AnyConnection, copy: SessionCopy, payloads: Callable[[str], Payload]
    ) -> None:
        session_id = copy.session.id
        added = self._many(
            connection,
            "postgres.transfer.checkpoint",
            (self._checkpoint(copy, one, payloads(one.id)) for one in copy.checkpoints),
        )
        if added < len(copy.checkpoints):
            raise CheckpointExists(
                f"checkpoints of session {session_id!r} have ids that belong to another session"
            )
        self._many(
            connection,
            "postgres.transfer.write",
            (write_columns(one, session_id, self.sums) for one in copy.writes),
        )
        self._many(
            connection,
            "postgres.transfer.effect",
            (self._effect(replace(one, session_id=session_id)) for one in copy.effects),
        )
        self._many(
            connection,
            "postgres.transfer.log",
            (_columns(one) | {"session_id": session_id} for one in copy.logs),
        )

    def _checkpoint(
        self, copy: SessionCopy, record: CheckpointRecord, payload: Payload
    ) -> dict[str, Any]:
        check_copied(copy, record, payload)
        row = record_row(replace(record, expires_at=_utc(record.expires_at)), None)
        manifest = payload.manifest.encode()
        return _columns(record) | {
            "consumed_at": _utc(copy.consumed.get(record.id)),
            "manifest": payload.manifest,
            "refs": payload.refs,
            "content": content_digest(self.row_digest, self.tenant, row, manifest, payload.refs),
        }

    def _effect(self, record: EffectRecord) -> dict[str, Any]:
        row = effect_row(record, document_text(record.error, "error"))
        begun_sum, outcome_sum = self.sums.effect(row)
        return dict(zip(_EFFECT_COLUMNS, row, strict=True)) | {
            "started_at": _utc(record.started_at),
            "finished_at": _utc(record.finished_at),
            "begun_sum": begun_sum,
            "outcome_sum": outcome_sum,
        }

    def _ask(self, connection: AnyConnection, *names: str, **params: Any) -> list[tuple[Any, ...]]:
        return execute(connection, self._statement(*names, **params))

    def _statement(self, *names: str, **params: Any) -> Statement:
        text = "\n".join(self._sql[name] for name in names)
        return Statement(text, {"tenant": self.tenant, **params})

    def _many(self, connection: AnyConnection, name: str, rows: Iterable[Mapping[str, Any]]) -> int:
        with connection.cursor() as cursor:
            cursor.executemany(self._sql[name], ({"tenant": self.tenant, **one} for one in rows))
            return max(cursor.rowcount, 0)


def _columns(record: Any) -> dict[str, Any]:
    """Return a record's fields as its table has them."""
    columns = {one.name: _utc(getattr(record, one.name)) for one in fields(record)}
    for name in _DOCUMENTS & columns.keys():
        columns[name] = document_text(columns[name])
    return columns


def _utc(value: Any) -> Any:
    return as_utc(value, "a time of the session") if isinstance(value, datetime) else value
