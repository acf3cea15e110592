"""Erasing sessions with what hooks, commands and save points left of them in the project.

The store comes first, since it may refuse, and then nothing may be gone. Which files of hooks are a session's
says the session itself, which is asked before, and their note: so erasing again finds them, also where the
session is not there any more or cannot be read, and in another project of the same store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import replace

from holdfast.errors import SessionNotFound
from holdfast.hooks.desk import Desk
from holdfast.hooks.rewind import agent_of
from holdfast.hooks.saving import SAVED
from holdfast.manager.folder import Folder
from holdfast.runner import forget_brief
from holdfast.sessions import Erasure, Session, SessionManager


def erase(
    manager: SessionManager, sessions: Mapping[str, Session | None], *, everything: bool = False
) -> Erasure:
    """Erase one session, or with ``everything`` all of the tenant; its sessions are given either way.

    They are named by their ids; None stands for one that cannot be read or is not there. Raises
    `SessionNotFound` for the latter, when what was left of it is gone; the message tells of what is not.
    """
    root = str(manager.project_dir)
    agents = [agent_of(one) for one in sessions.values() if one is not None]
    known = {
        Desk(root, agent, agent_session).name for agent, agent_session in agents if agent_session
    }

    def clear() -> tuple[str, ...]:
        left = [
            *_clear_desks(manager, sessions, known, everything),
            *_clear_rest(manager, sessions),
        ]
        return tuple(dict.fromkeys(left))

    try:
        done = manager.erase_tenant() if everything else manager.delete_session(*sessions)
    except SessionNotFound as error:
        if left := clear():
            raise SessionNotFound(f"{error}. Left in the project: {'; '.join(left)}") from None
        raise
    return replace(done, left=(*done.left, *clear()))


def _clear_desks(
    manager: SessionManager, sessions: Collection[str], known: Set[str], everything: bool
) -> Iterator[str]:
    """Remove what hooks left of sessions; yield what could not be removed, and why."""
    for desk in Desk(str(manager.project_dir), "", "").all():
        match desk.read_note().get(SAVED):
            case {"session_id": str(one), "url": str(url), "tenant": str(whose)}:
                # Of all that a tenant has, only what this store had: others have tenants of that name too.
                named = one in sessions or (everything and url == manager.store.url)
                going = named and whose == manager.store.tenant
            case _:
                going = desk.name in known
        if going:
            try:
                desk.forget()
            except OSError as error:
                yield f"{error.filename}: {error.strerror}"


def _clear_rest(manager: SessionManager, sessions: Collection[str]) -> Iterator[str]:
    """Remove briefs and folders of save points; yield what could not be removed, and why."""
    root = manager.project_dir
    for one in sessions:
        try:
            forget_brief(root, one)
        except OSError as error:
            yield f"{error.filename}: {error.strerror}"
        said: list[str] = []
        Folder(root, one).show({}, said.append)
        yield from said
