"""When a save is due, by a clock that nobody sets."""

from __future__ import annotations

from queue import SimpleQueue

from holdfast.autosave.schedule import LONGEST_WAIT, MonotonicClock, Schedule


def test_it_is_due_once_in_every_interval() -> None:
    schedule = Schedule(30.0, 100.0)
    assert schedule.wait(100.0) == 30.0
    assert not schedule.is_due(129.9)
    assert schedule.is_due(130.0)
    assert not schedule.is_due(130.0)
    assert schedule.wait(131.0) == 29.0
    assert schedule.is_due(160.0)


def test_without_an_interval_it_is_never_due() -> None:
    schedule = Schedule(None, 100.0)
    assert schedule.wait(100.0) is None
    assert not schedule.is_due(1e12)


def test_a_clock_that_jumps_ahead_is_due_once() -> None:
    schedule = Schedule(30.0, 0.0)
    assert schedule.is_due(3600.0)
    assert not schedule.is_due(3600.0)
    assert schedule.wait(3600.0) == 30.0


def test_a_clock_that_jumps_back_waits_one_interval_at_most() -> None:
    schedule = Schedule(30.0, 10_000.0)
    assert schedule.wait(6400.0) == 30.0
    assert schedule.is_due(6430.0)


def test_a_long_interval_is_waited_for_in_parts() -> None:
    assert Schedule(1e15, 0.0).wait(0.0) == LONGEST_WAIT


def test_the_systems_clock_waits_for_what_arrives() -> None:
    clock, inbox = MonotonicClock(), SimpleQueue[str | None]()
    inbox.put("request")
    assert clock.wait(inbox, None) == "request"
    assert clock.wait(inbox, 0.0) is None
    assert clock.now() <= clock.now()
