"""Transcripts of agents as state: the conversation so far, at the cost of what was added to it.

Agents append a line to their transcript for whatever is said. The state keeps each as an item of
``conversation_history``, with ``role`` and ``content``, and enough besides to write the same line again. Under
``transcript`` stands how far the file was read, and digests by which a file that was written anew is noticed:
only what came since is read, and added to a list of which nothing else is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from holdfast.hooks.events import SESSION_START, Event, clean
from holdfast.hooks.transcripts.items import Place, item_of
from holdfast.regular_files import open_regular_file
from holdfast.sessions import Session
from holdfast.state import StoredList
from holdfast.trust import remember_conversations

HISTORY: Final = "conversation_history"
TRANSCRIPT: Final = "transcript"
SUBAGENTS: Final = "subagents"
_FORMS: Final = ("claude", "codex", "gemini", "opencode")
# So much is read at a time; what is left, the next event reads.
_MOST_BYTES: Final = 64 * 1024 * 1024
_EDGE: Final = 4096
_PATH_CHARACTERS: Final = 4096
_NAME_CHARACTERS: Final = 100


class Unsuitable(Exception):
    """A path that is no transcript; the message says why."""


class Addition(NamedTuple):
    """What was added to a transcript: whole lines. ``anew`` if it is not what it was before."""

    lines: list[bytes]
    anew: bool
    position: dict[str, Any]


def add_conversation(
    state: dict[str, Any], event: Event, session: Session, subagent: str | None
) -> None:
    """Bring the conversation of a state up to date with the agent's transcript."""
    form = event.words.TRANSCRIPT
    if not form:
        return
    path = event.text("transcript_path")
    messages = event.given.get("messages")
    # Gemini CLI opens another file when it goes on with a session, and returns to the one that it had.
    if path and not (event.kind == SESSION_START and _reads_another(state, path)):
        _extend(state, path, form, session)
    subagent = subagent or clean(event.text("agent_id"), _NAME_CHARACTERS)
    if isinstance(messages, list) and not path:
        _replace(_part_for(state, subagent), messages, form)
    path = event.text("agent_transcript_path")
    if path and subagent:
        _extend(_part_for(state, subagent), path, form, session)


def _part_for(state: dict[str, Any], subagent: str | None) -> dict[str, Any]:
    """Return the part of a state that is about a subagent; all of it if there is none."""
    if not subagent:
        return state
    known = state.get(SUBAGENTS)
    state[SUBAGENTS] = inside = dict(known) if isinstance(known, dict) else {}
    before = inside.get(subagent)
    inside[subagent] = part = dict(before) if isinstance(before, dict) else {}
    return part


def _reads_another(state: dict[str, Any], path: str) -> bool:
    """Tell whether a state has its conversation from another file than this one."""
    known = state.get(TRANSCRIPT)
    return isinstance(known, dict) and known.get("path") != clean(path, _PATH_CHARACTERS)


def _extend(where: dict[str, Any], path: str, form: str, session: Session) -> None:
    known = where.get(TRANSCRIPT)
    try:
        added = read_addition(path, known if isinstance(known, dict) else None)
    except (OSError, Unsuitable, ValueError) as error:
        if _worth_saying(error, where):
            session.log("warning", clean(f"the transcript {path!r} is not kept: {error}", 1000))
        return
    place: Place = forms(form).place
    items = [item_of(line, place) for line in added.lines]
    before = where.get(HISTORY)
    if added.anew or before is None:
        where[HISTORY] = items
    elif items:
        where[HISTORY] = before.plus(items) if isinstance(before, StoredList) else [*before, *items]
    where[TRANSCRIPT] = {"format": form, **added.position}
    remember_conversations(str(Path(added.position["path"]).parent))


def _replace(where: dict[str, Any], messages: list[Any], form: str) -> None:
    """Take over a conversation that comes with the event, whole, because messages change in it."""
    place: Place = forms(form).place
    lines = [_line(one) for one in messages if isinstance(one, dict)]
    digest = sha256(b"\n".join(lines)).hexdigest()
    known = where.get(TRANSCRIPT)
    if not isinstance(known, dict) or known.get("digest") != digest:
        where[HISTORY] = [item_of(line, place) for line in lines]
        where[TRANSCRIPT] = {"format": form, "digest": digest}


def _line(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message)
    except TypeError:
        # Half a character, as where a text was cut by its length, or a number of more than 64 bits.
        return json.dumps(message, separators=(",", ":")).encode()


def forms(form: str) -> Any:
    """Return the module that knows a form of transcripts, None for one that nobody knows."""
    if form not in _FORMS:
        return None
    return import_module(f"holdfast.hooks.transcripts.{form}")


def _worth_saying(error: Exception, where: dict[str, Any]) -> bool:
    """An agent reports its transcript before it has written it: that is no news."""
    return not (isinstance(error, FileNotFoundError) and TRANSCRIPT not in where)


def read_addition(path: str, known: dict[str, Any] | None) -> Addition:
    """Read what was added to a transcript since it was ``known``, or all of it if it is another."""
    if "\0" in path or not os.path.isabs(path) or not path.endswith(".jsonl"):
        raise Unsuitable("it is no path to a file of JSON lines")
    with open_regular_file(path) as file:
        start = _continues(file, path, known)
        file.seek(start)
        data = file.read(_MOST_BYTES)
        data = data[: data.rfind(b"\n") + 1]
        if start == 0 and data and not data.lstrip().startswith(b"{"):
            raise Unsuitable("it does not begin with a JSON object")
        end = start + len(data)
        position = {
            "path": clean(path, _PATH_CHARACTERS),
            "offset": end,
            "begins": _digest(file, 0, min(_EDGE, end)),
            "ends": _digest(file, max(0, end - _EDGE), end),
        }
    return Addition(list(_lines(data)), start == 0, position)


def _continues(file: Any, path: str, known: dict[str, Any] | None) -> int:
    """Return from where to read on: the start, if the file is not the one that was read before."""
    if known is None or known.get("path") != clean(path, _PATH_CHARACTERS):
        return 0
    offset = known.get("offset")
    if type(offset) is not int or not 0 < offset <= os.fstat(file.fileno()).st_size:
        return 0
    same = known.get("begins") == _digest(file, 0, min(_EDGE, offset)) and known.get(
        "ends"
    ) == _digest(file, max(0, offset - _EDGE), offset)
    return offset if same else 0


def _digest(file: Any, start: int, end: int) -> str:
    file.seek(start)
    return sha256(file.read(end - start)).hexdigest()


def _lines(data: bytes) -> Iterator[bytes]:
    # Not splitlines: other separators may stand inside of a text.
    yield from (line for line in data.split(b"\n")[:-1])
