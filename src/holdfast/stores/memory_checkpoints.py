"""Checkpoints in memory: the put with its trim, listings, payloads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, cast

from holdfast.errors import CheckpointExists, CheckpointNotFound, SessionNotFound
from holdfast.model import (
    CheckpointQuery,
    CheckpointRecord,
    NewCheckpoint,
    NewSession,
    Payload,
    PutResult,
    Trim,
)
from holdfast.stores.checks import (
    already_consumed,
    as_utc,
    check_checkpoint,
    check_filter,
    check_limit,
    check_session,
    checkpoint_keys,
    document_text,
    name_taken,
    nothing_to_consume,
    stale_writer,
)
from holdfast.stores.memory_sessions import MemorySessions
from holdfast.stores.memory_tables import (
    Checkpoint,
    Line,
    by_seq,
    checkpoint_record,
    has_prefix,
    has_values,
    own_bytes,
    visible,
    wanted_values,
)
from holdfast.stores.rules import lease_lost, next_label, session_completed

_EQUAL: Final = (
    "session_id",
    "namespace",
    "name",
    "label",
    "external_id",
    "checkpoint_type",
    "retention_class",
    "run_id",
    "version",
)
_KINDS: Final[Mapping[str, type]] = {
    "version": int,
    "resumable": bool,
    "quarantined": bool,
    "before_seq": int,
}
_FILTERS: Final = (
    *_EQUAL,
    "agent_id",
    "agent_prefix",
    "id",
    "id_prefix",
    "resumable",
    "quarantined",
    "before_seq",
)


class MemoryCheckpoints(MemorySessions):
    """Checkpoints of sessions."""

    def put(self, draft: NewCheckpoint) -> PutResult:
        draft = check_checkpoint(draft)
        brings = None if draft.session is None else check_session(draft.session)
        document = document_text(draft.metadata)
        created = None if draft.created_at is None else as_utc(draft.created_at, "created_at")
        expires = None if draft.expires_at is None else as_utc(draft.expires_at, "expires_at")
        with self._open():
            now = self._now()
            session = self._sessions.get(draft.session_id)
            if session is None and brings is None:
                raise SessionNotFound(f"no session has the id {draft.session_id!r}")
            ends = False if session is None else self._check_fence(session, draft.fence)
            if session is None and draft.fence is not None:
                raise lease_lost(draft.session_id)
            stored = self._checkpoints.get(draft.id)
            if stored is not None:
                if stored.record.session_id != draft.session_id:
                    raise CheckpointExists(f"the id {draft.id} belongs to another session")
                present = checkpoint_record(stored)
                return PutResult(lambda: present, created=False)
            if session is not None and session.record.status == "completed":
                raise session_completed(draft.session_id)
            line = None if session is None else session.lines.get(draft.namespace)
            consumed = None if draft.consumes is None else self._consumable(draft, now)
            seq = _place_kept(line, draft, now)
            if draft.follows is not None and seq is None and draft.follows != _followed(line, now):
                raise stale_writer(draft)
            if draft.pack_required:
                self._require_packs([cast("str", draft.workspace_commit)])
            self._require_chunks(draft.expects, draft.chunks)
            replaced = [] if line is None else _replaced(line, draft, now)
            if session is None:
                session = self._insert_session(cast("NewSession", brings))
            if ends:
                self._end_lease(session)
            for checkpoint in replaced:
                self._forget(checkpoint)
            label = draft.label
            if label is not None and line is not None and label in line.by_label:
                label = next_label(label, line.by_label)
            parent_id = draft.parent_id
            if draft.parent_is_newest:
                newest = _newest(line, now)
                parent_id = None if newest is None else newest.id
            payload = Payload(draft.manifest, draft.refs)
            record = CheckpointRecord(
                id=draft.id,
                session_id=draft.session_id,
                agent_id=session.record.agent_id,
                namespace=draft.namespace,
                seq=self._next_seq() if seq is None else seq,
                external_id=draft.external_id,
                parent_id=parent_id,
                name=draft.name,
                label=label,
                description=draft.description,
                checkpoint_type=draft.checkpoint_type,
                retention_class=draft.retention_class,
                run_id=draft.run_id,
                version=draft.version,
                size_bytes=draft.size_bytes,
                stored_bytes=own_bytes(payload) + self._add_chunks(draft.chunks),
                git_branch=draft.git_branch,
                git_commit=draft.git_commit,
                git_uncommitted=draft.git_uncommitted,
                workspace_commit=draft.workspace_commit,
                resumable=draft.resumable,
                pinned=draft.pinned,
                expires_at=expires,
                metadata=None,
                created_at=created or now,
                restored_at=None,
            )
            checkpoint = Checkpoint(record, document, payload)
            if consumed is not None:
                consumed.consumed_at = now
            session.record = replace(session.record, updated_at=now)
            line = self._remember(session, checkpoint)
            removed = _trimmed(line, record, draft.trim, now)
            for old in removed:
                self._forget(old)
            gone = tuple(old.record.id for old in (*replaced, *removed))
            made = checkpoint_record(checkpoint)
            return PutResult(lambda: made, created=True, removed=gone)

    def _consumable(self, draft: NewCheckpoint, now: datetime) -> Checkpoint:
        """Return the checkpoint that the draft consumes, if it may."""
        found = self._checkpoints.get(draft.consumes or "")
        line = (draft.session_id, draft.namespace)
        if (
            found is None
            or (found.record.session_id, found.record.namespace) != line
            or not visible(found.record, now)
        ):
            raise nothing_to_consume(draft)
        if found.consumed_at is not None:
            raise already_consumed(draft)
        return found

    def list_checkpoints(self, query: CheckpointQuery) -> list[CheckpointRecord]:
        given = []
        for name in _FILTERS:
            value = getattr(query, name)
            if value is not None:
                check_filter(value, name, _KINDS.get(name, str))
                given.append((name, value))
        equal = [(name, value) for name, value in given if name in _EQUAL]
        wanted = wanted_values(query.metadata)
        limit = check_limit(query.limit)

        def fits(checkpoint: Checkpoint) -> bool:
            record = checkpoint.record
            return (
                all(getattr(record, name) == value for name, value in equal)
                and (query.agent_id is None or record.agent_id == query.agent_id.lower())
                and has_prefix(record.agent_id, query.agent_prefix)
                and (query.id is None or record.id == query.id.lower())
                and (query.id_prefix is None or record.id.startswith(query.id_prefix))
                and (query.before_seq is None or record.seq < query.before_seq)
                and query.resumable in (None, _is_resumable(checkpoint))
                and query.quarantined in (None, checkpoint.quarantined_at is not None)
                and visible(record, now)
                and has_values(checkpoint.document, wanted)
            )

        with self._open():
            now = self._now()
            found = filter(fits, self._candidates(query))
            return [checkpoint_record(checkpoint) for checkpoint in islice(found, limit)]

    def _candidates(self, query: CheckpointQuery) -> Iterator[Checkpoint]:
        """Return what may fit, newest first, found as directly as the query allows."""
        if query.id is not None:
            one = self._checkpoints.get(query.id.lower())
            return iter(() if one is None else (one,))
        if query.session_id is None:
            return iter(sorted(self._checkpoints.values(), key=by_seq, reverse=True))
        session = self._sessions.get(query.session_id)
        if session is None:
            return iter(())
        lines = (
            session.lines.values()
            if query.namespace is None
            else filter(None, (session.lines.get(query.namespace),))
        )
        several = [line.stored for line in lines]
        if len(several) == 1:
            return reversed(several[0])
        return iter(sorted((one for line in several for one in line), key=by_seq, reverse=True))

    def latest_of_agent(self, agent_id: str) -> CheckpointRecord | None:
        check_filter(agent_id, "agent id", str)
        with self._open():
            agent = self._agents.get(agent_id.lower())
            now = self._now()
            for _, id_ in reversed(agent.timeline) if agent is not None else ():
                checkpoint = self._checkpoints[id_]
                if visible(checkpoint.record, now) and checkpoint.quarantined_at is None:
                    return checkpoint_record(checkpoint)
            return None

    def _visible_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        check_filter(checkpoint_id, "checkpoint id", str)
        found = self._checkpoints.get(checkpoint_id.lower())
        return found if found is not None and visible(found.record, self._now()) else None

    def read_payload(self, checkpoint_id: str, *, anyway: bool = False) -> Payload | None:
        with self._open():
            found = self._visible_checkpoint(checkpoint_id)
            if anyway and found is None:
                found = self._checkpoints.get(checkpoint_id.lower())
            return None if found is None else self._verified(found, quarantined=anyway)

    def read_payloads(self, checkpoint_ids: Collection[str]) -> dict[str, Payload]:
        with self._open():
            found = {key: self._visible_checkpoint(key) for key in checkpoint_keys(checkpoint_ids)}
            return {id_: self._verified(one) for id_, one in found.items() if one is not None}

    def read_newest(self, query: CheckpointQuery) -> tuple[CheckpointRecord, Payload] | None:
        with self._open():
            for record in self.list_checkpoints(replace(query, limit=1)):
                return record, self._verified(self._checkpoints[record.id])
            return None

    def quarantine(self, checkpoint_ids: Collection[str], *, lift: bool = False) -> set[str]:
        keys = set(checkpoint_keys(checkpoint_ids))
        with self._open():
            changed = set()
            for id_ in keys & self._checkpoints.keys():
                found = self._checkpoints[id_]
                if (found.quarantined_at is not None) == lift:
                    found.quarantined_at = None if lift else self._now()
                    changed.add(id_)
            return changed

    def mark_restored(self, checkpoint_id: str, *, fence: int | None = None) -> CheckpointRecord:
        with self._open():
            found = self._visible_checkpoint(checkpoint_id)
            if found is None:
                raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")
            self._fence_checkpoints([found], fence)
            found.record = replace(found.record, restored_at=self._now())
            return checkpoint_record(found)

    def mark_restoring(
        self, checkpoint_id: str, *, seconds: float, fence: int | None = None
    ) -> None:
        with self._open():
            found = self._visible_checkpoint(checkpoint_id)
            if found is None:
                raise CheckpointNotFound(f"no checkpoint has the id {checkpoint_id}")
            self._fence_checkpoints([found], fence)
            found.restoring_until = self._now() + timedelta(seconds=seconds)

    def delete_checkpoints(
        self,
        checkpoint_ids: Sequence[str],
        *,
        fence: int | None = None,
        beside: Collection[str] | None = None,
        newest_too: bool = False,
    ) -> int:
        keys = set(checkpoint_keys(checkpoint_ids))
        with self._open():
            found = keys & self._checkpoints.keys()
            if beside is not None:
                planned = {*found, *checkpoint_keys(beside)}
                found = self._still_to_go(found, planned, newest_too=newest_too)
            self._fence_checkpoints([self._checkpoints[id_] for id_ in found], fence)
            for checkpoint_id in found:
                going = self._checkpoints[checkpoint_id]
                self._forget(going)
                record = going.record
                writes = self._sessions[record.session_id].writes
                writes.pop((record.namespace, record.external_id or record.id), None)
            return len(found)

    def _still_to_go(self, going: set[str], planned: set[str], *, newest_too: bool) -> set[str]:
        now = self._now()
        changed = set()
        for place in {_place(self._checkpoints[id_]) for id_ in going}:
            session_id, namespace = place
            line = self._sessions[session_id].lines[namespace]
            present = [one for one in line.stored if visible(one.record, now)]
            good = (one for one in reversed(present) if _is_resumable(one) and not newest_too)
            parents = {one.record.parent_id for one in present if one.record.id not in planned}
            relied_on = [line.by_external_id.get(one) for one in parents if one is not None]
            if any(
                one is not None and one.record.id in going for one in (next(good, None), *relied_on)
            ):
                changed.add(place)
        found = [self._checkpoints[id_] for id_ in going]
        return {
            one.record.id
            for one in found
            if _place(one) not in changed and not _is_restoring(one, now)
        }

    def _fence_checkpoints(self, checkpoints: list[Checkpoint], fence: int | None) -> None:
        for session_id in {one.record.session_id for one in checkpoints}:
            self._fence(self._sessions[session_id], fence)

    def list_expired(self) -> list[CheckpointRecord]:
        with self._open():
            found = [checkpoint_record(one) for one in self._expired()]
            return sorted(found, key=lambda one: one.seq, reverse=True)

    def purge_expired(self) -> int:
        with self._open():
            expired = self._expired()
            for checkpoint in expired:
                self._forget(checkpoint)
            return len(expired)

    def _expired(self) -> list[Checkpoint]:
        now = self._now()
        return [one for one in self._checkpoints.values() if not visible(one.record, now)]

    def iter_checkpoint_ids(self) -> Iterator[str]:
        with self._open():
            now = self._now()
            found = sorted(self._checkpoints.values(), key=by_seq)
            return iter([one.record.id for one in found if visible(one.record, now)])


def _place_kept(line: Line | None, draft: NewCheckpoint, now: datetime) -> int | None:
    """Return the seq of the checkpoint whose external id the draft has: it is handed on."""
    if line is None or draft.external_id is None:
        return None
    found = line.by_external_id.get(draft.external_id)
    return found.record.seq if found is not None and visible(found.record, now) else None


def _replaced(line: Line, draft: NewCheckpoint, now: datetime) -> list[Checkpoint]:
    """Return what makes way for the draft, or raise."""
    replaced: list[Checkpoint] = []
    for column, found in (
        ("name", line.by_name.get(draft.name)),
        (
            "external_id",
            None if draft.external_id is None else line.by_external_id.get(draft.external_id),
        ),
    ):
        if found is None:
            continue
        # What has expired is gone for everybody who asks, so it stands in nobody's way.
        if visible(found.record, now) and not draft.replace:
            raise name_taken(draft, column)
        if found not in replaced:
            replaced.append(found)
    return replaced


def _newest(line: Line | None, now: datetime) -> CheckpointRecord | None:
    stored = reversed(line.stored if line is not None else ())
    return next((one.record for one in stored if visible(one.record, now)), None)


def _followed(line: Line | None, now: datetime) -> str:
    """Return the external id of the newest checkpoint, or nothing."""
    newest = _newest(line, now)
    return "" if newest is None else newest.external_id or newest.id


def _trimmed(line: Line, newest: CheckpointRecord, trim: Trim, now: datetime) -> list[Checkpoint]:
    """Return what a put removes, oldest first; see `Trim`."""
    if trim.keep is None and not trim.max_age:
        return []
    seen = 0
    resumable_seen = False
    going = []
    for checkpoint in reversed(line.stored):
        record = checkpoint.record
        if not visible(record, now):
            continue
        newest_resumable = _is_resumable(checkpoint) and not resumable_seen
        resumable_seen = resumable_seen or newest_resumable
        if record.pinned:
            continue
        spared = newest_resumable or _is_restoring(checkpoint, now)
        above_cap = False
        if trim.keep is not None and record.retention_class == newest.retention_class:
            seen += 1
            above_cap = seen > trim.keep
        age = trim.max_age.get(record.retention_class)
        past_age = age is not None and now - record.created_at > age
        if (above_cap or past_age) and not spared:
            going.append(checkpoint)
    return going[::-1]


def _place(checkpoint: Checkpoint) -> tuple[str, str]:
    return checkpoint.record.session_id, checkpoint.record.namespace


def _is_resumable(checkpoint: Checkpoint) -> bool:
    return checkpoint.record.resumable and checkpoint.quarantined_at is None


def _is_restoring(checkpoint: Checkpoint, now: datetime) -> bool:
    return checkpoint.restoring_until is not None and checkpoint.restoring_until > now
