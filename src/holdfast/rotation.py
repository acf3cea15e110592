"""Rotation: everything of a tenant is sealed again with the current key, beside running work.

    1. Put a new key in front of the ring; the old ones still open.
    2. Run this, as a role that may change all the tables: others are refused first. Each batch is one
       transaction. Killed at any point, it is simply run again: what has the current key is passed over, and
       what is damaged is named and left as it is.
    3. When no value of any tenant has an old key any more, take the old keys out of the ring.

A process that was started with the old ring goes on sealing with its old key until it meets a value of
the new one and reads the ring again. So look at step 3 once more when all of them have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from holdfast.errors import IntegrityError, InvalidConfiguration
from holdfast.model import KeyReport
from holdfast.stores.base import Store
from holdfast.stores.sealed import SealedStore
from holdfast.stores.sealed_tables import CHECKPOINTS, PACKS, SEAL, TABLES, Resealing, Row, Table

_BATCH: Final = 200


def count_keys(store: Store, *, progress: Callable[[int], None] | None = None) -> KeyReport:
    """Count the values that each key has sealed; nothing is changed.

    What an old key has sealed is opened: a value that does not open is damaged and needs no key.
    ``progress`` is called with the number of values looked at.
    """
    return _walk(store, look_only=True, progress=progress)


def rotate(store: Store, *, progress: Callable[[int], None] | None = None) -> KeyReport:
    """Seal everything again that another key than the current one has sealed.

    ``progress`` is called with the number of values looked at. A row that is damaged stays as it is and
    is named in the report. Whoever may not change one of the tables is refused before anything is changed;
    any other error has a note that says what an interrupted rotation has left.
    """
    sealed = _sealed(store)
    for table in (*TABLES, CHECKPOINTS):
        sealed.reseal(table, _unchanged, after=(), limit=1)
    try:
        return _walk(store, look_only=False, progress=progress)
    except BaseException as error:
        error.add_note(
            f"Batches before that stay done: values of tenant {store.tenant} may have the key "
            f"{sealed.keys.ring.current} already, and others still have an older one. Keep all keys of the ring, "
            f"and rotate again: it goes on where it was"
        )
        raise


def _unchanged(row: Row, altered: IntegrityError | None = None) -> None:
    """Change nothing: to ask for a row as one that is to be changed takes the right to do so."""


def _walk(store: Store, *, look_only: bool, progress: Callable[[int], None] | None) -> KeyReport:
    sealed = _sealed(store)
    again = Resealing(sealed.rows, look_only=look_only)
    changed = 0
    for count in _batches(sealed, again):
        changed += count
        if progress is not None:
            progress(again.keys.total())
    ring = sealed.keys.ring
    return KeyReport(
        sealed.tenant, ring.current, tuple(ring.keys), dict(again.keys), changed, again.damaged
    )


def _batches(sealed: SealedStore, again: Resealing) -> Iterator[int]:
    for table in TABLES:
        yield from _table(sealed, again, table)
    change = again.change(CHECKPOINTS)
    # Not by their rows, one of which may be damaged.
    for session in sealed.session_usage():
        yield sealed.reseal_checkpoints(session.session_id, change, look_only=again.look_only)
    # Last: as long as anything has an old key, that key is needed anyway.
    yield _seal(sealed, again)


def _table(sealed: SealedStore, again: Resealing, table: Table) -> Iterator[int]:
    change = again.change(table)
    # A pack may be as large as a project: one at a time is in memory.
    limit = 1 if table is PACKS else _BATCH
    after: tuple[Any, ...] | None = ()
    while after is not None:
        after, count = sealed.reseal(
            table, change, after=after, limit=limit, look_only=again.look_only
        )
        yield count


def _seal(sealed: SealedStore, again: Resealing) -> int:
    """The store's own seal: without the key that has it, the store is not opened at all."""
    standing = sealed.read_seal()
    fresh = None if standing is None else again.change(SEAL)((standing,))
    if fresh is None:
        return 0
    sealed.write_seal(fresh[0], instead_of=standing)
    return 1


def _sealed(store: Store) -> SealedStore:
    if not isinstance(store, SealedStore):
        raise InvalidConfiguration(
            f"{store.url} is not sealed, or there is no key: set HOLDFAST_KEY_FILE. Nothing was changed"
        )
    return store
