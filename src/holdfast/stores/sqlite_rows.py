"""Rows of SQLite as the values of the model, and back: times are text, flags are numbers."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from types import NoneType
from typing import Any, Final, TypeAlias

from holdfast.errors import StateCorrupt
from holdfast.model import (
    AgentRecord,
    CheckpointRecord,
    EffectRecord,
    LogRecord,
    NewCheckpoint,
    Payload,
    SessionRecord,
)
from holdfast.state.codec import load_document
from holdfast.stores.checks import as_utc

Row: TypeAlias = tuple[Any, ...]

# A strict table takes no such value. A file that somebody else made may have one all the same.
_OTHER_TYPE: Final = "a value is not of its column's type"
_UNREADABLE: Final = (TypeError, ValueError, StateCorrupt)
# The columns of a field, by its type in the model, and what each of them holds. All other types are texts.
_COLUMNS: Final[dict[str, tuple[tuple[type, ...], ...]]] = {
    "int": ((int,),),
    "bool": ((int,),),
    "bytes": ((bytes,),),
    "Payload | None": ((str, NoneType), (bytes,)),
}


def _check_types(record: type, row: Row) -> None:
    """Raise `TypeError` unless the row has in each column what it is for."""
    if not _are_its_types(record, tuple(map(type, row))):
        raise TypeError(_OTHER_TYPE)


@lru_cache(maxsize=256)
def _are_its_types(record: type, found: tuple[type, ...]) -> bool:
    """Answered from memory for nearly all rows: they differ in what is missing at most."""
    kinds: list[tuple[type, ...]] = []
    for name in (str(field.type) for field in fields(record)):
        text = (str, NoneType) if name.endswith("| None") else (str,)
        kinds += _COLUMNS.get(name, (text,))
    return all(issubclass(one, kind) for one, kind in zip(found, kinds, strict=True))


def stamp(moment: datetime) -> str:
    """Return a moment in UTC as it is stored; such texts sort like the moments."""
    # As isoformat writes it, which takes twice as long to find out that the time zone is UTC.
    day = (moment.year, moment.month, moment.day)
    time = (moment.hour, moment.minute, moment.second, moment.microsecond)
    return "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ" % (*day, *time)  # noqa: UP031


def stamp_given(moment: datetime | None, what: str) -> str | None:
    """Return a moment that somebody gave as it is stored. It must have a time zone."""
    return None if moment is None else stamp(as_utc(moment, what))


def moment(text: str) -> datetime:
    """Return a stored moment. Raises `StateCorrupt`: SQLite does not look at what it keeps."""
    try:
        return _stamped(text)
    except _UNREADABLE as error:
        raise _odd(error) from error


def _stamped(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    # Compared with others, one of no zone would raise, and one of another zone sorts elsewhere as a text.
    if found.tzinfo is not UTC:
        raise ValueError("a time that is not in UTC")
    return found


def _stamped_if_any(text: str | None) -> datetime | None:
    return None if text is None else _stamped(text)


def _stamped_or_none(text: str) -> datetime | None:
    """Read a time that no link is of and nothing goes by: the next restore sets it anew."""
    try:
        return _stamped(text)
    except ValueError:
        return None


def _odd(error: Exception, which: str = "a row") -> StateCorrupt:
    return StateCorrupt(
        f"{which} cannot be understood ({error}). Nothing was changed; holdfast doctor --salvage saves "
        f"the others into a new file"
    )


def _document(text: str | None) -> dict[str, Any] | None:
    return None if text is None else load_document(text)


def agent(row: Row) -> AgentRecord:
    """Read a row of ``agents``."""
    try:
        _check_types(AgentRecord, row)
        values: Row = (*row[:6], _document(row[6]), *map(_stamped_if_any, row[7:10]))
    except _UNREADABLE as error:
        raise _odd(error, f"the row of agent {row[0]!r}") from error
    return AgentRecord(*values)


def session(row: Row) -> SessionRecord:
    """Read a row of ``sessions``."""
    try:
        _check_types(SessionRecord, row)
        values: Row = (
            *row[:7],
            _stamped_if_any(row[7]),
            _stamped_if_any(row[8]),
            row[9],
            _stamped_if_any(row[10]),
            _document(row[11]),
            _stamped_if_any(row[12]),
            _stamped_if_any(row[13]),
            row[14],
            row[15],
            _stamped_if_any(row[16]),
            _stamped_if_any(row[17]),
            row[18],
            row[19],
        )
    except _UNREADABLE as error:
        raise _odd(error, f"the row of session {row[0]!r}") from error
    return SessionRecord(*values)


def standing_session(row: Row, session_id: str) -> Row:
    """Return a row of ``sqlite.put.session``, whose chain and token a write counts on."""
    if not (type(row[2]) is type(row[4]) is int and type(row[3]) is bytes):
        raise _odd(TypeError(_OTHER_TYPE), f"the row of session {session_id!r}")
    return row


def checkpoint(row: Row) -> CheckpointRecord:
    """Read a row of ``session_checkpoints``; listings of thousands of rows spend their time here."""
    values = list(row)
    values[18] = row[18] == 1
    values[20] = row[20] == 1
    values[21] = row[21] == 1
    try:
        _check_types(CheckpointRecord, row)
        if row[22] is not None:
            values[22] = _stamped(row[22])
        values[24] = _stamped(row[24])
        if row[25] is not None:
            values[25] = _stamped_or_none(row[25])
        if row[23] is not None:
            values[23] = load_document(row[23])
    except _UNREADABLE as error:
        which = f"the row of checkpoint {row[0]!r} ({row[7]!r}) of session {row[1]!r}"
        raise _odd(error, which) from error
    # A frozen dataclass sets its fields by name, one slow call each; their slots are set at once.
    record = object.__new__(CheckpointRecord)
    for set_slot, value in zip(_CHECKPOINT_SLOTS, values, strict=True):
        set_slot(record, value)
    return record


def of_draft(
    draft: NewCheckpoint,
    *,
    agent_id: str | None,
    seq: int,
    parent_id: str | None,
    label: str | None,
    stored_bytes: int,
    expires_at: str | None,
    metadata: str | None,
    created_at: str | None,
) -> Row:
    """Return a draft as a row of ``session_checkpoints`` that was never restored."""
    return (
        draft.id,
        draft.session_id,
        agent_id,
        draft.namespace,
        seq,
        draft.external_id,
        parent_id,
        draft.name,
        label,
        draft.description,
        draft.checkpoint_type,
        draft.retention_class,
        draft.run_id,
        draft.version,
        draft.size_bytes,
        stored_bytes,
        draft.git_branch,
        draft.git_commit,
        draft.git_uncommitted,
        draft.workspace_commit,
        draft.resumable,
        draft.pinned,
        expires_at,
        metadata,
        created_at,
    )


def effect(row: Row) -> EffectRecord:
    """Read a row of ``effects``."""
    payload = None if row[8] is None else Payload(row[8], row[9])
    try:
        _check_types(EffectRecord, row[:13])
        values: Row = (
            *row[:8],
            payload,
            _document(row[10]),
            _stamped_if_any(row[11]),
            _stamped_if_any(row[12]),
        )
    except _UNREADABLE as error:
        raise _odd(error, f"the row of effect {row[1]!r} of session {row[0]!r}") from error
    return EffectRecord(*values)


def log(row: Row) -> LogRecord:
    """Read a row of ``session_logs``."""
    try:
        _check_types(LogRecord, row)
        values: Row = (*row[:4], _document(row[4]), _stamped_if_any(row[5]))
    except _UNREADABLE as error:
        raise _odd(error, f"line {row[0]} of the log of session {row[1]!r}") from error
    return LogRecord(*values)


CHECKPOINT_COLUMNS: Final = len(fields(CheckpointRecord))
_CHECKPOINT_SLOTS: Final = tuple(
    vars(CheckpointRecord)[one.name].__set__ for one in fields(CheckpointRecord)
)
