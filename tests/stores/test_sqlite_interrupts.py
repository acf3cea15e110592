"""An interrupt, at whatever moment of a call, is that of one thread: the file stays usable for all."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import CheckpointExists
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite_writers import Work
from holdfast.testing.drafts import checkpoint, session
from tests.interrupts import Interrupts, started
from tests.stores.test_sqlite_writers import File, Refused, adding, refusing

PATIENCE = 20.0


class Gate:
    """Work that waits, in no function that an interrupt could break, until others have come."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._shut = threading.Lock()
        self._shut.acquire()
        self._open = False
        self.begun = threading.Event()
        self.commits = 0

    def __call__(self, connection: apsw.Connection) -> Any:
        self.thread = threading.get_ident()
        if not self.begun.is_set():
            self.begun.set()
            self._shut.acquire()
        return self._work(connection)

    def open(self) -> None:
        self._open = True
        self._shut.release()

    def is_open(self) -> bool:
        return self._open

    def refuse_first(self) -> bool:
        """Refuse, as a commit hook, the first commit of the thread that works."""
        if threading.get_ident() != self.thread:
            return False
        self.commits += 1
        return self.commits == 1


def queue(file: File, works: list[Work]) -> list[Future[Any]]:
    """Have each of them wait for its turn, one behind the other."""
    futures = []
    for number, work in enumerate(works):
        futures.append(started(partial(write, file, work)))
        file.waiting(number + 1)
    return futures


def write(file: File, work: Work) -> Any:
    return file.writers.write(work, patience=PATIENCE)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Callable[[], File]]:
    opened: list[File] = []

    def make() -> File:
        opened.append(File(tmp_path / f"{len(opened)}.db"))
        # Nothing of ours is called in the middle of a commit.
        opened[-1].connection.set_commit_hook(None)
        return opened[-1]

    yield make
    for file in opened:
        file.pool.shutdown()
        file.connection.close()


@pytest.mark.parametrize(
    ("work", "refused"),
    [(adding("first"), False), (adding("first"), True), (refusing("first"), False)],
    ids=["stored", "commit refused", "refused"],
)
def test_one_who_leads_loses_and_repeats_nobody_elses_work(
    files: Callable[[], File], work: Work, refused: bool
) -> None:
    for at in itertools.count():
        file, gate = files(), Gate(work)
        file.connection.set_commit_hook(gate.refuse_first if refused else None)
        interrupts = Interrupts(at, gate.is_open)
        leading = started(partial(interrupts.during, partial(write, file, gate)))
        assert gate.begun.wait(PATIENCE)
        one, bad, two = queue(file, [adding("one"), refusing("bad"), adding("two")])
        gate.open()
        assert isinstance(leading.exception(PATIENCE), KeyboardInterrupt | Refused | None)
        assert (one.result(PATIENCE), two.result(PATIENCE)) == ("one", "two")
        assert isinstance(bad.exception(PATIENCE), Refused)
        assert file.writers.write(adding("next"), patience=0) == "next"
        assert sorted(word for word in file.words() if word != "first") == ["next", "one", "two"]
        if not interrupts.came:
            break
    assert at > 0


def test_one_who_waits_keeps_nobody_from_writing(files: Callable[[], File]) -> None:
    for at in itertools.count():
        file, gate = files(), Gate(adding("first"))
        interrupts = Interrupts(at)
        leading = started(partial(write, file, gate))
        assert gate.begun.wait(PATIENCE)
        late = partial(write, file, adding("waiting"))
        waiting = started(partial(interrupts.during, late))
        while not (waiting.done() or file.writers._waiting):
            pass
        gate.open()
        assert leading.result(PATIENCE) == "first"
        assert isinstance(waiting.exception(PATIENCE), KeyboardInterrupt | None)
        assert file.writers.write(adding("next"), patience=0) == "next"
        assert [word for word in file.words() if word != "waiting"] == ["first", "next"]
        if not interrupts.came:
            break
    assert at > 0


@pytest.mark.parametrize("name", ["new", "taken"])
def test_a_store_goes_on(tmp_path: Path, name: str) -> None:
    """Also where the interrupt meets an error, and when a connection has to be opened."""
    store = SqliteStore(tmp_path / "a.db", busy_timeout=1.0)
    owner = store.create_session(session())
    store.put(checkpoint(owner.id, "taken"))
    for at in itertools.count():
        interrupts = Interrupts(at)
        draft = checkpoint(owner.id, name if name == "taken" else f"{name} {at}")
        if at % 2:
            # There is no connection left, and one has to be opened.
            store._file.pause()
            store._file.unpause()
        with suppress(KeyboardInterrupt, CheckpointExists):
            interrupts.during(partial(store.put, draft))
        following = started(partial(store.put, checkpoint(owner.id, f"next {at}")))
        assert following.result(PATIENCE).record.name == f"next {at}"
        assert store._file._borrowed == 0
        assert not any(one.in_transaction for one in store._file._idle)
        if not interrupts.came:
            break
    assert at > 0
    store.close()
