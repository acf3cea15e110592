"""One database file: how it comes into being, and who may use a connection to it.

Connections are pooled, not bound to threads: a thread borrows one for the length of a method, and a
process that works in one thread opens only one. Writers of one process queue before they reach SQLite (see
`sqlite_writers`), so the file's own lock is contended, and polled, between processes only.

Three properties of POSIX locks shape this module. They vanish when *any* descriptor of the file is
closed, so nothing here opens the database but SQLite itself. They do not survive a fork while
SQLite's belief in them does, so every connection is closed before a fork and opened again after it.
And a file that was deleted can still be written to, so a writer looks whether it is still there.
"""

from __future__ import annotations

import glob
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar, cast

import apsw

from holdfast.durable import sync_directory
from holdfast.errors import (
    HoldfastError,
    LogDamaged,
    LogMisplaced,
    NotADatabase,
    StateCorrupt,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
)
from holdfast.places import keep_out_of_git
from holdfast.stores.sqlite_connection import (
    APPLICATION_ID,
    SQL,
    distrust,
    is_log_of_another,
    prepare,
    refuse_foreign,
    wait_for_locks,
)
from holdfast.stores.sqlite_errors import ADVICE, translated
from holdfast.stores.sqlite_log import is_damaged, keep_log, lost_commits
from holdfast.stores.sqlite_still import Mark, connect_still, is_still, mark_of
from holdfast.stores.sqlite_writers import Writers

T = TypeVar("T")

CACHED_STATEMENTS: Final = 128
FORK_PATIENCE: Final = 5.0
# Each costs descriptors and a cache; more threads than this rarely read at the same moment.
IDLE_CONNECTIONS: Final = 8
_NOT_UNDERSTOOD: Final = (ValueError, OverflowError)
SMALLEST_PAGE: Final = 512

_opening = threading.Lock()
_files: weakref.WeakSet[DatabaseFile] = weakref.WeakSet()


class DatabaseFile:
    """A file and the connections to it. ``read`` and ``write`` are all that a store needs."""

    def __init__(self, path: Path, url: str, *, busy_timeout: float) -> None:
        self.path = path
        self.url = url
        self._busy_timeout = busy_timeout
        self._idle: list[apsw.Connection] = []
        self._borrowed = 0
        self._inode = (0, 0)
        # Only for a file in a place where nothing can be written.
        self._mark: Mark | None = None
        self._closed = False
        self._log_emptied = True
        self._writers = Writers(self._transact, self._explained)
        self._new_locks()
        _files.add(self)

    def _new_locks(self) -> None:
        self._paused = False
        # Entered and left by itself, which no interrupt can break: the methods of a condition are Python.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._writers.restart()

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` with a connection. It should be one statement, or begin a transaction."""
        loan = self._borrow()
        [connection] = loan
        try:
            result = work(connection)
            self._check_stillness()
            return result
        except apsw.Error as error:
            system_errno = self._roll_back(connection)
            self._check_stillness()
            raise translated(error, self.path, self.url, system_errno) from error
        except Exception as error:
            self._roll_back(connection)
            explained = self._explained(error)
            if explained is error:
                raise
            raise explained from error
        except BaseException:
            self._roll_back(connection)
            raise
        finally:
            try:
                self._give_back(loan)
            except BaseException:
                # Interrupted, perhaps before it was back.
                self._give_back(loan)
                raise

    def _explained(self, error: Exception) -> Exception:
        """Return the error that a caller of the store should see for one that came up here."""
        if isinstance(error, apsw.Error):
            return translated(error, self.path, self.url)
        if isinstance(error, _NOT_UNDERSTOOD) and not isinstance(error, HoldfastError):
            # A time that is none, a text that is no text, a count at its end: SQLite does not look at
            # what it keeps.
            return StateCorrupt(
                f"{self.url}: a row cannot be understood ({error}). Nothing was changed; "
                f"holdfast doctor --salvage saves the others into a new file"
            )
        return error

    def read_consistently(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work``, all of whose statements see the same moment."""

        def transaction(connection: apsw.Connection) -> T:
            connection.execute(SQL["sqlite.begin_read"])
            result = work(connection)
            connection.execute(SQL["sqlite.commit"])
            return result

        return self.read(transaction)

    def erase(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` like `write`; the file gets smaller, and the log forgets what it deleted."""

        def transaction(connection: apsw.Connection) -> T:
            result = work(connection)
            connection.pragma("incremental_vacuum")
            return result

        result = self._write(transaction, alone=True)
        self._log_emptied = self.read(self._empty_log)
        return result

    def _empty_log(self, connection: apsw.Connection) -> bool:
        # The log still has the erased pages as they were. Readers may hold it for a moment; the
        # next one who empties it will succeed.
        wait_for_locks(connection, 1.0)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        finally:
            wait_for_locks(connection, self._busy_timeout)
        return True

    def leftovers(self) -> list[str]:
        """Name files that may still hold what was erased: a log that is in use, older copies."""
        found = []
        if not self._log_emptied:
            found.append(f"{self.path}-wal: somebody was reading; holdfast gc empties it")
        name = glob.escape(self.path.name)
        logs = sorted(self.path.parent.glob(f"{name}-wal.damaged-*"))
        found += [f"{one}: a copy of a damaged log; remove it yourself" for one in logs]
        for what, why in (
            ("backup", "made before a migration"),
            ("damaged", "moved away after a salvage"),
        ):
            copies = sorted(self.path.parent.glob(f"{name}.{what}-*"))
            found += [f"{one}: {why}; remove it yourself" for one in copies]
        return found

    def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` in a write transaction; its effects are durable when this returns."""

        return self._write(work, alone=False)

    def _write(self, work: Callable[[apsw.Connection], T], *, alone: bool) -> T:
        try:
            written = self._writers.write(work, patience=self._busy_timeout, alone=alone)
        except TimeoutError:
            raise StoreBusy(f"{self.url}: {ADVICE[StoreBusy]}") from None
        return cast("T", written)

    def _transact(self, transaction: Callable[[apsw.Connection], None]) -> None:
        self._check_presence()
        self.read(transaction)

    def _roll_back(self, connection: apsw.Connection) -> int:
        system_errno = connection.system_errno
        if connection.in_transaction:
            # Some errors have rolled back by themselves already.
            with suppress(apsw.Error):
                connection.execute(SQL["sqlite.rollback"])
        return system_errno

    def _check_presence(self) -> None:
        # SQLite would go on writing into a file without a name and report success. One system call
        # in every write is the price of never acknowledging what nobody can find again.
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise StoreUnavailable(
                f"{self.url} was removed while it was open. Nothing was stored; what was saved "
                f"before went with the file"
            ) from error
        if (found.st_dev, found.st_ino) != self._inode:
            raise StoreUnavailable(
                f"{self.url} was replaced by another file while it was open. Nothing was stored: "
                f"open it again"
            )

    def _check_stillness(self) -> None:
        if self._mark is not None and self._mark != mark_of(self.path):
            raise StoreUnavailable(
                f"{self.url} was written to by somebody else while it was read in a place where this "
                f"process cannot lock it. Nothing was changed: open it again"
            )

    def _borrow(self) -> list[apsw.Connection]:
        """Return a connection, in a list out of which `_give_back` takes it."""
        counted = False
        try:
            with self._lock:
                while self._paused:
                    self._changed.wait()
                if self._closed:
                    raise StoreClosed(f"{self.url} was closed; open it again")
                # An interrupt comes at a call, and there is none until all of it is done.
                loan = self._idle[-1:]
                del self._idle[-1:]
                self._borrowed += 1
                counted = True
            if not loan:
                loan.append(self.connect())
                prepare(loan[0])
            return loan
        except BaseException as error:
            if counted:
                with self._lock:
                    self._borrowed -= 1
                    self._changed.notify_all()
            if isinstance(error, (apsw.Error, OSError)):
                raise translated(error, self.path, self.url) from error
            raise

    def _give_back(self, loan: list[apsw.Connection]) -> None:
        with self._lock:
            if not loan:
                return
            if self._paused:
                self._changed.notify_all()
            # One in a transaction was left there by an interrupt; to close it undoes that.
            if not (self._closed or loan[0].in_transaction or len(self._idle) >= IDLE_CONNECTIONS):
                self._idle += loan
                del loan[:]
                self._borrowed -= 1
                return
        # Outside the lock, since closing may fold the log into the file; still counted as borrowed,
        # since a fork must not come in between.
        try:
            with suppress(apsw.Error):
                loan[0].close()
        finally:
            with self._lock:
                del loan[:]
                self._borrowed -= 1
                self._changed.notify_all()

    def open(self, first: Callable[[apsw.Connection], None]) -> None:
        """Create or open the file and let ``first`` look at it; then let others use it."""
        created = False
        try:
            created = self._create()
            self._patiently(lambda: self._open(first))
        except StoreFull:
            if created:
                self._take_back()
            raise
        except UnicodeDecodeError as error:
            # The schema itself is damaged: it has bytes where SQLite keeps text.
            raise NotADatabase(f"{self.url}: {error}. {ADVICE[NotADatabase]}") from error
        except (apsw.Error, OSError) as error:
            raise translated(error, self.path, self.url) from error

    def _take_back(self) -> None:
        """Remove a file that was made here and for which there was no room to become a database."""
        with suppress(apsw.Error, OSError):
            if self.path.stat().st_size:
                # Somebody else may have had more luck. Alone with the file, which also needs no room
                # for shared memory, one can tell.
                connection = self.connect()
                try:
                    wait_for_locks(connection, 0)
                    connection.pragma("locking_mode", "EXCLUSIVE")
                    connection.execute(SQL["sqlite.begin"])
                    if connection.pragma("application_id") != APPLICATION_ID:
                        self._unlink()
                finally:
                    connection.close()
            else:
                self._unlink()

    def _unlink(self) -> None:
        for ending in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self.path}{ending}")

    def _open(self, first: Callable[[apsw.Connection], None]) -> None:
        if is_still(self.path):
            self._mark = mark_of(self.path)
        connection = self.connect()
        try:
            # A foreign file must stay as it is, to the byte: no checkpoint of its log either.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._refuse_log_of_another(connection)
            refuse_foreign(connection, self.url)
            self._refuse_damaged_log(connection)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            first(connection)
        except BaseException as error:
            system_errno = connection.system_errno
            connection.close()
            if isinstance(error, apsw.Error) and not isinstance(error, apsw.BusyError):
                raise translated(error, self.path, self.url, system_errno) from error
            raise
        found = os.stat(self.path)
        self._inode = (found.st_dev, found.st_ino)
        self._idle.append(connection)

    def _create(self) -> bool:
        """Make the file, empty and for its owner only, with its directories on the disk.

        Tells whether it was made. Nothing is, where there is a log: SQLite would delete that beside a new file.
        """
        # Before the file: whoever makes a database writes its first page before there is a log.
        log = _size(f"{self.path}-wal")
        if log and not os.path.lexists(self.path):
            raise LogMisplaced(
                f"{self.url}: there is no such file, but its log {self.path}-wal is there and may have saves "
                f"that are nowhere else. Nothing was changed: put the file back beside its log; or make an empty "
                f"one there, and save what the log has with holdfast doctor --salvage NEW; or remove the log if "
                f"nobody needs it"
            )
        made = []
        parent = self.path.parent
        while not parent.exists():
            made.append(parent)
            parent = parent.parent
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in made:
            # Not every system can open a directory; there the file system keeps its own order.
            with suppress(OSError):
                sync_directory(directory.parent)
        keep_out_of_git(str(self.path.parent))
        if not log:
            with _opening, suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                return True
        found = self.path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            # SQLite would take a device for an empty file, and its owner would get it to himself.
            raise NotADatabase(f"{self.url}: that is a device or a pipe. {ADVICE[NotADatabase]}")
        if 0 < found.st_size < SMALLEST_PAGE and not stat.S_ISDIR(found.st_mode):
            # SQLite would take it for an empty database and write over it.
            raise NotADatabase(f"{self.url}: the file is too short. {ADVICE[NotADatabase]}")
        if log and not found.st_size:
            # SQLite would delete the log.
            raise NotADatabase(
                f"{self.url}: the file is empty, but its log is not. Nothing was changed: save what the log "
                f"has with holdfast doctor --salvage NEW, or restore the file from a copy"
            )
        return False

    def _refuse_log_of_another(self, connection: apsw.Connection) -> None:
        """Raise `LogMisplaced` where SQLite would write the log of another file over this one."""
        if _size(f"{self.path}-wal") and is_log_of_another(connection):
            raise LogMisplaced(
                f"{self.url}: the log beside it, {self.path}-wal, is that of another file, which this one has "
                f"replaced. Nothing was changed: move the log and {self.path}-shm away, and repeat this"
            )

    def _refuse_damaged_log(self, connection: apsw.Connection) -> None:
        """Raise `LogDamaged` when a log has commits that SQLite does not see: it would drop them."""
        log = Path(f"{self.path}-wal")
        if not _size(str(log)):
            return
        try:
            damaged = is_damaged(
                log,
                lambda: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0],
                lambda at, size: connection.read("main", 0, at, size)[1],
            )
        except apsw.ReadOnlyError:
            # Nobody writes it here, and SQLite does not tell how far it reads.
            damaged = lost_commits(log)
        except (apsw.BusyError, FileNotFoundError, StopIteration):
            # Others fold it, or have just removed or cut it: they have read it.
            return
        if not damaged:
            return
        kept = ""
        with suppress(OSError):
            kept = f", and {keep_log(log)} is a copy of the log"
        raise LogDamaged(
            f"{self.url}: its log is damaged, and SQLite would drop saves that are only there. "
            f"Nothing was changed{kept}: save everything that still verifies with "
            f"holdfast doctor --salvage NEW"
        )

    def make_private(self) -> None:
        """Take away what others may do with the file; for one that is about to be initialised."""
        with suppress(PermissionError):
            os.chmod(self.path, 0o600)

    def connect(self) -> apsw.Connection:
        """Open a connection that nothing has been configured on yet but its patience."""
        with _opening:
            connection = (
                apsw.Connection(
                    str(self.path),
                    flags=apsw.SQLITE_OPEN_READWRITE,
                    statementcachesize=CACHED_STATEMENTS,
                )
                if self._mark is None
                else connect_still(self.path, cached_statements=CACHED_STATEMENTS)
            )
        wait_for_locks(connection, self._busy_timeout)
        distrust(connection)
        return connection

    def _patiently(self, work: Callable[[], None]) -> None:
        # A change of the journal mode and the recovery of a log do not wait for each other.
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                return work()
            except apsw.BusyError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.005)

    def close(self) -> None:
        """Close all connections. The last one of all processes folds the log into the file."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(apsw.Error):
                connection.close()

    def pause(self) -> None:
        """Close every connection that is not in use, and hold back those who ask for one."""
        deadline = time.monotonic() + FORK_PATIENCE
        with self._lock:
            self._paused = True
            while self._borrowed and time.monotonic() < deadline:
                self._changed.wait(deadline - time.monotonic())
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(apsw.Error):
                connection.close()

    def unpause(self) -> None:
        """Let those who wait have connections again."""
        with self._lock:
            self._paused = False
            self._changed.notify_all()

    def restart(self) -> None:
        """Begin anew in a forked child, where no thread holds anything any more."""
        self._new_locks()
        self._idle = []
        self._borrowed = 0


def _size(path: str) -> int:
    """Return the size of a file; of one that is not there 0."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _before_fork() -> None:
    for file in list(_files):
        file.pause()


def _after_fork_in_parent() -> None:
    for file in list(_files):
        file.unpause()


def _after_fork_in_child() -> None:
    global _opening
    _opening = threading.Lock()
    for file in list(_files):
        file.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
