"""The beginning and the end of an agent's session: which session of ours it is, and what to tell the agent.

A session that was interrupted or paused in the same directory, on the same branch, is worth telling the next
agent of. An agent that was killed never said so: its process is gone, and `SessionManager.recover` sees that.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.config import surrounding_run
from holdfast.hooks.authorship import RUN_SESSION
from holdfast.hooks.desk import Desk
from holdfast.hooks.events import SESSION_END, SESSION_START, SUBAGENT_STOP, Event, clean
from holdfast.leases import AGENT_PROCESS, AGENT_SESSION, is_alive
from holdfast.model import CheckpointQuery, SessionQuery, SessionRecord, utc_now
from holdfast.processes import SHELLS, ancestor
from holdfast.sessions import Session, SessionManager
from holdfast.sessions.unfinished import of_here
from holdfast.stores.base import first
from holdfast.stores.readable import list_readable, list_readable_checkpoints
from holdfast.workspace.repository import read_head

TRANSCRIPT: Final = "transcript_path"
# The key in a note for the process that reported a start, as long as that is the last that was heard.
BEGUN_BY: Final = "begun_by"
# A subagent that has a session of its own says whose it is.
PARENT: Final = "parent_session_id"
# Programs that have one conversation at a time, and what they say when another takes its place. One process
# of Codex serves all conversations of an editor, so that a second one says nothing about the first.
_ONE_AT_A_TIME: Final = frozenset({"claude-code", "gemini"})
_REPLACED: Final = frozenset({"clear", "resume"})
# What may come late, or twice, and is not the beginning of anything after a session's end.
_ENDS: Final = frozenset({SESSION_END, SUBAGENT_STOP})
_TASK_CHARACTERS: Final = 500
_PATH_CHARACTERS: Final = 4096


class Started(NamedTuple):
    """A session that an agent begins or goes on with, and the one that it should be told of."""

    session: Session
    told: str | None


def key_of(event: Event) -> str:
    """Return the name by which a session of ours is found again."""
    return f"{event.agent}:{event.session_id}"


def find_record(manager: SessionManager, event: Event) -> SessionRecord | None:
    """Return the session of an agent's session, the latest if there are several."""
    return _find(manager, key_of(event))


def _find(manager: SessionManager, key: str) -> SessionRecord | None:
    found = manager.list_sessions(metadata={AGENT_SESSION: key}, limit=1)
    return found[0] if found else None


def open_session(manager: SessionManager, event: Event, desk: Desk) -> Session | None:
    """Join the session that an event belongs to; begin it where its start was never reported.

    None for an end of what has ended before or never began. A subagent that ends shows that the
    session of its parent has begun, unless that is over.
    """
    record = find_record(manager, event)
    if record is not None and record.status == "completed" and event.kind in _ENDS:
        return None
    if record is None and event.kind == SESSION_END:
        return None
    if record is None:
        source = _forked_from(manager, event, desk)
        if source is not None and not _is_open_elsewhere(source):
            manager.interrupt_session(
                source.id, message=f"its agent went on in a fork, {clean(event.session_id, 100)}"
            )
        return _create(manager, event, desk, continues=source)
    return _taken_up(manager, event, desk, record)


def start(manager: SessionManager, event: Event, desk: Desk) -> Started:
    """Begin a session, or go on with it, and find out what the agent should be told of."""
    _mark_left_ones(manager, event)
    record = find_record(manager, event)
    if record is not None:
        session = _taken_up(manager, event, desk, record)
        return Started(session, None if event.text("source") == "startup" else session.id)
    told = None if event.text(PARENT) else _earlier(manager)
    # The work of other programs is theirs to go on with.
    ours = told is not None and AGENT_SESSION in (told.metadata or {})
    session = _create(manager, event, desk, continues=told if ours else None)
    return Started(session, None if told is None else told.id)


def end(session: Session, event: Event, *, finished: bool) -> None:
    """Mark a session whose agent has ended: completed after a finished turn, else paused."""
    reason = clean(event.text("reason"), 40)
    if reason == "clear" or (finished and reason != "resume"):
        session.complete()
        session.close(release=True)
    else:
        why = f"the agent ended ({reason})" if reason else "the agent ended"
        session.pause(why, state=session.outline())


def _taken_up(manager: SessionManager, event: Event, desk: Desk, record: SessionRecord) -> Session:
    if record.status == "completed":
        return _create(manager, event, desk, continues=record)
    if record.status != "active":
        session = manager.resume_session(record.id)
    else:
        session = manager.join_session(record.id)
    about = _about(event)
    if record.status == "active" and _is_open_elsewhere(record):
        # That one goes on with it, and this one may be about to fork.
        del about[AGENT_PROCESS]
    changed = {key: value for key, value in about.items() if session.metadata.get(key) != value}
    if changed and (event.kind == SESSION_START or AGENT_PROCESS in changed):
        session.update_metadata(changed)
    return session


def _create(
    manager: SessionManager, event: Event, desk: Desk, *, continues: SessionRecord | None
) -> Session:
    prompts = [line["prompt"] for line in desk.peek() if isinstance(line.get("prompt"), str)]
    task = next(filter(str.strip, prompts), None)
    above = clean(event.text(PARENT), 200)
    parent = _find(manager, f"{event.agent}:{above}") if above else None
    return manager.create_session(
        event.agent,
        task_description=None if task is None else task[:_TASK_CHARACTERS],
        metadata=_about(event),
        parent_agent_id=None if parent is None else parent.agent_id,
        continues=None if continues is None else continues.id,
    )


def agent_process() -> str | None:
    """Return the process that reports an event; None where the system does not tell."""
    process = ancestor(SHELLS)
    return None if process is None else str(process)


def _is_open_elsewhere(record: SessionRecord) -> bool:
    """Tell whether a process other than the one that reports this event has the session open, and lives."""
    known, process = (record.metadata or {}).get(AGENT_PROCESS), agent_process()
    return process is not None and isinstance(known, str) and known != process and is_alive(known)


def _about(event: Event) -> dict[str, Any]:
    about: dict[str, Any] = {AGENT_SESSION: key_of(event)}
    if process := agent_process():
        about[AGENT_PROCESS] = process
    if run := clean(surrounding_run(), 100):
        about[RUN_SESSION] = run
    if transcript := clean(event.text(TRANSCRIPT), _PATH_CHARACTERS):
        about[TRANSCRIPT] = transcript
    if model := clean(event.text("model"), 100):
        about["model"] = model
    return about


def _mark_left_ones(manager: SessionManager, event: Event) -> None:
    """Mark as interrupted what dead agents left, and what this one's process has left."""
    manager.recover()
    process = agent_process()
    replaced = event.agent in _ONE_AT_A_TIME and event.text("source") in _REPLACED
    if not replaced or process is None:
        return
    for record in manager.list_sessions(status="active", metadata={AGENT_PROCESS: process}):
        if (record.metadata or {}).get(AGENT_SESSION) != key_of(event):
            manager.interrupt_session(record.id, message="its agent has begun another session")


def _earlier(manager: SessionManager) -> SessionRecord | None:
    """Return the latest unfinished session of this directory and branch that nobody works on."""
    # On a shared server most sessions are of others: the store looks for the few that count.
    records = [
        record
        for status in ("interrupted", "paused")
        for record in list_readable(manager.store, SessionQuery(status=status, continued=False))
    ]
    records.sort(key=lambda record: (record.created_at, record.id), reverse=True)
    now = utc_now()
    head = read_head(manager.project_dir)
    for record in of_here(manager.store, manager.place, records):
        if record.paused_until is None or record.paused_until <= now:
            query = CheckpointQuery(record.id, namespace="", limit=1)
            latest = first(list_readable_checkpoints(manager.store, query))
            if latest is not None and latest.git_branch == (head.branch if head else None):
                return record
    return None


def _forked_from(manager: SessionManager, event: Event, desk: Desk) -> SessionRecord | None:
    """Return the session that this one was forked from, where its agent reported only that one's start."""
    process = agent_process()
    if process is None:
        return None
    for record in manager.list_sessions(status="active", agent_type=event.agent):
        agent, _, session_id = str((record.metadata or {}).get(AGENT_SESSION)).partition(":")
        other = Desk(desk.root, agent, session_id)
        begun = agent == event.agent and other.read_note().get(BEGUN_BY) == process
        if begun and not other.peek():
            return record
    return None
