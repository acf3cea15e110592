"""What a sealed store keeps of each row, and how it comes back.

Content is sealed: states, results, texts and the values of documents. What a database has to find, order or
refer to stays open: ids, names, labels, times, statuses, sizes, the keys of documents. Each value is bound
to its place, so one that is moved to another tenant, session, row or field does not open; only lines of a
log, which get their number later, are bound to session and level. References
and chunks have hidden names (`holdfast.crypto.names`). An index chunk is nothing but names: it stays open,
and a sweep needs no key.

Every session has a mark among its metadata, which says that it was made with the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.crypto.envelope import Envelopes, as_text, from_text
from holdfast.crypto.keys import Keys
from holdfast.crypto.names import Names
from holdfast.errors import IntegrityError, SealBroken, StateNotSerializable, WrongKey
from holdfast.model import (
    AgentRecord,
    Buffer,
    CheckpointRecord,
    EffectOutcome,
    EffectRecord,
    LogRecord,
    NewAgent,
    NewCheckpoint,
    NewEffect,
    NewSession,
    NewWrite,
    Payload,
    SessionRecord,
    WorkspacePack,
    WriteRecord,
)
from holdfast.state.codec import dump_document, load_document
from holdfast.state.document import SEALED_START
from holdfast.state.refs import DIGEST_BYTES, MAX_LEVEL, RECORD_BYTES, SHA256
from holdfast.stores.compression import pack, unpack
from holdfast.stores.rules import SEALED_MARK

NAME: Final = b"\x4b"
"""The first byte of a hidden name, where a digest has the number of its algorithm."""

MANIFEST_END: Final = '"}'
_DERIVED_KEY: Final = re.compile("(.*#)([0-9a-f]{32})", re.DOTALL)
_KEPT: Final = b"1"
_ABSENT: Final = b"0"


class Seal:
    """Seals the rows of one tenant and opens them."""

    def __init__(self, keys: Keys, tenant: str) -> None:
        self.envelopes = Envelopes(keys)
        self.names = Names(keys.ring.names, tenant)
        self._keys = keys
        self.tenant = self._tenant = tenant

    # The store itself ------------------------------------------------------------------------

    @property
    def current(self) -> str:
        """The id of the key that seals."""
        return self._keys.ring.current

    def knows(self, key_id: str) -> bool:
        """Tell whether a key is in the ring."""
        return key_id in self._keys.ring.keys

    def proof(self) -> str:
        """Return what a database says of itself when it is sealed, and with which keys."""
        return as_text(self.seal(self.names.proof.encode(), "seal"))

    def check(self, proof: str, url: str) -> None:
        """Raise `WrongKey` unless these are the keys of the database that says so."""
        try:
            found = self.open(from_text(proof, "seal", self._tenant), "seal").decode()
        except IntegrityError as error:
            raise WrongKey(
                f"{url} is sealed, and none of the keys that were given is one of its own ({error}). "
                f"Nothing was changed: give the keys that it was sealed with"
            ) from None
        if found != self.names.proof:
            raise WrongKey(
                f"{url} is sealed with another entry 'names' than the one that was given, which never "
                f"changes. Nothing was changed: give the one that it was sealed with"
            )

    # Values ----------------------------------------------------------------------------------

    def seal(self, data: Buffer, what: str, *place: str) -> bytes:
        """Return bytes in an envelope, compressed where that helps."""
        codec, packed = pack(data)
        return self.envelopes.seal(bytes((codec,)) + packed, what, self._tenant, *place)

    def open(self, sealed: bytes, what: str, *place: str) -> bytes:
        """Return what `seal` was given. Raises `SealBroken` and `PlaintextRefused`."""
        packed = self.envelopes.open(sealed, what, self._tenant, *place)
        data = unpack(packed[0], packed[1:]) if packed else None
        if data is None:
            raise SealBroken(f"the {what} of {' '.join(place)} opens, but cannot be unpacked")
        return data

    def text(self, value: str | None, what: str, *place: str) -> str | None:
        """Return a text sealed, as a text."""
        return None if value is None else as_text(self.seal(value.encode(), what, *place))

    def opened_text(self, stored: str | None, what: str, *place: str) -> str | None:
        """Return what `text` was given."""
        if stored is None:
            return None
        return self.open(from_text(stored, what, self._tenant, *place), what, *place).decode()

    def document(
        self, document: Mapping[str, Any] | None, what: str, *place: str
    ) -> dict[str, Any] | None:
        """Return a document whose values are sealed one by one, so that it can be added to."""
        if document is None:
            return None
        if not isinstance(document, Mapping):
            dump_document(document, what)  # which refuses it
        return {
            key: self.text(dump_document({key: value}, what), what, *place, str(key))
            for key, value in document.items()
        }

    def opened_document(
        self, stored: Mapping[str, Any] | None, what: str, *place: str
    ) -> dict[str, Any] | None:
        """Return what `document` was given."""
        if stored is None:
            return None
        opened: dict[str, Any] = {}
        for key, value in stored.items():
            text = value if isinstance(value, str) else ""
            opened |= load_document(self.opened_text(text, what, *place, key) or "")
        return opened

    def manifest(self, manifest: str, what: str, *place: str) -> str:
        """Return a manifest sealed: a JSON document, as columns of manifests hold them."""
        return SEALED_START + as_text(self.seal(manifest.encode(), what, *place)) + MANIFEST_END

    def payload(self, payload: Payload, what: str, *place: str) -> Payload:
        """Return a manifest sealed and its references with hidden names."""
        return replace(
            payload,
            manifest=self.manifest(payload.manifest, what, *place),
            refs=self.hidden_refs(payload.refs),
        )

    def opened_payload(self, stored: Payload, what: str, *place: str) -> Payload:
        """Return what `payload` was given."""
        text = stored.manifest
        sealed = text.startswith(SEALED_START) and text.endswith(MANIFEST_END)
        inside = text[len(SEALED_START) : -len(MANIFEST_END)] if sealed else ""
        manifest = self.opened_text(inside, what, *place) or ""
        return replace(stored, manifest=manifest, refs=self.revealed_refs(stored.refs))

    # Names -----------------------------------------------------------------------------------

    def name(self, digest: bytes) -> bytes:
        """Return the name that a digest has in the store."""
        if digest[:1] != SHA256 or len(digest) != DIGEST_BYTES:
            return digest
        return NAME + self.names.hide(digest[1:])

    def digest(self, name: bytes) -> bytes:
        """Return the digest that a name stands for."""
        if name[:1] != NAME or len(name) != DIGEST_BYTES:
            return name
        return SHA256 + self.names.reveal(name[1:])

    def fingerprint(self, fingerprint: bytes) -> bytes:
        """Return the fingerprint of a step with a name for its digest; what follows that says nothing."""
        return self.name(fingerprint[:DIGEST_BYTES]) + fingerprint[DIGEST_BYTES:]

    def opened_fingerprint(self, stored: bytes) -> bytes:
        """Return what `fingerprint` was given."""
        return self.digest(stored[:DIGEST_BYTES]) + stored[DIGEST_BYTES:]

    def hidden_refs(self, refs: bytes) -> bytes:
        """Return packed references with names instead of digests."""
        return b"".join(
            self.name(refs[at : at + DIGEST_BYTES]) + refs[at + DIGEST_BYTES : at + RECORD_BYTES]
            for at in range(0, len(refs), RECORD_BYTES)
        )

    def revealed_refs(self, refs: bytes) -> bytes:
        """Return packed references with digests instead of names."""
        return b"".join(
            self.digest(refs[at : at + DIGEST_BYTES]) + refs[at + DIGEST_BYTES : at + RECORD_BYTES]
            for at in range(0, len(refs), RECORD_BYTES)
        )

    def effect_key(self, key: str) -> str:
        """Return an effect's key; one that ends in a digest of arguments ends in its name then."""
        if (found := _DERIVED_KEY.fullmatch(key)) is None:
            return key
        return found[1] + self.names.hide(bytes.fromhex(found[2])).hex()

    def opened_effect_key(self, key: str) -> str:
        """Return what `effect_key` was given."""
        if (found := _DERIVED_KEY.fullmatch(key)) is None:
            return key
        return found[1] + self.names.reveal(bytes.fromhex(found[2])).hex()

    # Chunks and packs ------------------------------------------------------------------------

    def chunks(self, chunks: Mapping[bytes, Buffer]) -> dict[bytes, Buffer]:
        """Return chunks as they are stored, by name."""
        return {
            (name := self.name(digest)): self._chunk(name, data) for digest, data in chunks.items()
        }

    def _chunk(self, name: bytes, data: Buffer) -> bytes:
        if is_index(data):
            return self.hidden_refs(bytes(data))
        return self.seal(data, "chunk", name.hex())

    def opened_chunk(self, name: bytes, stored: bytes) -> bytes:
        """Return the bytes of a chunk; the caller compares them with its digest."""
        if stored[:1] == NAME and len(stored) % RECORD_BYTES == 0:
            return self.revealed_refs(stored)
        return self.open(stored, "chunk", name.hex())

    def pack(self, commit: str, data: bytes) -> bytes:
        """Return a workspace pack sealed. Git has compressed it already."""
        return self.envelopes.seal(data, "pack", self._tenant, commit)

    def opened_pack(self, stored: WorkspacePack) -> WorkspacePack:
        """Return a workspace pack as it was put."""
        data = self.envelopes.open(stored.data, "pack", self._tenant, stored.commit)
        return replace(stored, data=data)

    # Agents and sessions ---------------------------------------------------------------------

    def agent(self, draft: NewAgent) -> NewAgent:
        """Seal an agent that is to be stored."""
        if draft.metadata is None:
            return draft
        return replace(draft, metadata=self.agent_metadata(draft.metadata, draft.id))

    def agent_metadata(self, metadata: Mapping[str, Any] | None, agent_id: str) -> Any:
        """Seal the metadata of an agent."""
        return self.document(metadata, "metadata", "agent", agent_id)

    def opened_agent(self, record: AgentRecord) -> AgentRecord:
        """Open a stored agent."""
        if record.metadata is None:
            return record
        opened = self.opened_document(record.metadata, "metadata", "agent", record.id)
        return replace(record, metadata=opened)

    def copied_agent(self, record: AgentRecord) -> AgentRecord:
        """Seal an agent that another store had."""
        return replace(record, metadata=self.agent_metadata(record.metadata, record.id))

    def session(self, draft: NewSession) -> NewSession:
        """Seal a session that is to be stored."""
        return replace(
            draft,
            task_description=self.text(draft.task_description, "task", draft.id),
            metadata=self.session_metadata(draft.metadata, draft.id),
            agent=None if draft.agent is None else self.agent(draft.agent),
        )

    def session_metadata(
        self, metadata: Mapping[str, Any] | None, session_id: str
    ) -> dict[str, Any]:
        """Seal the metadata of a session and set its mark, which also tells none from empty."""
        mark = self.seal(_ABSENT if metadata is None else _KEPT, "mark", session_id)
        sealed = self.document(metadata, "metadata", session_id) or {}
        if SEALED_MARK in sealed:
            raise StateNotSerializable(f"metadata.{SEALED_MARK}", "is reserved in a sealed store")
        return {**sealed, SEALED_MARK: as_text(mark)}

    def opened_session(self, record: SessionRecord) -> SessionRecord:
        """Open a stored session. One without its mark was not made with the key."""
        stored = dict(record.metadata or {})
        mark = stored.pop(SEALED_MARK, "")
        place = ("mark", self._tenant, record.id)
        sealed = from_text(mark if isinstance(mark, str) else "", *place)
        kept = self.open(sealed, "mark", record.id) == _KEPT
        metadata = self.opened_document(stored, "metadata", record.id)
        return replace(
            record,
            task_description=self.opened_text(record.task_description, "task", record.id),
            pause_reason=self.opened_text(record.pause_reason, "pause reason", record.id),
            metadata=metadata if kept or metadata else None,
        )

    def copied_session(self, record: SessionRecord) -> SessionRecord:
        """Seal a session that another store had."""
        return replace(
            record,
            task_description=self.text(record.task_description, "task", record.id),
            pause_reason=self.text(record.pause_reason, "pause reason", record.id),
            metadata=self.session_metadata(record.metadata, record.id),
        )

    # Checkpoints and writes ------------------------------------------------------------------

    def checkpoint(self, draft: NewCheckpoint) -> NewCheckpoint:
        """Seal a checkpoint that is to be stored, and the session that it brings."""
        place = (draft.session_id, draft.id)
        return replace(
            draft,
            manifest=self.manifest(draft.manifest, "state", *place),
            refs=self.hidden_refs(draft.refs),
            chunks=self.chunks(draft.chunks),
            expects=[self.name(digest) for digest in draft.expects],
            description=self.text(draft.description, "description", *place),
            metadata=self.document(draft.metadata, "metadata", *place),
            session=None if draft.session is None else self.session(draft.session),
        )

    def opened_checkpoint(self, record: CheckpointRecord) -> CheckpointRecord:
        """Open a stored checkpoint."""
        if record.description is None and record.metadata is None:
            return record
        place = (record.session_id, record.id)
        return replace(
            record,
            description=self.opened_text(record.description, "description", *place),
            metadata=self.opened_document(record.metadata, "metadata", *place),
        )

    def copied_checkpoint(self, record: CheckpointRecord) -> CheckpointRecord:
        """Seal a checkpoint that another store had."""
        place = (record.session_id, record.id)
        return replace(
            record,
            description=self.text(record.description, "description", *place),
            metadata=self.document(record.metadata, "metadata", *place),
        )

    def state(self, payload: Payload, session_id: str, checkpoint_id: str) -> Payload:
        """Seal a checkpoint's payload."""
        return self.payload(payload, "state", session_id, checkpoint_id)

    def payload_of(self, record: CheckpointRecord, stored: Payload) -> Payload:
        """Open the payload that was read with a record."""
        return self.opened_payload(stored, "state", record.session_id, record.id)

    def opened_state(self, stored: Payload, checkpoint_id: str) -> Payload:
        """Open a checkpoint's payload, which says of which session it was read."""
        return self.opened_payload(stored, "state", stored.session_id, checkpoint_id)

    def write(self, draft: NewWrite, session_id: str, namespace: str, external_id: str) -> NewWrite:
        """Seal a pending write that is to be stored."""
        place = _write_place(session_id, namespace, external_id, draft)
        return replace(
            draft,
            manifest=self.manifest(draft.manifest, "write", *place),
            refs=self.hidden_refs(draft.refs),
            chunks=self.chunks(draft.chunks),
            expects=[self.name(digest) for digest in draft.expects],
        )

    def copied_write(self, record: WriteRecord, session_id: str, namespace: str) -> WriteRecord:
        """Seal a pending write that another session or store had."""
        place = _write_place(session_id, namespace, record.external_id, record)
        return replace(record, payload=self.payload(record.payload, "write", *place))

    def opened_write(self, record: WriteRecord, session_id: str, namespace: str) -> WriteRecord:
        """Open a stored pending write."""
        place = _write_place(session_id, namespace, record.external_id, record)
        return replace(record, payload=self.opened_payload(record.payload, "write", *place))

    # Effects and logs ------------------------------------------------------------------------

    def effect(self, draft: NewEffect) -> NewEffect:
        """Seal an attempt at an effect that is to be recorded."""
        key = self.effect_key(draft.key)
        return replace(
            draft,
            key=key,
            fingerprint=self.fingerprint(draft.fingerprint),
            outcome=self.outcome(
                draft.outcome, draft.session_id, key, draft.occurrence, draft.attempt_id
            ),
        )

    def outcome(
        self, outcome: EffectOutcome, session_id: str, key: str, occurrence: int, attempt_id: str
    ) -> EffectOutcome:
        """Seal what came of an attempt; ``key`` is the one in the store."""
        place = (session_id, key, str(occurrence), attempt_id)
        sealed = outcome.manifest
        if sealed is not None:
            sealed = self.manifest(sealed, "result", *place)
        return replace(
            outcome,
            manifest=sealed,
            refs=self.hidden_refs(outcome.refs),
            chunks=self.chunks(outcome.chunks),
            error=self.document(outcome.error, "error", *place),
        )

    def opened_effect(self, record: EffectRecord) -> EffectRecord:
        """Open a recorded effect."""
        place = _effect_place(record)
        payload = record.payload
        if payload is not None:
            payload = self.opened_payload(payload, "result", *place)
        return replace(
            record,
            key=self.opened_effect_key(record.key),
            fingerprint=self.opened_fingerprint(record.fingerprint),
            payload=payload,
            error=self.opened_document(record.error, "error", *place),
        )

    def copied_effect(self, record: EffectRecord) -> EffectRecord:
        """Seal an effect that another store had."""
        hidden = replace(
            record,
            key=self.effect_key(record.key),
            fingerprint=self.fingerprint(record.fingerprint),
        )
        place = _effect_place(hidden)
        payload = record.payload
        if payload is not None:
            payload = self.payload(payload, "result", *place)
        return replace(hidden, payload=payload, error=self.document(record.error, "error", *place))

    def log(
        self, session_id: str, level: str, message: str, data: Mapping[str, Any] | None
    ) -> tuple[str, dict[str, Any] | None]:
        """Seal a line of a log; its data belong to its message and to no other."""
        sealed = self.text(message, "log", session_id, level) or ""
        return sealed, self.document(data, "log data", session_id, level, sealed)

    def opened_log(self, record: LogRecord) -> LogRecord:
        """Open a stored line of a log."""
        place = (record.session_id, record.level)
        return replace(
            record,
            message=self.opened_text(record.message, "log", *place) or "",
            data=self.opened_document(record.data, "log data", *place, record.message),
        )

    def copied_log(self, record: LogRecord, session_id: str) -> LogRecord:
        """Seal a line that another session or store had."""
        message, data = self.log(session_id, record.level, record.message, record.data)
        return replace(record, session_id=session_id, message=message, data=data)


def is_index(data: Buffer) -> bool:
    """Tell whether bytes have the form of an index chunk, which decides how they are stored.

    By form and not by what refers to them, so that the same bytes are always stored alike. Content
    that happens to have it keeps its digests hidden and shows its lengths.
    """
    size = len(data)
    if not size or size % RECORD_BYTES or data[0] != SHA256[0]:
        return False
    records = [bytes(data[at : at + RECORD_BYTES]) for at in range(0, size, RECORD_BYTES)]
    level = records[0][DIGEST_BYTES] >> 4
    return level < MAX_LEVEL and all(
        record[:1] == SHA256
        and record[DIGEST_BYTES] >> 4 == level
        and 0 < int.from_bytes(record[DIGEST_BYTES + 1 :], "big") < 1 << 32
        for record in records
    )


def _write_place(
    session_id: str, namespace: str, external_id: str, write: NewWrite | WriteRecord
) -> tuple[str, ...]:
    return (session_id, namespace, external_id, write.task_id, str(write.index), write.channel)


def _effect_place(record: EffectRecord) -> tuple[str, ...]:
    return (record.session_id, record.key, str(record.occurrence), record.attempt_id)
