"""What is this user's own on this machine: commands, stores, rebases, directories of conversations.

A session may come from anywhere: in a bundle, with a cloned project, from a shared server. What it says must not
be done without a look:

- It keeps its command. Starting that would be running a stranger's program.
- A project's settings may name a store, which gets the states and files of all who work there. In a clone that is
  a stranger's server.
- A snapshot from the middle of a rebase holds what git had still to do, programs to be run included.
- A checkpoint says where the agent kept its conversation, beside which a second one can be written.

So whoever records a command, confirms a store, saves in a rebase or has hooks read a conversation also leaves a
mark in a directory of their own, outside of every project, named by a digest of what it is for. A command without
its mark is shown and not started, a store that only a project names is not opened, a rebase is not brought back,
and no conversation is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InvalidConfiguration
from holdfast.places import URL, user_state_dir

_COMMANDS: Final = "commands"
_STORES: Final = "stores"
_POSITIONS: Final = "positions"
_CONVERSATIONS: Final = "conversations"


def remember(session_id: str, command: Mapping[str, Any]) -> None:
    """Leave the mark of a command. Where that cannot be done, it will have to be confirmed."""
    with suppress(OSError):
        if (mark := _mark_of(session_id, command)) is not None:
            _leave(mark)


def forget(session_id: str, command: Mapping[str, Any]) -> None:
    """Take the mark away: the command has come to its end."""
    with suppress(OSError):
        if (mark := _mark_of(session_id, command)) is not None:
            mark.unlink(missing_ok=True)


def is_known(session_id: str, command: Mapping[str, Any]) -> bool:
    """Tell whether this user recorded exactly this command for this session, here."""
    return _is_left(_mark_of(session_id, command))


def remember_store(url: str) -> None:
    """Leave the mark of a store that projects may name. Raises `InvalidConfiguration` if that is impossible."""
    mark = _mark(_STORES, url)
    try:
        if mark is None:
            raise OSError("there is no home directory")
        _leave(mark)
    except OSError as error:
        raise InvalidConfiguration(
            f"that the store is yours cannot be written down ({error}); name it with {URL} instead"
        ) from None


def is_known_store(url: str) -> bool:
    """Tell whether this user has confirmed exactly this store."""
    return _is_left(_mark(_STORES, url))


def remember_position(commit: str) -> None:
    """Leave the mark of what a snapshot here holds of a rebase. Without it, that is not brought back."""
    with suppress(OSError):
        if (mark := _mark(_POSITIONS, commit)) is not None:
            _leave(mark)


def is_known_position(commit: str) -> bool:
    """Tell whether this user saved exactly this, here."""
    return _is_left(_mark(_POSITIONS, commit))


def remember_conversations(folder: str) -> None:
    """Leave the mark of a directory in which an agent here keeps its conversations."""
    with suppress(OSError):
        if not is_known_for_conversations(folder) and (mark := _mark(_CONVERSATIONS, folder)):
            _leave(mark)


def is_known_for_conversations(folder: str) -> bool:
    """Tell whether an agent of this user kept conversations there: a second one may be written beside them."""
    return _is_left(_mark(_CONVERSATIONS, folder))


def _mark_of(session_id: str, command: Mapping[str, Any]) -> Path | None:
    return _mark(_COMMANDS, json.dumps([session_id, dict(command)], sort_keys=True))


def _mark(kind: str, text: str) -> Path | None:
    folder = user_state_dir()
    return None if folder is None else Path(folder, kind, sha256(text.encode()).hexdigest())


def _leave(mark: Path) -> None:
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark.touch(mode=0o600)


def _is_left(mark: Path | None) -> bool:
    try:
        return mark is not None and mark.is_file()
    except OSError:
        return False
