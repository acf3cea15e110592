"""Workers that are processes: contested, paused, killed, recovered. One holds a session at a time."""

import pytest

from holdfast import SessionManager
from holdfast.errors import CheckpointBusy
from tests.leases.conftest import Start


@pytest.fixture
def manager(url: str) -> SessionManager:
    return SessionManager.open(url, workspace=False)


def names(manager: SessionManager, session_id: str) -> list[str]:
    return [one.name for one in manager.get_session(session_id).list_checkpoints()]


@pytest.mark.row("S3-05")
def test_two_processes_contest_sessions_and_each_is_won_once(
    manager: SessionManager, start: Start
) -> None:
    ids = [f"session-{number:03}" for number in range(60)]
    for session_id in ids:
        manager.create_session("worker", session_id=session_id).close()
    workers = [start(), start()]
    for worker in workers:
        worker.tell("contest", *ids)
    won = [worker.answer() for worker in workers]
    assert sorted([*won[0], *won[1]]) == ids
    # Whoever lost cannot write, and whoever won can.
    for mine, theirs, worker in ((won[0], won[1], workers[0]), (won[1], won[0], workers[1])):
        for session_id in mine[:1]:
            assert worker.do("save", session_id, "won") == "won"
        for session_id in theirs[:1]:
            assert worker.do("resume", session_id)["error"] == "checkpoint_busy"
    manager.close()


@pytest.mark.row("S3-05")
def test_a_holder_is_named_to_whoever_comes_second(manager: SessionManager, start: Start) -> None:
    worker = start()
    worker.do("create", "busy")
    with pytest.raises(CheckpointBusy, match=rf"process {worker.pid} on \S+ since .* until"):
        manager.resume_session("busy")
    with pytest.raises(CheckpointBusy):
        manager.hold_session("busy")
    with manager.resume_session("busy", take_over=True) as session:
        session.save_checkpoint("mine")
        assert worker.do("save", "busy", "theirs")["error"] == "lease_lost"
        assert worker.do("complete", "busy")["error"] == "lease_lost"
        assert worker.do("step", "busy", "charge")["error"] == "lease_lost"
    assert names(manager, "busy") == ["mine"]
    assert manager.get_session("busy").status == "active"
    assert manager.get_session("busy").effects() == []
    assert "taken over" in manager.get_session("busy").logs()[0].message
    manager.close()


@pytest.mark.row("S3-05", "S1-05")
def test_a_killed_holder_is_replaced_at_once(manager: SessionManager, start: Start) -> None:
    worker = start("3600")
    worker.do("create", "killed")
    worker.do("save", "killed", "before")
    worker.kill()
    with manager.resume_session("killed") as session:
        assert session.state == {"by": "before"}
        assert session.status == "active"
        assert session.record.resumed_at is not None
        session.save_checkpoint("after")
    with manager.resume_session("killed", checkpoint="before") as session:
        assert session.state == {"by": "before"}
    assert names(manager, "killed") == ["after", "before"]
    manager.close()


def test_a_holder_that_slept_past_its_lease_writes_nothing(
    manager: SessionManager, start: Start
) -> None:
    worker = start("0.5")
    worker.do("create", "slept")
    worker.do("save", "slept", "before")
    worker.stop()
    with pytest.raises(CheckpointBusy):
        manager.resume_session("slept")
    while not manager.store.list_leases()[0].expired:
        pass
    session = manager.resume_session("slept")
    # It was about to write when it was stopped, and does so now that it wakes up.
    worker.tell("save", "slept", "too late")
    worker.wake()
    assert worker.answer()["error"] == "lease_lost"
    assert worker.do("complete", "slept")["error"] == "lease_lost"
    assert worker.do("step", "slept", "charge")["error"] == "lease_lost"
    session.save_checkpoint("after")
    assert names(manager, "slept") == ["after", "before"]
    assert manager.get_session("slept").status == "active"
    assert session.effects() == []
    manager.close()


def test_a_holder_that_slept_past_its_lease_goes_on_if_nobody_took_it(
    manager: SessionManager, start: Start
) -> None:
    worker = start("0.5")
    worker.do("create", "slept")
    worker.stop()
    while not manager.store.list_leases()[0].expired:
        pass
    worker.wake()
    assert worker.do("save", "slept", "still mine") == "still mine"
    manager.close()


def test_a_program_that_ends_gives_its_sessions_back(manager: SessionManager, start: Start) -> None:
    worker = start("3600")
    worker.do("create", "given back")
    (lease,) = manager.store.list_leases()
    assert worker.end() == 0
    assert manager.store.list_leases() == []
    found = manager.store.find_session("given back")
    assert found is not None
    assert (found.lease_token, found.status) == (lease.token + 1, "active")
    assert manager.recover() == []
    manager.close()


@pytest.mark.row("S1-22")
def test_of_many_who_recover_one_finds_the_session_of_a_dead_worker(
    manager: SessionManager, start: Start
) -> None:
    dead, alive = start("3600"), start("3600")
    ids = [f"dead-{number:02}" for number in range(12)]
    for session_id in ids:
        dead.do("create", session_id)
        dead.do("save", session_id, "before")
    alive.do("create", "alive")
    assert manager.recover() == []
    dead.kill()
    recoverers = [start() for _ in range(4)]
    for one in recoverers:
        one.tell("recover")
    found = [one.answer() for one in recoverers]
    assert sorted(session_id for one in found for session_id in one) == ids
    for session_id in ids:
        record = manager.get_session(session_id).record
        assert (record.status, record.recoveries, record.lease_owner) == ("interrupted", 1, None)
        (line,) = manager.get_session(session_id).logs()
        assert f"process {dead.pid}" in line.message
        assert "has ended" in line.message
    # The other worker was not disturbed, let alone ended.
    assert manager.get_session("alive").status == "active"
    assert alive.do("save", "alive", "still here") == "still here"
    with manager.resume_session(ids[0]) as session:
        assert (session.status, session.state) == ("active", {"by": "before"})
    manager.close()


def test_agents_of_one_name_act_as_one(manager: SessionManager, start: Start) -> None:
    first, second = start("3600", "agent:claude:7"), start("3600", "agent:claude:7")
    first.do("create", "shared")
    assert first.do("save", "shared", "one") == "one"
    assert second.do("resume", "shared") == {"by": "one"}
    assert second.do("save", "shared", "two") == "two"
    assert first.do("save", "shared", "three") == "three"
    # A short process of many does not end the lease that the others go on with.
    assert second.end() == 0
    assert first.do("save", "shared", "four") == "four"
    with pytest.raises(CheckpointBusy, match="agent:claude:7"):
        manager.resume_session("shared")
    # Whoever types a command comes before an agent.
    with manager.hold_session("shared") as session:
        session.save_checkpoint("by hand")
        assert first.do("save", "shared", "five")["error"] == "lease_lost"
    first.do("resume", "shared")
    assert first.do("save", "shared", "six") == "six"
    assert names(manager, "shared") == ["six", "by hand", "four", "three", "two", "one"]
    manager.close()
