"""What a program holds: a block within which its session saves itself."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from holdfast.autosave.children import Child, end_children, find_child
from holdfast.autosave.fallback import FallbackLog
from holdfast.autosave.reports import OUT_OF_REACH, Reported, Reports
from holdfast.autosave.schedule import Clock, MonotonicClock, Schedule
from holdfast.autosave.signals import dispatcher
from holdfast.errors import (
    HoldfastError,
    InvalidFilter,
    NotInitialised,
    ProviderTooSlow,
    StateNotSerializable,
    StoreBusy,
)
from holdfast.state.tags import tagged

INTERVAL: Final = 30.0
"""Seconds between two looks at the state, unless something else is asked for."""

CRITICAL_EVENTS: Final = frozenset(
    {
        "task_completed",
        "agent_spawned",
        "session.start",
        "session.end",
        "task.pre",
        "task.post",
        "agent.spawn",
        "pre-compact",
    }
)
"""Events that are saved at once, whatever else is declared critical."""

# How often someone who waits looks whether the thread that is to answer is still there.
_LOOK: Final = 0.1

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
Provider = Callable[[], Mapping[str, Any]]


class Target(Reported, Protocol[S_co]):
    """What is saved to: a session, as far as autosave needs to know it."""

    @property
    def project_dir(self) -> Path:
        """Where the fallback log belongs."""
        ...

    @property
    def is_final(self) -> bool:
        """Whether the session was completed, or paused and given back: it takes no more saves."""
        ...

    def differs(self, state: Mapping[str, Any]) -> bool:
        """Tell whether this is another state than the one last saved."""
        ...

    def save(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> S_co:
        """Store an automatic checkpoint. One that `pause` has paused is active again."""
        ...

    @property
    def paused_by(self) -> str | None:
        """For what `pause` has paused the session, if nothing was saved since."""
        ...

    def pause(self, reason: str) -> None:
        """Mark the session as paused, if it is active."""
        ...

    def release(self) -> None:
        """Let others take the session."""
        ...


@dataclass(slots=True)
class _Request(Generic[S]):
    """One save that somebody asks the saving thread for.

    ``always`` saves an unchanged state too. ``pause`` is why the session is to be paused afterwards.
    ``last`` ends the thread. ``result`` is the checkpoint, if there is one, once it is ``done``.
    """

    metadata: Mapping[str, Any]
    always: bool = False
    pause: str | None = None
    last: bool = False
    result: S | None = None
    done: SimpleQueue[None] = field(default_factory=SimpleQueue)

    @property
    def event(self) -> str:
        return str(self.metadata["event"])


class Autosave(Generic[S]):
    """Saves a session by itself: on a timer, on critical events, at the end. See `Session.autosave`.

    with session.autosave(agent.get_state) as saver:
        saver.notify("task_completed", task="parse")
    """

    run_in_main: Callable[[Callable[[], None]], object] | None = None
    """For the async twin, whose provider needs the main thread's event loop."""

    def __init__(
        self,
        target: Target[S],
        provider: Provider,
        *,
        interval: float | None = INTERVAL,
        critical: Collection[str] = (),
        timeout: float = 10.0,
        child_grace: float = 5.0,
        signals: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """See `Session.autosave`."""
        if not callable(provider):
            raise InvalidFilter(f"the provider must be a function without arguments: {provider!r}")
        if not _are_names(critical):
            raise InvalidFilter(f"critical must be a collection of event names: {critical!r}")
        self._target = target
        self._provider = provider
        self._interval = (_seconds(interval, "interval") or None) if interval is not None else None
        self._critical = CRITICAL_EVENTS.union(critical)
        self._timeout = _seconds(timeout, "timeout")
        self._child_grace = _seconds(child_grace, "child_grace")
        self._signals = signals
        self._clock: Clock = clock if clock is not None else MonotonicClock()
        self._reports = Reports(target, FallbackLog(target.project_dir))
        self._children: tuple[Child, ...] = ()
        self._inbox: SimpleQueue[_Request[S] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = 0
        # What follows belongs to the saving thread; others only look.
        self._last_error: BaseException | None = None
        self._last_checkpoint: S | None = None
        self._owed: Mapping[str, Any] | None = None
        self._asking = False

    # The block -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to save; what entering the block does. Doing it twice is fine."""
        if not self.is_running:
            self._pid = os.getpid()
            self._inbox = SimpleQueue()
            schedule = Schedule(self._interval, self._clock.now())
            self._thread = threading.Thread(
                target=copy_context().run,
                args=(self._run, self._inbox, schedule),
                name="holdfast-autosave",
                daemon=True,
            )
            self._thread.start()
            atexit.register(self.stop)
            if self._signals:
                dispatcher.attach(self)
        return self

    def stop(self) -> None:
        """Save what is unsaved, end children and thread; what leaving the block does.

        A save that fails is reported and does not raise.
        """
        self._stop({"event": "exit"}, pause=self._target.paused_by)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            self.stop()
            return
        interrupted = "SIGINT" if isinstance(exc, KeyboardInterrupt) else None
        metadata = {"event": "exit", "error": type(exc).__qualname__}
        self._stop(metadata, pause=self._target.paused_by or interrupted)

    def _stop(self, metadata: Mapping[str, Any], *, pause: str | None) -> None:
        if not self.is_running:
            # Also in a forked child, which neither works on the session nor owns the children.
            return
        try:
            request: _Request[S] = _Request(metadata, pause=pause, last=True)
            self._inbox.put(request)
            if self._is_done(request) and self._thread is not None:
                self._thread.join(self._timeout)
        finally:
            self._thread = None
            atexit.unregister(self.stop)
            dispatcher.detach(self)
            self._end_children()

    def restore_signals(self) -> None:
        """For the async twin, which leaves in another thread: only the main thread can do it."""
        dispatcher.restore_if_idle()

    @property
    def is_running(self) -> bool:
        """Whether the block was entered, and not left, by this process."""
        return self._thread is not None and self._pid == os.getpid()

    # What a program may ask for --------------------------------------------------------------

    def notify(self, event: str, /, **details: Any) -> S | None:
        """Tell of an event. A critical one is saved, with its details, before this returns.

        Returns the checkpoint, or None for an event that is not critical. A save that fails does not
        raise: it is reported, kept as `last_error`, and made up for at the next opportunity.
        """
        if not isinstance(event, str):
            raise InvalidFilter(f"an event is a name: {event!r}")
        if event not in self._critical:
            return None
        return self._ask(_Request({**_storable(details), "event": event}, always=True))

    def flush(self) -> S | None:
        """Save now if anything changed, and return the checkpoint. A save that fails does not raise."""
        return self._ask(_Request({"event": "flush"}))

    def register_child(self, process: Any) -> None:
        """End this process with the block: SIGTERM, and SIGKILL after ``child_grace`` seconds.

        ``process`` is a `subprocess.Popen`, anything else with a ``pid``, or the id itself. Should its
        id be given to another process, that one is left alone.
        """
        child = find_child(process)
        if child is not None:
            self._children = (*self._children, child)

    @property
    def last_error(self) -> BaseException | None:
        """Why the last save failed; None once one has succeeded since."""
        return self._last_error

    @property
    def last_checkpoint(self) -> S | None:
        """The checkpoint that was last saved by this object."""
        return self._last_checkpoint

    def _ask(self, request: _Request[S]) -> S | None:
        reason = None
        if self._thread is None:
            reason = "autosave is not running: use it as a block, or call start()"
        elif not self.is_running:
            reason = "autosave runs in the process that started it, not in a forked child"
        elif threading.current_thread() is self._thread:
            reason = "the provider itself may not ask for a save"
        if reason is not None:
            self._failed(NotInitialised(f"{reason}; this event was not saved"), request.event)
            return None
        self._inbox.put(request)
        return request.result if self._is_done(request) else None

    def _is_done(self, request: _Request[S]) -> bool:
        """Wait for a request, not for ever; one that takes too long is reported."""
        thread = self._thread
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                request.done.get(timeout=min(_LOOK, self._timeout))
                return True
            except Empty:
                if thread is None or not thread.is_alive():
                    return not request.done.empty()
                if time.monotonic() >= deadline:
                    self._overdue(request)
                    return False

    def _overdue(self, request: _Request[S]) -> None:
        after = f"has not ended after {self._timeout:g} s"
        if self._asking:
            slow: HoldfastError = ProviderTooSlow(f"the provider {after}")
        else:
            slow = StoreBusy(f"the save {after}")
        self._failed(slow, request.event)

    # Signals, told by `signals.dispatcher` ----------------------------------------------------

    def begin_interruption(self, name: str) -> _Request[S]:
        """Start the save for a signal."""
        request: _Request[S] = _Request({"event": "signal", "signal": name}, pause=name)
        self._inbox.put(request)
        return request

    def finish_interruption(self, begun: _Request[S]) -> bool:
        """Wait for that save, then end the children: the process may be about to end."""
        done = self._is_done(begun)
        self._end_children()
        return done

    def leave(self) -> None:
        """Give the session back: the process ends by the signal."""
        with suppress(Exception):
            # Without this, another machine has to wait until the lease expires; that is all.
            self._target.release()

    def _end_children(self) -> None:
        children, self._children = self._children, ()
        for problem in end_children(children, grace=self._child_grace):
            self._reports.warned(problem)

    # The saving thread -----------------------------------------------------------------------

    def _run(self, inbox: SimpleQueue[_Request[S] | None], schedule: Schedule) -> None:
        with suppress(Exception):
            # So that a report knows what came before it when the database is out of reach.
            self._target.latest_seq()
        while True:
            request = self._clock.wait(inbox, schedule.wait(self._clock.now()))
            if request is None:
                if schedule.is_due(self._clock.now()):
                    self._save(self._owed or {"event": "interval"})
                continue
            request.result = self._save(request.metadata, always=request.always)
            if request.pause is not None:
                self._pause(request.pause)
            request.done.put(None)
            if request.last:
                return

    def _save(self, metadata: Mapping[str, Any], *, always: bool = False) -> S | None:
        """Save if there is anything to save. Whatever goes wrong is reported, and owed."""
        if self._target.is_final:
            return None
        try:
            state = self._state()
            if self._comes_too_late():
                return None
            if not (always or self._owed is not None or self._target.differs(state)):
                return None
            saved = self._target.save(state, metadata)
        except BaseException as error:
            self._owed = metadata
            self._failed(error, str(metadata["event"]))
            return None
        self._owed = self._last_error = None
        self._last_checkpoint = saved
        self._reports.worked()
        return saved

    def _comes_too_late(self) -> bool:
        """Tell whether the block was left, or somebody has ended the session, while the provider was asked."""
        return self._target.is_final or threading.current_thread() is not self._thread

    def _state(self) -> Mapping[str, Any]:
        self._asking = True
        try:
            state: Mapping[str, Any] | None = self._provider()
        finally:
            self._asking = False
        if state is None:
            raise StateNotSerializable("$", "the provider returned None instead of a state")
        return state

    def _pause(self, reason: str) -> None:
        if self._target.is_final or isinstance(self._last_error, OUT_OF_REACH):
            return
        try:
            self._target.pause(reason)
        except BaseException as error:
            self._failed(error, reason)

    def _failed(self, error: BaseException, event: str) -> None:
        self._last_error = error
        when = f"in {self._interval:g} s" if self._interval else "with the next event"
        self._reports.failed(
            error,
            event,
            advice=f"What was saved before is intact and the work goes on; next try {when}",
        )


def _are_names(events: object) -> bool:
    if isinstance(events, str) or not isinstance(events, Collection):
        return False
    return all(isinstance(event, str) for event in events)


def _seconds(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidFilter(f"{what} must be a number of seconds: {value!r}")
    if not 0 <= value <= threading.TIMEOUT_MAX:
        raise InvalidFilter(
            f"{what} must be a number of seconds, not negative, at most {threading.TIMEOUT_MAX:.0f}"
        )
    return float(value)


def _storable(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of an event, what has no stored form by its type only."""
    storable = {}
    for name, value in details.items():
        try:
            tagged(value, name)
            storable[name] = value
        except HoldfastError:
            storable[name] = f"<{type(value).__name__}>"
    return storable
