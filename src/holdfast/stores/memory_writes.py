"""Pending writes in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final

from holdfast.ids import check_external_id, check_namespace
from holdfast.model import NewSession, NewWrite, Payload, WritePlace, WriteRecord
from holdfast.stores.checks import (
    check_fence,
    check_place,
    check_session,
    check_write,
)
from holdfast.stores.memory_sessions import MemorySessions
from holdfast.stores.memory_tables import PendingWrite
from holdfast.stores.rules import lease_lost


class MemoryWrites(MemorySessions):
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
        with self._open():
            brought = {digest for write in writes for digest in write.chunks}
            for write in writes:
                self._require_chunks(write.expects, brought)
            present = self._sessions.get(session.id)
            if present is None and fence is not None:
                raise lease_lost(session.id)
            ends = present is not None and self._check_fence(present, fence)
            owner = present or self._insert_session(session)
            if ends:
                self._end_lease(owner)
            now = self._now()
            stored = owner.writes.setdefault((namespace, external_id), {})
            for write in writes:
                self._add_chunks(write.chunks)
                key = (write.task_id, write.index)
                if write.replace or key not in stored:
                    payload = Payload(write.manifest, write.refs)
                    record = WriteRecord(
                        external_id,
                        write.task_id,
                        write.task_path,
                        write.index,
                        write.channel,
                        payload,
                    )
                    row_sum = self.sums.write(session.id, namespace, external_id, record)
                    stored[key] = PendingWrite(record, now, row_sum)

    def read_writes(self, places: Collection[WritePlace]) -> dict[WritePlace, list[WriteRecord]]:
        wanted = {check_place(place) for place in places}
        found: dict[WritePlace, list[WriteRecord]] = {}
        with self._open():
            for place in wanted:
                session = self._sessions.get(place[0])
                writes = {} if session is None else session.writes.get(place[1:], {})
                if writes:
                    checked = (self._checked_write(*place[:2], one) for one in writes.values())
                    found[place] = sorted(checked, key=_ORDER)
        return found

    def write_places(self) -> list[WritePlace]:
        with self._open():
            return [
                (session_id, *place)
                for session_id, session in sorted(self._sessions.items())
                for place in sorted(session.writes)
                if session.writes[place]
            ]


_ORDER: Final = attrgetter("task_path", "task_id", "index")
