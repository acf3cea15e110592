"""Checkpoints in SQLite: the put with its trim, listings, payloads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, cast

import apsw
import orjson

from holdfast.errors import CheckpointExists, CheckpointNotFound
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    NewCheckpoint,
    Payload,
    PutResult,
)
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.chain import link_of
from holdfast.stores.checks import (
    already_consumed,
    check_checkpoint,
    check_fence,
    check_filter,
    check_session,
    checkpoint_keys,
    document_text,
    name_taken,
    nothing_to_consume,
    stale_writer,
)
from holdfast.stores.rules import session_completed
from holdfast.stores.sqlite_access import all_rows, narrow, text_list
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_rows import stamp, stamp_given
from holdfast.stores.sqlite_sessions import SqliteSessions

_FIRST_DAY: Final = datetime.min.replace(tzinfo=UTC)
_CHECKPOINT_FILTERS: Final = (
    ("session_id", str),
    ("namespace", str),
    ("agent_id", str),
    ("agent_prefix", str),
    ("id", str),
    ("id_prefix", str),
    ("name", str),
    ("label", str),
    ("external_id", str),
    ("checkpoint_type", str),
    ("retention_class", str),
    ("run_id", str),
    ("version", int),
    ("resumable", bool),
    ("quarantined", bool),
    ("before_seq", int),
)


class SqliteCheckpoints(SqliteSessions):
    """Checkpoints of sessions."""

    def put(self, draft: NewCheckpoint) -> PutResult:
        draft = check_checkpoint(draft)
        session = None if draft.session is None else check_session(draft.session)
        metadata = document_text(draft.metadata)
        created = stamp_given(draft.created_at, "created_at")
        expires = stamp_given(draft.expires_at, "expires_at")
        chunks = self._packed(draft.chunks)
        manifest = draft.manifest.encode()
        own_bytes = len(manifest) + len(draft.refs)

        def store(connection: apsw.Connection) -> PutResult:
            moment = self._now()
            now = stamp(moment)
            agent_id, status, length, head = self._lock_session(
                connection, draft.session_id, session, draft.fence
            )
            standing = self._standing(connection, draft, now)
            if standing and standing[0][0] == "id":
                stored = self._stored(connection, draft, standing[0])
                return PutResult(lambda: stored, created=False)
            if status == "completed":
                raise session_completed(draft.session_id)
            if draft.consumes is not None:
                self._consume(connection, draft, now)
            seq = _place_kept(standing)
            if draft.follows is not None and seq is None:
                _, newest = self._newest(connection, draft, now)
                if (newest or "") != draft.follows:
                    raise stale_writer(draft)
            if draft.pack_required:
                self._require_packs(connection, [cast("str", draft.workspace_commit)])
            stored_bytes = own_bytes + self._add_chunks(connection, chunks)
            self._require_chunks(connection, draft.expects)
            replaced = self._make_way(connection, draft, standing)
            label = draft.label
            if any(column == "label" and id_ not in replaced for column, id_, *_ in standing):
                label = self._next_label(connection, draft)
            parent_id = draft.parent_id
            if draft.parent_is_newest:
                parent_id, _ = self._newest(connection, draft, now)
            if seq is None:
                seq = self._next_seq(connection, draft.session_id, draft.namespace)
            row = rows.of_draft(
                draft,
                agent_id=agent_id,
                seq=seq,
                parent_id=parent_id,
                label=label,
                stored_bytes=stored_bytes,
                expires_at=expires,
                metadata=metadata,
                created_at=created or now,
            )
            number = length + 1
            link = link_of(self.row_digest, self.tenant, row, number, head, manifest, draft.refs)
            connection.execute(
                SQL["sqlite.put.checkpoint"],
                (self.tenant, *row, number, head, link, draft.manifest, draft.refs),
            )
            touched = (now, number, link, self.tenant, draft.session_id)
            connection.execute(SQL["sqlite.put.touch_session"], touched)
            removed = self._trim(connection, draft, moment, now)
            made = partial(rows.checkpoint, (*row, None))
            return PutResult(made, created=True, removed=(*replaced, *removed))

        return self._file.write(store)

    def _consume(self, connection: apsw.Connection, draft: NewCheckpoint, now: str) -> None:
        line = (draft.consumes, self.tenant, draft.session_id, draft.namespace, now)
        connection.execute(SQL["sqlite.put.consume"], (now, *line))
        if connection.changes():
            return
        found = all_rows(connection, "sqlite.put.consumed", line)
        raise already_consumed(draft) if found else nothing_to_consume(draft)

    def _newest(
        self, connection: apsw.Connection, draft: NewCheckpoint, now: str
    ) -> tuple[str | None, str | None]:
        """Return the id of the newest checkpoint beside the draft, and its external id."""
        line = (self.tenant, draft.session_id, draft.namespace, now)
        found = all_rows(connection, "sqlite.put.newest", line)
        return found[0] if found else (None, None)

    def _standing(
        self, connection: apsw.Connection, draft: NewCheckpoint, now: str
    ) -> list[rows.Row]:
        """Return what has the draft's id, name, external id or label: which of them, and whose it is."""
        line = (now, self.tenant, draft.session_id, draft.namespace)
        return all_rows(
            connection,
            "sqlite.put.standing",
            (
                self.tenant,
                draft.session_id,
                now,
                draft.id,
                *line,
                draft.name,
                *line,
                draft.external_id,
                *line,
                draft.label,
            ),
        )

    def _stored(
        self, connection: apsw.Connection, draft: NewCheckpoint, standing: rows.Row
    ) -> CheckpointRecord:
        """Return what an earlier put of the same draft has stored."""
        if not standing[3]:
            raise CheckpointExists(f"the id {draft.id} belongs to another session")
        return rows.checkpoint(all_rows(connection, "sqlite.put.stored", (draft.id,))[0])

    def _make_way(
        self, connection: apsw.Connection, draft: NewCheckpoint, standing: list[rows.Row]
    ) -> list[str]:
        """Remove what the draft replaces, or raise; return the ids."""
        replaced: dict[str, None] = {}
        for column, id_, _, _, expired in standing:
            if column == "label":
                continue
            # What has expired is gone for everybody who asks, so it stands in nobody's way.
            if not expired and not draft.replace:
                raise name_taken(draft, column)
            replaced[id_] = None
        if replaced:
            values = (self.tenant, text_list(replaced))
            self._bury(connection, all_rows(connection, "checkpoints.delete", values))
        return list(replaced)

    def _next_label(self, connection: apsw.Connection, draft: NewCheckpoint) -> str:
        values = (draft.label, self.tenant, draft.session_id, draft.namespace)
        ((highest,),) = all_rows(connection, "sqlite.put.last_label", values)
        return f"{draft.label}-{max(highest or 1, 1) + 1}"

    def _trim(
        self, connection: apsw.Connection, draft: NewCheckpoint, moment: datetime, now: str
    ) -> list[str]:
        trim = draft.trim
        if trim.keep is None and not trim.max_age:
            return []
        line = (self.tenant, draft.session_id, draft.namespace, now, draft.retention_class)
        cap = (0, 0) if trim.keep is None else (-1, trim.keep)
        # Before the first day there is no moment, and no checkpoint.
        longest = moment - _FIRST_DAY
        oldest = {name: stamp(moment - min(age, longest)) for name, age in trim.max_age.items()}
        values = (*line, *cap, orjson.dumps(oldest).decode())
        going = [id_ for (id_,) in all_rows(connection, "sqlite.put.excess", values)]
        if not going:
            return []
        gone = all_rows(connection, "sqlite.put.trim", (self.tenant, text_list(going), now))
        self._bury(connection, gone)
        return [row[1] for row in sorted(gone, key=lambda row: row[2])]

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        statement, values = [SQL["checkpoints.list"]], [self.tenant, self._clock()]
        narrow("checkpoints.where.", query, _CHECKPOINT_FILTERS, statement, values)
        return self._list(rows.checkpoint, statement, values, SQL["checkpoints.order"], query.limit)

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        check_filter(agent_id, "agent id", str)
        found = self._rows(
            "checkpoints.latest_of_agent", (agent_id.lower(), self.tenant, self._clock())
        )
        return rows.checkpoint(found[0]) if found else None

    def read_payload(self, checkpoint_id: str, *, anyway: bool = False) -> Payload | None:
        check_filter(checkpoint_id, "checkpoint id", str)
        found = self._rows(
            "checkpoints.payload", (checkpoint_id.lower(), self.tenant, self._clock(), anyway)
        )
        return self._verified(found[0], quarantined=anyway) if found else None

    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        ids = text_list(checkpoint_keys(checkpoint_ids))
        found = self._rows("checkpoints.payloads", (ids, self.tenant, self._clock()))
        return {row[0]: self._verified(row) for row in found}

    def read_newest(self, query: CheckpointQuery) -> tuple[CheckpointRecord, Payload] | None:
        statement, values = [SQL["checkpoints.newest"]], [self.tenant, self._clock()]
        narrow("checkpoints.where.", query, _CHECKPOINT_FILTERS, statement, values)
        found = self._list(tuple, statement, values, SQL["checkpoints.order"], 1)
        if not found:
            return None
        payload = self._verified(found[0])
        return rows.checkpoint(found[0][: rows.CHECKPOINT_COLUMNS]), payload

    def quarantine(self, checkpoint_ids: Collection[str], *, lift: bool = False) -> set[str]:
        ids = text_list(checkpoint_keys(checkpoint_ids))

        def mark(connection: apsw.Connection) -> set[str]:
            if lift:
                found = all_rows(connection, "checkpoints.lift_quarantine", (self.tenant, ids))
            else:
                values = (self._clock(), self.tenant, ids)
                found = all_rows(connection, "checkpoints.quarantine", values)
            return {id_ for (id_,) in found}

        return self._file.write(mark) if checkpoint_ids else set()

    def mark_restored(self, checkpoint_id: str, *, fence: int | None = None) -> CheckpointRecord:
        check_filter(checkpoint_id, "checkpoint id", str)
        check_fence(fence)

        def mark(connection: apsw.Connection) -> CheckpointRecord:
            now = self._clock()
            key = checkpoint_id.lower()
            self._fence_checkpoints(connection, text_list([key]), fence)
            connection.execute(SQL["checkpoints.mark_restored"], (now, key, self.tenant, now))
            if not connection.changes():
                raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")
            return rows.checkpoint(all_rows(connection, "sqlite.put.stored", (key,))[0])

        return self._file.write(mark)

    def mark_restoring(
        self, checkpoint_id: str, *, seconds: float, fence: int | None = None
    ) -> None:
        check_filter(checkpoint_id, "checkpoint id", str)
        check_fence(fence)

        def mark(connection: apsw.Connection) -> None:
            moment = self._now()
            now, until = stamp(moment), stamp(moment + timedelta(seconds=seconds))
            key = checkpoint_id.lower()
            self._fence_checkpoints(connection, text_list([key]), fence)
            connection.execute(SQL["checkpoints.mark_restoring"], (until, key, self.tenant, now))
            if not connection.changes():
                raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")

        self._file.write(mark)

    def delete_checkpoints(
        self,
        checkpoint_ids: Sequence[str],
        *,
        fence: int | None = None,
        beside: Collection[str] | None = None,
        newest_too: bool = False,
    ) -> int:
        ids = text_list(checkpoint_keys(checkpoint_ids))
        others = None if beside is None else text_list(checkpoint_keys(beside))
        check_fence(fence)
        if not checkpoint_ids:
            return 0

        def delete(connection: apsw.Connection) -> int:
            self._fence_checkpoints(connection, ids, fence)
            going = ids
            if others is not None:
                planned = (self.tenant, ids, others, self._clock(), newest_too)
                found = all_rows(connection, "checkpoints.still_to_go", planned)
                going = text_list([id_ for (id_,) in found])
            values = (self.tenant, going)
            connection.execute(SQL["sqlite.delete.writes"], (self.tenant, *values))
            return self._bury(connection, all_rows(connection, "checkpoints.delete", values))

        return self._file.write(delete)

    def list_expired(self) -> list[CheckpointRecord]:
        found = self._rows("checkpoints.expired", (self.tenant, self._clock()))
        return [rows.checkpoint(row) for row in found]

    def purge_expired(self) -> int:
        def purge(connection: apsw.Connection) -> int:
            gone = all_rows(connection, "checkpoints.purge_expired", (self.tenant, self._clock()))
            return self._bury(connection, gone)

        return self._file.write(purge)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        return iter([id_ for (id_,) in self._rows("checkpoints.ids", (self.tenant, self._clock()))])


def _place_kept(standing: list[rows.Row]) -> int | None:
    """Return the seq of the checkpoint whose external id the draft has: it is handed on."""
    kept = (seq for column, _, seq, _, gone in standing if column == "external_id" and not gone)
    return next(kept, None)
