"""Leases as a worker has them: taken, kept alive, given back.

Whoever works on a session holds its lease, and every write carries the lease's token, which the store
compares in the same transaction. Nothing here is needed for that to be safe: a worker that was paused,
cut off or mistaken for dead finds out at its next write. What is here keeps a lease from expiring while
its holder lives, and tells a dead holder from a live one where that can be known.

The owner of a lease is a process, unless another name was given. All managers of a process are therefore
one owner: they share the lease of a session, and the last one to let go gives it back; what nobody can
reach any more does not count. An owner named ``agent:<kind>:<id>`` stands for many short processes, so no
single one of them gives its lease back.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeAlias

from holdfast.errors import (
    CheckpointBusy,
    HoldfastError,
    InvalidIdentifier,
    LeaseLost,
    SessionNotHeld,
    StoreClosed,
)
from holdfast.ids import check_text
from holdfast.locks import new_lock
from holdfast.model import LEASE_TTL, Lease, SessionRecord
from holdfast.processes import (
    COMMAND,
    RUN,
    is_gone,
    is_running,
    own_name,
    owner_name,
    process_in,
)
from holdfast.stores import Store
from holdfast.stores.checks import check_lease_ttl

AGENT: Final = "agent:"
AGENT_PROCESS: Final = "agent_process"
"""The key in a session's metadata under which an agent whose hooks hold it names its own process."""
AGENT_SESSION: Final = "agent_session"
"""The key there for the agent's name and its own id of the conversation, with a colon between."""

_OWNER_BYTES: Final = 512
_BEATS_PER_LEASE: Final = 3
# Somebody else may be faster each time; then it is that one whom the last refusal names.
_ATTEMPTS: Final = 10
# So long one command waits for another that has the session, and so often it looks.
_PATIENCE: Final = 5.0
_LOOK: Final = 0.05
_STRIPES: Final = 64
_EXIT_SECONDS: Final = 5.0

_Key: TypeAlias = tuple[tuple[object, ...], str, str]


def check_owner(owner: str) -> str:
    """Validate the name of an owner that is no process."""
    check_text(owner, "lease owner", _OWNER_BYTES)
    if owner.startswith("process:"):
        raise InvalidIdentifier(f"an owner that is a process names itself: {owner!r}")
    return owner


def is_dead(owner: str) -> bool:
    """Tell whether an owner is a process of this machine that has surely ended."""
    process = process_in(owner)
    return process is not None and is_gone(process)


def is_alive(owner: str) -> bool:
    """Tell whether an owner is a process of this machine that surely lives."""
    process = process_in(owner)
    return process is not None and is_running(process)


class Hold:
    """A lease that this process has. ``fence`` is what each write carries."""

    __slots__ = (
        "__weakref__",
        "_key",
        "_leases",
        "_pid",
        "abandoned",
        "lost",
        "released",
        "session_id",
        "taken_from",
        "token",
    )

    def __init__(
        self, leases: Leases, key: _Key, token: int, taken_from: Lease | None = None
    ) -> None:
        self._leases = leases
        self._key = key
        self._pid = os.getpid()
        self.session_id = key[1]
        self.token = token
        self.taken_from = taken_from
        self.abandoned = False
        self.lost = False
        self.released = False

    @property
    def fence(self) -> int:
        """The token, as far as this process knows still that of the session."""
        self._check_own()
        if self.lost:
            raise LeaseLost(
                f"session {self.session_id} was taken over by another worker. Nothing was written: "
                f"resume it to go on"
            )
        return self.token

    def _check_own(self) -> None:
        if self.released:
            raise SessionNotHeld(
                f"session {self.session_id} was closed here. Nothing was written: resume it to go on"
            )
        if self._pid != os.getpid():
            raise LeaseLost(
                f"session {self.session_id} is held by process {self._pid}, which this one was "
                f"forked from. Nothing was written: fork the session, or resume it here later"
            )

    @property
    def is_held(self) -> bool:
        """Whether there is no reason here to think that it is not."""
        return not (self.released or self.lost or self._pid != os.getpid())

    def retake(self) -> None:
        """Take the lease again that somebody else had meanwhile; see `Leases.retake`."""
        self._check_own()
        self._leases.retake(self)

    def release(self, *, whole: bool | None = None, unused: bool = False) -> None:
        """Give the lease back. ``whole`` decides for an owner that other processes share.

        One that was taken just now and stayed ``unused`` no other process has had the time to share.
        """
        self._leases.release(self, whole=whole, unused=unused)

    def abandon(self) -> None:
        """Let the heartbeat give it back, or the next of this owner to let go; nothing waits here.

        It is for the garbage collector.
        """
        self.abandoned = True


class Leases:
    """The leases of one manager, and the thread that keeps them alive while there are any."""

    def __init__(
        self, store: Store, *, owner: str | None = None, ttl: timedelta = LEASE_TTL
    ) -> None:
        check_lease_ttl(ttl)
        self._store = store
        self._name = None if owner is None else check_owner(owner)
        self._shared = owner is not None and owner.startswith(AGENT)
        self._ttl = ttl
        self._lock = new_lock(reset=self._forget)
        self._forget()
        _live.add(self)

    def _forget(self) -> None:
        # In a forked child: what was held is the parent's, and so is the thread.
        # In the order in which they were taken.
        self._holds: dict[Hold, None] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def owner(self) -> str:
        """Who holds what is held here."""
        return self._name if self._name is not None else own_name()

    @property
    def ttl(self) -> timedelta:
        """How long a lease lasts without a heartbeat."""
        return self._ttl

    def acquire(
        self, session_id: str, *, take_over: bool = False, over_agents: bool = False
    ) -> Hold:
        """Take or join a session's lease. Raises `CheckpointBusy` if a live holder has it.

        A holder that is dead is no obstacle. ``take_over`` takes the session from anybody, and
        ``over_agents`` from owners that are agents. Commands wait for each other, a few seconds at most.
        """
        owner = self.owner
        key = (self._store.identity, session_id, owner)
        end = time.monotonic() + (_PATIENCE if owner.startswith((COMMAND, RUN)) else 0)
        while True:
            try:
                with _together.one(key):
                    lease, taken_from = self._take(session_id, owner, take_over, over_agents)
                    return self._keep(key, lease.token, taken_from)
            except CheckpointBusy as busy:
                command = busy.lease is not None and busy.lease.owner.startswith(COMMAND)
                if not command or time.monotonic() >= end:
                    raise
            time.sleep(_LOOK)

    def _take(
        self, session_id: str, owner: str, take_over: bool, over_agents: bool
    ) -> tuple[Lease, Lease | None]:
        held: Lease | None = None
        for attempt in range(_ATTEMPTS):
            over = None if held is None else held.token
            try:
                return self._store.acquire_lease(session_id, owner, ttl=self._ttl, over=over), held
            except CheckpointBusy as busy:
                held = busy.lease
                if held is None or attempt == _ATTEMPTS - 1:
                    raise
                preempted = take_over or (over_agents and held.owner.startswith(AGENT))
                if not preempted and not is_dead(held.owner):
                    raise
        raise AssertionError("unreachable")  # pragma: no cover

    def retake(self, hold: Hold) -> None:
        """Take a lease again that was lost. Raises `CheckpointBusy` if a live holder has it.

        From then on the hold has the new token. Whether its worker may go on, the caller has to know.
        """
        with _together.one(hold._key):
            lease, _ = self._take(hold.session_id, self.owner, take_over=False, over_agents=False)
            _together.remove(hold)
            hold.token, hold.lost = lease.token, False
            _together.add(hold)

    def adopt(self, record: SessionRecord) -> Hold:
        """Keep the lease that a session was created with."""
        key = (self._store.identity, record.id, record.lease_owner or self.owner)
        with _together.one(key):
            return self._keep(key, record.lease_token, None)

    def _keep(self, key: _Key, token: int, taken_from: Lease | None) -> Hold:
        hold = Hold(self, key, token, taken_from)
        _together.add(hold)
        with self._lock:
            self._holds[hold] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_beat,
                    args=(weakref.ref(self), self._stop, self._ttl / _BEATS_PER_LEASE),
                    name="holdfast-heartbeat",
                    daemon=True,
                )
                self._thread.start()
        return hold

    def release(self, hold: Hold, *, whole: bool | None = None, unused: bool = False) -> None:
        """Give a lease back, unless others of this owner go on with it. Twice is fine."""
        with self._lock:
            if hold not in self._holds:
                return
            del self._holds[hold]
            hold.released = True
        with _together.one(hold._key):
            last = _together.remove(hold)
            if (last and (unused or not self._shared)) if whole is None else whole:
                self._store.release_lease(hold.session_id, hold.token)

    def beat(self) -> bool:
        """Renew what is held and give back what was abandoned; false when nothing is left."""
        with self._lock:
            abandoned = [hold for hold in self._holds if hold.abandoned]
        for hold in abandoned:
            self.release(hold)
        with self._lock:
            if not self._holds:
                # Whoever takes the next lease starts the next thread.
                self._thread = None
                return False
            holds = [hold for hold in self._holds if not hold.lost]
        # Of one session the token that was given last, which need not be the highest: an erased session
        # that was made again counts from elsewhere.
        tokens = {hold.session_id: hold.token for hold in holds}
        kept = self._store.renew_leases(tokens, ttl=self._ttl)
        for hold in holds:
            # One token of a session stands; with any other the session is lost.
            asked, stands = hold.token == tokens[hold.session_id], hold.session_id in kept
            hold.lost = asked != stands
        return True

    def close(self) -> None:
        """End the heartbeat and give everything back that nobody else of this owner needs."""
        with self._lock:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, threading.Event()
            holds = list(self._holds)
        stop.set()
        for hold in holds:
            # A lease that cannot be given back now expires.
            with suppress(HoldfastError):
                self.release(hold)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_SECONDS)


def describe_holder(lease: Lease) -> str:
    """Say in a log line who held a session and why it is not held any more."""
    why = "its lease has expired" if lease.expired else "its process has ended"
    return f"{owner_name(lease.owner)} held this session since {lease.since:%Y-%m-%d %H:%M:%S} UTC; {why}"


def _beat(leases: weakref.ref[Leases], stop: threading.Event, interval: timedelta) -> None:
    while not stop.wait(interval.total_seconds()):
        found = leases()
        if found is None:
            return
        try:
            if not found.beat():
                return
        except StoreClosed:
            return
        except HoldfastError:
            # The next beat may have more luck, and the fence decides in any case.
            pass
        del found


class _Together:
    """What of this process holds each lease, over all managers and session objects.

    A lease that was lost and taken again has another token, and is another lease.
    """

    def __init__(self) -> None:
        self._stripes = [new_lock() for _ in range(_STRIPES)]
        self._lock = new_lock(reset=self._forget)
        self._forget()

    def _forget(self) -> None:
        # None of them is kept from being collected with its manager.
        self._holds: dict[tuple[_Key, int], weakref.WeakSet[Hold]] = {}

    def one(self, key: _Key) -> threading.RLock:
        """Return the lock under which the leases of a session are taken and given back."""
        return self._stripes[hash(key) % _STRIPES]

    def add(self, hold: Hold) -> None:
        with self._lock:
            self._holds.setdefault((hold._key, hold.token), weakref.WeakSet()).add(hold)

    def remove(self, hold: Hold) -> bool:
        """Tell whether that was the last one that somebody can still reach."""
        lease = (hold._key, hold.token)
        with self._lock:
            holds = self._holds.get(lease, weakref.WeakSet())
            holds.discard(hold)
            if not all(one.abandoned for one in holds):
                return False
            self._holds.pop(lease, None)
            return True


_together: Final = _Together()
_live: Final[weakref.WeakSet[Leases]] = weakref.WeakSet()


def _close_all() -> None:
    for leases in list(_live):
        leases.close()


atexit.register(_close_all)
