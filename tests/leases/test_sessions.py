"""Sessions and their leases within one process."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import CheckpointConfig, SessionManager, SQLiteCheckpointSaver, leases
from holdfast.errors import (
    AlreadyResumed,
    CheckpointBusy,
    CheckpointNotFound,
    InvalidIdentifier,
    LeaseLost,
    SessionNotFound,
    SessionNotHeld,
    StoreBusy,
)
from holdfast.model import LEASE_TTL, NewSession, SessionRecord
from holdfast.processes import this_process
from holdfast.stores import sqlite_sessions
from holdfast.stores.memory import MemoryStore
from holdfast.testing.drafts import session as draft

QUICK = timedelta(milliseconds=150)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "sessions.db")


@pytest.fixture
def open_manager(path: str) -> Iterator[Callable[..., SessionManager]]:
    opened: list[SessionManager] = []

    def another(owner: str | None = None, ttl: timedelta = LEASE_TTL) -> SessionManager:
        opened.append(SessionManager.open(path, workspace=False, owner=owner, lease_ttl=ttl))
        return opened[-1]

    yield another
    for manager in opened:
        manager.close()


Open = Callable[..., SessionManager]


def until(happened: Callable[[], bool]) -> None:
    """Wait for what another thread does; the suite's own limit ends a wait in vain."""
    pause = threading.Event()
    while not happened():
        pause.wait(0.01)


@pytest.mark.parametrize("ttl", [30, "30", None, timedelta(0), timedelta.max], ids=repr)
def test_a_lease_that_lasts_no_time_or_too_long_is_refused(open_manager: Open, ttl: Any) -> None:
    with pytest.raises(InvalidIdentifier, match="lease"):
        open_manager(ttl=ttl)


def test_a_new_session_is_held_by_its_process(open_manager: Open) -> None:
    manager = open_manager()
    session = manager.create_session("a")
    assert session.is_held
    assert session.record.lease_owner == str(this_process())
    session.close()
    session.close()
    assert not session.is_held
    assert manager.store.list_leases() == []
    with pytest.raises(SessionNotHeld, match="closed"):
        session.save_checkpoint("late")


def test_a_reader_looks_and_writes_nothing(open_manager: Open) -> None:
    manager = open_manager()
    session = manager.create_session("a")
    session.save_checkpoint("one", state={"n": 1})
    reader = open_manager("agent:test:reader").get_session(session.id)
    assert not reader.is_held
    assert reader.state == {"n": 1}
    assert reader.load_checkpoint("one").state == {"n": 1}
    before = manager.store.find_session(session.id)
    for write in (
        lambda: reader.save_checkpoint("two"),
        lambda: reader.delete_checkpoint("one"),
        reader.complete,
        reader.fail,
        lambda: reader.update_metadata({"a": 1}),
        lambda: reader.step("step", print),
    ):
        with pytest.raises(SessionNotHeld, match="resume"):
            write()
    assert manager.store.find_session(session.id) == before
    assert [one.name for one in reader.list_checkpoints()] == ["one"]
    reader.log("info", "logs are not fenced")
    reader.close()
    assert session.is_held


def test_all_managers_of_a_process_are_one_owner(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    session = first.create_session("a")
    again = second.resume_session(session.id)
    once_more = second.resume_session(session.id)
    again.save_checkpoint("two", state={"n": 2})
    session.save_checkpoint("three", state={"n": 3})
    second.close()
    # The other manager goes on with it, and gives it back at the end.
    assert session.is_held
    assert not once_more.is_held
    session.save_checkpoint("four")
    session.close()
    assert open_manager().store.list_leases() == []


def test_an_object_that_nobody_can_reach_does_not_keep_the_lease(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    session = first.create_session("a")
    session.save_checkpoint("one", state={})
    session = second.resume_session(session.id)
    gc.collect()
    session.close()
    assert second.store.list_leases() == []
    # The heartbeat gives up what was dropped, and takes nothing from whoever has it now.
    with open_manager("another").resume_session(session.id) as others:
        first._leases.beat()
        assert others.save_checkpoint("two", state={}).name == "two"


@pytest.mark.parametrize("first", ["old", "new"])
def test_a_lease_that_was_taken_again_is_given_back_beside_the_lost_one(
    open_manager: Open, first: str
) -> None:
    manager = open_manager()
    old = manager.create_session("a")
    old.save_checkpoint("one", state={})
    open_manager("another").resume_session(old.id, take_over=True).close()
    new = manager.resume_session(old.id)
    one, other = (old, new) if first == "old" else (new, old)
    one.close()
    assert new.is_held == (first == "old")
    assert len(manager.store.list_leases()) == (1 if first == "old" else 0)
    other.close()
    assert manager.store.list_leases() == []


def test_the_end_of_a_block_gives_a_session_back(open_manager: Open) -> None:
    manager = open_manager()
    with manager.create_session("a") as session:
        assert session.is_held
    assert manager.store.list_leases() == []
    manager.create_session("b")
    manager.close()
    assert open_manager().store.list_leases() == []


def test_a_resume_that_fails_gives_the_session_back(open_manager: Open) -> None:
    manager = open_manager()
    with manager.create_session("a") as session:
        pass
    with pytest.raises(LookupError):
        manager.resume_session(session.id, checkpoint="no such checkpoint")
    assert manager.store.list_leases() == []


def test_an_agent_whose_resume_fails_gives_back_what_it_took_for_it(open_manager: Open) -> None:
    owner, agent, other = open_manager(), open_manager("agent:one"), open_manager("agent:other")
    session = owner.create_session("a")
    session.save_checkpoint("known", state={"n": 1})
    session.close()
    with pytest.raises(CheckpointNotFound):
        agent.resume_session(session.id, checkpoint="unknown")
    with other.resume_session(session.id) as resumed:
        assert resumed.is_held
        resumed.close(release=True)

    # What the agent had before, other processes of it may be working with.
    agent.resume_session(session.id)
    with pytest.raises(CheckpointNotFound):
        agent.resume_session(session.id, checkpoint="unknown")
    with pytest.raises(CheckpointBusy):
        other.resume_session(session.id)


def test_a_second_line_can_be_forked_from_a_session_that_is_held(open_manager: Open) -> None:
    first, second = open_manager("agent:test:1"), open_manager("agent:test:2")
    session = first.create_session("a")
    session.save_checkpoint("one", state={"n": 1})
    with pytest.raises(CheckpointBusy):
        second.resume_session(session.id)
    forked = second.resume_session(session.id, fork=True)
    assert forked.id != session.id
    assert forked.state == {"n": 1}
    forked.save_checkpoint("two")
    session.save_checkpoint("two")


class Broken(MemoryStore):
    """A store that fails where it is told to."""

    failing = ""

    def find_session(self, session_id: str) -> SessionRecord | None:
        if self.failing == "find":
            raise StoreBusy("busy")
        return super().find_session(session_id)

    def release_lease(self, session_id: str, token: int) -> bool:
        if self.failing == "release":
            raise StoreBusy("busy")
        return super().release_lease(session_id, token)


def test_a_resume_that_the_store_fails_leaves_nobody_waiting() -> None:
    store = Broken()
    manager = SessionManager(store, workspace=False)
    with manager.create_session("a", session_id="s"):
        pass
    real = store.acquire_lease

    def acquire(*args: Any, **kwargs: Any) -> Any:
        store.failing = "find"
        return real(*args, **kwargs)

    store.acquire_lease = acquire  # type: ignore[method-assign]
    with pytest.raises(StoreBusy):
        manager.resume_session("s")
    assert store.list_leases() == []


def test_what_went_wrong_in_a_block_is_not_hidden_by_a_lease_that_stays() -> None:
    store = Broken()
    manager = SessionManager(store, workspace=False)

    def work() -> None:
        with manager.create_session("a"):
            store.failing = "release"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    (lease,) = store.list_leases()
    assert not lease.expired
    manager.close()


@pytest.mark.row("S3-05")
@pytest.mark.parametrize("rounds", [1000])
def test_a_thousand_contested_resumes_have_one_winner_each(rounds: int) -> None:
    store = MemoryStore()
    managers = [
        SessionManager(store, workspace=False, owner=f"agent:worker:{number}")
        for number in range(2)
    ]
    session_id = managers[0].create_session("a", session_id="contested").id
    store.release_lease(session_id, 1)
    together = threading.Barrier(2)
    won: list[list[int]] = [[], []]

    def contest(number: int) -> None:
        for turn in range(rounds):
            together.wait()
            try:
                session = managers[number].resume_session(session_id)
            except CheckpointBusy:
                together.wait()
                continue
            session.save_checkpoint(f"turn {turn}")
            won[number].append(turn)
            together.wait()
            session.close(release=True)

    threads = [threading.Thread(target=contest, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted([*won[0], *won[1]]) == list(range(rounds))


@pytest.mark.row("S3-05")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_thousand_contested_leases_have_one_winner_each(
    kind: str, path: str, request: pytest.FixtureRequest
) -> None:
    url = path if kind == "sqlite" else request.getfixturevalue("postgres_url")
    owners = ["agent:worker:0", "agent:worker:1"]
    managers = [SessionManager.open(url, workspace=False, owner=owner) for owner in owners]
    managers[0].create_session("a", session_id="contested").close(release=True)
    together = threading.Barrier(2)
    won: list[list[int]] = [[], []]

    def contest(number: int) -> None:
        store = managers[number].store
        for turn in range(1000):
            together.wait()
            try:
                lease = store.acquire_lease("contested", owners[number])
            except CheckpointBusy:
                together.wait()
                continue
            won[number].append(turn)
            together.wait()
            store.release_lease("contested", lease.token)

    threads = [threading.Thread(target=contest, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for manager in managers:
        manager.close()
    assert sorted([*won[0], *won[1]]) == list(range(1000))


def test_the_heartbeat_keeps_a_lease_alive(open_manager: Open) -> None:
    manager = open_manager(ttl=QUICK)
    session = manager.create_session("a")
    first = manager.store.list_leases()[0].expires_at
    until(lambda: manager.store.list_leases()[0].expires_at > first + 3 * QUICK)
    assert session.is_held
    session.save_checkpoint("still mine")


def test_the_heartbeat_finds_out_that_a_lease_is_lost(open_manager: Open) -> None:
    manager = open_manager(ttl=QUICK)
    session, other = manager.create_session("a"), manager.create_session("b")
    manager.store.acquire_lease(session.id, "thief", over=session.record.lease_token)
    until(lambda: not session.is_held)
    with pytest.raises(LeaseLost, match="taken over"):
        session.save_checkpoint("lost")
    assert other.is_held
    session.close()
    assert [lease.owner for lease in manager.store.list_leases(session_id=session.id)] == ["thief"]


def test_a_worker_of_an_erased_session_is_a_stranger_to_the_next_one_with_its_id(
    open_manager: Open,
) -> None:
    first, second = open_manager("worker 1"), open_manager("worker 2")
    old = first.create_session("a", session_id="customer-42")
    first.delete_session("customer-42")
    new = second.create_session("b", session_id="customer-42")
    for write in (lambda: old.save_checkpoint("late", state={}), lambda: old.step("pay", str)):
        with pytest.raises(LeaseLost):
            write()
    old.close()
    assert new.step("pay", lambda: "new") == "new"
    assert new.save_checkpoint("mine", state={}).name == "mine"
    assert [one.name for one in new.list_checkpoints()] == ["mine"]


@pytest.mark.parametrize("tokens", [(5, 500), (500, 5)], ids=["higher", "lower"])
def test_a_session_that_was_made_again_is_kept_alive(
    open_manager: Open, monkeypatch: pytest.MonkeyPatch, tokens: tuple[int, int]
) -> None:
    manager = open_manager(ttl=QUICK)
    monkeypatch.setattr(sqlite_sessions, "first_token", iter(tokens).__next__)
    old = manager.create_session("a", session_id="again")
    manager.store.delete_session("again")
    new = manager.create_session("a", session_id="again")
    until(lambda: not old.is_held)
    assert new.is_held
    (before,) = manager.store.list_leases()
    until(lambda: manager.store.list_leases()[0].expires_at > before.expires_at)
    assert new.is_held


def test_a_session_that_nobody_can_reach_any_more_is_given_back(open_manager: Open) -> None:
    manager = open_manager(ttl=QUICK)
    kept = manager.create_session("kept")
    manager.create_session("dropped")
    gc.collect()
    until(lambda: len(manager.store.list_leases()) == 1)
    assert manager.store.list_leases()[0].session_id == kept.id


def test_a_forked_child_does_not_write_with_its_parents_lease(open_manager: Open) -> None:
    manager = open_manager()
    session = manager.create_session("a")
    child = os.fork()
    if not child:
        code = 1
        try:
            session.save_checkpoint("child")
        except LeaseLost:
            try:
                manager.resume_session(session.id)
            except CheckpointBusy:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.save_checkpoint("parent")
    assert [one.name for one in session.list_checkpoints()] == ["parent"]


def test_savers_write_only_while_nobody_holds_the_thread(open_manager: Open, path: str) -> None:
    manager = open_manager()
    with SQLiteCheckpointSaver(path) as saver:
        saver.put(CheckpointConfig("thread"), {"n": 1})
        with manager.resume_session("thread") as session:
            with pytest.raises(CheckpointBusy, match=f"process {os.getpid()}"):
                saver.put(CheckpointConfig("thread"), {"n": 2})
            assert session.state == {"n": 1}
        saver.put(CheckpointConfig("thread"), {"n": 3})
        assert manager.get_session("thread").state == {"n": 3}


@pytest.mark.row("S1-22")
def test_a_reused_process_id_is_not_mistaken_for_the_worker(open_manager: Open) -> None:
    manager = open_manager()
    # This process lives, under the same id, but it is not the one that held the session.
    former = str(this_process()._replace(started="1"))
    manager.store.create_session(_draft("active", former))
    manager.store.create_session(_draft("paused", former))
    manager.store.update_session("paused", status="paused")
    (found,) = manager.recover()
    assert (found.id, found.status) == ("active", "interrupted")
    assert manager.get_session("paused").status == "paused"
    assert manager.store.list_leases() == []
    assert manager.recover() == []
    assert manager.resume_session("active").status == "active"


def _draft(session_id: str, owner: str) -> NewSession:
    return draft(id=session_id, lease_owner=owner)


def test_work_that_kills_its_workers_is_given_up_in_the_end(open_manager: Open) -> None:
    manager = open_manager()
    dead = str(this_process()._replace(started="1"))
    manager.store.create_session(_draft("deadly", dead))
    statuses = []
    for _ in range(3):
        (found,) = manager.recover(max_attempts=2)
        statuses.append((found.status, found.recoveries))
        manager.store.update_session("deadly", status="active")
        manager.store.acquire_lease("deadly", dead)
    assert statuses == [("interrupted", 1), ("interrupted", 2), ("failed", 3)]


def test_an_own_session_is_not_recovered_and_an_expired_one_is(open_manager: Open) -> None:
    manager = open_manager(ttl=QUICK)
    mine = manager.create_session("mine")
    theirs = open_manager("agent:test:1").create_session("theirs")
    far = str(this_process()._replace(host="elsewhere"))
    token = manager.store.create_session(_draft("far", far)).lease_token
    assert manager.recover() == []
    manager.store.renew_leases({"far": token}, ttl=timedelta(microseconds=1))
    (found,) = manager.recover()
    assert found.id == "far"
    assert (mine.is_held, theirs.is_held) == (True, True)


def test_a_silent_agent_is_not_recovered_while_its_process_lives(open_manager: Open) -> None:
    store = open_manager().store
    lives = this_process()
    processes = {
        "silent": lives,
        "dead": lives._replace(started="1"),
        "far": lives._replace(host="elsewhere"),
    }
    for name, process in processes.items():
        about = {"agent_process": str(process)}
        given = draft(id=name, lease_owner=f"agent:test:{name}", metadata=about)
        token = store.create_session(given).lease_token
        store.renew_leases({name: token}, ttl=timedelta(microseconds=1))
    assert {one.id for one in open_manager().recover()} == {"dead", "far"}
    assert [(one.session_id, one.expired) for one in store.list_leases()] == [("silent", True)]


@pytest.mark.parametrize("owner", ["", "process:me:1:2:3", "a\0b"])
def test_an_owner_must_have_a_name_and_not_that_of_a_process(
    open_manager: Open, owner: str
) -> None:
    with pytest.raises(InvalidIdentifier):
        open_manager(owner)


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(days=1)], ids=["none", "a day"])
def test_a_lease_lasts_some_time_and_not_too_long(open_manager: Open, ttl: timedelta) -> None:
    with pytest.raises(InvalidIdentifier):
        open_manager(ttl=ttl)


def test_who_gave_way_to_a_command_goes_on_from_what_it_left(open_manager: Open) -> None:
    wrapper = open_manager("agent:run:1").create_session("a")
    wrapper.save_checkpoint("first", state={"n": 1})
    assert wrapper.rejoin() is False
    command = open_manager().hold_session(wrapper.id)
    between = command.save_checkpoint("between", state={"n": 2})
    with pytest.raises(LeaseLost):
        wrapper.save_checkpoint("refused", state={"n": 3})
    with pytest.raises(CheckpointBusy):
        wrapper.rejoin()
    command.close()
    assert wrapper.rejoin() is True
    assert wrapper.state == {"n": 2}
    assert wrapper.save_checkpoint("after", state={"n": 3}).parent_id == between.id
    with pytest.raises(SessionNotHeld):
        command.save_checkpoint("late", state={})


def test_who_was_taken_for_dead_is_active_again(open_manager: Open) -> None:
    manager = open_manager("agent:run:1")
    worker = manager.create_session("a")
    manager.interrupt_session(worker.id, message="nobody heard of it")
    assert worker.rejoin() is True
    assert (worker.status, manager.get_session(worker.id).status) == ("active", "active")


@pytest.mark.parametrize("bad", [None, "", 5], ids=repr)
def test_what_is_no_session_interrupts_none(open_manager: Open, bad: Any) -> None:
    worker = open_manager().create_session("a")
    with pytest.raises(InvalidIdentifier):
        open_manager().interrupt_session(bad, message="nobody heard of it")
    worker.save_checkpoint("still mine", state={})


def test_a_session_that_was_resumed_or_made_again_is_not_taken_back(open_manager: Open) -> None:
    manager, other = open_manager("agent:run:1"), open_manager()
    worker = manager.create_session("a", session_id="work")
    other.resume_session("work", take_over=True).close()
    with pytest.raises(AlreadyResumed):
        worker.rejoin()
    assert other.store.list_leases() == []
    worker = manager.create_session("a", session_id="more")
    other.delete_session("more")
    with pytest.raises(SessionNotFound):
        worker.rejoin()
    other.create_session("a", session_id="more").close()
    with pytest.raises(SessionNotFound):
        worker.rejoin()
    assert other.store.list_leases() == []


def test_what_was_closed_is_not_held_again(open_manager: Open) -> None:
    manager, other = open_manager("agent:run:1"), open_manager()
    worker = manager.create_session("a")
    worker.close(release=True)
    other.hold_session(worker.id).close()
    for session in (worker, manager.get_session(worker.id)):
        with pytest.raises(SessionNotHeld):
            session.rejoin()
    assert other.store.list_leases() == []


@pytest.mark.parametrize("asks", ["command:", "agent:run:"])
def test_a_command_waits_for_another_one(
    open_manager: Open, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    other = this_process()._replace(host="elsewhere")
    held = open_manager(f"command:{other}").create_session("a", session_id="s")
    monkeypatch.setattr(time, "sleep", lambda _: held.close())
    assert open_manager(f"{asks}{this_process()}").resume_session("s").is_held


@pytest.mark.parametrize(
    ("holds", "asks"),
    [(None, "command"), ("agent:a:b", "command"), ("command", None), ("command", "agent:a:b")],
)
def test_nobody_else_waits_and_no_command_for_anybody_else(
    open_manager: Open, monkeypatch: pytest.MonkeyPatch, holds: str | None, asks: str | None
) -> None:
    here, there = this_process(), this_process()._replace(host="elsewhere")
    owners = {"command": f"command:{there}", None: f"worker:{here}"}
    open_manager(owners.get(holds, holds)).create_session("a", session_id="s")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waited"))
    asking = open_manager(owners.get(asks, asks) if asks != "command" else f"command:{here}")
    with pytest.raises(CheckpointBusy):
        asking.resume_session("s")


def test_a_command_is_not_waited_for_without_an_end(
    open_manager: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = open_manager(f"command:{this_process()._replace(host='elsewhere')}")
    held.create_session("a", session_id="s")
    monkeypatch.setattr(leases, "_PATIENCE", 0.0)
    with pytest.raises(CheckpointBusy):
        open_manager(f"command:{this_process()}").hold_session("s")
