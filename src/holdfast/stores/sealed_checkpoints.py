"""Checkpoints of a sealed store, and what they are made of: chunks, pending writes, workspace packs.

States are sealed and bound to their checkpoint. Chunks are shared, so they are bound to their hidden name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from holdfast.errors import IntegrityError
from holdfast.ids import check_external_id, check_namespace
from holdfast.model import (
    Chain,
    CheckpointQuery,
    CheckpointRecord,
    NewCheckpoint,
    NewSession,
    NewWrite,
    PackReport,
    Payload,
    PutResult,
    WorkspacePack,
    WritePlace,
    WriteRecord,
)
from holdfast.state.refs import digest_of
from holdfast.stores.checks import (
    check_checkpoint,
    check_limit,
    check_pack,
    check_session,
    check_write,
)
from holdfast.stores.memory_tables import wanted_values
from holdfast.stores.sealed_access import SealedAccess, has_metadata

_PAGE: Final = 500


class SealedCheckpoints(SealedAccess):
    """Save points and their content."""

    # Checkpoints -----------------------------------------------------------------------------

    def put(self, draft: NewCheckpoint) -> PutResult:
        draft = check_checkpoint(draft)
        if draft.session is not None:
            draft = replace(draft, session=check_session(draft.session))
        result = self.inner.put(self.rows.checkpoint(draft))
        return replace(result, read=lambda: self.rows.opened_checkpoint(result.record))

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        wanted = wanted_values(query.metadata)
        if wanted is None:
            return [self._listed(one) for one in self.inner.list_checkpoints(query)]
        limit = check_limit(query.limit)
        found: list[CheckpointRecord] = []
        query = replace(query, metadata={}, limit=_PAGE)
        while limit is None or len(found) < limit:
            page = self.inner.list_checkpoints(query)
            opened = map(self._listed, page)
            found += [one for one in opened if has_metadata(one.metadata, wanted)]
            if len(page) < _PAGE:
                break
            query = replace(query, before_seq=page[-1].seq)
        return found[:limit]

    def _listed(self, record: CheckpointRecord) -> CheckpointRecord:
        """Open a checkpoint. Of one in quarantine, what does not open is left out."""
        try:
            return self.rows.opened_checkpoint(record)
        except IntegrityError:
            # One that nobody uses does not keep anybody from the others.
            if not self.inner.list_checkpoints(CheckpointQuery(id=record.id, quarantined=True)):
                raise
            return replace(record, description=None, metadata=None)

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        found = self.inner.latest_of_agent(agent_id)
        return None if found is None else self.rows.opened_checkpoint(found)

    def read_payload(self, checkpoint_id: str, *, anyway: bool = False) -> Payload | None:
        found = self.inner.read_payload(checkpoint_id, anyway=anyway)
        return None if found is None else self.rows.opened_state(found, checkpoint_id.lower())

    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        found = self.inner.read_payloads(checkpoint_ids)
        return {id_: self.rows.opened_state(one, id_) for id_, one in found.items()}

    def read_newest(self, query: CheckpointQuery) -> tuple[CheckpointRecord, Payload] | None:
        if wanted_values(query.metadata) is not None:
            # What metadata says shows only when it is open.
            for one in self.list_checkpoints(replace(query, limit=_PAGE)):
                if (state := self.read_payload(one.id)) is not None:
                    return one, state
            return None
        found = self.inner.read_newest(query)
        if found is None:
            return None
        record, payload = found
        opened = self.rows.opened_state(payload, record.id)
        return self.rows.opened_checkpoint(record), opened

    def read_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        names = {self.rows.name(digest): digest for digest in digests}
        found = self.inner.read_chunks(names)
        return {names[name]: self.rows.opened_chunk(name, data) for name, data in found.items()}

    def find_damaged_chunks(self, digests: Collection[bytes]) -> dict[bytes, bytes | None]:
        names = {self.rows.name(digest): digest for digest in digests}
        found = self.inner.read_chunks(names)
        return {
            digest: found.get(name)
            for name, digest in names.items()
            if name not in found or not self._is_right(name, digest, found[name])
        }

    def _is_right(self, name: bytes, digest: bytes, stored: bytes) -> bool:
        try:
            return digest_of(self.rows.opened_chunk(name, stored)) == digest
        except IntegrityError:
            return False

    def set_chunk_aside(self, digest: bytes, stored: bytes | None) -> bool:
        return self.inner.set_chunk_aside(self.rows.name(digest), stored)

    def read_chain(self, session_id: str) -> Chain | None:
        return self.inner.read_chain(session_id)

    def quarantine(self, checkpoint_ids: Collection[str], *, lift: bool = False) -> set[str]:
        return self.inner.quarantine(checkpoint_ids, lift=lift)

    def mark_restored(self, checkpoint_id: str, *, fence: int | None = None) -> CheckpointRecord:
        return self.rows.opened_checkpoint(self.inner.mark_restored(checkpoint_id, fence=fence))

    def mark_restoring(
        self, checkpoint_id: str, *, seconds: float, fence: int | None = None
    ) -> None:
        self.inner.mark_restoring(checkpoint_id, seconds=seconds, fence=fence)

    def delete_checkpoints(
        self,
        checkpoint_ids: Sequence[str],
        *,
        fence: int | None = None,
        beside: Collection[str] | None = None,
        newest_too: bool = False,
    ) -> int:
        return self.inner.delete_checkpoints(
            checkpoint_ids, fence=fence, beside=beside, newest_too=newest_too
        )

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
        session = check_session(session)
        check_namespace(namespace)
        check_external_id(external_id)
        for write in writes:
            check_write(write)
        sealed = [self.rows.write(one, session.id, namespace, external_id) for one in writes]
        self.inner.put_writes(
            self.rows.session(session), namespace, external_id, sealed, fence=fence
        )

    def read_writes(self, places: Collection[WritePlace]) -> dict[WritePlace, list[WriteRecord]]:
        found = self.inner.read_writes(places)
        return {
            place: [self.rows.opened_write(one, *place[:2]) for one in writes]
            for place, writes in found.items()
        }

    def write_places(self) -> list[WritePlace]:
        return self.inner.write_places()

    # Workspace packs -------------------------------------------------------------------------

    def workspace_commits(self) -> set[str]:
        return self.inner.workspace_commits()

    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        check_pack(commit, needs, data)
        sealed = self.rows.pack(commit, data)
        return self.inner.put_pack(commit, needs=needs, data=sealed, replace=replace)

    def find_packs(self, commits: Collection[str]) -> set[str]:
        return self.inner.find_packs(commits)

    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        return map(self.rows.opened_pack, self.inner.read_packs(commit, have=have))

    def delete_packs(self, commits: Collection[str]) -> PackReport:
        return self.inner.delete_packs(commits)

    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        return self.inner.sweep_packs(dry_run=dry_run)

    def pack_needs(self) -> dict[str, tuple[str, ...]]:
        return self.inner.pack_needs()

    def pack_usage(self) -> PackReport:
        return self.inner.pack_usage()
