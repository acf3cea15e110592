"""Checkpoints in one SQLite file: embedded, durable, shared by any number of local processes.

Every change is one ``BEGIN IMMEDIATE`` transaction with ``synchronous=FULL`` in WAL mode: a method
that returned cannot be taken back by a power cut. What can be done before the file's only write lock
is taken (checking, compressing, serialising) is done before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import apsw
import orjson

from holdfast.errors import (
    AgentExists,
    AgentNotFound,
    CheckpointExists,
    CheckpointNotFound,
    ChunksMissing,
    IllegalTransition,
    SessionExists,
    SessionNotFound,
    StateCorrupt,
)
from holdfast.ids import check_external_id, check_namespace, check_tenant, new_id
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointQuery,
    CheckpointRecord,
    GcReport,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewSession,
    NewWrite,
    Payload,
    PutResult,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    Trim,
    WriteRecord,
    utc_now,
)
from holdfast.state.codec import dump_document, load_document
from holdfast.stores import sqlite_rows as rows
from holdfast.stores.base import Store
from holdfast.stores.checks import (
    as_utc,
    check_agent,
    check_agent_status,
    check_checkpoint,
    check_filter,
    check_limit,
    check_log,
    check_session,
    check_session_status,
    check_write,
    metadata_filter,
)
from holdfast.stores.compression import pack, unpack
from holdfast.stores.rules import FINAL_AGENT_STATUSES, ORPHAN_AGE, reachable
from holdfast.stores.sqlite_file import SQL, DatabaseFile, extended_code
from holdfast.stores.sqlite_rows import Row, stamp
from holdfast.stores.sqlite_schema import check_schema, ensure_schema

T = TypeVar("T")

_CHECKPOINT_FILTERS: Final = (
    ("session_id", str),
    ("namespace", str),
    ("agent_id", str),
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
    ("before_seq", int),
)
_SESSION_FILTERS: Final = (
    ("status", str),
    ("agent_type", str),
    ("agent_id", str),
    ("id_prefix", str),
)
# Ids are stored in lower case; whoever asks may not know.
_CANONICAL: Final = frozenset({"id", "agent_id"})
_TAKEN: Final = (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE)


class SqliteStore(Store):
    """A store in the file ``path``, which is created, private to its owner, when it is missing.

    ``busy_timeout`` is how many seconds a write waits for others before it raises `StoreBusy`.
    With ``ensure_schema=False`` nothing is created or migrated: a missing or older schema raises
    `SchemaMissing`.

        with SqliteStore("sessions.db") as store:
            store.create_agent(...)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tenant: str = "default",
        ensure_schema: bool = True,
        busy_timeout: float = 30.0,
        compress: bool = True,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.tenant = check_tenant(tenant)
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{quote(str(self.path))}"
        self._compress = compress
        self._now = now
        self._file = DatabaseFile(self.path, self.url, busy_timeout=busy_timeout)
        self._file.open(self._ensure_schema if ensure_schema else self._check_schema)

    def _ensure_schema(self, connection: apsw.Connection) -> None:
        ensure_schema(connection, self._file)

    def _check_schema(self, connection: apsw.Connection) -> None:
        check_schema(connection, self._file)

    def _clock(self) -> str:
        return stamp(self._now())

    # Agents ----------------------------------------------------------------------------------

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        draft = check_agent(draft)
        return self._file.write(lambda connection: self._insert_agent(connection, draft))

    def _insert_agent(self, connection: apsw.Connection, draft: NewAgent) -> AgentRecord:
        depth = 0
        if draft.parent_id is not None:
            parent = self._agent(connection, draft.parent_id)
            if parent is None:
                raise AgentNotFound(f"no agent has the id {draft.parent_id}, given as parent")
            depth = parent.depth_level + 1
        metadata = _dumped(draft.metadata)
        now = self._clock()
        completed = now if draft.status in FINAL_AGENT_STATUSES else None
        # An id is unique beyond the tenant, so an agent that is not to be seen can be in the way.
        try:
            connection.execute(
                SQL["agents.insert"],
                (
                    self.tenant,
                    draft.id,
                    draft.name,
                    draft.agent_type,
                    draft.status,
                    draft.parent_id,
                    depth,
                    metadata,
                    now,
                    now,
                    completed,
                ),
            )
        except apsw.ConstraintError as error:
            if extended_code(error) in _TAKEN:
                raise AgentExists(f"an agent with the id {draft.id} exists already") from None
            raise
        return rows.agent(
            (
                draft.id,
                draft.name,
                draft.agent_type,
                draft.status,
                draft.parent_id,
                depth,
                metadata,
                now,
                now,
                completed,
            )
        )

    def _agent(self, connection: apsw.Connection, agent_id: str) -> AgentRecord | None:
        found = _all(connection, "agents.find", (self.tenant, agent_id.lower()))
        return rows.agent(found[0]) if found else None

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        check_filter(agent_id, "agent id", str)
        return self._file.read(lambda connection: self._agent(connection, agent_id))

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        statement, values = [SQL["agents.list"]], [self.tenant]
        if status is not None:
            check_filter(status, "status", str)
            statement.append(SQL["agents.where.status"])
            values.append(status)
        if parent_id is not None:
            check_filter(parent_id, "parent_id", str)
            statement.append(SQL["agents.where.parent_id"])
            values.append(parent_id.lower())
        return self._list(rows.agent, statement, values, SQL["agents.order"], limit)

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        check_filter(agent_id, "agent id", str)
        check_agent_status(status)
        dumped = _dumped(metadata)

        def update(connection: apsw.Connection) -> AgentRecord:
            found = _all(connection, "agents.find", (self.tenant, agent_id.lower()))
            if not found:
                raise AgentNotFound(f"no agent has the id {agent_id}")
            row = list(found[0])
            row[8] = self._clock()
            if status is not None:
                row[3] = status
                row[9] = row[8] if status in FINAL_AGENT_STATUSES else None
            if dumped is not None:
                row[6] = dumped
            values = (row[3], row[6], row[8], row[9], self.tenant, row[0])
            connection.execute(SQL["agents.update"], values)
            return rows.agent(tuple(row))

        return self._file.write(update)

    # Sessions --------------------------------------------------------------------------------

    def create_session(self, draft: NewSession) -> SessionRecord:
        draft = check_session(draft)
        return self._file.write(lambda connection: self._insert_session(connection, draft))

    def _insert_session(self, connection: apsw.Connection, draft: NewSession) -> SessionRecord:
        if self._session_row(connection, draft.id) is not None:
            raise SessionExists(f"a session with the id {draft.id!r} exists already")
        if self._agent(connection, draft.agent_id) is None:
            if draft.agent is None:
                raise AgentNotFound(f"no agent has the id {draft.agent_id}")
            self._insert_agent(connection, draft.agent)
        metadata = _dumped(draft.metadata)
        now = self._clock()
        connection.execute(
            SQL["sessions.insert"],
            (
                self.tenant,
                draft.id,
                draft.agent_id,
                draft.agent_type,
                draft.task_description,
                draft.continues_id,
                draft.forked_from,
                metadata,
                now,
                now,
            ),
        )
        return rows.session(
            (
                draft.id,
                draft.agent_id,
                draft.agent_type,
                draft.task_description,
                "active",
                draft.continues_id,
                draft.forked_from,
                None,
                None,
                None,
                None,
                metadata,
                now,
                now,
            )
        )

    def _session_row(self, connection: apsw.Connection, session_id: str) -> Row | None:
        found = _all(connection, "sessions.find", (self.tenant, session_id))
        return found[0] if found else None

    def find_session(self, session_id: str) -> SessionRecord | None:
        check_filter(session_id, "session id", str)
        row = self._file.read(lambda connection: self._session_row(connection, session_id))
        return None if row is None else rows.session(row)

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        statement, values = [SQL["sessions.list"]], [self.tenant]
        _narrow("sessions.where.", query, _SESSION_FILTERS, statement, values)
        return self._list(rows.session, statement, values, SQL["sessions.order"], query.limit)

    def update_session(
        self,
        session_id: str,
        *,
        status: str | None = None,
        expected: Collection[str] | None = None,
        resumed_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionRecord:
        check_filter(session_id, "session id", str)
        check_session_status(status)
        resumed = None if resumed_at is None else stamp(as_utc(resumed_at, "resumed_at"))
        dumped = _dumped(metadata)

        def update(connection: apsw.Connection) -> SessionRecord:
            found = self._session_row(connection, session_id)
            if found is None:
                raise SessionNotFound(f"no session has the id {session_id!r}")
            row = list(found)
            if expected is not None and row[4] not in expected:
                raise IllegalTransition(
                    f"session {session_id!r} is {row[4]}; this needs {', '.join(sorted(expected))}"
                )
            row[4] = row[4] if status is None else status
            row[10] = row[10] if resumed is None else resumed
            row[11] = row[11] if dumped is None else dumped
            row[13] = self._clock()
            values = (row[4], row[10], row[11], row[13], self.tenant, session_id)
            connection.execute(SQL["sessions.update"], values)
            return rows.session(tuple(row))

        return self._file.write(update)

    def delete_session(self, session_id: str) -> bool:
        check_filter(session_id, "session id", str)

        def erase(connection: apsw.Connection) -> bool:
            key = (self.tenant, session_id)
            roots = _all(connection, "sqlite.gc.roots_of_session", key + key)
            connection.execute(SQL["sessions.delete"], key)
            if not connection.changes():
                return False
            if roots:
                own, _ = self._reachable(connection, roots)
                others, whole = self._reachable(connection, self._roots(connection))
                # Below an unreadable index anything may be shared; gc says so and removes nothing.
                if whole:
                    gone = ((self.tenant, digest) for digest in own - others)
                    connection.executemany(SQL["sqlite.gc.delete_chunks_by_digest"], gone)
            return True

        return self._file.erase(erase)

    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        check_filter(source_id, "session id", str)
        draft = check_session(draft)
        chosen = None if checkpoint_ids is None else {found.lower() for found in checkpoint_ids}

        def copy(connection: apsw.Connection) -> SessionRecord:
            if self._session_row(connection, source_id) is None:
                raise SessionNotFound(f"no session has the id {source_id!r}")
            key = (self.tenant, source_id)
            sources = _all(connection, "sqlite.copy.sources", (*key, self._clock()))
            if chosen is not None:
                sources = [row for row in sources if row[0] in chosen]
                missing = chosen - {row[0] for row in sources}
                if missing:
                    raise CheckpointNotFound(
                        f"session {source_id!r} has no checkpoint {', '.join(sorted(missing))}"
                    )
            session = self._insert_session(connection, draft)
            copies = {row[0]: new_id() for row in sources}
            for id_, parent_id, _, _ in sources:
                (seq,) = _all(connection, "sqlite.put.next_seq", ())[0]
                parent_id = copies.get(parent_id, parent_id)
                values = (copies[id_], draft.id, draft.agent_id, seq, parent_id, id_, self.tenant)
                connection.execute(SQL["sqlite.copy.checkpoint"], values)
            statement = SQL["sqlite.copy.writes"]
            if chosen is None:
                connection.execute(statement, (draft.id, *key))
            else:
                one = statement + "\n" + SQL["sqlite.copy.writes.where.checkpoint"]
                wanted = [(draft.id, *key, *row[2:]) for row in sources if row[3] is not None]
                connection.executemany(one, wanted)
            return session

        return self._file.write(copy)

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        statement, values = [SQL["sessions.usage"]], [self._clock(), self.tenant]
        if session_ids is not None:
            statement.append(SQL["sessions.usage.where.ids"])
            values.append(_texts(session_ids, "session id"))
        statement.append(SQL["sessions.usage.order"])
        found: list[Row] = self._file.read(
            lambda connection: connection.execute("\n".join(statement), values).fetchall()
        )
        return [SessionUsage(*row[:5]) for row in found]

    # Checkpoints -----------------------------------------------------------------------------

    def put(self, draft: NewCheckpoint) -> PutResult:
        draft = check_checkpoint(draft)
        session = None if draft.session is None else check_session(draft.session)
        metadata = _dumped(draft.metadata)
        created = None if draft.created_at is None else as_utc(draft.created_at, "created_at")
        expires = None if draft.expires_at is None else as_utc(draft.expires_at, "expires_at")
        chunks = self._packed(draft.chunks)
        own_bytes = len(draft.manifest.encode()) + len(draft.refs)

        def store(connection: apsw.Connection) -> PutResult:
            moment = self._now()
            now = stamp(moment)
            agent_id = self._lock_session(connection, draft.session_id, session)
            stored, replaced, seq = self._standing(connection, draft, now)
            if stored is not None:
                return PutResult(stored, created=False)
            if replaced:
                connection.execute(SQL["checkpoints.delete"], (self.tenant, _texts(replaced)))
            stored_bytes = own_bytes + self._add_chunks(connection, chunks)
            self._require_chunks(connection, draft.expects)
            if seq is None:
                (seq,) = _all(connection, "sqlite.put.next_seq", ())[0]
            record = CheckpointRecord(
                id=draft.id,
                session_id=draft.session_id,
                agent_id=agent_id,
                namespace=draft.namespace,
                seq=seq,
                external_id=draft.external_id,
                parent_id=draft.parent_id,
                name=draft.name,
                label=draft.label,
                description=draft.description,
                checkpoint_type=draft.checkpoint_type,
                retention_class=draft.retention_class,
                run_id=draft.run_id,
                version=draft.version,
                size_bytes=draft.size_bytes,
                stored_bytes=stored_bytes,
                git_branch=draft.git_branch,
                git_commit=draft.git_commit,
                git_uncommitted=draft.git_uncommitted,
                resumable=draft.resumable,
                pinned=draft.pinned,
                expires_at=expires,
                metadata=None if metadata is None else load_document(metadata),
                created_at=created or moment,
                restored_at=None,
            )
            connection.execute(
                SQL["sqlite.put.checkpoint"],
                (
                    self.tenant,
                    draft.id,
                    draft.session_id,
                    agent_id,
                    draft.namespace,
                    seq,
                    draft.external_id,
                    draft.parent_id,
                    draft.name,
                    draft.label,
                    draft.description,
                    draft.checkpoint_type,
                    draft.retention_class,
                    draft.run_id,
                    draft.version,
                    draft.size_bytes,
                    stored_bytes,
                    draft.git_branch,
                    draft.git_commit,
                    draft.git_uncommitted,
                    draft.resumable,
                    draft.pinned,
                    None if expires is None else stamp(expires),
                    metadata,
                    stamp(record.created_at),
                    draft.manifest,
                    draft.refs,
                ),
            )
            touched = (now, self.tenant, draft.session_id)
            connection.execute(SQL["sqlite.put.touch_session"], touched)
            removed = self._trim(connection, record, draft.trim, moment)
            return PutResult(record, created=True, removed=(*replaced, *removed))

        return self._file.write(store)

    def _lock_session(
        self, connection: apsw.Connection, session_id: str, draft: NewSession | None
    ) -> str:
        """Return the agent of a session, which is created if the draft brings it."""
        found = _all(connection, "sqlite.put.session", (self.tenant, session_id))
        if found:
            return str(found[0][0])
        if draft is None:
            raise SessionNotFound(f"no session has the id {session_id!r}")
        return self._insert_session(connection, draft).agent_id

    def _standing(
        self, connection: apsw.Connection, draft: NewCheckpoint, now: str
    ) -> tuple[CheckpointRecord | None, list[str], int | None]:
        """Return the record if the id is stored already, else what to replace and the seq to keep."""
        line = (now, self.tenant, draft.session_id, draft.namespace)
        found = _all(
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
            ),
        )
        if not found:
            return None, [], None
        replaced: dict[str, None] = {}
        seq = None
        for column, id_, its_seq, ours, expired in found:
            if column == "id":
                if not ours:
                    raise CheckpointExists(f"the id {draft.id} belongs to another session")
                row = _all(connection, "sqlite.put.stored", (draft.id,))[0]
                return rows.checkpoint(row), [], None
            # What has expired is gone for everybody who asks, so it stands in nobody's way.
            if not expired:
                if not draft.replace:
                    raise CheckpointExists(
                        f"session {draft.session_id!r} has a checkpoint with the {column} "
                        f"{getattr(draft, column)!r} already. Nothing was stored: choose another, "
                        f"or replace it"
                    )
                seq = its_seq if column == "external_id" else seq
            replaced[id_] = None
        return None, list(replaced), seq

    def _packed(self, chunks: Mapping[bytes, Buffer]) -> list[tuple[str, bytes, int, Buffer]]:
        tenant, compress = self.tenant, self._compress
        return [(tenant, digest, *pack(chunks[digest], compress=compress)) for digest in chunks]

    def _add_chunks(
        self, connection: apsw.Connection, chunks: list[tuple[str, bytes, int, Buffer]]
    ) -> int:
        """Add the chunks that are not stored yet and return how many bytes they take."""
        if not chunks:
            return 0
        added: list[Row] = connection.executemany(SQL["sqlite.put.chunk"], chunks).fetchall()
        return sum(size for (size,) in added)

    def _require_chunks(self, connection: apsw.Connection, expects: Sequence[bytes]) -> None:
        if not expects:
            return
        missing = _all(connection, "sqlite.put.missing", (_hex(expects), self.tenant))
        if missing:
            raise ChunksMissing(
                f"{len(missing)} of {len(expects)} chunks that the draft relies on are no longer "
                f"stored. Nothing was stored: repeat it with all chunks"
            )

    def _trim(
        self, connection: apsw.Connection, record: CheckpointRecord, trim: Trim, moment: datetime
    ) -> list[str]:
        if trim.keep is None and not trim.max_age:
            return []
        now = stamp(moment)
        line = (self.tenant, record.session_id, record.namespace)
        going: list[Row] = []
        if trim.keep is not None:
            values: Row = (*line, record.retention_class, now, trim.keep)
            going += _all(connection, "sqlite.put.above_cap", values)
        for retention_class, age in trim.max_age.items():
            values = (*line, retention_class, now, stamp(moment - age))
            going += _all(connection, "sqlite.put.past_age", values)
        if not going:
            return []
        safe = _all(connection, "sqlite.put.newest_resumable", (*line, now))
        chosen = [row[0] for row in going if row not in safe]
        if not chosen:
            return []
        gone = _all(connection, "sqlite.put.trim", (self.tenant, _texts(chosen), now))
        return [id_ for id_, _ in sorted(gone, key=lambda row: row[1])]

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        statement, values = [SQL["checkpoints.list"]], [self.tenant, self._clock()]
        _narrow("checkpoints.where.", query, _CHECKPOINT_FILTERS, statement, values)
        return self._list(rows.checkpoint, statement, values, SQL["checkpoints.order"], query.limit)

    def _list(
        self,
        convert: Callable[[Row], T],
        statement: list[str],
        values: list[Any],
        order: str,
        limit: int | None,
    ) -> list[T]:
        limit = check_limit(limit)
        text = "\n".join((*statement, order))
        values.append(-1 if limit is None else limit)
        return self._file.read(
            lambda connection: [convert(row) for row in connection.execute(text, values)]
        )

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        check_filter(agent_id, "agent id", str)
        found = self._rows(
            "checkpoints.latest_of_agent", (agent_id.lower(), self.tenant, self._clock())
        )
        return rows.checkpoint(found[0]) if found else None

    def read_payload(self, checkpoint_id: str) -> Payload | None:
        check_filter(checkpoint_id, "checkpoint id", str)
        found = self._rows(
            "checkpoints.payload", (checkpoint_id.lower(), self.tenant, self._clock())
        )
        return Payload(*found[0]) if found else None

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        if not digests:
            return {}
        return _unpacked(self._rows("chunks.read", (self.tenant, _hex(digests))))

    def mark_restored(self, checkpoint_id: str) -> CheckpointRecord:
        check_filter(checkpoint_id, "checkpoint id", str)

        def mark(connection: apsw.Connection) -> CheckpointRecord:
            now = self._clock()
            key = checkpoint_id.lower()
            connection.execute(SQL["checkpoints.mark_restored"], (now, key, self.tenant, now))
            if not connection.changes():
                raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")
            return rows.checkpoint(_all(connection, "sqlite.put.stored", (key,))[0])

        return self._file.write(mark)

    def delete_checkpoints(self, checkpoint_ids: Sequence[str]) -> int:
        ids = _texts([found.lower() for found in checkpoint_ids], "checkpoint id")
        if not checkpoint_ids:
            return 0

        def delete(connection: apsw.Connection) -> int:
            connection.execute(SQL["checkpoints.delete"], (self.tenant, ids))
            return connection.changes()

        return self._file.write(delete)

    # Pending writes --------------------------------------------------------------------------

    def put_writes(
        self,
        session: NewSession,
        namespace: str,
        external_id: str,
        writes: Sequence[NewWrite],
    ) -> None:
        session = check_session(session)
        check_namespace(namespace)
        check_external_id(external_id)
        packed = []
        for write in writes:
            check_write(write)
            packed.append(self._packed(write.chunks))

        def store(connection: apsw.Connection) -> None:
            self._lock_session(connection, session.id, session)
            now = self._clock()
            for chunks in packed:
                self._add_chunks(connection, chunks)
            for write in writes:
                self._require_chunks(connection, write.expects)
                connection.execute(
                    SQL["sqlite.write.replace" if write.replace else "sqlite.write.insert"],
                    (
                        self.tenant,
                        session.id,
                        namespace,
                        external_id,
                        write.task_id,
                        write.index,
                        write.task_path,
                        write.channel,
                        write.manifest,
                        write.refs,
                        now,
                    ),
                )

        self._file.write(store)

    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        check_filter(session_id, "session id", str)
        check_filter(namespace, "namespace", str)
        wanted = _texts(external_ids, "external id")
        found = self._rows("writes.list", (self.tenant, session_id, namespace, wanted))
        return [_write_record(row) for row in found]

    # Logs ------------------------------------------------------------------------------------

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_filter(session_id, "session id", str)
        check_log(level, message)
        dumped = None if data is None else dump_document(data, "log data")

        def append(connection: apsw.Connection) -> LogRecord:
            if self._session_row(connection, session_id) is None:
                raise SessionNotFound(f"no session has the id {session_id!r}")
            line = (session_id, level, message, dumped, self._clock())
            ((id_,),) = _all(connection, "logs.insert", (self.tenant, *line))
            return rows.log((id_, *line))

        return self._file.write(append)

    def list_logs(
        self,
        session_id: str,
        *,
        level: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[LogRecord]:
        check_filter(session_id, "session id", str)
        statement, values = [SQL["logs.list"]], [self.tenant, session_id]
        if level is not None:
            check_filter(level, "level", str)
            statement.append(SQL["logs.where.level"])
            values.append(level)
        most = check_limit(limit)
        paging = (-1 if most is None else most, check_limit(offset, "offset"))
        text = "\n".join((*statement, SQL["logs.order"]))
        found: list[Row] = self._file.read(
            lambda connection: connection.execute(text, (*values, *paging)).fetchall()
        )
        return [rows.log(row) for row in found]

    # Upkeep ----------------------------------------------------------------------------------

    def purge_expired(self) -> int:
        def purge(connection: apsw.Connection) -> int:
            connection.execute(SQL["checkpoints.purge_expired"], (self.tenant, self._clock()))
            return connection.changes()

        return self._file.write(purge)

    def gc(self, *, dry_run: bool = False) -> GcReport:
        def sweep(connection: apsw.Connection) -> GcReport:
            before = stamp(self._now() - ORPHAN_AGE)
            orphans = _all(connection, "sqlite.gc.orphaned_writes", (self.tenant, before))
            if not dry_run:
                connection.executemany(SQL["sqlite.gc.delete_write"], orphans)
            kept = self._roots(connection, without=[row[0] for row in orphans])
            live, whole = self._reachable(connection, kept)
            if not whole:
                raise StateCorrupt(
                    f"{self.url} has an index chunk that cannot be read, so what lies below it is "
                    f"unknown. Nothing was removed: delete the checkpoints that verify names"
                )
            dead = [
                (rowid, size)
                for rowid, digest, size in connection.execute(
                    SQL["sqlite.gc.chunks"], (self.tenant,)
                )
                if digest not in live
            ]
            if not dry_run:
                connection.executemany(SQL["sqlite.gc.delete_chunk"], ((row[0],) for row in dead))
            return GcReport(
                chunks=len(dead),
                bytes=sum(size for _, size in dead),
                writes=len(orphans),
                dry_run=dry_run,
            )

        return self._file.read_consistently(sweep) if dry_run else self._file.erase(sweep)

    def _roots(self, connection: apsw.Connection, without: Collection[int] = ()) -> list[Row]:
        values = (self.tenant, self.tenant, _numbers(without))
        return _all(connection, "sqlite.gc.roots", values)

    def _reachable(self, connection: apsw.Connection, roots: list[Row]) -> tuple[set[bytes], bool]:
        def read(digests: Collection[bytes]) -> dict[bytes, bytes]:
            return _unpacked(_all(connection, "chunks.read", (self.tenant, _hex(digests))))

        return reachable((refs for (refs,) in roots), read)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        return iter([id_ for (id_,) in self._rows("checkpoints.ids", (self.tenant, self._clock()))])

    def total_bytes(self) -> int:
        return int(self._rows("chunks.total_bytes", (self.tenant,))[0][0])

    def close(self) -> None:
        self._file.close()

    def _rows(self, name: str, values: tuple[Any, ...]) -> list[Row]:
        return self._file.read(lambda connection: _all(connection, name, values))


def _all(connection: apsw.Connection, name: str, values: tuple[Any, ...]) -> list[Row]:
    # All rows at once: a cursor that is left half-way would hold on to its snapshot.
    return connection.execute(SQL[name], values).fetchall()


def _narrow(
    prefix: str,
    query: CheckpointQuery | SessionQuery,
    filters: tuple[tuple[str, type], ...],
    statement: list[str],
    values: list[Any],
) -> None:
    for field, kind in filters:
        value = getattr(query, field)
        if value is not None:
            check_filter(value, field, kind)
            statement.append(SQL[prefix + field])
            values.append(value.lower() if field in _CANONICAL else value)
    if query.metadata:
        statement.append(SQL[prefix + "metadata"])
        values.append(metadata_filter(query.metadata))


def _dumped(metadata: Mapping[str, Any] | None) -> str | None:
    return None if metadata is None else dump_document(metadata, "metadata")


def _write_record(row: Row) -> WriteRecord:
    values: Row = (*row[:5], Payload(*row[5:]))
    return WriteRecord(*values)


def _unpacked(found: list[Row]) -> dict[bytes, bytes]:
    plain = ((digest, unpack(codec, data)) for digest, codec, data in found)
    return {digest: data for digest, data in plain if data is not None}


def _hex(digests: Collection[bytes]) -> str:
    return '["' + '","'.join([digest.hex() for digest in digests]) + '"]'


def _texts(values: Collection[str], what: str = "id") -> str:
    for value in values:
        check_filter(value, what, str)
    return orjson.dumps(list(values)).decode()


def _numbers(values: Collection[int]) -> str:
    return orjson.dumps(list(values)).decode()
