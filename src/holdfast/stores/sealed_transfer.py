"""Sessions of a sealed store that become others: a fork, one for another store, one from there.

What is bound to one session does not open in another, so a copy is opened and sealed anew on its way. It
still shares its chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from holdfast.errors import (
    AgentExists,
    CheckpointNotFound,
    SessionExists,
    SessionNotFound,
    StoreBusy,
)
from holdfast.ids import new_id
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointRecord,
    NewSession,
    Payload,
    SessionCopy,
    SessionRecord,
    WriteCopy,
    utc_now,
)
from holdfast.state.refs import digests_in
from holdfast.stores.checks import check_free_text, check_session, checkpoint_keys
from holdfast.stores.copy_checks import check_copy
from holdfast.stores.rules import new_session_record
from holdfast.stores.sealed_checkpoints import SealedCheckpoints
from holdfast.stores.sealed_rows import Seal
from holdfast.stores.sealed_sessions import SealedSessions

_ATTEMPTS: Final = 5


class SealedTransfer(SealedSessions, SealedCheckpoints):
    """Whole sessions, opened or sealed row by row."""

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
        chosen = None if checkpoint_ids is None else set(checkpoint_keys(checkpoint_ids))
        source = self.read_session(source_id, checkpoint_ids=chosen)
        if source is None:
            raise SessionNotFound(f"no session has the id {source_id!r}")
        # Asked before its agent is stored, which nobody would remove.
        if self.find_session(draft.id) is not None:
            raise SessionExists(f"a session with the id {draft.id!r} exists already")
        found = source.checkpoints
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
            session=new_session_record(draft, utc_now()),
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

    def read_session(
        self, session_id: str, *, checkpoint_ids: Collection[str] | None = None
    ) -> SessionCopy | None:
        found = self.inner.read_session(session_id, checkpoint_ids=checkpoint_ids)
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
        check_copy(copy)
        for one in copy.checkpoints:
            check_free_text(one.description, "description")
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


def _sealed_write(rows: Seal, copy: WriteCopy, session_id: str) -> WriteCopy:
    return replace(copy, record=rows.copied_write(copy.record, session_id, copy.namespace))


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
