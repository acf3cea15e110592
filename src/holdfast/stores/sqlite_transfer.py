"""Sessions on their way from or to another store, in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import apsw

from holdfast.errors import CheckpointExists, SessionExists
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointRecord,
    Payload,
    SessionCopy,
    SessionRecord,
    WriteCopy,
)
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.chain import GENESIS, link_of
from holdfast.stores.checks import as_utc, check_filter, document_text
from holdfast.stores.copy_checks import check_copied, check_copy
from holdfast.stores.rules import first_token
from holdfast.stores.sqlite_access import all_rows, hex_list
from holdfast.stores.sqlite_checkpoints import SqliteCheckpoints
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_effects import SqliteEffects
from holdfast.stores.sqlite_rows import Row, moment, stamp, stamp_given
from holdfast.stores.sums import effect_row

_ALL: Final = -1
_ASKED_AT_ONCE: Final = 10_000
_CHECKPOINTS: Final = "\n".join(
    SQL[f"checkpoints.{name}"] for name in ("list", "where.session_id", "order")
)
_EFFECTS: Final = "\n".join(
    SQL[f"effects.{name}"] for name in ("list", "where.session_id", "order")
)
_LOGS: Final = "\n".join(SQL[f"logs.{name}"] for name in ("list", "order"))


class SqliteTransfer(SqliteCheckpoints, SqliteEffects):
    """All rows of a session at once."""

    def read_session(
        self, session_id: str, *, checkpoint_ids: Collection[str] | None = None
    ) -> SessionCopy | None:
        check_filter(session_id, "session id", str)
        key = (self.tenant, session_id)

        def read(connection: apsw.Connection) -> SessionCopy | None:
            row = self._session_row(connection, session_id)
            if row is None:
                return None
            session = rows.session(row)
            now = self._clock()
            listed = connection.execute(_CHECKPOINTS, (self.tenant, now, session_id, _ALL))
            chosen = (one for one in listed if checkpoint_ids is None or one[0] in checkpoint_ids)
            checkpoints = [rows.checkpoint(one) for one in chosen]
            ids = {one.id for one in checkpoints}
            consumed = all_rows(connection, "sqlite.transfer.consumed", (*key, now))
            writes = all_rows(connection, "writes.session", key)
            effects = connection.execute(_EFFECTS, (*key, _ALL)).fetchall()
            logs = connection.execute(_LOGS, (*key, _ALL, 0)).fetchall()
            return SessionCopy(
                session=session,
                agents=self._agents_above(connection, session.agent_id),
                checkpoints=tuple(reversed(checkpoints)),
                consumed={id_: moment(at) for id_, at in consumed if id_ in ids},
                writes=tuple(map(self._write_copy, writes)),
                effects=tuple(map(self._checked_effect, effects)),
                logs=tuple(map(rows.log, logs)),
            )

        return self._file.read_consistently(read)

    def _write_copy(self, row: Row) -> WriteCopy:
        return WriteCopy(row[1], self.sums.check_write(row[:-1]), moment(row[-1]))

    def _agents_above(self, connection: apsw.Connection, agent_id: str) -> tuple[AgentRecord, ...]:
        found: list[AgentRecord] = []
        above: str | None = agent_id
        while above is not None and (agent := self._agent(connection, above)) is not None:
            found.append(agent)
            above = agent.parent_id
        return tuple(reversed(found))

    def find_chunks(self, digests: Collection[bytes]) -> set[bytes]:
        found = self._rows("chunks.find", (self.tenant, hex_list(digests))) if digests else []
        return {digest for (digest,) in found}

    def stage_chunks(self, chunks: Mapping[bytes, Buffer]) -> None:
        packed = self._packed(chunks)
        self._file.write(lambda connection: self._add_chunks(connection, packed))

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
        packed = self._packed(indexes)
        wanted = list(leaves)
        key = (self.tenant, copy.session.id)
        commits = {one.workspace_commit for one in copy.checkpoints} - {None}

        def add(connection: apsw.Connection) -> SessionRecord:
            if self._session_row(connection, copy.session.id) is not None:
                raise SessionExists(f"a session with the id {copy.session.id!r} exists already")
            self._add_chunks(connection, packed)
            for at in range(0, len(wanted), _ASKED_AT_ONCE):
                self._require_chunks(connection, wanted[at : at + _ASKED_AT_ONCE])
            if pack_required:
                self._require_packs(connection, [one for one in commits if one is not None])
            for agent in copy.agents:
                if self._agent(connection, agent.id) is None:
                    self._insert_agent_row(connection, _agent_row(agent))
            connection.execute(SQL["sqlite.transfer.session"], (self.tenant, *_session_row(copy)))
            head = GENESIS
            for number, one in enumerate(copy.checkpoints, 1):
                head = self._add_copied(connection, copy, one, payloads(one.id), number, head)
            self._set_chain(connection, copy.session.id, len(copy.checkpoints), head)
            self._add_rest(connection, copy)
            return rows.session(all_rows(connection, "sessions.find", key)[0])

        return self._file.write(add)

    def _add_copied(
        self,
        connection: apsw.Connection,
        copy: SessionCopy,
        record: CheckpointRecord,
        payload: Payload,
        number: int,
        previous: bytes,
    ) -> bytes:
        draft = check_copied(copy, record, payload)
        seq = self._next_seq(connection, draft.session_id, draft.namespace)
        row = rows.of_draft(
            draft,
            agent_id=record.agent_id,
            seq=seq,
            parent_id=draft.parent_id,
            label=draft.label,
            stored_bytes=record.stored_bytes,
            expires_at=_stamp(record.expires_at),
            metadata=document_text(record.metadata),
            created_at=_stamp(record.created_at),
        )
        manifest = payload.manifest.encode()
        link = link_of(self.row_digest, self.tenant, row, number, previous, manifest, payload.refs)
        later = (_stamp(record.restored_at), _stamp(copy.consumed.get(record.id)))
        connection.execute(
            SQL["sqlite.transfer.checkpoint"],
            (self.tenant, *row, number, previous, link, *later, payload.manifest, payload.refs),
        )
        if not connection.changes():
            raise CheckpointExists(f"the id {record.id} belongs to another session")
        return link

    def _add_rest(self, connection: apsw.Connection, copy: SessionCopy) -> None:
        key = (self.tenant, copy.session.id)
        for write in copy.writes:
            created_at = stamp(as_utc(write.created_at, "a time of the session"))
            self._add_write(connection, copy.session.id, write.namespace, write.record, created_at)
        for effect in copy.effects:
            error = document_text(effect.error, "error")
            row = effect_row(replace(effect, session_id=copy.session.id), error)
            connection.execute(
                SQL["sqlite.transfer.effect"],
                (
                    self.tenant,
                    *row,
                    _stamp(effect.started_at),
                    _stamp(effect.finished_at),
                    *self.sums.effect(row),
                ),
            )
        for log in copy.logs:
            data = document_text(log.data, "log data")
            values = (*key, log.level, log.message, data, _stamp(log.created_at))
            all_rows(connection, "logs.insert", values)


def _stamp(moment: datetime | None) -> str | None:
    return stamp_given(moment, "a time of the session")


def _agent_row(agent: AgentRecord) -> Row:
    return (
        agent.id,
        agent.name,
        agent.agent_type,
        agent.status,
        agent.parent_id,
        agent.depth_level,
        document_text(agent.metadata),
        _stamp(agent.created_at),
        _stamp(agent.updated_at),
        _stamp(agent.completed_at),
    )


def _session_row(copy: SessionCopy) -> Row:
    one = copy.session
    return (
        one.id,
        one.agent_id,
        one.agent_type,
        one.task_description,
        one.status,
        one.continues_id,
        one.forked_from,
        _stamp(one.paused_at),
        _stamp(one.paused_until),
        one.pause_reason,
        _stamp(one.resumed_at),
        document_text(one.metadata),
        _stamp(one.created_at),
        _stamp(one.updated_at),
        one.recoveries,
        one.project_dir,
        first_token(),
    )
