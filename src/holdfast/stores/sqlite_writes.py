"""Pending writes in SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import apsw
import orjson

from holdfast.ids import check_external_id, check_namespace
from holdfast.model import NewSession, NewWrite, WritePlace, WriteRecord
from holdfast.stores.checks import (
    check_fence,
    check_place,
    check_session,
    check_write,
)
from holdfast.stores.sqlite_connection import SQL
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
        for write in writes:
            check_write(write)
        content = {digest: data for write in writes for digest, data in write.chunks.items()}
        expects = {digest for write in writes for digest in write.expects}
        chunks = self._packed(content)
        sums = [self.sums.write(session.id, namespace, external_id, write) for write in writes]

        def store(connection: apsw.Connection) -> None:
            self._lock_session(connection, session.id, session, fence)
            now = self._clock()
            self._add_chunks(connection, chunks)
            self._require_chunks(connection, expects)
            for write, row_sum in zip(writes, sums, strict=True):
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
                        row_sum,
                    ),
                )

        self._file.write(store)

    def read_writes(self, places: Collection[WritePlace]) -> dict[WritePlace, list[WriteRecord]]:
        wanted = orjson.dumps(list({check_place(place) for place in places})).decode()
        found: dict[WritePlace, list[WriteRecord]] = {}
        for row in self._rows("writes.read", (wanted, self.tenant)):
            session_id, namespace, external_id = row[:3]
            place = (session_id, namespace, external_id)
            found.setdefault(place, []).append(self.sums.check_write(row))
        return found

    def write_places(self) -> list[WritePlace]:
        found = self._rows("writes.places", (self.tenant,))
        return [
            (session_id, namespace, external_id) for session_id, namespace, external_id in found
        ]
