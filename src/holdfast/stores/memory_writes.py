"""Pending writes in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter

from holdfast.ids import check_external_id, check_namespace
from holdfast.model import NewSession, NewWrite, Payload, WriteRecord
from holdfast.stores.checks import check_fence, check_filter, check_session, check_write
from holdfast.stores.memory_sessions import MemorySessions
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
                    stored[key] = (record, now)

    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        for value in (session_id, namespace, *external_ids):
            check_filter(value, "filter", str)
        with self._open():
            session = self._sessions.get(session_id)
            writes = {} if session is None else session.writes
            found = [
                record
                for external_id in set(external_ids)
                for record, _ in writes.get((namespace, external_id), {}).values()
            ]
        return sorted(found, key=attrgetter("task_path", "task_id", "index", "external_id"))
