"""Sessions and events of ADK as what is stored, and what tells two versions of a session apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from google.adk.events import Event
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import GetSessionConfig
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.conversations import Draft, Version
from holdfast.errors import StateNotSerializable

# A state of that size is kept with the metadata too, so that a listing reads no events.
_SMALL: Final = 4096


def draft(
    state: dict[str, Any], events: list[Any], update_time: float, scoped: dict[str, Any]
) -> Draft:
    """Return a version of a session, with a note of what is to be stored about app and user."""
    kept = {"state": state, "update_time": update_time}
    whole = {**kept, "events": events}
    if any(scoped.values()):
        return Draft({**whole, "scoped": scoped})
    small = len(orjson.dumps(state)) <= _SMALL
    return Draft(whole, {"summary": kept} if small else None)


def split(delta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what belongs to the session itself, and what to the app and the user."""
    own: dict[str, Any] = {}
    scoped: dict[str, Any] = {"app": {}, "user": {}}
    for key, value in delta.items():
        if key.startswith(State.APP_PREFIX):
            scoped["app"][key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            scoped["user"][key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    return own, scoped


def marker(version: Version) -> str | None:
    """Return what tells whether a session has changed: how many events it has, and the last one."""
    events = version.state.get("events")
    return None if events is None else f"{len(events)} {events[-1]['id'] if events else ''}"


def is_stale(session: Session, last: Version) -> bool:
    """Tell whether a session object is not what is stored; by its time if it has no marker."""
    if session._storage_update_marker is not None:
        return bool(session._storage_update_marker != marker(last))
    return bool(last.state["update_time"] > session.last_update_time)


def chosen(events: list[Any], config: GetSessionConfig | None) -> list[Any]:
    """Return the events that somebody asks for."""
    if config is None:
        return events
    if config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    if config.after_timestamp is not None:
        late = [one["timestamp"] >= config.after_timestamp for one in events]
        # From the first one after the last that is too early.
        events = events[len(late) - late[::-1].index(False) :] if False in late else events
    return events


def plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as JSON has it. Raises `StateNotSerializable`."""
    try:
        return dict(to_jsonable_python(state))
    except PydanticSerializationError as error:
        raise StateNotSerializable("$.state", str(error)) from None


def document(event: Event) -> dict[str, Any]:
    """Return an event as JSON has it. Raises `StateNotSerializable`."""
    # The event itself would put the names of such values in their place.
    plain(event.actions.state_delta)
    try:
        return dict(orjson.loads(event.model_dump_json(exclude_none=True)))
    except PydanticSerializationError as error:
        raise StateNotSerializable("$.event", str(error)) from None
