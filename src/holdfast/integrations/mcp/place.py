"""Where a server works: which session a call means, and as whom it writes.

A coding agent has its hooks and this server side by side, started by the same process. Both belong to one
agent, so a session that is held for that process is joined, not taken: ``agent:<kind>:<the agent's session id>``
is one owner with one token. A session that anybody else holds is left to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.config import without_password
from holdfast.errors import NothingToResume, SessionNotFound
from holdfast.ids import new_id
from holdfast.leases import AGENT, AGENT_PROCESS
from holdfast.model import LEASE_TTL, Lease, SessionRecord
from holdfast.places import URL
from holdfast.processes import SHELLS, ancestor
from holdfast.sessions import Session, SessionManager

DEFAULT_AGENT: Final = "mcp"
# As long as the agent's hooks take it for: joining must not shorten it.
_JOINED: Final = timedelta(hours=1)


def _caller() -> str | None:
    """Return the process of the agent that started this server, None where it cannot be known."""
    process = ancestor(SHELLS)
    return None if process is None else str(process)


@dataclass(frozen=True, slots=True)
class Place:
    """A project and its store. ``agent`` is the kind of agent that calls; ``session`` pins one.

    ``caller`` is that agent's process.
    """

    url: str | None = None
    tenant: str | None = None
    project_dir: str | Path | None = None
    agent: str = DEFAULT_AGENT
    session: str | None = None
    caller: str | None = field(default_factory=_caller)
    run: str = field(default_factory=new_id)

    @property
    def owner(self) -> str:
        """Who this server is where nobody of its agent was before."""
        return f"{AGENT}{self.agent}:{self.run}"

    @contextmanager
    def reading(self, session: str | None) -> Iterator[tuple[SessionManager, Session]]:
        """Open the store to look at a session: the one named, or the one that is meant."""
        with self._open() as manager:
            yield manager, manager.get_session(self._chosen(manager, session))

    @contextmanager
    def writing(
        self, session: str | None, *, create: bool = False, back_to: str | None = None
    ) -> Iterator[tuple[SessionManager, Session]]:
        """Open the store and hold a session; with ``create`` one is started where there is none.

        ``back_to`` is the checkpoint that it will be rolled back to: a completed session is forked.
        """
        with self._open(create=create) as manager:
            try:
                chosen = self._chosen(manager, session)
            except NothingToResume:
                if not create:
                    raise
                about = None if self.caller is None else {AGENT_PROCESS: self.caller}
                yield manager, manager.create_session(self.agent, metadata=about)
                return
            joined = self._our_lease(manager, chosen)
            if joined is None:
                yield manager, _held(manager, chosen, back_to)
                return
        with self._open(owner=joined.owner, lease_ttl=_JOINED) as manager:
            yield manager, _held(manager, chosen, back_to)

    def inside(self, manager: SessionManager, paths: Sequence[str] | None) -> list[str] | None:
        """Return paths as the project names them. Raises `InvalidIdentifier` for one outside of it."""
        if paths is None:
            return None
        return manager.workspace.relatives(paths)

    def to_document(self, tools: Sequence[str]) -> dict[str, Any]:
        """Return how this server is called, for whoever registers it: from wherever it will be started.

        A password is not written into settings that others may read: ``notes`` say where it belongs.
        """
        arguments = ["mcp"]
        notes = []
        if self.url is not None and without_password(self.url) == self.url:
            arguments += ["--url", _from_anywhere(self.url)]
        elif self.url is not None:
            notes.append(
                f"the URL of the store has a secret and is left out: have the agent start this server with "
                f"{URL} set to it"
            )
        if self.tenant is not None:
            arguments += ["--tenant", self.tenant]
        if self.project_dir is not None:
            arguments += ["--project-dir", os.path.abspath(self.project_dir)]
        if self.agent != DEFAULT_AGENT:
            arguments += ["--agent", self.agent]
        if self.session is not None:
            arguments += ["--session", self.session]
        return {"command": "holdfast", "args": arguments, "tools": list(tools), "notes": notes}

    def _open(
        self,
        *,
        create: bool = False,
        owner: str | None = None,
        lease_ttl: timedelta = LEASE_TTL,
    ) -> SessionManager:
        return SessionManager.open(
            self.url,
            project_dir=self.project_dir,
            tenant=self.tenant,
            create=create,
            owner=owner or self.owner,
            lease_ttl=lease_ttl,
            redact="unless off",
            # What an agent is told goes to its model.
            rehydrate=False,
        )

    def _chosen(self, manager: SessionManager, session: str | None) -> str:
        if self.session is not None:
            return self._pinned(manager, self.session, session)
        if session is not None:
            return manager.get_session(session).id
        ours = self._ours(manager)
        return ours[0].id if ours else manager.latest_unfinished_session().id

    def _pinned(self, manager: SessionManager, pinned: str, session: str | None) -> str:
        """Return the one session to work on, or one that a rollback has forked from it."""
        only = manager.get_session(pinned)
        if session is None:
            return only.id
        named = manager.get_session(session)
        origin = named.record.forked_from
        if named.id != only.id and (
            origin is None or manager.get_checkpoint(origin).session_id != only.id
        ):
            raise SessionNotFound(
                f"this server was started for session {only.id}, and works on no other"
            )
        return named.id

    def _ours(self, manager: SessionManager) -> list[SessionRecord]:
        """Return the sessions that this very agent works on, the latest first."""
        if self.caller is None:
            return []
        return manager.list_sessions(status="active", metadata={AGENT_PROCESS: self.caller})

    def _our_lease(self, manager: SessionManager, session_id: str) -> Lease | None:
        """Return the lease by which the agent's other programs hold a session, if they do."""
        if session_id not in {one.id for one in self._ours(manager)}:
            return None
        held = manager.store.list_leases(session_id=session_id)
        return next((one for one in held if one.owner.startswith(AGENT) and not one.expired), None)


def _from_anywhere(url: str) -> str:
    """Return a store's URL with a path that does not depend on the working directory."""
    return url if ":" in url or url.startswith("~") else os.path.abspath(url)


def _held(manager: SessionManager, session_id: str, back_to: str | None) -> Session:
    if back_to is not None and manager.get_session(session_id).status == "completed":
        return manager.hold_session(session_id, back_to=back_to)
    return manager.join_session(session_id)
