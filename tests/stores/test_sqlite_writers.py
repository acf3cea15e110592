"""Writers of one process share commits, and neither errors nor interrupts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import CheckpointExists
from holdfast.model import CheckpointQuery
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_writers import TOGETHER, Work, Writers, _Turn
from holdfast.testing.drafts import checkpoint, session

PATIENCE = 30.0


class Refused(Exception):
    """What a piece of work says no with."""


class File:
    """A database with one connection, and the writers that share it."""

    def __init__(self, path: Path) -> None:
        self.connection: Any = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "WAL")
        self.connection.execute("CREATE TABLE words (word TEXT NOT NULL)")
        self.commits = 0
        self.connection.set_commit_hook(self._count)
        self.writers = Writers(self._transact, lambda error: error)
        self.pool = ThreadPoolExecutor(TOGETHER + 8)

    def _count(self) -> bool:
        self.commits += 1
        return False

    def _transact(self, transaction: Work) -> None:
        try:
            transaction(self.connection)
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def write(self, work: Work, **options: Any) -> Future[Any]:
        options = {"patience": PATIENCE, **options}
        return self.pool.submit(self.writers.write, work, **options)

    def waiting(self, count: int) -> None:
        """Wait until so many writers wait for their turn."""
        deadline = threading.Event()
        while len(self.writers._waiting) < count:
            deadline.wait(0.001)

    def words(self) -> list[str]:
        return [word for (word,) in self.connection.execute("SELECT word FROM words")]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    opened = File(tmp_path / "words.db")
    yield opened
    opened.pool.shutdown()
    opened.connection.close()


def adding(word: str) -> Callable[[apsw.Connection], str]:
    def work(connection: apsw.Connection) -> str:
        connection.execute("INSERT INTO words VALUES (?)", (word,))
        return word

    return work


def refusing(word: str) -> Work:
    def work(connection: apsw.Connection) -> None:
        adding(word)(connection)
        raise Refused(word)

    return work


class Held:
    """Work that goes on when it is let go, so that others come meanwhile."""

    def __init__(self, word: str, error: BaseException | None = None) -> None:
        self.word = word
        self.error = error
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, connection: apsw.Connection) -> str:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        adding(self.word)(connection)
        if self.error is not None:
            raise self.error
        return self.word


def test_who_comes_meanwhile_shares_the_commit(file: File) -> None:
    first = Held("first")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    others = []
    for number in range(10):
        others.append(file.write(adding(f"other {number}")))
        file.waiting(number + 1)
    assert not any(other.done() for other in others)
    first.let_go.set()
    assert [leading.result(), *(one.result() for one in others)] == file.words()
    assert file.commits == 1


def test_nobody_waits_for_an_endless_row(file: File) -> None:
    first = Held("first")
    futures = [file.write(first)]
    first.begun.wait(PATIENCE)
    for number in range(TOGETHER + 3):
        futures.append(file.write(adding(str(number))))
        file.waiting(number + 1)
    first.let_go.set()
    for future in futures:
        future.result()
    assert len(file.words()) == TOGETHER + 4
    assert file.commits == 2


def test_what_fails_is_undone_alone(file: File) -> None:
    first = Held("first")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    bad, good = file.write(refusing("bad")), file.write(adding("good"))
    file.waiting(2)
    first.let_go.set()
    with pytest.raises(Refused, match="bad"):
        bad.result()
    assert (leading.result(), good.result()) == ("first", "good")
    assert sorted(file.words()) == ["first", "good"]
    assert file.commits == 1


@pytest.mark.parametrize(
    "error", [Refused("first"), KeyboardInterrupt()], ids=["error", "interrupt"]
)
def test_others_are_written_when_the_leader_fails(file: File, error: BaseException) -> None:
    first = Held("first", error)
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    others = [file.write(adding("other")), file.write(adding("another"))]
    file.waiting(2)
    first.let_go.set()
    with pytest.raises(type(error)):
        leading.result()
    for other in others:
        other.result()
    assert sorted(file.words()) == ["another", "other"]


def test_an_interrupt_in_the_work_of_another_stops_nobody_else(file: File) -> None:
    """It is for the thread that was interrupted, whosever work it did."""
    first, calls = Held("first"), []

    def once(connection: apsw.Connection) -> str:
        calls.append(threading.get_ident())
        if len(calls) == 1:
            raise KeyboardInterrupt
        return adding("other")(connection)

    leading = file.write(first)
    first.begun.wait(PATIENCE)
    other, another = file.write(once), file.write(adding("another"))
    file.waiting(2)
    first.let_go.set()
    with pytest.raises(KeyboardInterrupt):
        leading.result()
    assert {other.result(), another.result()} == {"other", "another"}
    assert sorted(file.words()) == ["another", "other"]
    assert calls[0] != calls[1]


def test_who_breaks_the_transaction_breaks_only_their_own(file: File) -> None:
    """A full disk undoes all of a transaction: the others write again without the one it was full for."""
    page_bytes = file.connection.pragma("page_size")
    file.connection.pragma("max_page_count", 8)
    first = Held("first")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    before = file.write(adding("before"))
    file.waiting(1)
    large = file.write(adding("x" * page_bytes * 20))
    file.waiting(2)
    after = file.write(adding("after"))
    file.waiting(3)
    first.let_go.set()
    with pytest.raises(apsw.FullError):
        large.result()
    assert [leading.result(), before.result(), after.result()] == ["first", "before", "after"]
    assert sorted(file.words()) == ["after", "before", "first"]


class InterruptedOnce:
    """A connection whose user is interrupted once, just before or just after a commit."""

    def __init__(self, connection: apsw.Connection, *, after: bool) -> None:
        self._connection = connection
        self._after = after
        self._left = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> Any:
        if not statement.startswith("COMMIT") or not self._left:
            return self._connection.execute(statement, *values)
        self._left -= 1
        if self._after:
            self._connection.execute(statement)
        raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupt_around_the_commit_repeats_nothing_and_loses_nothing(
    file: File, after: bool
) -> None:
    file.connection = InterruptedOnce(file.connection, after=after)
    first = Held("first")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    other = file.write(adding("other"))
    file.waiting(1)
    first.let_go.set()
    with pytest.raises(KeyboardInterrupt):
        leading.result()
    assert other.result() == "other"
    assert file.words() == (["first", "other"] if after else ["other"])


def test_a_writer_who_was_interrupted_leads_nobody(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One waits for a shared commit and is interrupted; the commit fails, and the others go on."""
    interrupt, refuse = threading.Event(), True
    wait = _Turn.wait

    def interrupted(turn: _Turn, seconds: float = -1) -> bool:
        if turn.work is not gone:
            return wait(turn, seconds)
        assert interrupt.wait(PATIENCE)
        raise KeyboardInterrupt

    def commit() -> bool:
        nonlocal refuse
        refused, refuse = refuse, False
        if refused:
            interrupt.set()
            assert isinstance(leaving.exception(), KeyboardInterrupt)
        return refused

    monkeypatch.setattr(_Turn, "wait", interrupted)
    file.connection.set_commit_hook(commit)
    first, gone = Held("first"), adding("gone")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    leaving = file.write(gone)
    file.waiting(1)
    other = file.write(adding("other"))
    file.waiting(2)
    first.let_go.set()
    assert (leading.result(), other.result()) == ("first", "other")
    assert file.write(adding("next"), patience=1).result() == "next"
    assert sorted(file.words()) == ["first", "next", "other"]


def test_a_commit_that_fails_is_everybodys_own_failure(file: File) -> None:
    refuse = True
    file.connection.set_commit_hook(lambda: refuse)
    first = Held("first")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    other = file.write(adding("other"))
    file.waiting(1)
    first.let_go.set()
    for future in (leading, other):
        with pytest.raises(apsw.ConstraintError):
            future.result()
    assert file.words() == []


def test_whoever_waits_too_long_has_written_nothing(file: File) -> None:
    first = Held("first")
    leading = file.write(first)
    first.begun.wait(PATIENCE)
    late = file.write(adding("late"), patience=0.01)
    with pytest.raises(TimeoutError):
        late.result()
    first.let_go.set()
    leading.result()
    file.write(adding("next")).result()
    assert file.words() == ["first", "next"]


def test_whoever_gives_up_is_out_of_the_queue_at_once(file: File) -> None:
    """Between being told so and leaving, nobody may still do the work."""
    late = _Turn(adding("late"), alone=False)
    file.writers._waiting.append(late)
    with pytest.raises(TimeoutError):
        file.writers._wait(late, 0)
    assert not file.writers._waiting


def test_whoever_writes_alone_shares_nothing(file: File) -> None:
    first = Held("first")
    futures = [file.write(first, alone=True)]
    first.begun.wait(PATIENCE)
    for number, alone in enumerate((False, True, False), 1):
        futures.append(file.write(adding(str(number)), alone=alone))
        file.waiting(number)
    first.let_go.set()
    for future in futures:
        future.result()
    assert file.words() == ["first", "1", "2", "3"]
    assert file.commits == 4


def test_the_store_s_writers_share_commits_and_keep_their_errors(tmp_path: Path) -> None:
    """Many threads, some of whose writes are refused: each gets the answer to its own."""
    with SqliteStore(tmp_path / "a.db") as store:
        owner = store.create_session(session())

        def put(number: int) -> str:
            name = f"{number}" if number % 3 else "taken"
            return store.put(checkpoint(owner.id, name)).record.name

        with ThreadPoolExecutor(16) as pool:
            futures = [pool.submit(put, number) for number in range(90)]
        names, refused = [], 0
        for future in futures:
            try:
                names.append(future.result())
            except CheckpointExists:
                refused += 1
        assert refused == 29
        assert sorted(names) == sorted(
            one.name for one in store.list_checkpoints(CheckpointQuery())
        )
        chain = store.read_chain(owner.id)
        assert chain is not None
        assert [link.number for link in chain.links] == list(range(1, 62))
        assert chain.head == chain.links[-1].hash
