"""Pending writes in SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import apsw
import orjson

from holdfast.ids import check_external_id, check_namespace
from holdfast.model import NewSession, NewWrite, Payload, WritePlace, WriteRecord
from holdfast.stores.checks import check_fence, check_place, check_session, check_write
from holdfast.stores.sqlite_file import SQL
from holdfast.stores.sqlite_rows import Row
from holdfast.stores.sqlite_sessions import SqliteSessions


class SqliteWrites(SqliteSessions):
    """Writes of tasks whose checkpoint may not be there yet."""

    def put_writes(
        self,
        session: NewSession,
        namespace: str,
        external_id: str,
        writes: Sequence[NewWrite],
        *,
        fence: int | None = None,
    ) -> None:
        session = check_session(session)
        check_namespace(namespace)
        check_external_id(external_id)
        check_fence(fence)
        packed = []
        for write in writes:
            check_write(write)
            packed.append(self._packed(write.chunks))

        def store(connection: apsw.Connection) -> None:
            self._lock_session(connection, session.id, session, fence)
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

    def read_writes(self, places: Collection[WritePlace]) -> dict[WritePlace, list[WriteRecord]]:
        wanted = orjson.dumps(list({check_place(place) for place in places})).decode()
        found: dict[WritePlace, list[WriteRecord]] = {}
        for session_id, namespace, *row in self._rows("writes.read", (wanted, self.tenant)):
            place = (session_id, namespace, row[0])
            found.setdefault(place, []).append(_write_record(tuple(row)))
        return found


def _write_record(row: Row) -> WriteRecord:
    values: Row = (*row[:5], Payload(*row[5:]))
    return WriteRecord(*values)
