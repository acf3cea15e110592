"""Verification: does everything that is stored still say what was saved?

Plain verification reads every checkpoint and every effect back. The deep one also asks whether anything
was altered, taken out or put in: it re-derives every link of every session's hash chain, hashes chunks
that nothing needs at present, reads pending writes, and lets the database look at its own structures. It
acts on what it finds, without removing anything: a checkpoint that fails is in quarantine until it
verifies again, and a chunk with wrong bytes makes room for the right ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.errors import (
    AccessDenied,
    DigestMismatch,
    EffectAltered,
    IntegrityError,
    StoreError,
    StoreReadOnly,
    WriteAltered,
)
from holdfast.model import (
    Chain,
    CheckpointQuery,
    EffectQuery,
    EffectRecord,
    WriteRecord,
)
from holdfast.state import decode_state
from holdfast.state.cache import ChunkCache
from holdfast.state.refs import digest_text
from holdfast.stores.base import Store
from holdfast.stores.chain import breaks
from holdfast.stores.readable import SessionRows, find_unreadable, read_checkpoints

CHAIN_BROKEN: Final = "chain_broken"
STRUCTURE_DAMAGED: Final = "structure_damaged"
SCHEMA_INCOMPLETE: Final = "schema_incomplete"
# The files of a checkpoint are whole, and nothing keeps git from freeing them.
SNAPSHOT_UNHELD: Final = "snapshot_unheld"
_CHUNKS_AT_ONCE: Final = 200
NOT_READ: Final = "not everything was looked at: something of the schema is missing; holdfast doctor says what to do"
# Whoever may not write is told all the same.
_MAY_NOT_WRITE: Final = (StoreReadOnly, AccessDenied)


@dataclass(frozen=True, slots=True)
class Damage:
    """A checkpoint that cannot be restored, or an effect that cannot be replayed, and why.

    An effect has no ``checkpoint_id``; it is named by its session, key and occurrence. Deep verification finds
    more that belongs to no checkpoint: a broken chain has its session, a chunk its digest, and what
    is wrong with the database itself neither.
    """

    checkpoint_id: str | None
    code: str
    reason: str
    session_id: str | None = None
    effect_key: str | None = None
    occurrence: int | None = None
    chunk: str | None = None

    @property
    def kind(self) -> str:
        """What sort of thing is damaged: a checkpoint, an effect, a session, a chunk, the database."""
        if self.checkpoint_id is not None:
            return "checkpoint"
        if self.effect_key is not None:
            return "effect"
        if self.chunk is not None:
            return "chunk"
        return "database" if self.session_id is None else "session"

    @property
    def what(self) -> str:
        """What is damaged, for people."""
        if self.checkpoint_id is not None:
            return self.checkpoint_id
        if self.effect_key is not None:
            return f"effect {self.effect_key} of session {self.session_id}"
        if self.chunk is not None:
            return f"chunk {self.chunk}"
        return "the database" if self.session_id is None else f"session {self.session_id}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How many checkpoints and effects were read back in full, and what was found damaged.

    One thing may have several findings in ``damaged``: `damaged_checkpoints` and `damaged_besides` count
    the things. ``quarantined`` and ``released`` are the checkpoints for which deep verification changed that.
    ``notes`` say what could not be looked at, and why.
    """

    checked: int
    damaged: tuple[Damage, ...]
    effects: int = 0
    deep: bool = False
    sessions: int = 0
    chunks: int = 0
    quarantined: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every checkpoint can be restored, and every effect replayed, exactly.

        What could not be looked at is not known to be so.
        """
        return not self.damaged and not self.notes

    @property
    def damaged_checkpoints(self) -> int:
        """How many of the checkpoints cannot be restored exactly."""
        return len({one.checkpoint_id for one in self.damaged if one.checkpoint_id is not None})

    @property
    def damaged_besides(self) -> dict[str, int]:
        """How many other things are damaged, by their `Damage.kind`."""
        things = {
            replace(one, code="", reason="") for one in self.damaged if one.checkpoint_id is None
        }
        return dict(sorted(Counter(one.kind for one in things).items()))


def verify_store(
    store: Store, *, deep: bool = False, progress: Callable[[int], None] | None = None
) -> VerifyReport:
    """Decode every checkpoint and every result of the tenant; ``deep`` does all that is said above.

    ``progress`` is called with the count of checkpoints so far. What is removed while this runs is
    passed over.
    """
    verification = _Verification(store)
    if progress is not None:
        verification.progress = progress
    return verification.deep() if deep else verification.plain()


def verify_session(store: Store, rows: SessionRows) -> tuple[Damage, ...]:
    """Decode all that a session consists of, and derive its hash chain anew; return what is damaged."""
    verification = _Verification(store)
    verification.session(rows)
    return tuple(verification.damaged)


@dataclass(slots=True)
class _Verification:
    """One walk through a store."""

    store: Store
    progress: Callable[[int], None] = lambda _: None
    # What several checkpoints share is read and hashed for the first of them.
    cache: ChunkCache = field(default_factory=ChunkCache)
    damaged: list[Damage] = field(default_factory=list)
    good: list[str] = field(default_factory=list)
    checked: int = 0

    def plain(self) -> VerifyReport:
        self._checkpoints(self.store.iter_checkpoint_ids())
        self._unreadable_checkpoints()
        self._unreadable_sessions()
        effects = self._effects()
        return VerifyReport(self.checked, tuple(self.damaged), effects)

    def deep(self) -> VerifyReport:
        missing = self.store.check_schema()
        self.damaged += [
            Damage(None, SCHEMA_INCOMPLETE, f"the {one} is missing") for one in missing
        ]
        try:
            return self._all()
        except StoreError:
            if not missing:
                raise
            # It is what the rest needs.
            return VerifyReport(self.checked, tuple(self.damaged), deep=True, notes=(NOT_READ,))

    def _all(self) -> VerifyReport:
        for line in self.store.check_structure():
            self.damaged.append(Damage(None, STRUCTURE_DAMAGED, line))
        chunks = self._chunks()
        sessions = [one.session_id for one in self.store.session_usage()]
        for session_id in sessions:
            self._session(session_id)
        self._unreadable_sessions()
        self._strays()
        effects = self._effects()
        bad = {one.checkpoint_id for one in self.damaged if one.checkpoint_id is not None}
        quarantined: set[str] = set()
        released: set[str] = set()
        with suppress(*_MAY_NOT_WRITE):
            quarantined = self.store.quarantine(bad)
            released = self.store.quarantine(set(self.good) - bad, lift=True)
        return VerifyReport(
            self.checked,
            tuple(self.damaged),
            effects,
            deep=True,
            sessions=len(sessions),
            chunks=chunks,
            quarantined=tuple(sorted(quarantined)),
            released=tuple(sorted(released)),
        )

    def session(self, rows: SessionRows) -> None:
        session_id = rows.session_id
        try:
            chain = self.store.read_chain(session_id)
        except IntegrityError as error:
            self.damaged.append(Damage(None, error.code, str(error), session_id))
        else:
            if chain is not None:
                self._breaks(chain)
        self._checkpoints((one.id for one in rows.checkpoints), session_id)
        for namespace, write in rows.writes:
            self._write(write, session_id, namespace)
        for effect in rows.effects:
            self._effect(effect)

    def _breaks(self, chain: Chain) -> None:
        for checkpoint_id, reason in breaks(chain):
            place = reason if checkpoint_id is None else f"{reason} (seen at {checkpoint_id})"
            self.damaged.append(Damage(None, CHAIN_BROKEN, place, chain.session_id))

    def _checkpoints(self, checkpoint_ids: Iterator[str], session_id: str | None = None) -> None:
        for checkpoint_id in checkpoint_ids:
            try:
                payload = self.store.read_payload(checkpoint_id, anyway=True)
                if payload is None:
                    continue
                decode_state(payload, self.store.read_chunks, cache=self.cache)
                self.good.append(checkpoint_id)
            except IntegrityError as error:
                if self._is_gone(checkpoint_id):
                    continue
                self.damaged.append(Damage(checkpoint_id, error.code, str(error), session_id))
            self.checked += 1
            self.progress(self.checked)

    def _is_gone(self, checkpoint_id: str) -> bool:
        with suppress(IntegrityError):
            return self.store.read_payload(checkpoint_id, anyway=True) is None
        return False

    def _session(self, session_id: str) -> None:
        try:
            chain = self.store.read_chain(session_id)
        except IntegrityError as error:
            # Its checkpoints are looked at among the strays.
            self.damaged.append(Damage(None, error.code, str(error), session_id))
            return
        if chain is None:
            return
        self._breaks(chain)
        ids = [one.checkpoint_id for one in chain.links]
        self._checkpoints(iter([*ids, *chain.unlinked]), session_id)
        try:
            copy = self.store.read_session(session_id)
        except (EffectAltered, WriteAltered):
            # One that was altered hides none of the others. Effects are looked at later.
            self._writes_by_place(session_id)
            return
        except IntegrityError as error:
            self.damaged.append(Damage(None, error.code, str(error), session_id))
            return
        for write in () if copy is None else copy.writes:
            self._write(write.record, session_id, write.namespace)

    def _writes_by_place(self, session_id: str) -> None:
        for place in self.store.write_places():
            if place[0] != session_id:
                continue
            try:
                for record in self.store.read_writes([place]).get(place, ()):
                    self._write(record, *place[:2])
            except IntegrityError as error:
                self.damaged.append(Damage(None, error.code, str(error), session_id))

    def _unreadable_checkpoints(self) -> None:
        """Name the checkpoints whose content is whole, and which no listing can show."""
        told = {one.checkpoint_id for one in self.damaged}
        for checkpoint_id, error in read_checkpoints(self.store, CheckpointQuery())[1].items():
            if checkpoint_id not in told:
                self.damaged.append(Damage(checkpoint_id, error.code, str(error)))

    def _unreadable_sessions(self) -> None:
        """Name the sessions whose own rows cannot be read."""
        told = {one.session_id for one in self.damaged if one.kind == "session"}
        for session_id, error in find_unreadable(self.store).items():
            if session_id not in told:
                self.damaged.append(Damage(None, error.code, str(error), session_id))

    def _strays(self) -> None:
        """Look for checkpoints and pending writes whose session is not there, or has no chain."""
        seen = {*self.good, *(one.checkpoint_id for one in self.damaged)}
        for checkpoint_id in self.store.iter_checkpoint_ids():
            if checkpoint_id in seen:
                continue
            try:
                found = self.store.list_checkpoints(CheckpointQuery(id=checkpoint_id))
            except IntegrityError as error:
                self.damaged.append(Damage(checkpoint_id, error.code, str(error)))
                continue
            for one in found:
                self._checkpoints(iter([one.id]), one.session_id)
                # Asked last: one that is erased goes with its session.
                if not self._has_session(one.session_id) and not self._is_gone(one.id):
                    reason = f"its session {one.session_id!r} is not there"
                    self.damaged.append(Damage(one.id, CHAIN_BROKEN, reason, one.session_id))
        for session_id in sorted(self._writing_sessions()):
            if not self._has_session(session_id) and session_id in self._writing_sessions():
                reason = "it is not there, and there are pending writes of it"
                self.damaged.append(Damage(None, WriteAltered.code, reason, session_id))

    def _has_session(self, session_id: str) -> bool:
        return bool(self.store.session_usage([session_id]))

    def _writing_sessions(self) -> set[str]:
        return {place[0] for place in self.store.write_places()}

    def _write(self, record: WriteRecord, session_id: str, namespace: str) -> None:
        try:
            decode_state(record.payload, self.store.read_chunks, cache=self.cache)
        except IntegrityError as error:
            place = (session_id, namespace, [record.external_id])
            if record in self.store.list_writes(*place):
                reason = f"a pending write of task {record.task_id}: {error}"
                self.damaged.append(Damage(None, error.code, reason, session_id))

    def _chunks(self) -> int:
        """Hash every chunk. One with wrong bytes is set aside: what needs it shows up as damaged."""
        digests = list(self.store.iter_digests())
        for at in range(0, len(digests), _CHUNKS_AT_ONCE):
            batch = digests[at : at + _CHUNKS_AT_ONCE]
            for digest, stored in self.store.find_damaged_chunks(batch).items():
                try:
                    damaged = self.store.set_chunk_aside(digest, stored)
                except _MAY_NOT_WRITE:
                    damaged = True
                if damaged:
                    reason = "it has other bytes than its name says"
                    name = digest_text(digest)
                    self.damaged.append(Damage(None, DigestMismatch.code, reason, chunk=name))
        return len(digests)

    def _effects(self) -> int:
        try:
            found = self.store.list_effects(EffectQuery())
        except IntegrityError:
            # One that cannot be opened hides none of the others.
            return sum(self._effect_at(*place) for place in self.store.effect_places())
        return sum(map(self._effect, found))

    def _effect_at(self, session_id: str, key: str, occurrence: int) -> bool:
        place = (session_id, key, occurrence)
        try:
            return any(map(self._effect, self.store.list_effects(EffectQuery(*place))))
        except IntegrityError as error:
            self.damaged.append(Damage(None, error.code, str(error), *place))
            return True

    def _effect(self, record: EffectRecord) -> bool:
        """Read a result back; false when there is none, or no longer this one."""
        if record.payload is None:
            return False
        try:
            decode_state(record.payload, self.store.read_chunks, cache=self.cache)
        except IntegrityError as error:
            place = (record.session_id, record.key, record.occurrence)
            if self.store.list_effects(EffectQuery(*place)) != [record]:
                return False
            self.damaged.append(Damage(None, error.code, str(error), *place))
        return True
