"""A sealed store: any store, and a key without which what is in it cannot be read.

It stands around a store and looks like one: what goes in is sealed, what comes out is opened
(`holdfast.stores.sealed_rows`). So no backend knows of keys, and nothing above a store either: manifests,
references, digests and chunks are outside what they are anywhere.

That a tenant is sealed is written in the database itself, with a value that only its own keys open.
Whoever has another key, or none, is told so when the store is opened; and a store in which there is
plain text already is not sealed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.crypto.keys import Keys
from holdfast.errors import (
    AgentExists,
    CheckpointNotFound,
    IntegrityError,
    SessionNotFound,
    StoreBusy,
)
from holdfast.ids import new_id
from holdfast.model import (
    LEASE_TTL,
    AgentRecord,
    Buffer,
    Chain,
    CheckpointQuery,
    CheckpointRecord,
    EffectOutcome,
    EffectQuery,
    EffectRecord,
    GcReport,
    Lease,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    PackReport,
    Payload,
    PutResult,
    SessionCopy,
    SessionQuery,
    SessionRecord,
    SessionUsage,
    WorkspacePack,
    WriteCopy,
    WriteRecord,
    utc_now,
)
from holdfast.state.codec import dump_document
from holdfast.state.refs import digest_of, digests_in
from holdfast.stores.base import Store
from holdfast.stores.checks import (
    check_agent,
    check_checkpoint,
    check_effect,
    check_free_text,
    check_limit,
    check_log,
    check_outcome,
    check_pack,
    check_session,
    check_write,
)
from holdfast.stores.memory_tables import has_values, wanted_values
from holdfast.stores.sealed_rows import Seal

if TYPE_CHECKING:
    from holdfast.stores.sealed_tables import Change, Row, Table

_PAGE: Final = 500
_ATTEMPTS: Final = 5


class SealedStore(Store):
    """A store around ``inner`` that seals what it is given. Closing it closes that one."""

    keys: Keys

    def __init__(self, inner: Store, keys: Keys) -> None:
        self.inner = inner
        self.keys = keys
        self.tenant = inner.tenant
        self.url = inner.url
        self.rows = Seal(keys, inner.tenant)
        inner.row_digest = self.rows.names.digest_row
        self._agree()

    def _agree(self) -> None:
        """Find out that these are the keys of the store, or make them so if it is empty."""
        self.rows.check(
            self.inner.read_seal() or self.inner.write_seal(self.rows.proof()), self.url
        )

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Whether other machines read the same store."""
        return self.inner.shared

    @property
    def path(self) -> Path | None:
        """The file that the store is in, where it is one."""
        return getattr(self.inner, "path", None)

    @property
    def identity(self) -> tuple[Any, ...]:
        return self.inner.identity

    def read_seal(self) -> str | None:
        return self.inner.read_seal()

    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        return self.inner.write_seal(seal, instead_of=instead_of)

    def reseal(
        self, table: Table, change: Change, *, after: Row, limit: int
    ) -> tuple[Row | None, int]:
        return self.inner.reseal(table, change, after=after, limit=limit)

    def reseal_checkpoints(self, session_id: str, change: Change) -> int:
        return self.inner.reseal_checkpoints(session_id, change)

    # Agents ----------------------------------------------------------------------------------

    def create_agent(self, draft: NewAgent) -> AgentRecord:
        return self.rows.opened_agent(self.inner.create_agent(self.rows.agent(check_agent(draft))))

    def find_agent(self, agent_id: str) -> AgentRecord | None:
        found = self.inner.find_agent(agent_id)
        return None if found is None else self.rows.opened_agent(found)

    def list_agents(
        self, *, status: str | None = None, parent_id: str | None = None, limit: int | None = None
    ) -> list[AgentRecord]:
        found = self.inner.list_agents(status=status, parent_id=parent_id, limit=limit)
        return [self.rows.opened_agent(one) for one in found]

    def update_agent(
        self,
        agent_id: str,
        *,
        status: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRecord:
        sealed = self.rows.agent_metadata(metadata, agent_id.lower())
        return self.rows.opened_agent(
            self.inner.update_agent(agent_id, status=status, metadata=sealed)
        )

    # Sessions --------------------------------------------------------------------------------

    def create_session(self, draft: NewSession) -> SessionRecord:
        sealed = self.rows.session(check_session(draft))
        return self.rows.opened_session(self.inner.create_session(sealed))

    def find_session(self, session_id: str) -> SessionRecord | None:
        found = self.inner.find_session(session_id)
        return None if found is None else self.rows.opened_session(found)

    def list_sessions(self, query: SessionQuery = SessionQuery()) -> list[SessionRecord]:
        wanted = wanted_values(query.metadata)
        if wanted is None:
            return [self.rows.opened_session(one) for one in self.inner.list_sessions(query)]
        limit = check_limit(query.limit)
        listed = self.inner.list_sessions(replace(query, metadata={}, limit=None))
        opened = map(self.rows.opened_session, listed)
        return [one for one in opened if _has(one.metadata, wanted)][:limit]

    def update_session(
        self,
        session_id: str,
        *,
        status: str | None = None,
        expected: Collection[str] | None = None,
        resumed_at: datetime | None = None,
        paused_until: datetime | None = None,
        pause_reason: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        merge_metadata: Mapping[str, Any] | None = None,
        task_description: str | None = None,
        fence: int | None = None,
    ) -> SessionRecord:
        check_free_text(pause_reason, "pause reason")
        check_free_text(task_description, "task description")
        rows = self.rows
        if metadata is not None:
            metadata = rows.session_metadata(metadata, session_id)
        if merge_metadata is not None:
            merge_metadata = rows.session_metadata(merge_metadata, session_id)
        return rows.opened_session(
            self.inner.update_session(
                session_id,
                status=status,
                expected=expected,
                resumed_at=resumed_at,
                paused_until=paused_until,
                pause_reason=rows.text(pause_reason, "pause reason", session_id),
                metadata=metadata,
                merge_metadata=merge_metadata,
                task_description=rows.text(task_description, "task", session_id),
                fence=fence,
            )
        )

    def delete_session(self, session_id: str) -> bool:
        return self.inner.delete_session(session_id)

    def erase_threads(self, session_ids: Collection[str], *, namespace: str, agent_id: str) -> int:
        return self.inner.erase_threads(session_ids, namespace=namespace, agent_id=agent_id)

    def erase_tenant(self) -> int:
        return self.inner.erase_tenant()

    def leftovers(self) -> list[str]:
        return self.inner.leftovers()

    def copy_session(
        self,
        source_id: str,
        draft: NewSession,
        *,
        checkpoint_ids: Sequence[str] | None = None,
    ) -> SessionRecord:
        # What is bound to its session has to be sealed anew: the copy goes through here.
        draft = check_session(draft)
        for _ in range(_ATTEMPTS):
            if self._copy(source_id, draft, checkpoint_ids):
                break
        else:
            raise StoreBusy(
                f"session {source_id!r} lost checkpoints faster than they could be copied. Nothing "
                f"was copied: repeat it"
            )
        if draft.lease_owner is not None:
            self.acquire_lease(draft.id, draft.lease_owner, ttl=draft.lease_ttl)
        copied = self.find_session(draft.id)
        if copied is None:
            raise SessionNotFound(f"session {draft.id!r} was erased as soon as it was copied")
        return copied

    def _copy(
        self, source_id: str, draft: NewSession, checkpoint_ids: Sequence[str] | None
    ) -> bool:
        """Copy a session as it is now; false when it loses a checkpoint meanwhile."""
        source = self.read_session(source_id)
        if source is None:
            raise SessionNotFound(f"no session has the id {source_id!r}")
        chosen = None if checkpoint_ids is None else {found.lower() for found in checkpoint_ids}
        found = [one for one in source.checkpoints if chosen is None or one.id in chosen]
        if chosen is not None and len(found) < len(chosen):
            missing = chosen - {one.id for one in found}
            raise CheckpointNotFound(
                f"session {source_id!r} has no checkpoint {', '.join(sorted(missing))}"
            )
        payloads = self.read_payloads([one.id for one in found])
        if len(payloads) < len(found):
            return False
        ids = {one.id: new_id() for one in found}
        kept = {(one.namespace, one.external_id) for one in found}
        writes = [
            one
            for one in source.writes
            if chosen is None or (one.namespace, one.record.external_id) in kept
        ]
        refs = [payload.refs for payload in payloads.values()]
        refs += [one.record.payload.refs for one in writes]
        copy = SessionCopy(
            session=_new_record(draft),
            agents=self._agents_of(draft),
            checkpoints=tuple(_moved(one, draft, ids, payloads[one.id]) for one in found),
            consumed={ids[id_]: at for id_, at in source.consumed.items() if id_ in ids},
            writes=tuple(writes),
            effects=(),
            logs=(),
        )
        old = {id_: before for before, id_ in ids.items()}
        self.add_session(
            copy,
            lambda id_: payloads[old[id_]],
            indexes={},
            leaves={digest for packed in refs for digest, _ in digests_in(packed)},
        )
        return True

    def _agents_of(self, draft: NewSession) -> tuple[AgentRecord, ...]:
        """Return the agent of a session that is to be stored, and those above it, topmost first."""
        if draft.agent is not None and self.find_agent(draft.agent_id) is None:
            # Somebody else may be faster.
            with suppress(AgentExists):
                self.create_agent(draft.agent)
        found: list[AgentRecord] = []
        above: str | None = draft.agent_id
        while above is not None and (agent := self.find_agent(above)) is not None:
            found.append(agent)
            above = agent.parent_id
        return tuple(reversed(found))

    def mark_session(self, session_id: str) -> None:
        """Mark a session whose own row was lost and made again. It keeps nothing of its metadata."""
        if self.inner.find_session(session_id) is not None:
            marked = self.rows.session_metadata(None, session_id)
            self.inner.update_session(session_id, metadata=marked)

    def session_usage(self, session_ids: Sequence[str] | None = None) -> list[SessionUsage]:
        return self.inner.session_usage(session_ids)

    # Leases ----------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: str, owner: str, *, ttl: timedelta = LEASE_TTL, over: int | None = None
    ) -> Lease:
        return self.inner.acquire_lease(session_id, owner, ttl=ttl, over=over)

    def renew_leases(self, tokens: Mapping[str, int], *, ttl: timedelta = LEASE_TTL) -> set[str]:
        return self.inner.renew_leases(tokens, ttl=ttl)

    def release_lease(self, session_id: str, token: int) -> bool:
        return self.inner.release_lease(session_id, token)

    def list_leases(self, *, session_id: str | None = None) -> list[Lease]:
        return self.inner.list_leases(session_id=session_id)

    def interrupt_session(
        self,
        session_id: str,
        token: int,
        *,
        most: int,
        message: str,
        data: Mapping[str, Any] | None = None,
    ) -> SessionRecord | None:
        check_log("warning", message)
        message, data = self.rows.log(session_id, "warning", message, data)
        found = self.inner.interrupt_session(
            session_id, token, most=most, message=message, data=data
        )
        return None if found is None else self.rows.opened_session(found)

    # Checkpoints -----------------------------------------------------------------------------

    def put(self, draft: NewCheckpoint) -> PutResult:
        draft = check_checkpoint(draft)
        if draft.session is not None:
            draft = replace(draft, session=check_session(draft.session))
        result = self.inner.put(self.rows.checkpoint(draft))
        return replace(result, record=self.rows.opened_checkpoint(result.record))

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        wanted = wanted_values(query.metadata)
        if wanted is None:
            return [self.rows.opened_checkpoint(one) for one in self.inner.list_checkpoints(query)]
        limit = check_limit(query.limit)
        found: list[CheckpointRecord] = []
        query = replace(query, metadata={}, limit=_PAGE)
        while limit is None or len(found) < limit:
            page = self.inner.list_checkpoints(query)
            opened = map(self.rows.opened_checkpoint, page)
            found += [one for one in opened if _has(one.metadata, wanted)]
            if len(page) < _PAGE:
                break
            query = replace(query, before_seq=page[-1].seq)
        return found[:limit]

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        found = self.inner.latest_of_agent(agent_id)
        return None if found is None else self.rows.opened_checkpoint(found)

    def read_payload(self, checkpoint_id: str, *, anyway: bool = False) -> Payload | None:
        found = self.inner.read_payload(checkpoint_id, anyway=anyway)
        return None if found is None else self.rows.opened_state(found, checkpoint_id.lower())

    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        found = self.inner.read_payloads(checkpoint_ids)
        return {id_: self.rows.opened_state(one, id_.lower()) for id_, one in found.items()}

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
        spare_restoring: bool = False,
    ) -> int:
        return self.inner.delete_checkpoints(
            checkpoint_ids, fence=fence, spare_restoring=spare_restoring
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
        for write in writes:
            check_write(write)
        sealed = [self.rows.write(one, session.id, namespace, external_id) for one in writes]
        self.inner.put_writes(
            self.rows.session(session), namespace, external_id, sealed, fence=fence
        )

    def list_writes(
        self, session_id: str, namespace: str, external_ids: Collection[str]
    ) -> list[WriteRecord]:
        found = self.inner.list_writes(session_id, namespace, external_ids)
        return [self.rows.opened_write(one, session_id, namespace) for one in found]

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

    def pack_usage(self) -> PackReport:
        return self.inner.pack_usage()

    # Effects ---------------------------------------------------------------------------------

    def begin_effect(self, draft: NewEffect) -> EffectRecord:
        check_effect(draft)
        return self.rows.opened_effect(self.inner.begin_effect(self.rows.effect(draft)))

    def finish_effect(
        self,
        session_id: str,
        key: str,
        occurrence: int,
        attempt_id: str,
        outcome: EffectOutcome,
        *,
        fence: int | None = None,
    ) -> bool:
        check_outcome(outcome)
        key = self.rows.effect_key(key)
        sealed = self.rows.outcome(outcome, session_id, key, occurrence, attempt_id)
        return self.inner.finish_effect(
            session_id, key, occurrence, attempt_id, sealed, fence=fence
        )

    def list_effects(self, query: EffectQuery) -> list[EffectRecord]:
        if isinstance(query.key, str):
            query = replace(query, key=self.rows.effect_key(query.key))
        return [self.rows.opened_effect(one) for one in self.inner.list_effects(query)]

    # Logs ------------------------------------------------------------------------------------

    def append_log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None = None
    ) -> LogRecord:
        check_log(level, message)
        message, data = self.rows.log(session_id, level, message, data)
        return self.rows.opened_log(self.inner.append_log(session_id, level, message, data))

    def list_logs(
        self,
        session_id: str,
        *,
        level: str | None = None,
        key: str | None = None,
        newest: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[LogRecord]:
        found = self.inner.list_logs(
            session_id, level=level, key=key, newest=newest, limit=limit, offset=offset
        )
        return [self.rows.opened_log(one) for one in found]

    # From store to store ---------------------------------------------------------------------

    def read_session(self, session_id: str) -> SessionCopy | None:
        found = self.inner.read_session(session_id)
        if found is None:
            return None
        rows = self.rows
        return replace(
            found,
            session=rows.opened_session(found.session),
            agents=tuple(map(rows.opened_agent, found.agents)),
            checkpoints=tuple(map(rows.opened_checkpoint, found.checkpoints)),
            writes=tuple(
                replace(one, record=rows.opened_write(one.record, session_id, one.namespace))
                for one in found.writes
            ),
            effects=tuple(map(rows.opened_effect, found.effects)),
            logs=tuple(map(rows.opened_log, found.logs)),
        )

    def find_chunks(self, digests: Collection[bytes]) -> set[bytes]:
        names = {self.rows.name(digest): digest for digest in digests}
        return {names[name] for name in self.inner.find_chunks(names)}

    def stage_chunks(self, chunks: Mapping[bytes, Buffer]) -> None:
        self.inner.stage_chunks(self.rows.chunks(chunks))

    def add_session(
        self,
        copy: SessionCopy,
        payloads: Callable[[str], Payload],
        *,
        indexes: Mapping[bytes, Buffer],
        leaves: Collection[bytes],
        pack_required: bool = False,
    ) -> SessionRecord:
        rows, session_id = self.rows, copy.session.id
        sealed = replace(
            copy,
            session=rows.copied_session(copy.session),
            agents=tuple(map(rows.copied_agent, copy.agents)),
            checkpoints=tuple(map(rows.copied_checkpoint, copy.checkpoints)),
            writes=tuple(_sealed_write(rows, one, session_id) for one in copy.writes),
            effects=tuple(
                rows.copied_effect(replace(one, session_id=session_id)) for one in copy.effects
            ),
            logs=tuple(rows.copied_log(one, session_id) for one in copy.logs),
        )
        added = self.inner.add_session(
            sealed,
            lambda id_: rows.state(payloads(id_), session_id, id_),
            indexes=rows.chunks(indexes),
            leaves={rows.name(digest) for digest in leaves},
            pack_required=pack_required,
        )
        return rows.opened_session(added)

    # Upkeep ----------------------------------------------------------------------------------

    def purge_expired(self) -> int:
        return self.inner.purge_expired()

    def gc(self, *, dry_run: bool = False) -> GcReport:
        return self.inner.gc(dry_run=dry_run)

    def iter_checkpoint_ids(self) -> Iterator[str]:
        return self.inner.iter_checkpoint_ids()

    def iter_digests(self) -> Iterator[bytes]:
        return map(self.rows.digest, self.inner.iter_digests())

    def check_structure(self) -> list[str]:
        return self.inner.check_structure()

    def total_bytes(self) -> int:
        return self.inner.total_bytes()

    def back_up(self, target: Path) -> None:
        self.inner.back_up(target)

    def close(self) -> None:
        self.inner.close()


def _has(metadata: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    return metadata is not None and has_values(dump_document(metadata, "metadata"), wanted)


def _sealed_write(rows: Seal, copy: WriteCopy, session_id: str) -> WriteCopy:
    return replace(copy, record=rows.copied_write(copy.record, session_id, copy.namespace))


def _new_record(draft: NewSession) -> SessionRecord:
    now = utc_now()
    return SessionRecord(
        id=draft.id,
        agent_id=draft.agent_id,
        agent_type=draft.agent_type,
        task_description=draft.task_description,
        status="active",
        continues_id=draft.continues_id,
        forked_from=draft.forked_from,
        paused_at=None,
        paused_until=None,
        pause_reason=None,
        resumed_at=None,
        metadata=draft.metadata,
        created_at=now,
        updated_at=now,
        lease_owner=None,
        lease_token=0,
        lease_since=None,
        lease_expires_at=None,
        recoveries=0,
        project_dir=draft.project_dir,
    )


def _moved(
    one: CheckpointRecord, draft: NewSession, ids: Mapping[str, str], payload: Payload
) -> CheckpointRecord:
    """Return a checkpoint as the copied session has it."""
    parent = one.parent_id
    return replace(
        one,
        id=ids[one.id],
        session_id=draft.id,
        agent_id=draft.agent_id,
        parent_id=None if parent is None else ids.get(parent, parent),
        stored_bytes=len(payload.manifest.encode()) + len(payload.refs),
        restored_at=None,
    )
