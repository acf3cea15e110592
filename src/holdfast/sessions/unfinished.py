"""Sessions that wait for somebody to go on: the last unfinished one, and those whose worker died."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.brief import moment
from holdfast.config import project_of_database
from holdfast.errors import InvalidFilter, NothingToResume
from holdfast.ids import is_shaped_thread
from holdfast.leases import AGENT, AGENT_PROCESS, describe_holder, is_alive, is_dead
from holdfast.model import CheckpointQuery, Lease, SessionQuery, SessionRecord, utc_now
from holdfast.sessions.held import Surroundings, place_of
from holdfast.stores import Store
from holdfast.stores.base import first
from holdfast.stores.readable import list_readable, list_readable_checkpoints
from holdfast.workspace.repository import read_git_state

MAX_RECOVERIES: Final = 5
_HOW: Final = "(on the command line: holdfast save --agent-type NAME)"


def interrupt_dead(store: Store, owner: str, *, most: int) -> list[SessionRecord]:
    """Mark active sessions whose worker died, other than ``owner``'s; see `SessionManager.recover`."""
    if type(most) is not int or most < 0:
        raise InvalidFilter(f"max_attempts must be a whole number: {most!r}")
    found = []
    for lease in store.list_leases():
        if lease.owner == owner or not is_abandoned(store, lease):
            continue
        marked = _interrupt(store, lease, describe_holder(lease), most)
        if marked is not None:
            found.append(marked)
        else:
            # Paused or finished, so nothing was interrupted; unless it has just been taken.
            store.release_lease(lease.session_id, lease.token)
    return found


def is_abandoned(store: Store, lease: Lease) -> bool:
    """Tell whether the worker that has a lease is gone, as far as anybody can know.

    Nobody renews an agent's lease between two of its hooks, and it may run one command, or wait for its
    user, for longer than any lease lasts. So where its process can be looked at, that alone decides.
    """
    process = _agent_process(store, lease)
    if process is not None and is_alive(process):
        return False
    return lease.expired or is_dead(process or lease.owner)


def interrupt_held(store: Store, session_id: str, *, message: str) -> SessionRecord | None:
    """Mark a session that its worker has left; see `SessionManager.interrupt_session`."""
    for lease in store.list_leases(session_id=session_id):
        return _interrupt(store, lease, message, MAX_RECOVERIES)
    return None


def _interrupt(store: Store, lease: Lease, message: str, most: int) -> SessionRecord | None:
    return store.interrupt_session(
        lease.session_id,
        lease.token,
        most=most,
        message=message,
        data={"owner": lease.owner, "token": lease.token},
    )


def _agent_process(store: Store, lease: Lease) -> str | None:
    """Return the process of the agent whose hooks have a lease, as the session names it."""
    if not lease.owner.startswith(AGENT):
        return None
    record = store.find_session(lease.session_id)
    process = ((record.metadata if record is not None else None) or {}).get(AGENT_PROCESS)
    return process if isinstance(process, str) else None


def latest_unfinished(
    store: Store, around: Surroundings, *, agent_type: str | None, parked: bool
) -> SessionRecord:
    """Return the session to go on with; see `SessionManager.latest_unfinished_session`."""
    now = utc_now()
    everywhere = [
        record
        for record in list_readable(store, SessionQuery(agent_type=agent_type))
        if record.status != "completed" and not is_shaped_thread(record.agent_id, record.agent_type)
    ]
    unfinished = of_here(store, around.place, everywhere)
    found = [one for one in unfinished if one.paused_until is None or one.paused_until <= now]
    if not found and parked:
        found = unfinished
    if not found:
        raise NothingToResume(_why_none(unfinished, everywhere))
    git = None
    if around.files is not None and len(found) > 1:
        git = read_git_state(around.project_dir)
    if git is None:
        return found[0]
    for record in found:
        query = CheckpointQuery(record.id, namespace="", limit=1)
        latest = first(list_readable_checkpoints(store, query))
        if latest is None or latest.git_branch == git.branch:
            return record
    return found[0]


def of_here(store: Store, place: str, records: Sequence[SessionRecord]) -> list[SessionRecord]:
    """Return those sessions that are of the project in this directory.

    A project that was moved has its database with it, and what was created in the directory that it was in.
    Where none is of this directory, those of directories that are gone are meant.
    """
    found = [one for one in records if one.project_dir in (None, place)]
    path: Path | None = getattr(store, "path", None)
    owner = None if path is None else project_of_database(path)
    if found or owner is None or place_of(owner) != place:
        return found
    return [one for one in records if not os.path.isdir(str(one.project_dir))]


def _why_none(parked: Sequence[SessionRecord], everywhere: Sequence[SessionRecord]) -> str:
    for one in parked:
        until = "" if one.paused_until is None else f" until {moment(one.paused_until)}"
        return (
            f"there is no unfinished session here that is to go on now: {one.id} is paused{until}; "
            f"name it to go on with it earlier, or create another one {_HOW}"
        )
    if not everywhere:
        return f"there is no unfinished session here; create one first {_HOW}"
    place = everywhere[0].project_dir
    count = sum(one.project_dir == place for one in everywhere)
    others = len(everywhere) - count
    more = f", and {others:,} of other directories" if others else ""
    return (
        f"there is no unfinished session here; {count:,} unfinished {'is' if count == 1 else 'are'} of "
        f"{place}{more}. Name one to go on with it (`holdfast sessions` lists them; commands take it as "
        f"SESSION or with --session), or create one first {_HOW}"
    )
