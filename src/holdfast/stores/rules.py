"""Rules that every store keeps alike.

What a session begins as, final states, leases, the age of orphans, what a reference reaches, labels in one
second, the order of packs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from holdfast.errors import (
    CheckpointBusy,
    ForeignSession,
    IllegalTransition,
    InvalidIdentifier,
    KeyRequired,
    LeaseLost,
    PackMissing,
    SealRemoved,
    StateCorrupt,
    StoreNotSealed,
)
from holdfast.model import Lease, NewSession, SessionRecord, WorkspacePack
from holdfast.processes import Uptime, owner_name
from holdfast.state.refs import RECORD_BYTES, digests_in

FINAL_AGENT_STATUSES: Final = frozenset({"completed", "failed", "terminated"})
ORPHAN_AGE: Final = timedelta(days=1)
LONGEST_LEASE: Final = timedelta(hours=1)
# More than this many packs for one snapshot are damage or malice: snapshots are packed together long before.
MOST_PACKS: Final = 100_000
# What a session of a sealed store has among its metadata. The triggers know it too.
SEALED_MARK: Final = "$sealed"
_BATCH: Final = 500
# Leaves room to count in what JSON and every database hold exactly.
_FIRST_TOKEN_BYTES: Final = 5
_LABEL_NUMBER: Final = re.compile("[0-9]{1,10}")


def first_token() -> int:
    """Return what the tokens of a new session's lease begin at; they rise from there.

    It is drawn, so that whoever held an erased session does not hold the next one with the same id.
    """
    return int.from_bytes(os.urandom(_FIRST_TOKEN_BYTES))


def new_session_record(draft: NewSession, now: datetime) -> SessionRecord:
    """Return a session as it is when it is stored: active, and nobody holds it."""
    return SessionRecord(
        id=draft.id,
        agent_id=draft.agent_id,
        agent_type=draft.agent_type,
        task_description=draft.task_description,
        status="active",
        continues_id=draft.continues_id,
        forked_from=draft.forked_from,
        paused_at=None,
        paused_until=None,
        pause_reason=None,
        resumed_at=None,
        metadata=draft.metadata,
        created_at=now,
        updated_at=now,
        lease_owner=None,
        lease_token=first_token(),
        lease_since=None,
        lease_expires_at=None,
        recoveries=0,
        project_dir=draft.project_dir,
    )


def reachable(
    roots: Iterable[Any], read_chunks: Callable[[Collection[bytes]], dict[bytes, bytes]]
) -> tuple[set[bytes], bool]:
    """Return the digests that packed references reach, and whether all of them could be read.

    What lies below unreadable ones is unknown: nobody may remove chunks then.
    """
    live: set[bytes] = set()
    known = list(roots)
    packed = [refs for refs in known if isinstance(refs, bytes) and len(refs) % RECORD_BYTES == 0]
    whole = len(packed) == len(known)
    frontier = _enter(packed, live)
    while frontier:
        below: list[bytes] = []
        for at in range(0, len(frontier), _BATCH):
            batch = frontier[at : at + _BATCH]
            found = read_chunks(batch)
            whole = whole and len(found) == len(batch)
            below.extend(found.values())
        whole = whole and all(len(data) % RECORD_BYTES == 0 for data in below)
        frontier = _enter(below, live)
    return live, whole


def _enter(packed: Iterable[bytes], live: set[bytes]) -> list[bytes]:
    indexes = []
    for refs in packed:
        for digest, is_index in digests_in(refs):
            if digest not in live:
                live.add(digest)
                if is_index:
                    indexes.append(digest)
    return indexes


def sequence_behind(value: int | None, highest: int) -> Iterator[str]:
    """Say that the sequence which orders checkpoints stands below the highest place that is taken."""
    if type(highest) is int and (type(value) is not int or value < highest):
        stands = "is missing" if value is None else f"stands at {value!r}"
        yield (
            f"the sequence of checkpoints {stands}, and one has the place {highest}: what is saved next "
            "may not be the newest"
        )


def lease_clock(now: Uptime, ttl: timedelta) -> str:
    """Return when a lease expires, as a text: the boot and the second of it."""
    return f"{now.boot} {now.seconds + ttl.total_seconds():.6f}"


def lease_expired(clock: str | None, now: Uptime) -> bool:
    """Tell whether a lease has expired.

    One of another boot has: its holder did not survive. Where boots cannot be told apart, a moment
    that is further away than any lease lasts is of another boot too.
    """
    boot, _, seconds = (clock or "").rpartition(" ")
    if boot != now.boot:
        return True
    left = float(seconds) - now.seconds
    return left <= 0 or left > LONGEST_LEASE.total_seconds()


def lease_lost(session_id: str) -> LeaseLost:
    """Return the refusal of a writer whose token is not the session's any more."""
    return LeaseLost(
        f"session {session_id} was taken over by another worker. Nothing was written: resume it to "
        f"go on"
    )


def lease_busy(lease: Lease) -> CheckpointBusy:
    """Return the refusal of whoever does not hold a session that is held."""
    return CheckpointBusy(
        f"session {lease.session_id} is held by {owner_name(lease.owner)} since "
        f"{lease.since:%Y-%m-%d %H:%M:%S} UTC and until {lease.expires_at:%H:%M:%S} UTC. Nothing was "
        f"written: let its holder finish, or take it over with take_over=True (on the command line: "
        f"--take-over)",
        lease,
    )


def foreign_session(
    session_id: str,
    agent_type: str,
    advice: str = "Nothing was erased: do it where the session was made, or with `holdfast erase`",
) -> ForeignSession:
    """Return the refusal of an agent that would erase what is another's, or take it for its own."""
    return ForeignSession(
        f"session {session_id} belongs to another agent, of the type {agent_type}. {advice}"
    )


def session_completed(session_id: str) -> IllegalTransition:
    """Return the refusal of a change to a session that is final."""
    return IllegalTransition(
        f"session {session_id} is completed; fork it to go on. Nothing was stored"
    )


def refuse_change(
    session_id: str,
    present: str,
    token: int,
    *,
    status: str | None,
    expected: Collection[str] | None,
    fence: int | None,
) -> None:
    """Refuse an update of a session that is ``present``; of several reasons the first of these counts."""
    if fence is not None and token != fence:
        raise lease_lost(session_id)
    if expected is not None and present not in expected:
        raise IllegalTransition(
            f"session {session_id!r} is {present}, not {' or '.join(sorted(expected))}; it was not changed"
        )
    if status is not None and present == "completed" != status:
        raise session_completed(session_id)


def key_required(url: str) -> KeyRequired:
    """Return the refusal of whoever opens a sealed store without a key."""
    return KeyRequired(
        f"{url} is sealed. Nothing was read or changed: set HOLDFAST_KEY_FILE to the file with its keys, "
        f"or HOLDFAST_KEY to what is in it, and repeat this"
    )


def standing_seal(rows: Sequence[tuple[Any, ...]], url: str) -> str | None:
    """Return the seal of what a database says of it: none, or that there are sealed rows without one."""
    if not rows:
        return None
    if rows[0][0] is None:
        raise SealRemoved(
            f"{url} holds sealed checkpoints, but its seal, the row of the tenant in the table sealing, was removed. "
            f"Nothing was read or changed: put that row back from a copy of the database. Of a SQLite file "
            f"holdfast doctor --salvage NEW makes a new one with its seal, if its key is set"
        )
    return str(rows[0][0])


def not_sealed(url: str) -> StoreNotSealed:
    """Return the refusal of a key for a store that holds plain text."""
    return StoreNotSealed(
        f"{url} holds plain text, which a key cannot take back. Nothing was changed: copy it into a new "
        f"store, which is sealed from its first row (holdfast copy OLD NEW), or open it without a key"
    )


def next_label(label: str, taken: Iterable[str]) -> str:
    """Return the label with the number that follows the highest one taken, or 2."""
    numbers = (one[len(label) + 1 :] for one in taken if one.startswith(f"{label}-"))
    counted = [int(number) for number in numbers if _LABEL_NUMBER.fullmatch(number)]
    return f"{label}-{max(counted, default=1) + 1}"


def pack_missing(commit: str) -> PackMissing:
    """Return the refusal of what relies on a pack that is not stored."""
    return PackMissing(
        f"the workspace pack of commit {commit} is not stored. Nothing was stored: put that pack "
        f"and repeat it"
    )


def needs_in(rows: Iterable[Sequence[Any]]) -> dict[str, tuple[str, ...]]:
    """Return what packs need, by commit, from their first two columns. Raises `StateCorrupt`."""
    found = {}
    for commit, text, *_ in rows:
        try:
            needs = orjson.loads(text)
        except orjson.JSONDecodeError:
            needs = None
        if type(needs) is not list or not all(type(one) is str for one in (commit, *needs)):
            raise _odd_pack(commit, f"it needs {text!r:.80}")
        found[commit] = tuple(needs)
    return found


def pack_of(commit: str, needs: tuple[str, ...], data: Any) -> WorkspacePack:
    """Return a stored pack. Raises `StateCorrupt` for one whose content is none."""
    if not isinstance(data, bytes):
        raise _odd_pack(commit, "it is not made of bytes")
    return WorkspacePack(commit, needs, data)


def _odd_pack(commit: object, why: str) -> StateCorrupt:
    return StateCorrupt(
        f"the workspace pack of commit {commit} cannot be understood ({why}). Nothing was changed"
    )


def packs_below(commits: Iterable[str], needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the stored packs that some commits are made of."""
    found: set[str] = set()
    frontier = list(commits)
    while frontier:
        commit = frontier.pop()
        if commit in needs and commit not in found:
            found.add(commit)
            frontier.extend(needs[commit])
    return found


def unneeded_packs(
    candidates: Collection[str], needs: Mapping[str, Sequence[str]], snapshots: Iterable[str]
) -> set[str]:
    """Return the candidates that neither a snapshot nor any pack that stays is made of."""
    staying = (commit for commit in needs if commit not in candidates)
    return (needs.keys() & candidates) - packs_below([*snapshots, *staying], needs)


def refuse_pack_circle(
    commit: str, bases: Iterable[str], needs: Mapping[str, Sequence[str]]
) -> None:
    """Refuse a pack that would need itself through others: nobody could ever apply it."""
    if commit in packs_below(bases, needs):
        raise InvalidIdentifier(
            f"the pack of commit {commit} needs packs that need it. Nothing was stored"
        )


def pack_order(commit: str, needs: Mapping[str, Sequence[str]], have: Collection[str]) -> list[str]:
    """Return the packs that a commit is made of in the order in which they can be applied.

    Raises `PackMissing` for one that is not stored, and `StateCorrupt` for packs that need each
    other or are more than `MOST_PACKS`.
    """
    if len(needs) > MOST_PACKS:
        raise StateCorrupt(f"commit {commit} is made of more than {MOST_PACKS} packs")
    held = set(have)
    order: list[str] = []
    # A commit is entered once to look at its needs and once more when they are in the order.
    opened: set[str] = set()
    stack = [] if commit in held else [(commit, False)]
    while stack:
        one, ready = stack.pop()
        if ready:
            order.append(one)
            held.add(one)
            opened.discard(one)
        elif one not in held:
            if one in opened:
                raise StateCorrupt(
                    f"the workspace packs of commits {commit} and {one} need each other"
                )
            if one not in needs:
                raise PackMissing(
                    f"the workspace pack of commit {one} is not stored, and commit {commit} is made "
                    f"of it. Nothing was changed"
                )
            opened.add(one)
            stack.append((one, True))
            stack.extend((base, False) for base in reversed(needs[one]))
    return order
