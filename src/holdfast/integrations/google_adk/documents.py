"""Sessions and events of ADK as what is stored, and what tells two versions of a session apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.adk.events import Event
from google.adk.sessions import Session, State
from google.adk.sessions.base_session_service import GetSessionConfig
from pydantic_core import to_json, to_jsonable_python

from holdfast.conversations import Draft, Version
from holdfast.errors import StateNotSerializable
from holdfast.integrations.google_adk.shared import Words, from_document, to_document

# A state of that size is kept with the metadata too, so that a listing reads no events.
_SMALL: Final = 4096


def draft(
    state: dict[str, Any], events: list[Any], update_time: float, note: Mapping[str, Any]
) -> Draft:
    """Return a version of a session, with a note of what is to be stored about app and user."""
    kept = {"state": state, "update_time": update_time}
    whole = {**kept, "events": events}
    if note:
        return Draft({**whole, "note": note}, {"note": True})
    return Draft(whole, {"summary": kept} if _is_small(state) else None)


def note(scoped: Mapping[str, dict[str, Any]], before: Mapping[str, Words]) -> dict[str, Any]:
    """Return the note of what an event says about app and user, over what was noted before it."""
    return {
        scope: to_document(before.get(scope, {}), values)
        for scope, values in scoped.items()
        if values or scope in before
    }


def noted(version: Version) -> dict[str, Words]:
    """Return what a version says about app and user that is yet to be stored.

    A rollback stores a copy of an old version, whose note was dealt with in its time.
    """
    if not version.metadata.get("note"):
        return {}
    here = version.record.seq
    return {scope: from_document(said, here, here) for scope, said in version.state["note"].items()}


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
    return None if events is None else _marker(events)


def is_stale(session: Session, last: Version) -> bool:
    """Tell whether a session object is not what is stored; by its time if it has no marker."""
    if session._storage_update_marker is not None:
        return bool(session._storage_update_marker != marker(last))
    return bool(last.state["update_time"] > session.last_update_time)


def lacks_only(event: dict[str, Any], session: Session, last: Version) -> bool:
    """Tell whether a session object is what is stored but for that event, of whose storing it never heard."""
    *before, newest = last.state["events"]
    return session._storage_update_marker == _marker(before) and text(newest) == text(event)


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
    """Return a state as JSON has it, bytes as events have them. Raises `StateNotSerializable`."""
    try:
        return dict(to_jsonable_python(state, bytes_mode="base64"))
    except ValueError as error:
        raise StateNotSerializable("$.state", str(error)) from None


def document(event: Event) -> dict[str, Any]:
    """Return an event as JSON has it. Raises `StateNotSerializable`."""
    # The event itself would put names in the place of values that have no form, and null in that of NaN.
    delta = plain(event.actions.state_delta)
    try:
        whole = dict(event.model_dump(mode="json", exclude_none=True))
    except ValueError as error:
        raise StateNotSerializable("$.event", str(error)) from None
    whole["actions"]["state_delta"] = delta
    return whole


def text(document: Mapping[str, Any]) -> bytes:
    """Return a stored event as JSON, integers of any size and NaN too, which an event is read from."""
    return to_json(document, inf_nan_mode="constants")


def _marker(events: list[Any]) -> str:
    return f"{len(events)} {events[-1]['id'] if events else ''}"


def _is_small(state: Mapping[str, Any]) -> bool:
    try:
        return len(text(state)) <= _SMALL
    except ValueError:  # a lone surrogate, which the store refuses and names
        return False
