"""The documented keys of a state: optional, but of a known shape when they are there.

Frameworks, briefs and exports read these keys, so a wrong shape is refused when it is saved rather
than discovered when somebody needs it. All other keys are free. A state that was saved through another face,
or comes from elsewhere, was not checked: of that only what has the shape is read as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from holdfast.errors import InvalidState
from holdfast.state.stored import StoredList
from holdfast.state.tags import member, normalise, shown

Check: TypeAlias = Callable[[Any, str], object]

TASK_STATUSES: Final = ("pending", "in_progress", "blocked", "completed", "failed", "cancelled")


def validate_documented(state: Mapping[str, Any]) -> None:
    """Check the documented keys that are present. Raises `InvalidState` with the bad path."""
    for key, check in _DOCUMENTED.items():
        if key in state:
            check(state[key], f"$.{key}")


def documented(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documented keys of a state, less those that mean something else in it."""
    found = {}
    for key, check in _DOCUMENTED.items():
        if key in state:
            with suppress(InvalidState):
                check(state[key], f"$.{key}")
                found[key] = state[key]
    return found


def validate_context(context: Mapping[str, Any]) -> None:
    """Check what a checkpoint keeps beside its state. Raises `InvalidState` with the bad path."""
    _CONTEXT(context, "context")


def tasks_in(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a state, in order; those that have an id, as in a valid one all do."""
    task_state = state.get("task_state") or []
    tasks = task_state.get("tasks", []) if isinstance(task_state, Mapping) else task_state
    found = map(normalise, tasks if isinstance(tasks, Iterable) else ())
    return [
        dict(one)
        for one in found
        if isinstance(one, Mapping) and isinstance(normalise(one.get("id")), str)
    ]


def _expect(value: Any, kinds: type | tuple[type, ...], path: str, wanted: str) -> Any:
    """Return ``value`` as it will be stored (a dataclass is a dict then) if it is of these kinds."""
    stored = value if isinstance(value, kinds) else normalise(value)
    if not isinstance(stored, kinds) or (isinstance(stored, bool) and kinds is int):
        raise InvalidState(f"{path} must be {wanted}, not {type(value).__name__}")
    return stored


def _object(value: Any, path: str) -> Any:
    return _expect(value, Mapping, path, "a dict")


def _text(value: Any, path: str) -> None:
    _expect(value, str, path, "a str")


def _count(value: Any, path: str) -> None:
    if value is not None and not 0 <= _expect(value, int, path, "an int or None") < 1 << 63:
        raise InvalidState(f"{path} must not be negative, nor beyond 63 bits: {shown(value)}")


def _number(value: Any, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidState(f"{path} must be a number, not {type(value).__name__}")


def _flag(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise InvalidState(f"{path} must be true or false, not {type(value).__name__}")


def _list_of(check: Check) -> Check:
    def checked(value: Any, path: str) -> None:
        if type(value) is StoredList:
            # What is stored was checked when it was saved.
            value = value.new
        _expect(value, (list, tuple), path, "a list")
        if check is _object and all(type(item) is dict for item in value):
            return  # a conversation is long and checked at every save
        for at, item in enumerate(value):
            check(item, f"{path}[{at}]")

    return checked


def _fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    def checked(value: Any, path: str) -> None:
        fields = _object(value, path)
        for key, check in required.items():
            if key not in fields:
                raise InvalidState(f"{path} lacks the key {key!r}")
            check(fields[key], member(path, key))
        for key, check in (optional or {}).items():
            if fields.get(key) is not None:
                check(fields[key], member(path, key))

    return checked


def _task_status(value: Any, path: str) -> None:
    if normalise(value) not in TASK_STATUSES:
        raise InvalidState(f"{path} must be one of {', '.join(TASK_STATUSES)}, not {shown(value)}")


def _task_state(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
        path = f"{path}.tasks"
        _list_of(_TASK)(value.get("tasks", []), path)
    else:
        _list_of(_TASK)(value, path)
    seen: set[str] = set()
    for at, task in enumerate(tasks_in({"task_state": value})):
        if task["id"] in seen:
            raise InvalidState(f"{path}[{at}].id repeats {shown(task['id'])}")
        seen.add(task["id"])


def _progress(value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        _number(value, path)


def _decision(value: Any, path: str) -> None:
    if not isinstance(value, str):
        _fields({"text": _text}, {"rationale": _text, "alternatives": _list_of(_text)})(value, path)


def _memory_ref(value: Any, path: str) -> None:
    _fields({"key": _text}, {"uri": _text, "path": _text, "hash": _text})(value, path)
    fields = _object(value, path)
    if fields.get("uri") is None and fields.get("path") is None:
        raise InvalidState(f"{path} needs a uri or a path")


def _path(value: Any, path: str) -> None:
    _expect(value, (str, bytes), path, "a path")


def _pair(value: Any, path: str) -> None:
    _list_of(_text)(value, path)
    if len(value) != 2:
        raise InvalidState(f"{path} must be a pair")


def _any_collection(value: Any, path: str) -> None:
    if not isinstance(value, (Mapping, Sequence)) or isinstance(value, (str, bytes)):
        raise InvalidState(f"{path} must be a dict or a list, not {type(value).__name__}")


_TASK: Final = _fields({"id": _text}, {"title": _text, "status": _task_status})
_POSITION: Final = _fields({"line": _count}, {"column": _count, "character": _count})
_SELECTION: Final = _fields({"start": _POSITION, "end": _POSITION})
_OPEN_FILE: Final = _fields(
    {"path": _text},
    {"line": _count, "column": _count, "selection": _SELECTION, "active": _flag},
)

_DOCUMENTED: Final[Mapping[str, Check]] = {
    "conversation_history": _list_of(_object),
    "variable_state": _object,
    "execution_context": _object,
    "task_state": _task_state,
    "progress": _progress,
    "agent_history": _list_of(_object),
    "memory_refs": _list_of(_memory_ref),
    "open_files": _list_of(_OPEN_FILE),
    "decisions": _list_of(_decision),
    "features": _any_collection,
    "context": _fields({}, {"session_number": _count, "token_usage": _count}),
}

_TEXTS: Final = _list_of(_text)
_GIT_LISTS: Final = {
    **dict.fromkeys(("staged", "unstaged", "untracked", "deleted", "unmerged"), _TEXTS),
    "renamed": _list_of(_pair),
}
# Only Holdfast writes these.
_CONTEXT: Final = _fields(
    {},
    {
        "git": _fields(
            {},
            {
                **dict.fromkeys(("branch", "commit", "operation"), _text),
                **dict.fromkeys(("detached", "uncommitted"), _flag),
                **_GIT_LISTS,
                **{f"{name}_count": _count for name in _GIT_LISTS},
            },
        ),
        "workspace": _fields(
            {},
            {
                "told": _flag,
                "wrote": _list_of(_path),
                "skipped": _list_of(_pair),
                **dict.fromkeys(("wrote_count", "skipped_count"), _count),
                "problem": _text,
            },
        ),
        "completed_tasks": _list_of(_TASK),
    },
)
