"""After a rollback: how the conversation with the agent goes on, from its end or from the checkpoint.

An agent's transcript is its own and is never changed. To go on from an earlier point, what was said up to
there is written down as a second conversation, in the agent's own form and beside the first, and the agent
is asked to take up that one.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.durable import sync_directory
from holdfast.errors import NoConversation
from holdfast.hooks.authorship import Authorship
from holdfast.hooks.desk import Desk
from holdfast.hooks.events import AGENTS, GENERIC, words_of
from holdfast.hooks.transcripts import HISTORY, TRANSCRIPT, forms
from holdfast.hooks.transcripts.items import line_of
from holdfast.ids import new_id
from holdfast.leases import AGENT_SESSION
from holdfast.sessions import Checkpoint, Session, SessionManager
from holdfast.trust import is_known_for_conversations


class GoingOn(NamedTuple):
    """How to go on with an agent. ``command`` is empty where none is known.

    ``path`` is the transcript of the second conversation, if one was written.
    """

    agent: str
    session_id: str
    command: str
    path: str | None = None


def going_on(session: Session) -> GoingOn | None:
    """Tell how the conversation goes on from its end; None if this is no session of an agent."""
    agent, session_id = agent_of(session)
    if not session_id:
        return None
    return GoingOn(agent, session_id, _words(agent).resume(shlex.quote(session_id)))


def check_conversation(session: Session, checkpoint: Checkpoint) -> None:
    """Find out whether the conversation of a checkpoint can be written down a second time.

    Raises `NoConversation` and says why not.
    """
    _prepare(session, checkpoint)


def fork_conversation(session: Session, checkpoint: Checkpoint) -> GoingOn:
    """Write the conversation of a checkpoint down a second time, for the agent to go on from there."""
    agent, lines, form, old = _prepare(session, checkpoint)
    session_id = new_id()
    name, said = form.fork(lines, agent_of(session)[1], session_id)
    path = old.with_name(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.writelines(line + b"\n" for line in said)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
    return GoingOn(agent, session_id, _words(agent).resume(session_id), str(path))


def tell_pending(manager: SessionManager, session: Session) -> None:
    """Have a session know what its agent wrote since the last checkpoint, which only the journal says."""
    agent, session_id = agent_of(session)
    if not session_id:
        return
    desk = Desk(str(manager.project_dir), agent, session_id)
    session.wrote(*Authorship(manager, session, desk).find(desk.peek()).mine)


def _prepare(session: Session, checkpoint: Checkpoint) -> tuple[str, list[bytes], Any, Path]:
    agent, session_id = agent_of(session)
    if not session_id:
        raise NoConversation(
            f"session {session.id} is not one of a coding agent; there is no conversation to go on with"
        )
    form = forms(_words(agent).TRANSCRIPT)
    if form is None or not hasattr(form, "fork"):
        why = getattr(form, "WHY_NOT", "how it keeps conversations is not known")
        raise NoConversation(
            f"a conversation with {agent} cannot be written down a second time: {why}. Nothing was "
            "changed; roll back without it"
        )
    state = checkpoint.state
    known, items = state.get(TRANSCRIPT), state.get(HISTORY)
    if not isinstance(known, dict) or not isinstance(items, list) or not items:
        raise NoConversation(
            f"checkpoint {checkpoint.name!r} holds no conversation. Nothing was changed; roll back "
            "without it"
        )
    old = Path(str(known.get("path", "")))
    if not old.is_absolute() or not old.parent.is_dir():
        raise NoConversation(
            f"the directory of the transcript {str(old)!r} is not there any more. Nothing was changed; "
            "roll back without the conversation"
        )
    if not is_known_for_conversations(str(old.parent)):
        raise NoConversation(
            f"the checkpoint says that its conversation was kept in {str(old.parent)!r}, where no agent of "
            "yours has kept one on this machine. Nothing was changed; roll back without the conversation"
        )
    return agent, [line_of(one) for one in items], form, old


def agent_of(session: Session) -> tuple[str, str]:
    """Return the agent of a session and that agent's own id of it, which is empty where there is none."""
    agent, _, session_id = str(session.metadata.get(AGENT_SESSION, "")).partition(":")
    # A session may come from elsewhere. What looks like an option is no id, and no part of a command.
    return agent, "" if session_id.startswith("-") else session_id


def _words(agent: str) -> Any:
    return words_of(agent if agent in AGENTS else GENERIC)
