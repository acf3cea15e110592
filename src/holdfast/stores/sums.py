"""The sums of effects and pending writes: each row proves that it is what was stored, and where.

    begun    SHA-256(digest of place, attempt, name and fingerprint · number of the attempt)
    outcome  digest of place, attempt, status, result, references and error
    write    digest of place, task path, channel, manifest and references

A place is the tenant, the session and the rest of the key. So a row that was altered, or that stands
somewhere else, does not fit its sums, and whoever reads it is told. An effect has two of them because it
is written twice: who finishes one names its attempt and knows nothing else of how it began. PostgreSQL
counts attempts itself, which is why their number goes in last.

The digest is the store's `RowDigest`, as in the hash chain: where it is keyed, nobody without the key can
compute a sum. Times are in none of them, since the database may be the one that sets them. A row that
was taken out as a whole leaves nothing behind that could tell.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson

from holdfast.errors import EffectAltered, HoldfastError, WriteAltered
from holdfast.model import EffectRecord, NewWrite, Payload, WriteRecord
from holdfast.state.document import SEALED_START
from holdfast.stores.chain import RowDigest, plain_digest
from holdfast.stores.rules import key_required
from holdfast.stores.sqlite_rows import Row

# What a row that makes no sense at all does to those who compute its sums.
_NONSENSE: Final = (TypeError, ValueError, AttributeError)


class Sums:
    """The sums of one tenant's rows."""

    __slots__ = ("row_digest", "tenant")

    def __init__(self, row_digest: RowDigest, tenant: str) -> None:
        self.row_digest = row_digest
        self.tenant = tenant

    # Effects ---------------------------------------------------------------------------------

    def beginning(
        self,
        session_id: str,
        key: str,
        occurrence: int,
        attempt_id: str,
        name: str,
        fingerprint: bytes,
    ) -> bytes:
        """Return the digest of what an attempt says when it begins, for `begun_sum`."""
        head = ("begun", self.tenant, session_id, key, occurrence, attempt_id, name)
        return self.row_digest(orjson.dumps(head) + fingerprint)

    def outcome(
        self,
        session_id: str,
        key: str,
        occurrence: int,
        attempt_id: str,
        status: str,
        result: str | None,
        refs: bytes,
        error: str | None,
    ) -> bytes:
        """Return the sum of what came of an attempt, each as it is stored."""
        content = b"" if result is None else result.encode()
        size = None if result is None else len(content)
        said = None if error is None else _settled(error)
        tenant = self.tenant
        head = ("outcome", tenant, session_id, key, occurrence, attempt_id, status, size, said)
        return self.row_digest(orjson.dumps(head) + content + refs)

    def effect(self, row: Row) -> tuple[bytes, bytes]:
        """Return both sums of a row that begins with the columns of `effect_row`."""
        place = (row[0], row[1], row[2], str(row[6]))
        beginning = self.beginning(*place, row[3], row[4])
        return begun_sum(beginning, row[7]), self.outcome(*place, row[5], *row[8:11])

    def check_effect(self, row: Row, stored: Row) -> None:
        """Raise `EffectAltered` unless a row, as `effect` has it, fits the sums that stand beside it."""
        try:
            if self.effect(row) == stored:
                return
        except _NONSENSE:
            pass
        raise self._refusal(row[8]) or altered_effect(row)

    # Writes ----------------------------------------------------------------------------------

    def write(
        self, session_id: str, namespace: str, external_id: str, write: NewWrite | WriteRecord
    ) -> bytes:
        """Return the sum of a pending write."""
        content = write.payload if isinstance(write, WriteRecord) else write
        place = (session_id, namespace, external_id, write.task_id, write.task_path, write.index)
        return self.stored_write(*place, write.channel, content.manifest, content.refs)

    def stored_write(
        self,
        session_id: str,
        namespace: str,
        external_id: str,
        task_id: str,
        task_path: str,
        index: int,
        channel: str,
        manifest: str,
        refs: bytes,
    ) -> bytes:
        """Return the sum of a pending write from its columns."""
        content = manifest.encode()
        place = (self.tenant, session_id, namespace, external_id, task_id, index)
        head = ("write", *place, task_path, channel, len(content))
        return self.row_digest(orjson.dumps(head) + content + refs)

    def check_write(self, row: Row) -> WriteRecord:
        """Read a row with the columns of ``writes.read``. Raises `WriteAltered` unless it fits its sum."""
        *columns, stored = row
        try:
            if self.stored_write(*columns) == stored:
                values: Any = (*columns[2:7], Payload(*columns[7:]))
                return WriteRecord(*values)
        except _NONSENSE:
            pass
        raise self._refusal(row[7]) or altered_write(row)

    def _refusal(self, manifest: Any) -> HoldfastError | None:
        """Return what stands against reading a row that was written with a key that is not here."""
        sealed = isinstance(manifest, str) and manifest.startswith(SEALED_START)
        return key_required("the database") if sealed and self.row_digest is plain_digest else None


def effect_row(record: EffectRecord, error: str | None) -> Row:
    """Return an effect as the columns that its sums are of, with its error as it is stored."""
    payload = record.payload
    return (
        record.session_id,
        record.key,
        record.occurrence,
        record.name,
        record.fingerprint,
        record.status,
        record.attempt_id,
        record.attempts,
        None if payload is None else payload.manifest,
        b"" if payload is None else payload.refs,
        error,
    )


def begun_sum(beginning: bytes, attempts: int) -> bytes:
    """Return the sum of how an effect began."""
    return hashlib.sha256(beginning + str(attempts).encode()).digest()


def altered_effect(row: Row) -> EffectAltered:
    """Return the error of an effect's row that does not fit its sums."""
    lost = (
        " It is recorded as done, and its result is gone."
        if row[5] == "done" and not row[8]
        else ""
    )
    return EffectAltered(
        f"what is recorded of the step {row[3]!r} (key {row[1]!r}, use {row[2]} in session {row[0]!r}) is "
        f"not as it was stored: it was altered, or belongs to another step.{lost} Nothing was run and "
        f"nothing was changed; `holdfast verify` looks at all of them"
    )


def altered_write(row: Row) -> WriteAltered:
    """Return the error of a pending write's row that does not fit its sum."""
    return WriteAltered(
        f"the pending write {row[5]} of task {row[3]!r} to channel {row[6]!r}, for checkpoint {row[2]!r} of "
        f"session {row[0]!r}, is not as it was stored: it was altered, or belongs somewhere else. Nothing "
        f"was changed; `holdfast verify --deep` looks at all of them"
    )


def _settled(document: str) -> str:
    """Return a document as one text whatever database keeps it: JSONB has its own order and spaces."""
    return orjson.dumps(orjson.loads(document), option=orjson.OPT_SORT_KEYS).decode()
