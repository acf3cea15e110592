"""``holdfast hook``: reads one event, acts on it, and never disturbs the agent.

The exit code is 0 whatever happens, and standard output holds nothing but the answer that the agent asked
for. What went wrong is in the session's log, or in the file that takes what the database cannot.
"""

from __future__ import annotations

import os
import sys

from holdfast.hooks.desk import Desk
from holdfast.hooks.events import MAX_BYTES, SESSION_START, Event, NotAnEvent, read_event
from holdfast.hooks.quick import needs_nothing, settled
from holdfast.places import find_marked
from holdfast.regular_files import read_small_file

_EVENT_CHARACTERS = 100


def main(arguments: list[str]) -> int | None:
    """Run the command without the command line's machinery; None if that is needed after all."""
    agent = name = None
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--agent" and rest:
            agent = rest.pop(0)
        elif word.startswith("--agent="):
            agent = word.removeprefix("--agent=")
        elif not word.startswith("-") and name is None:
            name = word
        else:
            return None
    return handle(agent=agent, name=name)


def handle(
    *, agent: str | None = None, name: str | None = None, project_dir: str | None = None
) -> int:
    """Read an event from standard input and do what it asks for. Always returns 0.

    ``project_dir`` is where the event happened, if not where it says.
    """
    event: Event | None = None
    root: str | None = None
    try:
        # All of it is read, or the agent would find the pipe closed.
        data = b"" if name is not None and sys.stdin.isatty() else sys.stdin.buffer.read()
        event = read_event(data[: MAX_BYTES + 1], agent=agent, name=name)
        if needs_nothing(event):
            return 0
        root = _root(project_dir or event.cwd or os.getcwd())
        if root is not None and project_dir is None:
            root = _worked_in(root, event)
        if root is None:
            return 0
        if not settled(event, root):
            from holdfast.hooks.acting import act
            from holdfast.hooks.secrets import without_secrets

            answer = act(without_secrets(event, root), root)
            if answer and event.kind == SESSION_START:
                _say(answer)
    except NotAnEvent as error:
        _report(root, event, error)
    except Exception as error:
        _report(root, event, error)
    return 0


def refuse(reason: str) -> None:
    """Write down why an event was not even looked at, and let the agent go on."""
    try:
        if not sys.stdin.isatty():
            sys.stdin.buffer.read()
    finally:
        _report(None, None, NotAnEvent(reason))


def _root(start: str) -> str | None:
    """Return the project that an event is about; hooks do nothing outside of projects."""
    if not os.path.isabs(start) or "\0" in start or not os.path.isdir(start):
        raise NotAnEvent(f"the working directory does not exist: {start[:200]!r}")
    return find_marked(os.path.normpath(start))


def _worked_in(root: str, event: Event) -> str:
    """Return the project that the agent's session is at work in, if that is one around ``root``.

    The shell of an agent may stand in a repository below its project, a submodule or a clone, and from there
    reach all of the project. A linked worktree is a project of its own.
    """
    here: str | None = root
    # Without an id of its own it may be any session, in any project.
    while here is not None and event.text("session_id"):
        if Desk(here, event.agent, event.session_id).is_known():
            return here
        if _is_linked_worktree(here):
            break
        above = os.path.dirname(here)
        here = find_marked(above) if above != here else None
    return root


def _is_linked_worktree(root: str) -> bool:
    """Whether this is a worktree of a repository elsewhere: its ``.git`` says so, which a submodule has too."""
    try:
        leads_to = read_small_file(os.path.join(root, ".git")).rstrip()
    except OSError:
        return False
    return os.path.basename(os.path.dirname(leads_to)) == b"worktrees"


def _say(text: str) -> None:
    import json

    answer = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _report(root: str | None, event: Event | None, error: Exception) -> None:
    """Write down what went wrong, somewhere; never raises."""
    try:
        from holdfast.hooks.reports import report

        report(root or find_marked(os.getcwd()), event, error)
    except Exception as second:
        try:
            sys.stderr.write(f"holdfast hook: {error}; and that cannot be written down: {second}\n")
        except Exception:
            return
