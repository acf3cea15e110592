"""SIGINT, SIGTERM and SIGHUP: everything is saved first, then what would have happened happens.

One handler for the whole process stands before whatever was there: a handler of the program's, Python's
KeyboardInterrupt, asyncio's, or the system's default, which ends the process with the status that its
parent expects. Signals that were ignored stay ignored.

A handler interrupts the main thread anywhere, in the middle of a save too, so it must not save by itself.
A thread of its own lets every running autosave save, while the handler holds the main thread: what is saved
is then what the program had come to. But the main thread may hold a lock that a save needs. So it is held
for a moment only, goes on if the saves are not done by then, and is interrupted again when they are.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, Protocol

_HELD_SECONDS: Final = 2.0
# Interrupted within Holdfast itself, the main thread does hold such a lock, most likely.
_HELD_WITHIN: Final = 0.1
# Whatever the main thread did while it was let go is saved too, once; then the signal has its way.
_MOST_ROUNDS: Final = 2
_LAST_WAIT: Final = 1.0

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class Interrupted(Protocol):
    """Who wants to hear of a signal before it takes effect."""

    run_in_main: Callable[[Callable[[], None]], object] | None
    """How to continue in the main thread, for those who need it in order to save."""

    def begin_interruption(self, name: str) -> object:
        """Start saving because of a signal; return at once, with what to hand to the other."""
        ...

    def finish_interruption(self, begun: Any) -> bool:
        """Wait until that is done; false when it takes too long."""
        ...

    def leave(self) -> None:
        """Let go of what others wait for: nothing comes after this."""
        ...


class _Round:
    """The saves for one signal: done, or left to go on by themselves, whichever comes first."""

    def __init__(self, signum: int, participants: tuple[Interrupted, ...], *, fatal: bool) -> None:
        self.signum = signum
        self.participants = participants
        self.fatal = fatal
        self._done: SimpleQueue[None] = SimpleQueue()
        self._claims = count()

    def wait(self, seconds: float) -> bool:
        """Wait in the handler. False: it will be called again when all is done."""
        try:
            self._done.get(timeout=seconds)
        except Empty:
            return next(self._claims) > 0
        return True

    def is_waited_for(self) -> bool:
        """Tell whether the handler will go on by itself; false when it has left. Ask once."""
        return next(self._claims) == 0

    def finish(self) -> None:
        """Let the handler go on."""
        self._done.put(None)


class _Dispatcher:
    """The handler of this process and the thread behind it.

    What a handler touches is replaced and never changed in place, and queues are the one means of
    telling other threads: a handler may interrupt any line, of this module too.
    """

    def __init__(self) -> None:
        self._handler = self._handle
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._participants: tuple[Interrupted, ...] = ()
        self._previous: dict[int, Any] = {}
        self._rounds: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._inbox: SimpleQueue[_Round | None] = SimpleQueue()

    def attach(self, participant: Interrupted) -> None:
        """Tell ``participant`` of signals from now on.

        Handlers can be installed in the main thread only. Elsewhere this has an effect only if that
        has happened before.
        """
        if self._pid != os.getpid():
            previous = self._previous
            self._begin()
            self._previous = previous
        self._participants = (*self._participants, participant)
        if threading.current_thread() is threading.main_thread():
            self._install()

    def detach(self, participant: Interrupted) -> None:
        """Leave ``participant`` alone. The last one restores what was there before."""
        self._participants = tuple(one for one in self._participants if one is not participant)
        self.restore_if_idle()

    def restore_if_idle(self) -> None:
        """Restore what was there before, if nobody is attached and this is the main thread."""
        if not self._participants and threading.current_thread() is threading.main_thread():
            self._restore()

    def _install(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._attend, args=(self._inbox,), name="holdfast-signals", daemon=True
            )
            self._thread.start()
        for signum in SIGNALS:
            before = signal.getsignal(signum)
            # None was installed by a library in C: it could not be put back.
            if before not in (None, signal.SIG_IGN, self._handler):
                self._previous = {**self._previous, signum: before}
                signal.signal(signum, self._handler)

    def _restore(self) -> None:
        for signum, before in self._previous.items():
            # Somebody who came later may stand before us, and hand on to us: then we hand on.
            if signal.getsignal(signum) == self._handler:
                signal.signal(signum, before)
        if self._thread is not None:
            thread, inbox = self._thread, self._inbox
            self._thread, self._inbox = None, SimpleQueue()
            inbox.put(None)
            thread.join(_LAST_WAIT)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        participants = self._participants if self._pid == os.getpid() else ()
        rounds = self._rounds.get(signum, 0)
        if participants and rounds < _MOST_ROUNDS:
            self._rounds = {**self._rounds, signum: rounds + 1}
            fatal = self._previous.get(signum) == signal.SIG_DFL
            current = _Round(signum, participants, fatal=fatal)
            self._inbox.put(current)
            if not current.wait(_held_seconds(participants, frame)):
                return
        self._rounds = {**self._rounds, signum: 0}
        self._hand_on(signum, frame)

    def _hand_on(self, signum: int, frame: FrameType | None) -> None:
        before = self._previous.get(signum, signal.SIG_DFL)
        if callable(before):
            before(signum, frame)
        elif before == signal.SIG_DFL:
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)

    def _attend(self, inbox: SimpleQueue[_Round | None]) -> None:
        while (current := inbox.get()) is not None:
            name = signal.Signals(current.signum).name
            begun = [(one, one.begin_interruption(name)) for one in current.participants]
            done = [one.finish_interruption(started) for one, started in begun]
            if not all(done):
                # Whoever hangs is not waited for a second time.
                self._rounds = {**self._rounds, current.signum: _MOST_ROUNDS}
            if not current.is_waited_for():
                self._interrupt_main(current)
                continue
            if current.fatal:
                for participant in current.participants:
                    participant.leave()
            current.finish()

    def _interrupt_main(self, current: _Round) -> None:
        """Call the handler again: the saves are done."""
        for participant in current.participants:
            if participant.run_in_main is not None:
                # A loop that is closed already does not need to be spared a second signal.
                with suppress(RuntimeError):
                    participant.run_in_main(lambda: self._handle(current.signum, None))
                    return
        if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident) is not None:
            signal.pthread_kill(main, current.signum)
        else:
            _thread.interrupt_main(signal.Signals(current.signum))


def _held_seconds(participants: tuple[Interrupted, ...], frame: FrameType | None) -> float:
    if any(one.run_in_main is not None for one in participants):
        return 0.0
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(f"{__package__.partition('.')[0]}."):
            return _HELD_WITHIN
        frame = frame.f_back
    return _HELD_SECONDS


dispatcher: Final = _Dispatcher()
