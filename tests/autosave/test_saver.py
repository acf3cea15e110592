"""Within the block: the timer, events, and what is saved."""

from __future__ import annotations

import contextvars
import inspect
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.autosave import CRITICAL_EVENTS, INTERVAL, Autosave
from holdfast.errors import InvalidFilter
from holdfast.sessions import Session
from tests.autosave.conftest import FakeClock, events


@pytest.mark.row("S1-12", "S1-41", "S1-101")
def test_every_thirty_seconds_what_changed_is_saved(session: Session, clock: FakeClock) -> None:
    assert INTERVAL == 30.0
    assert inspect.signature(session.autosave).parameters["interval"].default == 30.0
    state: dict[str, Any] = {"n": 1}
    with session.autosave(lambda: dict(state), clock=clock):
        clock.advance(29.9)
        assert events(session) == []
        clock.advance(0.1)
        assert events(session) == ["interval"]
        clock.advance(30)
        clock.advance(30)
        assert events(session) == ["interval"]
        state["n"] = 2
        clock.advance(29)
        assert events(session) == ["interval"]
        clock.advance(1)
        assert events(session) == ["interval", "interval"]
        assert session.latest_checkpoint().state == {"n": 2}
    assert events(session) == ["interval", "interval"]


@pytest.mark.row("S1-12")
def test_another_interval_is_honoured(session: Session, clock: FakeClock) -> None:
    state = {"n": 0}
    with session.autosave(lambda: dict(state), interval=5, clock=clock):
        for number in range(1, 4):
            state["n"] = number
            clock.advance(5)
            assert len(session.list_checkpoints()) == number


@pytest.mark.row("S1-12", "S1-101")
@pytest.mark.parametrize("off", [None, 0, 0.0])
def test_without_an_interval_only_the_timer_is_off(
    session: Session, clock: FakeClock, off: float | None
) -> None:
    state = {"n": 0}
    with session.autosave(lambda: dict(state), interval=off, clock=clock) as saver:
        clock.advance(1e9)
        assert events(session) == []
        saver.notify("task_completed")
        state["n"] = 1
        assert saver.flush() is not None
        state["n"] = 2
    assert events(session) == ["task_completed", "flush", "exit"]


def test_a_clock_that_jumps_an_hour_both_ways_costs_neither_saves_nor_patience(
    session: Session, clock: FakeClock
) -> None:
    state = {"n": 1}
    with session.autosave(lambda: dict(state), clock=clock):
        clock.advance(3600)
        assert events(session) == ["interval"]
        state["n"] = 2
        clock.advance(-3600)
        clock.advance(30)
        assert events(session) == ["interval"] * 2


@pytest.mark.row("S1-13", "S1-101")
def test_a_completed_task_is_one_checkpoint_before_the_call_returns(session: Session) -> None:
    state = {"task_state": {"tasks": [{"id": "parse", "status": "completed"}]}}
    with session.autosave(lambda: state) as saver:
        saved = saver.notify("task_completed", task="parse")
        (only,) = session.list_checkpoints()
        assert saved == only == saver.last_checkpoint
        assert (only.checkpoint_type, only.retention_class) == ("auto", "automatic")
        assert only.id in only.name
        assert only.metadata == {"event": "task_completed", "task": "parse"}
        assert only.state == state
        # The same state once more is another completed task, and so another checkpoint.
        saver.notify("task_completed", task="parse")
        assert len(session.list_checkpoints()) == 2
    assert len(session.list_checkpoints()) == 2


@pytest.mark.row("S1-14", "S1-101")
def test_a_spawned_agent_is_one_checkpoint_with_its_name(session: Session) -> None:
    with session.autosave(lambda: {"n": 1}) as saver:
        saver.notify("agent_spawned", agent="researcher")
        (only,) = session.list_checkpoints(metadata={"agent": "researcher"})
        assert only.metadata == {"event": "agent_spawned", "agent": "researcher"}
        assert len(session.list_checkpoints()) == 1


@pytest.mark.row("S1-101")
def test_custom_events_are_critical_when_declared(session: Session) -> None:
    with session.autosave(lambda: {"n": 1}, critical={"consensus_reached"}) as saver:
        assert saver.notify("token_received") is None
        assert events(session) == []
        assert saver.notify("consensus_reached") is not None
        saver.notify("task_completed")
        assert events(session) == ["consensus_reached", "task_completed"]


@pytest.mark.parametrize("event", sorted(CRITICAL_EVENTS))
def test_the_events_of_a_lifecycle_are_critical(session: Session, event: str) -> None:
    with session.autosave(dict) as saver:
        saver.notify(event)
    assert events(session) == [event]


def test_the_lifecycle_has_its_names() -> None:
    lifecycle = {"session.start", "session.end", "task.pre", "task.post", "agent.spawn"}
    assert lifecycle | {"pre-compact", "task_completed", "agent_spawned"} == CRITICAL_EVENTS


def test_details_that_cannot_be_stored_are_named_by_their_type(session: Session) -> None:
    with session.autosave(dict) as saver:
        saver.notify("task_completed", lock=threading.Lock(), tags={"a"}, event="theirs")
        assert saver.last_error is None
    (only,) = session.list_checkpoints()
    assert only.metadata == {"lock": "<lock>", "tags": {"a"}, "event": "task_completed"}


def test_what_was_saved_by_hand_is_not_saved_again(session: Session, clock: FakeClock) -> None:
    state = {"n": 1}
    with session.autosave(lambda: dict(state), clock=clock) as saver:
        session.save_checkpoint("by-hand", state={"n": 1})
        clock.advance(30)
        assert saver.flush() is None
    assert len(session.list_checkpoints()) == 1


def test_what_nobody_could_resume_from_is_saved_again(session: Session) -> None:
    with session.autosave(lambda: {"n": 1}):
        session.save_checkpoint("mid-call", state={"n": 1}, resumable=False)
    assert session.latest_checkpoint(resumable=True).state == {"n": 1}


def test_a_resumed_session_is_saved_when_it_changes(
    session: Session, manager: SessionManager, clock: FakeClock
) -> None:
    state = {"n": 1, "text": "long " * 5000}
    session.save_checkpoint("one", state=state)
    resumed = manager.resume_session(session.id)
    with resumed.autosave(lambda: dict(state), clock=clock):
        clock.advance(30)
        assert len(session.list_checkpoints()) == 1
        state["n"] = 2
        clock.advance(30)
        assert len(session.list_checkpoints()) == 2


def test_having_gone_back_is_a_change(session: Session, clock: FakeClock) -> None:
    session.save_checkpoint("one", state={"n": 1})
    session.save_checkpoint("two", state={"n": 2})
    session.load_checkpoint("one")
    with session.autosave(lambda: {"n": 1}, clock=clock):
        clock.advance(30)
    assert session.latest_checkpoint().state == {"n": 1}
    assert len(session.list_checkpoints()) == 3


@pytest.mark.row("T1")
def test_stopping_with_pending_changes_saves_them(session: Session) -> None:
    state = {"n": 0}
    saver = session.autosave(lambda: dict(state)).start()
    assert saver.is_running
    state["n"] = 7
    saver.stop()
    assert not saver.is_running
    assert session.latest_checkpoint().state == {"n": 7}
    saver.stop()
    assert events(session) == ["exit"]
    with saver:  # it may be used again
        state["n"] = 8
    assert events(session) == ["exit", "exit"]


@pytest.mark.row("T2")
def test_an_autosaved_checkpoint_is_complete_on_its_own(session: Session) -> None:
    tasks = [{"id": f"task-{number}", "status": "completed"} for number in range(4)]
    state: dict[str, Any] = {}
    with session.autosave(lambda: dict(state)) as saver:
        for at in range(3):
            # Each save mentions only what was done last and what is next.
            doing = [tasks[at], {"id": f"task-{at + 1}", "status": "pending"}]
            state["task_state"] = {"tasks": doing}
            saver.notify("task_completed")
    latest = session.latest_checkpoint()
    known = {task["id"]: task["status"] for task in latest.task_state["tasks"]}
    assert known == {
        "task-0": "completed", "task-1": "completed", "task-2": "completed", "task-3": "pending",
    }  # fmt: skip
    assert latest.progress == {"completed": 3, "total": 4, "percent": 75.0}


@pytest.mark.row("S1-15")
def test_an_exception_saves_and_goes_on(session: Session) -> None:
    state = {"n": 1}
    with pytest.raises(ZeroDivisionError), session.autosave(lambda: dict(state)):
        state["n"] = 1 // 0
    assert session.latest_checkpoint().metadata == {"event": "exit", "error": "ZeroDivisionError"}
    assert session.status == "active"


def test_completing_the_session_saves_first(session: Session) -> None:
    state = {"n": 1}
    with session.autosave(lambda: dict(state)) as saver:
        saver.flush()
        state["n"] = 2
        session.complete()
        assert saver.notify("task_completed") is None
    assert session.latest_checkpoint().state == {"n": 2}
    assert (saver.last_error, session.logs()) == (None, [])


def test_pausing_the_session_saves_first_and_ends_the_saving(session: Session) -> None:
    state = {"n": 1}
    with session.autosave(lambda: dict(state)) as saver:
        saver.flush()
        state["n"] = 2
        assert session.pause("approval").state == {"n": 2}
        state["n"] = 3
        assert saver.notify("task_completed") is None
    assert session.latest_checkpoint().state == {"n": 2}
    assert (saver.last_error, session.status) == (None, "paused")


def test_no_thread_is_left(session: Session) -> None:
    before = set(threading.enumerate())
    with session.autosave(lambda: {"n": 1}):
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert names == {"holdfast-autosave", "holdfast-signals"}
    assert set(threading.enumerate()) == before


def test_the_provider_sees_the_callers_context(session: Session) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    with session.autosave(lambda: {"seen": variable.get()}):
        pass
    assert session.latest_checkpoint().state == {"seen": "set"}


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "30", True, -0.001, 1e300, 10**400])
@pytest.mark.parametrize("option", ["interval", "timeout", "child_grace"])
def test_times_that_mean_nothing_are_refused(session: Session, option: str, value: Any) -> None:
    with pytest.raises(InvalidFilter, match=option):
        session.autosave(dict, **{option: value})


@pytest.mark.parametrize("critical", ["task", [1], {None}, 5], ids=repr)
def test_events_that_are_no_names_are_refused(session: Session, critical: Any) -> None:
    with pytest.raises(InvalidFilter, match="critical"):
        session.autosave(dict, critical=critical)
    with session.autosave(dict) as saver, pytest.raises(InvalidFilter, match="event"):
        saver.notify(7)  # type: ignore[arg-type]


def test_a_provider_that_is_no_function_is_refused(session: Session) -> None:
    with pytest.raises(InvalidFilter, match="provider"):
        session.autosave({"n": 1})  # type: ignore[arg-type]


def test_only_five_automatic_checkpoints_are_kept(session: Session) -> None:
    with session.autosave(lambda: {"n": 1}) as saver:
        for _ in range(8):
            saver.notify("task_completed")
    assert len(session.list_checkpoints()) == 5


@pytest.mark.parametrize("store", ["memory", "postgres"])
def test_every_store_will_do(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = "memory:" if store == "memory" else request.getfixturevalue("postgres_url")
    with SessionManager.open(url, project_dir=tmp_path, workspace=False) as manager:
        session = manager.create_session("tester")
        state = {"n": 1, "history": ["message " * 200] * 50}
        with session.autosave(lambda: dict(state)) as saver:
            saver.notify("task_completed")
            assert saver.flush() is None
            state["n"] = 2
        assert events(session) == ["task_completed", "exit"]
        assert isinstance(saver, Autosave)
