"""The session service.

A session is a thread that holds its events and its own state. What events say about ``app:`` and
``user:`` keys is shared, and kept in threads of their own (`shared`). An event is stored first, together
with a note of what it says about those; the note goes when that has been stored too. Where it could not be,
after a crash or while somebody holds such a thread, the note counts for whoever reads the session, who does
the rest if that is possible now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from holdfast.conversations import DEFAULT_CAP, Conversations, Draft, Version, joined
from holdfast.errors import HoldfastError, StaleWriter
from holdfast.ids import SESSION_ID_BYTES, check_text
from holdfast.integrations.google_adk.documents import (
    chosen,
    document,
    draft,
    is_stale,
    lacks_only,
    marker,
    note,
    noted,
    plain,
    split,
    text,
)
from holdfast.integrations.google_adk.shared import SharedState, latest
from holdfast.stores import Store
from holdfast.waiting import in_thread, outlast

_KIND: Final = "google-adk"


class HoldfastSessionService(BaseSessionService):
    """Keeps sessions in a store, which is given, or opened from its URL and closed by `close`.

    An event is durable when `append_event` returns. A session object that others have overtaken gets
    ``StaleSessionError``, and nothing is stored.
    """

    def __init__(
        self, where: Store | str | Path, *, max_versions: float | None = DEFAULT_CAP
    ) -> None:
        self._sessions = Conversations(where, _KIND, max_versions=max_versions)
        self._shared = SharedState(self._sessions.store, max_versions=max_versions)
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. Raises ``AlreadyExistsError`` for an id that the user has already.

        Raises `ForeignSession`, and stores nothing, where state of app or user cannot be kept since
        something else has a session with that id.
        """
        own, scoped = split(plain(state or {}))
        about = _about(app_name, user_id, session_id or platform_uuid.new_uuid())
        about["session"] = about["session"] or platform_uuid.new_uuid()
        first = draft(own, [], platform_time.get_time(), note(scoped, {}))

        def create() -> Version:
            thread = joined(*about.values())
            self._refuse_foreign(about, scoped)
            version = self._sessions.replace(thread, first, after=None, about=about)
            self._settle(about, version)
            # What is stored next goes on from this version, and the session's state is the caller's.
            return replace(version, state=deepcopy(version.state))

        try:
            return await self._session(about, await in_thread(create))
        except StaleWriter:
            raise AlreadyExistsError(
                f"Session with id {about['session']} already exists."
            ) from None

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session, all of its events or those that ``config`` asks for, or None."""
        about = _about(app_name, user_id, session_id)
        version = await in_thread(self._read, about)
        return None if version is None else await self._session(about, version, config)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """List the sessions of an app, or of one of its users, without events, oldest first."""
        wanted = {"app": app_name} | ({} if user_id is None else {"user": user_id})
        none = GetSessionConfig(num_recent_events=0)
        sessions = [
            await self._session(about, version, none)
            for about, version in await in_thread(self._list, wanted)
        ]
        sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session. State of the app and of the user stays."""
        about = _about(app_name, user_id, session_id)

        def erase() -> None:
            with suppress(HoldfastError):  # what cannot be read is erased all the same
                self._read(about)
            self._sessions.erase(joined(*about.values()))

        await in_thread(erase)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return what is kept about a user, without the prefix ``user:``."""
        return await in_thread(self._values, _about(app_name, user_id, ""), "user")

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and what it changes; the same event again changes nothing.

        Raises ``StaleSessionError`` when the session was changed since this object was read,
        ``SessionNotFoundError`` when it is gone, and `ForeignSession` as `create_session` does.
        """
        if event.partial:
            return event
        about = _about(session.app_name, session.user_id, session.id)
        # One after the other, or a session object would be found to be overtaken by itself; and whoever is
        # cancelled goes on to where the object has heard of what is stored.
        async with self._turn(joined(*about.values())):
            return await outlast(self._append_in_turn(about, session, event))

    async def close(self) -> None:
        """Close the store if it was opened here."""
        await in_thread(self._sessions.close)

    def _turn(self, thread: str) -> asyncio.Lock:
        """Return the lock of a session in this event loop; it lives as long as somebody has it."""
        return self._turns.setdefault((id(asyncio.get_running_loop()), thread), asyncio.Lock())

    async def _append_in_turn(
        self, about: Mapping[str, str], session: Session, event: Event
    ) -> Event:
        before = session.state.copy()
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        try:
            version = await in_thread(self._append, about, session, document(event))
        except BaseException:
            session.state = before
            raise
        if version is None:
            return event
        session._storage_update_marker = marker(version)
        session.last_update_time = event.timestamp
        return self._commit_event_to_session(session, event)

    def _append(
        self, about: Mapping[str, str], session: Session, event: dict[str, Any]
    ) -> Version | None:
        """Return the version with that event, or None where the session object is as it should be."""
        own, scoped = split(event.get("actions", {}).get("state_delta", {}))
        known: list[bool] = []

        def add(last: Version | None) -> Draft | None:
            if last is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            events = last.state["events"]
            known[:] = [text(one) == text(event) for one in events if one["id"] == event["id"]]
            if any(known):
                return None
            if is_stale(session, last):
                raise StaleSessionError(
                    f"Session {session.id} was changed since it was read. Nothing was stored: get it "
                    f"again and repeat."
                )
            self._refuse_foreign(about, scoped)
            state = {**last.state["state"], **own}
            told = note(scoped, noted(last))
            return draft(state, [*events, event], event["timestamp"], told)

        version = self._sessions.change(joined(*about.values()), add)
        if version is None or (any(known) and not lacks_only(event, session, version)):
            return None
        self._settle(about, version)
        return version

    def _refuse_foreign(self, about: Mapping[str, str], scoped: Mapping[str, Any]) -> None:
        """Raise `ForeignSession` if something is said of app or user, and their thread is another's."""
        for scope, thread in _shared_by(about).items():
            if scoped[scope]:
                self._shared.refuse_foreign(thread)

    def _settle(self, about: Mapping[str, str], version: Version) -> None:
        """Store what a version notes about app and user, then take the note away; else leave it."""
        told = noted(version)
        if not told:
            return

        def clear(last: Version | None) -> Draft | None:
            # Whoever went on from it has taken its note along.
            if last is None or last.id != version.id:
                return None
            kept = last.state
            return draft(kept["state"], kept["events"], kept["update_time"], {})

        with suppress(HoldfastError):  # the version itself is stored, or has been read
            for scope, words in told.items():
                self._shared.tell(_shared_by(about)[scope], words)
            self._sessions.change(joined(*about.values()), clear)

    def _read(self, about: Mapping[str, str]) -> Version | None:
        version = self._sessions.read(joined(*about.values()))
        if version is not None:
            self._settle(about, version)
        return version

    def _list(self, wanted: Mapping[str, str]) -> list[tuple[dict[str, str], Version]]:
        found = []
        for thread in self._sessions.threads(wanted):
            about = {key: (thread.metadata or {})[key] for key in ("app", "user", "session")}
            head = self._sessions.head(thread.id)
            summary = (head.metadata or {}).get("summary") if head is not None else None
            if head is not None and summary is not None:
                found.append((about, Version(head, summary)))
            elif (version := self._read(about)) is not None:
                found.append((about, version))
        return found

    def _values(
        self, about: Mapping[str, str], scope: str, version: Version | None = None
    ) -> dict[str, Any]:
        """Return what is known of the app or the user, with what a version has noted about it."""
        words = self._shared.read(_shared_by(about)[scope])
        told = {} if version is None else noted(version).get(scope, {})
        return {key: value for key, (value, _) in latest(words, told).items()}

    async def _session(
        self,
        about: Mapping[str, str],
        version: Version,
        config: GetSessionConfig | None = None,
    ) -> Session:
        of_app = await in_thread(self._values, about, "app", version)
        of_user = await in_thread(self._values, about, "user", version)
        session = Session(
            app_name=about["app"],
            user_id=about["user"],
            id=about["session"],
            state={
                **version.state["state"],
                **{State.APP_PREFIX + key: value for key, value in of_app.items()},
                **{State.USER_PREFIX + key: value for key, value in of_user.items()},
            },
            events=[
                Event.model_validate_json(text(one))
                for one in chosen(version.state.get("events", []), config)
            ],
            last_update_time=version.state["update_time"],
        )
        session._storage_update_marker = marker(version)
        return session


def _about(app_name: str, user_id: str, session_id: str) -> dict[str, str]:
    """Return the names of a session. Raises `InvalidIdentifier` for those that nothing is stored under."""
    # What is shared is kept under the name of the app, which is why that has to be one.
    check_text(app_name, "an app_name", SESSION_ID_BYTES)
    check_text(user_id, "a user_id", SESSION_ID_BYTES, empty=True)
    check_text(session_id, "a session_id", SESSION_ID_BYTES, empty=True)
    return {"app": app_name, "user": user_id, "session": session_id.strip()}


def _shared_by(about: Mapping[str, str]) -> dict[str, str]:
    """Return the threads of what a session shares with others."""
    return {"app": joined(about["app"]), "user": joined(about["app"], about["user"])}
