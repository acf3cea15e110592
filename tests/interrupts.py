"""Interrupts at every moment at which one can come, one after the other.

Python runs the handlers of signals, and so raises KeyboardInterrupt, where a function begins, where a function
written in C has returned, and at the end of a loop's body: nowhere else.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import CodeType, FrameType
from typing import Any, TypeVar

T = TypeVar("T")

# Ours and what it is made of. What the garbage collector happens to call is not interrupted.
_MODULES = ("holdfast", "threading", "contextlib")


class Interrupts:
    """Raises KeyboardInterrupt in the thread that calls `during`, at one moment of so many from ``at``.

    Moments count while ``armed`` is true. ``came`` says that there were as many.
    """

    def __init__(self, at: int, armed: Callable[[], bool] = lambda: True) -> None:
        self._left = at
        self._armed = armed
        self._last: dict[FrameType, int] = {}
        self.came = False

    def during(self, call: Callable[[], T]) -> T:
        """Call something that is interrupted."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(before)
            self._last.clear()

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.came:
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            if frame.f_back is not None:
                # Where a function written in Python has returned nobody looks.
                self._last.pop(frame.f_back, None)
            if not frame.f_globals["__name__"].startswith(_MODULES):
                return None
            self._moment()
        elif event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if last is not None and _looks(_names(frame.f_code)[last], back=frame.f_lasti < last):
                self._moment()
        return self._trace

    def _moment(self) -> None:
        if not self._armed():
            return
        self._left -= 1
        if self._left < 0:
            self.came = True
            raise KeyboardInterrupt


def _looks(name: str, *, back: bool) -> bool:
    return name.startswith("CALL") or ("JUMP_BACKWARD" in name and back)


@functools.cache
def _names(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


def started(call: Callable[[], T]) -> Future[T]:
    """Call something in a thread that keeps nobody from ending, whatever becomes of it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
