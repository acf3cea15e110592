"""A failure to save is seen: a row in the session's log, a line on stderr, and the fallback log.

The row is what ``holdfast status`` looks for. Where the database cannot take it, or could only after
another long wait, the fallback log does. The same failure again and again is reported at the first, second,
fourth, eighth … time: loud, and yet no flood.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.errors import HoldfastError, StoreBusy, StoreClosed, StoreUnavailable
from holdfast.locks import new_lock
from holdfast.model import utc_now

MARK: Final = "autosave"
"""The key in the data of a log row that says that a save failed, and of which event."""

# To ask such a database a second time would only take as long once more.
OUT_OF_REACH: Final = (StoreBusy, StoreUnavailable, StoreClosed)


class Reported(Protocol):
    """Whose saves are reported about."""

    @property
    def id(self) -> str:
        """The session's id."""
        ...

    @property
    def url(self) -> str:
        """Where it is stored, without secrets."""
        ...

    @property
    def tenant(self) -> str:
        """Whose it is."""
        ...

    @property
    def known_seq(self) -> int | None:
        """The sequence number of its latest checkpoint as last seen; None if that never was."""
        ...

    def latest_seq(self) -> int:
        """Look it up; 0 when there is no checkpoint."""
        ...

    def log(self, level: str, message: str, *, data: Mapping[str, Any] | None = None) -> object:
        """Append to the session's log."""
        ...

    def storable(self, text: str) -> str:
        """Return a text as it may be written to a file."""
        ...


class Reports:
    """Reports the failures of one autosave, and the end of them."""

    def __init__(self, target: Reported, fallback: FallbackLog) -> None:
        self._target = target
        self._fallback = fallback
        self._lock = new_lock()
        self._failures = 0
        self._last = ""

    def failed(self, error: BaseException, event: str, *, advice: str) -> None:
        """Report that the save for ``event`` failed; never raises."""
        text = describe(error)
        with self._lock:
            self._failures = self._failures + 1 if text == self._last else 1
            self._last = text
            failures = self._failures
        if failures & (failures - 1):
            return
        again = f" ({failures} times)" if failures > 1 else ""
        message = f"autosave failed{again}: {text}"
        _say(f"{message}. {advice}", self._target.id)
        data = {
            MARK: event,
            "error": type(error).__qualname__,
            "code": error.code if isinstance(error, HoldfastError) else None,
            "failures": failures,
        }
        if isinstance(error, OUT_OF_REACH):
            self._write_down(message, data)
            return
        try:
            after = self._target.latest_seq()
            self._target.log("error", message, data=data | {"after_seq": after})
        except Exception:
            self._write_down(message, data)

    def _write_down(self, message: str, data: Mapping[str, Any]) -> None:
        entry = Entry(
            at=utc_now().isoformat(),
            message=self._target.storable(message),
            session_id=self._target.id,
            url=self._target.url,
            tenant=self._target.tenant,
            event=data[MARK],
            code=data["code"],
            after_seq=self._target.known_seq,
            failures=data["failures"],
        )
        try:
            self._fallback.append(entry)
        except Exception as error:
            _say(f"and {self._fallback.path} cannot be written either: {error}", self._target.id)

    def warned(self, message: str) -> None:
        """Say something that is no failure to save; never raises."""
        _say(message, self._target.id)
        with suppress(Exception):
            self._target.log("warning", message)

    def worked(self) -> None:
        """A save was stored: if there were failures, say that they are over."""
        with self._lock:
            failures, last = self._failures, self._last
            self._failures, self._last = 0, ""
        if failures:
            _say("autosave works again", self._target.id)
            # The checkpoint itself is what counts; this row only tells the story.
            with suppress(Exception):
                self._target.log("info", f"autosave works again; before: {last}")


def describe(error: BaseException) -> str:
    """Return an error in one line: ours by their message, others with their type too."""
    name = type(error).__name__
    try:
        text = str(error) if isinstance(error, HoldfastError) else f"{name}: {error}"
    except Exception:
        # Not every error of a program can say what it is.
        text = name
    return text.removesuffix(".")


def _say(message: str, session_id: str) -> None:
    # Whoever closed stderr does not want to hear it; there is nobody else to tell.
    with suppress(Exception):
        sys.stderr.write(f"holdfast: session {session_id}: {message}\n")
        sys.stderr.flush()
