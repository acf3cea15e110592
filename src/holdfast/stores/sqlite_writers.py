"""Writers of one process take turns at a file, and share a commit where they can.

A commit waits for the disk, which is most of what a small write takes. So whoever comes while another one is
writing leaves their work in a queue, and the one whose turn it is does it too, in the same transaction, just
before the commit. All of them are told only after it. Each piece of work has a savepoint of its own: if it
fails, it alone is undone, and nobody else notices.

Where the transaction itself fails nothing of it is stored, and everybody writes again alone: an error is that of
whoever caused it. Work may therefore run twice, and in the thread of another writer; it touches nothing
but the connection, and takes no lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import apsw

from holdfast.sql import queries

Work: TypeAlias = Callable[[apsw.Connection], Any]

# More would keep the first ones waiting for long.
TOGETHER: Final = 64

_SQL: Final = queries("sqlite")


class _Turn:
    """One writer's work and what came of it. Who ``leads`` writes for those who wait as well.

    ``left`` says that the writer is not there any more, done or interrupted.
    """

    __slots__ = ("_called", "alone", "done", "error", "leads", "left", "result", "work")

    def __init__(self, work: Work, *, alone: bool) -> None:
        self.work = work
        self.alone = alone
        self.leads = False
        self.done = False
        self.left = False
        self.result: Any = None
        self.error: Exception | None = None
        self._called = threading.Lock()
        self._called.acquire()

    def wait(self, seconds: float = -1) -> bool:
        """Wait to be called; tell whether that happened in time."""
        return self._called.acquire(timeout=seconds)

    def call(self) -> None:
        """Let go of the writer who waits."""
        if self._called.locked():
            self._called.release()

    def outcome(self) -> Any:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self.result


class Writers:
    """The queue at one file.

    ``transact`` runs a function with a connection, undoes what it began if it raises, and explains the error.
    ``explain`` makes of an error what a caller of the store should see.
    """

    def __init__(
        self, transact: Callable[[Work], Any], explain: Callable[[Exception], Exception]
    ) -> None:
        self._transact = transact
        self._explain = explain
        self.restart()

    def restart(self) -> None:
        """Begin anew, as a forked child has to, in which nobody writes or waits."""
        self._entry = threading.Lock()
        self._busy = False
        self._waiting: deque[_Turn] = deque()

    def write(self, work: Work, *, patience: float, alone: bool = False) -> Any:
        """Run ``work`` in a transaction; what it did is durable when this returns its result.

        Raises TimeoutError if its turn did not come within so many seconds.
        """
        turn = _Turn(work, alone=alone)
        try:
            with self._entry:
                if self._busy:
                    self._waiting.append(turn)
                else:
                    turn.leads = self._busy = True
            if not turn.leads:
                self._wait(turn, patience)
            while not turn.done:
                self._write_together(turn)
        finally:
            self._leave(turn)
        return turn.outcome()

    def _wait(self, turn: _Turn, patience: float) -> None:
        if turn.wait(patience):
            return
        with self._entry:
            if turn in self._waiting:
                # Out of the queue at once, or somebody would do it after all.
                self._waiting.remove(turn)
                raise TimeoutError
        # Somebody is doing it, and will tell.
        turn.wait()

    def _leave(self, turn: _Turn) -> None:
        """Let the next one lead. A writer who was interrupted leaves while others count on them."""
        with self._entry:
            turn.left = True
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.leads:
                self._busy = bool(self._waiting)
                if self._busy:
                    following = self._waiting.popleft()
                    following.leads = True
                    following.call()

    def _write_together(self, turn: _Turn) -> None:
        others: list[_Turn] = []
        stored = False

        def transaction(connection: apsw.Connection) -> None:
            nonlocal stored
            connection.execute(_SQL["sqlite.begin"])
            turn.result = turn.work(connection)
            if not turn.alone:
                self._take(others)
                for other in others:
                    self._write_other(connection, other)
            try:
                connection.execute(_SQL["sqlite.commit"])
                stored = True
            except apsw.Error:
                raise
            except BaseException:
                # An interrupt comes before a commit or after it, never in its middle.
                stored = not connection.in_transaction
                raise

        try:
            self._transact(transaction)
            turn.done = True
        except Exception:
            if not others:
                raise
            turn.alone = True
        finally:
            self._tell(others, stored=stored)

    def _tell(self, others: list[_Turn], *, stored: bool) -> None:
        """Let the others go if their work is stored; else let those still there write again, each alone."""
        for other in others:
            other.done = stored
        if stored:
            for other in others:
                other.call()
            return
        for other in others:
            other.alone, other.error = True, None
        with self._entry:
            self._waiting.extendleft(other for other in reversed(others) if not other.left)

    def _take(self, others: list[_Turn]) -> None:
        with self._entry:
            while self._waiting and not self._waiting[0].alone and len(others) < TOGETHER:
                others.append(self._waiting.popleft())

    def _write_other(self, connection: apsw.Connection, other: _Turn) -> None:
        connection.execute(_SQL["sqlite.savepoint"])
        try:
            other.result = other.work(connection)
        except Exception as error:
            if not connection.in_transaction:
                # SQLite has undone all of it.
                raise
            connection.execute(_SQL["sqlite.savepoint.undo"])
            other.error = self._explain(error)
        connection.execute(_SQL["sqlite.savepoint.end"])
