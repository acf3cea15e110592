"""The connections of one store: opened when somebody needs one, the last used first, and without a thread.

A pool that keeps connections in readiness has threads to open and close them. A store needs none. Whoever finds no
connection free opens one, and so learns at once why it cannot be; whoever gives one back closes what was not used
for long. Threads have to be ended before the interpreter is, by programs that do not close what they opened too:
Python 3.13 waits twenty seconds for those of psycopg's pool.

    connections = Connections(open_one)
    connection = connections.getconn(timeout=30.0)
    try:
        ...
    finally:
        connections.putconn(connection)
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from psycopg import Connection, Error
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolClosed, PoolTimeout

from holdfast.errors import StoreBusy, StoreUnavailable

AnyConnection: TypeAlias = "Connection[Any]"

POOL_SIZE: Final = 10
# A connection that answered so recently is taken to be alive: asking would double the round trips.
_FRESH_SECONDS: Final = 1.0
# A server that is being started again has so long to be back.
_RESTART_SECONDS: Final = 1.0
_UNUSED_SECONDS: Final = 600.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_IDLE: Final = TransactionStatus.IDLE

# A connection that nobody uses, and when it was last heard of.
_Free: TypeAlias = "tuple[AnyConnection, float]"


class Pool(Protocol):
    """What a store asks of a pool: ours, or one of psycopg's that it was handed."""

    def getconn(self, timeout: float) -> AnyConnection:
        """Lend a connection, within so many seconds."""

    def putconn(self, conn: AnyConnection) -> None:
        """Take one back."""


class Connections:
    """At most `POOL_SIZE` connections, for any number of threads.

    ``connect`` opens one and raises what the store raises. It belongs to the process that made it: a forked child
    leaves it alone and makes one of its own.
    """

    def __init__(self, connect: Callable[[], AnyConnection]) -> None:
        self._connect = connect
        self._free: list[_Free] = []
        self._places = POOL_SIZE
        self._closed = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        # When it is dropped, or the program ends, without having been closed.
        weakref.finalize(self, _close_free, self._free, os.getpid())

    @property
    def size(self) -> int:
        """How many are open, or being opened."""
        return POOL_SIZE - self._places

    def getconn(self, timeout: float) -> AnyConnection:
        """Return a connection that answers, and is the caller's until `putconn`.

        Raises `PoolTimeout`, `PoolClosed`, or why none can be opened.
        """
        began = time.monotonic()
        deadline = began + timeout
        pause = _SHORTEST_PAUSE
        while True:
            with self._lock:
                free = self._free.pop() if self._free else self._wait_for_one(deadline)
            if free is not None:
                connection, heard_at = free
                if time.monotonic() - heard_at < _FRESH_SECONDS or self._answers(connection):
                    return connection
                continue
            try:
                return self._connect()
            except BaseException as error:
                self._give_place_back()
                if time.monotonic() + pause > _patience(error, began, deadline):
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def putconn(self, conn: AnyConnection) -> None:
        """Take a connection back. One that is in the middle of something, or dead, is closed."""
        now = time.monotonic()
        unused = None
        with self._lock:
            if not self._closed and conn.pgconn.transaction_status == _IDLE:
                if self._free and now - self._free[0][1] > _UNUSED_SECONDS:
                    unused = self._free.pop(0)[0]
                self._free.append((conn, now))
                if self._waiting:
                    self._changed.notify()
            else:
                unused = conn
        if unused is not None:
            self._discard(unused)

    def doubt(self) -> None:
        """Have every connection asked before it is used: one was found dead."""
        with self._lock:
            self._free[:] = [(connection, -_UNUSED_SECONDS) for connection, _ in self._free]

    def close(self) -> None:
        """Close what is free now, and the rest when it is given back."""
        with self._lock:
            self._closed = True
            free = self._free[:]
            self._free.clear()
            self._changed.notify_all()
        _close_free(free, os.getpid())

    def _wait_for_one(self, deadline: float) -> _Free | None:
        """Take what becomes free, or, as None, the place of one that is still to be opened. Under the lock."""
        while not self._closed:
            if self._free:
                return self._free.pop()
            if self._places:
                self._places -= 1
                return None
            self._waiting += 1
            try:
                in_time = self._changed.wait(deadline - time.monotonic())
            finally:
                self._waiting -= 1
            # One may have been given back to this thread in the moment in which it gave up.
            if not (in_time or self._free or self._places):
                raise PoolTimeout(f"all {POOL_SIZE} connections are in use, and none became free")
        raise PoolClosed("the connections are closed")

    def _answers(self, connection: AnyConnection) -> bool:
        """Ask a connection that was not heard of for a while. One that does not answer is gone."""
        try:
            connection.execute("")
        except BaseException as error:
            self._discard(connection)
            if isinstance(error, Error):
                return False
            raise
        return True

    def _discard(self, connection: AnyConnection) -> None:
        connection.close()
        self._give_place_back()

    def _give_place_back(self) -> None:
        with self._lock:
            self._places += 1
            if self._waiting:
                self._changed.notify()


def _patience(error: BaseException, began: float, deadline: float) -> float:
    """Return until when it is worth trying again to open a connection."""
    if isinstance(error, StoreBusy):
        return deadline  # the server has no place left; others may leave
    return began + _RESTART_SECONDS if isinstance(error, StoreUnavailable) else began


def _close_free(free: list[_Free], process: int) -> None:
    # In a forked child they are the parent's, who goes on using them.
    while free and process == os.getpid():
        free.pop()[0].close()
