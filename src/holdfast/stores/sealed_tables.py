"""Where sealed values stand in the tables, and how one is sealed again with the current key.

A rotation walks through the tables in batches, each one transaction: a row is read, opened with whatever key it
names, and sealed with the current one. What has the current key already is passed over, so a walk that was
killed is simply begun again. New rows have the current key from the start.

A row with a value that no key opens stays as it is and is named; the walk goes on. Its other values are
looked at all the same: as long as one of them opens with an old key, that key is still needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from holdfast.crypto.envelope import as_text, from_text, key_of
from holdfast.errors import EffectAltered, IntegrityError, SealBroken, WriteAltered
from holdfast.model import DamagedRow
from holdfast.state.codec import dump_document, load_document
from holdfast.state.document import SEALED_START
from holdfast.state.refs import RECORD_BYTES
from holdfast.stores.base import ASIDE
from holdfast.stores.rules import SEALED_MARK
from holdfast.stores.sealed_rows import MANIFEST_END, NAME, Seal
from holdfast.stores.sums import Sums

Row: TypeAlias = tuple[Any, ...]

_UNFIT: Final = "it is not as it was stored: it does not fit its sum"


class Change(Protocol):
    """What gives the sealed columns of a row anew, or None where nothing is to be changed.

    ``altered`` says that the row is not as it was stored, and has to stay what it is.
    """

    def __call__(self, row: Row, altered: IntegrityError | None = None) -> Row | None: ...


@dataclass(frozen=True, slots=True)
class Table:
    """A table with sealed columns: what orders and names its rows, what their places need, what is sealed."""

    name: str
    key: tuple[str, ...]
    beside: tuple[str, ...]
    sealed: tuple[str, ...]
    documents: frozenset[str] = frozenset()

    def parts(self, row: Row) -> tuple[Row, Row, Row]:
        """Return the key, what stands beside, and the sealed values of a row."""
        key, beside = len(self.key), len(self.key) + len(self.beside)
        return row[:key], row[key:beside], row[beside:]


AGENTS: Final = Table("agents", ("id",), (), ("metadata",), frozenset({"metadata"}))
SESSIONS: Final = Table(
    "sessions",
    ("id",),
    (),
    ("task_description", "pause_reason", "metadata"),
    frozenset({"metadata"}),
)
CHECKPOINTS: Final = Table(
    "session_checkpoints",
    ("id",),
    ("session_id",),
    ("description", "metadata", "manifest"),
    frozenset({"metadata"}),
)
WRITES: Final = Table(
    "checkpoint_writes",
    ("session_id", "namespace", "external_id", "task_id", "idx"),
    ("task_path", "channel", "refs"),
    ("manifest", "row_sum"),
)
EFFECTS: Final = Table(
    "effects",
    ("session_id", "key", "occurrence"),
    ("attempt_id", "status", "refs"),
    ("result", "error", "outcome_sum"),
    frozenset({"error"}),
)
LOGS: Final = Table(
    "session_logs", ("id",), ("session_id", "level"), ("message", "data"), frozenset({"data"})
)
CHUNKS: Final = Table("chunks", ("digest",), (), ("data",))
PACKS: Final = Table("workspace_packs", ("commit_id",), (), ("data",))
# One value for the whole tenant, which says that it is sealed.
SEAL: Final = Table("sealing", (), (), ("seal",))
# Checkpoints are not among them: those of a session are links of one chain and change together.
TABLES: Final = (AGENTS, SESSIONS, WRITES, EFFECTS, LOGS, CHUNKS, PACKS)


@dataclass(slots=True)
class _Noted:
    """What was found in one row: values of an old key, of a key that is not there, and damaged ones."""

    old: bool = False
    unopened: bool = False
    broken: list[IntegrityError] = field(default_factory=list)


class Resealing:
    """Seals the rows of a tenant again. ``keys`` counts the values that each key had sealed."""

    def __init__(self, seal: Seal, *, look_only: bool = False) -> None:
        self._seal = seal
        self._tenant = seal.tenant
        self.sums = Sums(seal.names.digest_row, seal.tenant)
        self.look_only = look_only
        self.keys: Counter[str] = Counter()
        # By their names: a batch whose transaction failed is looked at twice.
        self._damaged: dict[tuple[str, Row], DamagedRow] = {}
        self._row = _Noted()

    @property
    def damaged(self) -> tuple[DamagedRow, ...]:
        """The rows that an old key or none has, and that stay as they are since they are damaged."""
        return tuple(self._damaged.values())

    def change(self, table: Table) -> Change:
        """Return what changes the rows of a table."""
        rewrite = _REWRITES[table.name]

        def change(row: Row, altered: IntegrityError | None = None) -> Row | None:
            noted = self._row = _Noted()
            key, beside, values = table.parts(row)
            place = tuple(map(_plain, key))
            fresh = rewrite(self, place, beside, values)
            if altered is not None and noted.old:
                noted.broken.insert(0, altered)
            if noted.broken:
                self._damaged[table.name, place] = _damaged(table, place, noted.broken[0])
            stays = self.look_only or altered is not None or noted.unopened or noted.broken
            return fresh if noted.old and not stays else None

        return change

    def left(self, values: Row, why: IntegrityError) -> Row:
        """Let a row that does not fit its sum be: with a new one it would seem to be right."""
        if self._row.old:
            self._row.broken.append(why)
        return values

    # Each returns the same value sealed anew, for the same place or another one, and notes whether its
    # key was an old one. What is damaged is noted too, and comes back as it is: the row will stay.

    def data(self, stored: bytes, what: str, *place: str) -> bytes:
        """Seal an envelope of bytes anew."""
        with self._noting():
            return self._anew(stored, what, place, place)
        return stored

    def text(
        self, stored: str | None, what: str, *place: str, to: tuple[str, ...] = ()
    ) -> str | None:
        """Seal an envelope that is kept as text anew."""
        if stored is None:
            return None
        with self._noting():
            sealed = from_text(stored, what, self._tenant, *place)
            return as_text(self._anew(sealed, what, place, to or place))
        return stored

    def values(self, stored: str | None) -> dict[str, str]:
        """Return the envelopes of a document by key. What is no text was not sealed."""
        with self._noting():
            found = load_document(stored or "{}").items()
            return {key: value if isinstance(value, str) else "" for key, value in found}
        return {}

    def document(self, stored: str | None, what: str, *place: str) -> str | None:
        """Seal the values of a document anew."""
        if stored is None:
            return None
        found = self.values(stored).items()
        return dump_document({key: self.text(one, what, *place, key) for key, one in found}, what)

    def manifest(self, stored: str | None, what: str, *place: str) -> str | None:
        """Seal a manifest anew."""
        if stored is None:
            return None
        inside = stored[len(SEALED_START) : -len(MANIFEST_END)]
        sealed = inside if stored.startswith(SEALED_START) else ""
        return f"{SEALED_START}{self.text(sealed, what, *place)}{MANIFEST_END}"

    def _anew(self, stored: bytes, what: str, place: tuple[str, ...], to: tuple[str, ...]) -> bytes:
        key_id = key_of(stored, what, self._tenant, *place)
        if key_id == self._seal.current and to == place:
            self.keys[key_id] += 1
            return stored
        try:
            # Also to look only: what does not open needs no key, whatever it says of itself.
            opened = self._seal.envelopes.open(stored, what, self._tenant, *place)
        except SealBroken:
            if self._seal.knows(key_id):
                raise
            # Nobody can tell whether it is damaged until somebody brings the key.
            self.keys[key_id] += 1
            self._row.unopened = True
            return stored
        self.keys[key_id] += 1
        self._row.old = self._row.old or key_id != self._seal.current
        if self.look_only:
            return stored
        return self._seal.envelopes.seal(opened, what, self._tenant, *to)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            self._row.broken.append(error)


def _damaged(table: Table, key: Row, why: IntegrityError) -> DamagedRow:
    named = (part.hex() if isinstance(part, bytes) else part for part in key)
    row = dict(zip(table.key, named, strict=True))
    return DamagedRow(table.name, row, why.code, str(why))


def _plain(value: Any) -> Any:
    """Return a key as places have it; PostgreSQL has UUIDs of its own kind."""
    return value if isinstance(value, (str, int, bytes)) else str(value)


def _agent(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    return (again.document(values[0], "metadata", "agent", *key),)


def _session(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    task, reason, metadata = values
    stored = again.values(metadata)
    mark = again.text(stored.pop(SEALED_MARK, ""), "mark", *key)
    fresh = {name: again.text(value, "metadata", *key, name) for name, value in stored.items()}
    return (
        again.text(task, "task", *key),
        again.text(reason, "pause reason", *key),
        dump_document({**fresh, SEALED_MARK: mark}, "metadata"),
    )


def _checkpoint(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    description, metadata, manifest = values
    place = (*beside, *key)
    return (
        again.text(description, "description", *place),
        again.document(metadata, "metadata", *place),
        again.manifest(manifest, "state", *place),
    )


def _write(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    task_path, channel, refs = beside
    fresh = again.manifest(values[0], "write", *map(str, key), channel)

    def sum_of(manifest: Any) -> bytes:
        session_id, namespace, external_id, task_id, index = key
        place = (session_id, namespace, external_id, task_id, task_path, index)
        return again.sums.stored_write(*place, channel, manifest, refs)

    if sum_of(values[0]) != values[1]:
        return again.left(values, WriteAltered(_UNFIT))
    return fresh, sum_of(fresh)


def _effect(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    attempt_id, status, refs = beside
    session_id, effect_key, occurrence = key
    place = (session_id, effect_key, occurrence, str(attempt_id))
    bound = tuple(map(str, place))
    fresh = (
        again.manifest(values[0], "result", *bound),
        again.document(values[1], "error", *bound),
    )

    def sum_of(result: Any, error: Any) -> bytes:
        return again.sums.outcome(*place, status, result, refs, error)

    if sum_of(*values[:2]) != values[2]:
        return again.left(values, EffectAltered(_UNFIT))
    return *fresh, sum_of(*fresh)


def _log(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    message, data = values
    fresh = again.text(message, "log", *beside)
    if data is None:
        return fresh, None
    # Data are bound to the very message, sealed as it is: they change together.
    bound = {
        name: again.text(value, "log data", *beside, message, name, to=(*beside, str(fresh), name))
        for name, value in again.values(data).items()
    }
    return fresh, dump_document(bound, "log data")


def _chunk(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    stored = values[0]
    if key[0][:1] == ASIDE:
        return values  # damaged, and kept for whoever wants to look at it
    if stored[:1] == NAME and len(stored) % RECORD_BYTES == 0:
        return values  # an index chunk: nothing but names, which do not change
    return (again.data(stored, "chunk", key[0].hex()),)


def _pack(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    return (again.data(values[0], "pack", *key),)


def _seal(again: Resealing, key: Row, beside: Row, values: Row) -> Row:
    return (again.text(values[0], "seal"),)


_REWRITES: Final[dict[str, Callable[[Resealing, Row, Row, Row], Row]]] = {
    "agents": _agent,
    "sessions": _session,
    "session_checkpoints": _checkpoint,
    "checkpoint_writes": _write,
    "effects": _effect,
    "session_logs": _log,
    "chunks": _chunk,
    "workspace_packs": _pack,
    "sealing": _seal,
}
