"""Sessions on their way from or to another store, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from holdfast.errors import CheckpointExists, SessionExists
from holdfast.model import (
    AgentRecord,
    Buffer,
    EffectQuery,
    Payload,
    SessionCopy,
    SessionRecord,
    WriteCopy,
)
from holdfast.stores.checks import check_filter, document_text
from holdfast.stores.copy_checks import check_copied, check_copy
from holdfast.stores.memory_effects import MemoryEffects
from holdfast.stores.memory_tables import (
    Agent,
    Checkpoint,
    PendingWrite,
    RecordedEffect,
    Session,
    agent_record,
    by_seq,
    checkpoint_record,
    log_record,
    session_record,
    visible,
)
from holdfast.stores.rules import first_token, not_sealed
from holdfast.stores.sums import Sums, effect_row


class MemoryTransfer(MemoryEffects):
    """All rows of a session at once."""

    def read_session(
        self, session_id: str, *, checkpoint_ids: Collection[str] | None = None
    ) -> SessionCopy | None:
        check_filter(session_id, "session id", str)
        with self._open():
            session = self._sessions.get(session_id)
            if session is None:
                return None
            now = self._now()
            found = [
                checkpoint
                for line in session.lines.values()
                for checkpoint in line.stored
                if visible(checkpoint.record, now)
                and (checkpoint_ids is None or checkpoint.record.id in checkpoint_ids)
            ]
            found.sort(key=by_seq)
            return SessionCopy(
                session=session_record(session),
                agents=self._agents_above(session.record.agent_id),
                checkpoints=tuple(map(checkpoint_record, found)),
                consumed={
                    one.record.id: one.consumed_at for one in found if one.consumed_at is not None
                },
                writes=self._writes(session),
                effects=tuple(self.list_effects(EffectQuery(session_id))),
                logs=tuple(log_record(*line) for line in session.logs),
            )

    def _agents_above(self, agent_id: str) -> tuple[AgentRecord, ...]:
        found: list[AgentRecord] = []
        above: str | None = agent_id
        while above is not None:
            found.append(agent_record(self._agents[above]))
            above = found[-1].parent_id
        return tuple(reversed(found))

    def _writes(self, session: Session) -> tuple[WriteCopy, ...]:
        found = [
            WriteCopy(
                namespace,
                self._checked_write(session.record.id, namespace, one),
                one.created_at,
            )
            for (namespace, _), stored in session.writes.items()
            for one in stored.values()
        ]
        found.sort(
            key=lambda one: (
                one.namespace,
                one.record.external_id,
                one.record.task_path,
                one.record.task_id,
                one.record.index,
            )
        )
        return tuple(found)

    def read_seal(self) -> str | None:
        return self._seal

    def write_seal(self, seal: str, *, instead_of: str | None = None) -> str:
        with self._open():
            if self._seal is None and (self._agents or self._chunks or self._packs):
                raise not_sealed(self.url)
            if self._seal in (None, instead_of):
                self._seal = seal
            return self._seal or seal

    def find_chunks(self, digests: Collection[bytes]) -> set[bytes]:
        with self._open():
            return {digest for digest in digests if digest in self._chunks}

    def stage_chunks(self, chunks: Mapping[bytes, Buffer]) -> None:
        with self._open():
            self._add_chunks(chunks)

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
        with self._open():
            if copy.session.id in self._sessions:
                raise SessionExists(f"a session with the id {copy.session.id!r} exists already")
            for one in copy.checkpoints:
                if one.id in self._checkpoints:
                    raise CheckpointExists(f"the id {one.id} belongs to another session")
            self._require_chunks(list(leaves), indexes)
            if pack_required:
                commits = {one.workspace_commit for one in copy.checkpoints}
                self._require_packs([one for one in commits if one is not None])
            # All that can be refused is looked at before anything is changed.
            made = [
                Checkpoint(
                    replace(one, metadata=None),
                    document_text(one.metadata),
                    Payload(
                        (draft := check_copied(copy, one, payloads(one.id))).manifest, draft.refs
                    ),
                    copy.consumed.get(one.id),
                )
                for one in copy.checkpoints
            ]
            session = _unheld(copy, self.sums)
            agents = [
                Agent(replace(one, metadata=None), document_text(one.metadata))
                for one in copy.agents
            ]
            self._add_chunks(indexes)
            for agent in agents:
                self._agents.setdefault(agent.record.id, agent)
            self._sessions[copy.session.id] = session
            for checkpoint in made:
                checkpoint.record = replace(checkpoint.record, seq=self._next_seq())
                self._remember(session, checkpoint)
            for line in copy.logs:
                self._log_id += 1
                record = replace(line, id=self._log_id, session_id=copy.session.id, data=None)
                session.logs.append((record, document_text(line.data, "log data")))
            return session_record(session)


def _unheld(copy: SessionCopy, sums: Sums) -> Session:
    """Return the session that nobody holds, with its writes and effects."""
    record = replace(
        copy.session,
        metadata=None,
        lease_owner=None,
        lease_token=first_token(),
        lease_since=None,
        lease_expires_at=None,
    )
    session = Session(record, document_text(copy.session.metadata))
    for one in copy.writes:
        stored = session.writes.setdefault((one.namespace, one.record.external_id), {})
        row_sum = sums.write(record.id, one.namespace, one.record.external_id, one.record)
        stored[one.record.task_id, one.record.index] = PendingWrite(
            one.record, one.created_at, row_sum
        )
    for effect in copy.effects:
        kept = replace(effect, session_id=record.id, error=None)
        error = document_text(effect.error, "error")
        session.effects[effect.key, effect.occurrence] = RecordedEffect(
            kept, error, sums.effect(effect_row(kept, error))
        )
    return session
