"""Events that need no checkpoint: found out from the event, the note and a glance at the files.

Most events end here, in a few milliseconds. `settled` is true when nothing is left to do, and then everything
that has to be remembered is in the journal.
"""

from __future__ import annotations

import os
import time

from holdfast.hooks.agents import EDITS, READS
from holdfast.hooks.desk import Desk, paths_in
from holdfast.hooks.events import AFTER_TOOL, BEFORE_TOOL, IGNORED, PROMPT, Event, clean
from holdfast.hooks.tools import PLANS, Use, planned_tasks, use_of
from holdfast.places import stated_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROMPT_CHARACTERS = 500
# Not every shell command is reported when it has ended: that one begins is enough to look for changes.
AHEAD = {"scan": True}
# The key in a note that says that something was asked for since the session began.
ASKED = "asked"
# So long the word of a note is taken without a look into the database.
_TRUSTED_NS = 600 * 1_000_000_000


def settled(event: Event, root: str) -> bool:
    """Tell whether nothing more has to be done for an event; write down what is to be remembered."""
    desk = Desk(root, event.agent, event.session_id)
    if event.kind == PROMPT:
        note = desk.read_note()
        noted = _noted(desk, {"prompt": prompt_of(_written_down(event, root))})
        # The first one since the session began may be its task, which the session itself has to know.
        return noted and not (note.get("enabled") and not note.get(ASKED))
    if event.kind == AFTER_TOOL:
        event = _written_down(event, root)
        line = line_of(event, use_of(event, _read_only(desk.read_note())))
        return line is None or _noted(desk, line)
    if event.kind == BEFORE_TOOL:
        note = desk.read_note()
        use = use_of(event, _read_only(note))
        if use.does == READS:
            return True
        if not _nothing_to_save(desk, note, use):
            return False
        return use.does == EDITS or _noted(desk, AHEAD)
    return False


def _written_down(event: Event, root: str) -> Event:
    """Return an event of which something is written down as it may be."""
    from holdfast.hooks.secrets import without_secrets

    return without_secrets(event, root)


def needs_nothing(event: Event) -> bool:
    """Tell whether an event is of no interest, by its own words alone."""
    if event.kind in (BEFORE_TOOL, AFTER_TOOL):
        plans = event.kind == AFTER_TOOL and event.tool in PLANS
        return bool(event.words.TOOLS.get(event.tool) == READS) and not plans
    return event.kind == IGNORED


def prompt_of(event: Event) -> str:
    """Return what the user said, without what agents put around it."""
    text = event.text("prompt")
    if text.startswith("<hook_context>"):
        text = text.partition("</hook_context>")[2].lstrip()
    if event.agent == "opencode" and len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return clean(text, PROMPT_CHARACTERS)


def line_of(event: Event, use: Use) -> dict[str, Any] | None:
    """Return what the journal keeps of a tool's use, None if that is nothing."""
    if use.does == READS:
        tasks = planned_tasks(event)
        return {"tasks": tasks} if tasks else None
    line: dict[str, Any] = {"tool": event.tool, "detail": use.detail}
    if use.does == EDITS:
        line["paths"] = use.paths
    else:
        line["scan"] = True
    if subagent := event.text("agent_id"):
        line["subagent"] = clean(subagent, 100)
    return line


def _noted(desk: Desk, line: dict[str, Any]) -> bool:
    note = desk.read_note()
    if note.get("enabled") is False:
        # Whether that still holds, the next checkpoint finds out.
        return True
    if not desk.exists():
        return False
    desk.append(line)
    return True


def _read_only(note: dict[str, Any]) -> list[str]:
    found = note.get("read_only")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _nothing_to_save(desk: Desk, note: dict[str, Any], use: Use) -> bool:
    # Imported here: an event that is of no interest does not get so far.
    from holdfast.workspace.glance import is_unchanged, stamp

    try:
        fresh = 0 <= time.time_ns() - note["checked_ns"] < _TRUSTED_NS
        if not fresh or any(stamp(path) != before for path, before in note["marks"]):
            return False
        if note.get("enabled") is False:
            return True
        if note["store"] != list(stated_store()):
            return False
        return _within_burst(desk, note, use) or is_unchanged(desk.root, note["glance"])
    except (KeyError, TypeError, ValueError, AttributeError):
        # A note of another version, or of somebody else's making.
        return False


def _within_burst(desk: Desk, note: dict[str, Any], use: Use) -> bool:
    """Tell whether this edit belongs to a burst whose first one was saved before.

    The files it names must be as that checkpoint has them, or written by the agent itself since.
    """
    saved = note.get("saved_ns")
    if use.does != EDITS or saved is None:
        return False
    if not 0 <= time.time_ns() - saved < note["debounce_ms"] * 1_000_000:
        return False
    told: set[str] = set()
    for line in desk.peek():
        if line.get("scan"):
            return False
        told.update(paths_in(line))
    return all(path in told or _is_older(path, saved) for path in use.paths)


def _is_older(path: str, moment: int) -> bool:
    try:
        looked = os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return max(looked.st_mtime_ns, looked.st_ctime_ns) < moment
