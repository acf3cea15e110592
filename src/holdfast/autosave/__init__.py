"""Autosave: a session is saved by itself, on a timer, on events, and when the process ends.

All saves of one `Autosave` happen in a thread of its own, one at a time. Whoever asks for one, a caller, a
signal, the end of the block, waits for that thread, and never for ever. So a signal that arrives during a
save waits for it, a provider that hangs stops nobody, and an interrupt cannot tear a save apart.

    saver.py      what a program holds: the block, `notify`, `flush`
    schedule.py   when the next save is due; the clock
    signals.py    SIGINT, SIGTERM, SIGHUP: save first, then let happen what would have happened
    children.py   processes that are not to outlive the block
    reports.py    a failure is seen: log row, stderr, fallback log
    fallback.py   the file for what the database cannot take
    twin.py       the same for asyncio

A failure to save never disturbs the program and is never silent.
"""

from holdfast.autosave.saver import CRITICAL_EVENTS, INTERVAL, Autosave, Target
from holdfast.autosave.schedule import Clock

__all__ = ["CRITICAL_EVENTS", "INTERVAL", "Autosave", "Clock", "Target"]
