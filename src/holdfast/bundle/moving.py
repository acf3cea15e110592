"""From one place to another: content ahead, then all rows of a session at once.

Killed before the rows are in, there is nothing to be seen, and what was sent ahead is found and not sent
again. Killed after, the session is there, and whoever repeats it is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID, uuid5

from holdfast.bundle import rows
from holdfast.bundle.content import BATCH, Closure, payload_digest, read_checked
from holdfast.errors import CheckpointNotFound, ChunksMissing, DigestMismatch
from holdfast.ids import check_session_id
from holdfast.model import CheckpointRecord, Payload, SessionCopy, utc_now
from holdfast.state import decode_state
from holdfast.state.cache import ChunkCache
from holdfast.state.refs import ReadChunks
from holdfast.stores.base import Store

Progress: TypeAlias = Callable[[int, int], None]

_ATTEMPTS: Final = 5
# Under a new name, ids follow from the old ones: doing it again is the same session again.
_RENAMED: Final = UUID("5a3d4f0e-6f0c-5a56-9a7e-2f6f1f0a7c55")
_EMPTY: Final = Payload("", b"")


@dataclass(frozen=True, slots=True)
class Move:
    """A session on its way: its rows, and where its content can be read."""

    copy: SessionCopy
    payload: Callable[[str], Payload]
    states: Mapping[str, str]
    indexes: Mapping[bytes, bytes]
    leaves: Collection[bytes]
    read_chunks: ReadChunks


def move_from(store: Store, copy: SessionCopy) -> Move:
    """Return a session of a store, ready to go. Raises `CheckpointNotFound` if it loses one meanwhile."""
    closure = Closure(store.read_chunks)
    states = {}

    def payload(checkpoint_id: str) -> Payload:
        found = store.read_payload(checkpoint_id)
        if found is None:
            raise CheckpointNotFound(f"checkpoint {checkpoint_id} was removed meanwhile")
        return found

    for one in copy.checkpoints:
        found = payload(one.id)
        states[one.id] = payload_digest(found)
        closure.add(found.refs)
    for write in copy.writes:
        closure.add(write.record.payload.refs)
    for effect in copy.effects:
        if effect.payload is not None:
            closure.add(effect.payload.refs)
    leaves = closure.leaves.keys()
    return Move(copy, payload, states, closure.indexes, leaves, store.read_chunks)


def deliver(
    move: Move, target: Store, *, pack_required: bool, progress: Progress | None = None
) -> None:
    """Store a session that is not there yet, whole or not at all."""
    for attempt in range(1, _ATTEMPTS + 1):
        _send_content(move, target, progress)
        try:
            target.add_session(
                move.copy,
                move.payload,
                indexes=move.indexes,
                leaves=move.leaves,
                pack_required=pack_required,
            )
        except ChunksMissing:
            # A sweep came in between: nothing referred to them yet.
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def _send_content(move: Move, target: Store, progress: Progress | None) -> None:
    wanted = list(move.leaves)
    for at in range(0, len(wanted), BATCH):
        batch = wanted[at : at + BATCH]
        there = target.find_chunks(batch)
        missing = [digest for digest in batch if digest not in there]
        if missing:
            target.stage_chunks(dict(read_checked(missing, move.read_chunks)))
        if progress is not None:
            progress(min(at + BATCH, len(wanted)), len(wanted))


def verify_delivered(move: Move, target: Store, session_id: str) -> None:
    """Read a session back and compare every state with what was sent. Raises `DigestMismatch`."""
    cache = ChunkCache()
    for one in move.copy.checkpoints:
        payload = target.read_payload(one.id)
        if payload is None or payload_digest(payload) != move.states[one.id]:
            raise DigestMismatch(
                f"checkpoint {one.id} of session {session_id} is not in {target.url} as it was sent"
            )
        decode_state(payload, target.read_chunks, cache=cache)


def is_same(
    store: Store,
    copy: SessionCopy,
    states: Mapping[str, str],
    *,
    less: Callable[[SessionCopy, SessionCopy], SessionCopy] = lambda there, _: there,
) -> bool | None:
    """Tell whether a store has this very session; None when it has none of that id.

    ``less`` takes from what is there what does not make it another one than the copy.
    """
    there = store.read_session(copy.session.id)
    if there is None:
        return None
    there = less(there, copy)
    ids = [one.id for one in there.checkpoints]
    if ids != [one.id for one in copy.checkpoints] or list(_lines(there)) != list(_lines(copy)):
        return False
    stored = store.read_payloads(ids)
    return {id_: payload_digest(payload) for id_, payload in stored.items()} == {
        id_: states[id_] for id_ in ids
    }


def _lines(copy: SessionCopy) -> Iterator[bytes]:
    """Yield what makes a session what it is; agents may go on elsewhere."""
    yield rows.SESSIONS.write(copy.session)
    for one in copy.checkpoints:
        consumed_at = copy.consumed.get(one.id)
        yield rows.CHECKPOINTS.write(one, consumed_at=consumed_at, payload=_EMPTY)
    for write in copy.writes:
        yield rows.WRITES.write(
            write.record, namespace=write.namespace, created_at=write.created_at
        )
    yield from map(rows.EFFECTS.write, copy.effects)
    yield from map(rows.LOGS.write, copy.logs)


def without_expired(move: Move) -> Move:
    """Return a session without the checkpoints whose time is over."""
    now = utc_now()
    kept = tuple(
        one for one in move.copy.checkpoints if one.expires_at is None or one.expires_at > now
    )
    ids = {one.id for one in kept}
    consumed = {id_: at for id_, at in move.copy.consumed.items() if id_ in ids}
    return replace(move, copy=replace(move.copy, checkpoints=kept, consumed=consumed))


def settled(move: Move, place: str) -> Move:
    """Return a session of the project at ``place``, wherever it was before."""
    session = replace(move.copy.session, project_dir=place)
    return replace(move, copy=replace(move.copy, session=session))


def renamed(move: Move, session_id: str) -> Move:
    """Return the same session under another id; its checkpoints have ids of their own then."""
    check_session_id(session_id)
    copy = move.copy
    new = {one.id: _derived(session_id, one.id) for one in copy.checkpoints}
    old = {id_: before for before, id_ in new.items()}

    def moved(one: CheckpointRecord) -> CheckpointRecord:
        parent = one.parent_id
        return replace(
            one,
            id=new[one.id],
            session_id=session_id,
            parent_id=None if parent is None else new.get(parent, parent),
        )

    return replace(
        move,
        copy=replace(
            copy,
            session=replace(copy.session, id=session_id),
            checkpoints=tuple(map(moved, copy.checkpoints)),
            consumed={new[id_]: at for id_, at in copy.consumed.items()},
            effects=tuple(replace(one, session_id=session_id) for one in copy.effects),
            logs=tuple(replace(one, session_id=session_id) for one in copy.logs),
        ),
        payload=lambda id_: move.payload(old[id_]),
        states={new[id_]: digest for id_, digest in move.states.items() if id_ in new},
    )


def _derived(session_id: str, checkpoint_id: str) -> str:
    return str(uuid5(_RENAMED, f"{session_id}\0{checkpoint_id}"))
