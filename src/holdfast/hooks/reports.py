"""What became of an event that could not be acted upon: a row in the session's log, or the fallback log.

As with an autosave that fails: ``holdfast status`` shows it until a later checkpoint settles the matter.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.autosave.reports import OUT_OF_REACH, Reports, describe
from holdfast.errors import HoldfastError
from holdfast.hooks.events import Event, clean
from holdfast.model import utc_now
from holdfast.redaction import Redaction
from holdfast.sessions import SessionManager
from holdfast.sessions.autosaved import AutosavedSession

_ADVICE: Final = "The agent goes on"
_MESSAGE_CHARACTERS: Final = 1000
_SECONDS: Final = 2.0


def report(root: str | None, event: Event | None, error: Exception) -> None:
    """Write down that an event failed."""
    from holdfast.config import AGENTS_DIR

    what = f"hook:{event.kind}" if event is not None else "hook"
    message = clean(f"hook failed: {describe(error)}", _MESSAGE_CHARACTERS)
    if root is not None and event is not None and not isinstance(error, OUT_OF_REACH):
        try:
            with SessionManager.open(
                project_dir=root, create=False, busy_timeout=_SECONDS, redact="unless off"
            ) as manager:
                from holdfast.hooks.starting import find_record

                record = find_record(manager, event)
                if record is not None:
                    target = AutosavedSession(
                        manager.get_session(record.id), manager.store, Path(root)
                    )
                    Reports(target, FallbackLog(Path(root))).failed(error, what, advice=_ADVICE)
                    return
        except HoldfastError:
            pass  # the file takes it
    sys.stderr.write(f"holdfast: {message}. {_ADVICE}\n")
    if root is not None and (Path(root) / AGENTS_DIR).is_dir():
        code = error.code if isinstance(error, HoldfastError) else None
        storable = Redaction().looking().text(message)
        entry = Entry(at=utc_now().isoformat(), message=storable, event=what, code=code)
        FallbackLog(Path(root)).append(entry)
