"""Which commands were recorded by this user on this machine.

A session keeps its command, and a session may come from anywhere: in a bundle, with a cloned project, from a
shared server. Starting what it says would be running a stranger's program. So whoever records a command also
leaves a mark in a directory of their own, outside of every project, named by a digest of the session, the command
and where it is started. A command without its mark is shown and not started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from holdfast.config import user_state_dir

_FOLDER: Final = "commands"


def remember(session_id: str, command: Mapping[str, Any]) -> None:
    """Leave the mark of a command. Where that cannot be done, it will have to be confirmed."""
    with suppress(OSError):
        if (mark := _mark(session_id, command)) is not None:
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch(mode=0o600)


def forget(session_id: str, command: Mapping[str, Any]) -> None:
    """Take the mark away: the command has come to its end."""
    with suppress(OSError):
        if (mark := _mark(session_id, command)) is not None:
            mark.unlink(missing_ok=True)


def is_known(session_id: str, command: Mapping[str, Any]) -> bool:
    """Tell whether this user recorded exactly this command for this session, here."""
    try:
        mark = _mark(session_id, command)
        return mark is not None and mark.is_file()
    except OSError:
        return False


def _mark(session_id: str, command: Mapping[str, Any]) -> Path | None:
    folder = user_state_dir()
    text = json.dumps([session_id, dict(command)], sort_keys=True)
    return None if folder is None else folder / _FOLDER / sha256(text.encode()).hexdigest()
