"""What became of an event that could not be acted upon: a row in the session's log, or the fallback log.

As with an autosave that fails: ``holdfast status`` shows it until a later checkpoint settles the matter.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.autosave.fallback import Entry, FallbackLog
from holdfast.autosave.reports import OUT_OF_REACH, Reports, describe
from holdfast.errors import HoldfastError
from holdfast.hooks.desk import Desk
from holdfast.hooks.events import Event, clean
from holdfast.hooks.saving import SAVED
from holdfast.hooks.starting import find_record, key_of
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
        if event is not None:
            entry = _about_session(entry, event, root)
        FallbackLog(Path(root)).append(entry)


def _about_session(entry: Entry, event: Event, root: str) -> Entry:
    """Add what a later checkpoint is known by, of the note that the last one left."""
    entry = replace(entry, agent_session=key_of(event))
    match Desk(root, event.agent, event.session_id).read_note().get(SAVED):
        case {"session_id": str(one), "url": str(url), "tenant": str(whose), "after_seq": int(seq)}:
            return replace(entry, session_id=one, url=url, tenant=whose, after_seq=seq)
    return entry
