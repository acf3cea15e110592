"""Writers of one process take turns at a file, and share a commit where they can.

A commit waits for the disk, which is most of what a small write takes. So whoever comes while another one is
writing leaves their work in a queue, and the one whose turn it is does it too, in the same transaction, just
before the commit. All of them are told only after it. Each piece of work has a savepoint of its own: if it
fails, it alone is undone, and nobody else notices.

Where the transaction itself fails nothing of it is stored, and everybody writes again alone: an error is that of
whoever caused it. Work may therefore run twice, and in the thread of another writer; it touches nothing
but the connection, and takes no lock.

An interrupt can come wherever Python calls something or goes round in a loop, and nowhere else. So what belongs
together here, such as to take somebody out of the queue and to let them lead, has no call in its middle; and
`Writers._leave`, which sets right whatever was begun, is called again when it is interrupted itself.
"""

from __future__ import annotations

import threading
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

    ``others`` are those whose work it took and who are still to be told. ``left`` says that the writer is not
    there any more, done or interrupted.
    """

    __slots__ = ("alone", "called", "done", "error", "leads", "left", "others", "result", "work")

    def __init__(self, work: Work, *, alone: bool) -> None:
        self.work = work
        self.alone = alone
        self.leads = False
        self.done = False
        self.left = False
        self.others: list[_Turn] = []
        self.result: Any = None
        self.error: Exception | None = None
        # To release it lets go of the writer, who waits.
        self.called = threading.Lock()
        self.called.acquire()

    def wait(self, seconds: float = -1) -> bool:
        """Wait to be called; tell whether that happened in time."""
        return self.called.acquire(timeout=seconds)

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
        self._waiting: list[_Turn] = []

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
            try:
                self._leave(turn)
            except BaseException:
                self._leave(turn)
                raise
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
        if turn.others:
            self._tell(turn)
        with self._entry:
            turn.left = True
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.leads:
                turn.leads = False
                if self._waiting:
                    following = self._waiting[0]
                    del self._waiting[0]
                    following.leads = True
                    following.called.release()
                else:
                    self._busy = False

    def _write_together(self, turn: _Turn) -> None:
        def transaction(connection: apsw.Connection) -> None:
            connection.execute(_SQL["sqlite.begin"])
            turn.result = turn.work(connection)
            if not turn.alone:
                self._take(turn)
                for other in turn.others:
                    self._write_other(connection, other)
            try:
                connection.execute(_SQL["sqlite.commit"])
                turn.done = True
            except apsw.Error:
                raise
            except BaseException:
                # An interrupt comes before a commit or after it, never in its middle.
                turn.done = not connection.in_transaction
                raise

        try:
            self._transact(transaction)
        except Exception:
            if not turn.others:
                raise
            turn.alone = True
            self._tell(turn)

    def _tell(self, turn: _Turn) -> None:
        """Let the others go if their work is stored; else let those still there write again, each alone."""
        while turn.done and turn.others:
            other = turn.others[0]
            del turn.others[0]
            other.done = True
            other.called.release()
        with self._entry:
            again = [other for other in turn.others if not other.left]
            for other in again:
                other.alone, other.error = True, None
            self._waiting[:0] = again
            turn.others = []

    def _take(self, turn: _Turn) -> None:
        with self._entry:
            count = 0
            while count < min(len(self._waiting), TOGETHER) and not self._waiting[count].alone:
                count += 1
            turn.others = self._waiting[:count]
            del self._waiting[:count]

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
