"""A session on its way into a bundle, with the secrets taken out that its store has.

What was saved with redaction on has none, and goes as it is, to the byte. Only what changes is encoded
again; its chunks are kept here until they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from holdfast.bundle.content import Closure, read_checked
from holdfast.bundle.writing import Source
from holdfast.model import EffectRecord, Payload, SessionCopy, WriteCopy
from holdfast.redaction import Redactor
from holdfast.state import StateEncoder, decode_state
from holdfast.stores.base import Store


class ScreenedSource(Source):
    """A session of a store as a redactor lets it pass."""

    def __init__(
        self, store: Store, session_id: str, chosen: str | None, redactor: Redactor
    ) -> None:
        super().__init__(store, session_id, chosen)
        self._redactor = redactor
        self._encoder = StateEncoder(screen=redactor)
        self._fresh: dict[bytes, bytes] = {}
        self._changed: dict[str, Payload] = {}
        self.copy = self._screened_rows(self.copy)

    def payload(self, checkpoint_id: str) -> Payload:
        """Return the manifest and references of a checkpoint without its secrets."""
        if checkpoint_id not in self._changed:
            self._changed[checkpoint_id] = self._screened(super().payload(checkpoint_id))
        return self._changed[checkpoint_id]

    def chunks(self, references: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the chunks that references reach, each once."""
        closure = Closure(self._read)
        for refs in references:
            yield from read_checked(closure.add(refs), self._read)

    def _read(self, digests: Collection[bytes]) -> dict[bytes, bytes]:
        fresh = {one: self._fresh[one] for one in digests if one in self._fresh}
        rest = [one for one in digests if one not in fresh]
        return fresh | self._store.read_chunks(rest) if rest else fresh

    def _screened(self, payload: Payload) -> Payload:
        content = decode_state(payload, self._store.read_chunks, cache=self._store.cache)
        state, context = content.state, content.context
        parts: list[dict[str, Any]] = [state, context]
        if all(self._redactor.document(part) is part for part in parts):
            return payload
        encoded = self._encoder.encode(state, context or None)
        self._encoder.accept(encoded)
        self._fresh.update({digest: bytes(data) for digest, data in encoded.chunks.items()})
        return Payload(encoded.manifest, encoded.refs)

    def _screened_rows(self, copy: SessionCopy) -> SessionCopy:
        text, document = self._text, self._redactor.document
        return replace(
            copy,
            session=replace(
                copy.session,
                task_description=text(copy.session.task_description),
                pause_reason=text(copy.session.pause_reason),
                metadata=document(copy.session.metadata),
            ),
            agents=tuple(replace(one, metadata=document(one.metadata)) for one in copy.agents),
            checkpoints=tuple(
                replace(one, description=text(one.description), metadata=document(one.metadata))
                for one in copy.checkpoints
            ),
            writes=tuple(map(self._screened_write, copy.writes)),
            effects=tuple(map(self._screened_effect, copy.effects)),
            logs=tuple(
                replace(one, message=self._redactor.text(one.message), data=document(one.data))
                for one in copy.logs
            ),
        )

    def _screened_effect(self, one: EffectRecord) -> EffectRecord:
        payload = None if one.payload is None else self._screened(one.payload)
        return replace(one, payload=payload, error=self._redactor.document(one.error))

    def _screened_write(self, one: WriteCopy) -> WriteCopy:
        record = replace(one.record, payload=self._screened(one.record.payload))
        return replace(one, record=record)

    def _text(self, text: str | None) -> str | None:
        return None if text is None else self._redactor.text(text)
