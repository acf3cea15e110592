"""When the next save is due. Only the monotonic clock counts: wall clocks jump."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

# Longer waits are made of several: there are systems that cannot count so far.
LONGEST_WAIT: Final = 3600.0


class Clock(Protocol):
    """Tells the time and waits. Tests bring one of their own."""

    def now(self) -> float:
        """Return seconds that only ever grow, from whatever beginning."""
        ...

    def wait(self, inbox: SimpleQueue[T | None], seconds: float | None) -> T | None:
        """Return what arrives in the inbox, or None when so many seconds have passed."""
        ...


class MonotonicClock(Clock):
    """The system's clock that nobody sets."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, inbox: SimpleQueue[T | None], seconds: float | None) -> T | None:
        try:
            return inbox.get(timeout=seconds)
        except Empty:
            return None


class Schedule:
    """Every so many seconds; None is never. What was missed, in a suspended machine say, is not made up."""

    def __init__(self, interval: float | None, now: float) -> None:
        self._interval = interval
        self._next = now + (interval or 0.0)

    def wait(self, now: float) -> float | None:
        """Return how long to wait from now on."""
        if self._interval is None:
            return None
        if self._next - now > self._interval:
            # The clock went back after all: one interval from here is as late as it may get.
            self._next = now + self._interval
        return min(max(self._next - now, 0.0), LONGEST_WAIT)

    def is_due(self, now: float) -> bool:
        """Tell whether it is time, and begin the next interval if so."""
        if self._interval is None or now < self._next:
            return False
        self._next = now + self._interval
        return True
