"""Rows as lines of JSON: one way to write each, and nothing else is read.

Keys are sorted and times are in UTC, so that the same session gives the same bytes wherever it is stored.
What a store keeps for itself is left out: positions, leases, and the directory of a machine.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from holdfast.errors import BundleRefused, StateCorrupt
from holdfast.model import (
    AgentRecord,
    CheckpointRecord,
    EffectRecord,
    LogRecord,
    Payload,
    SessionRecord,
    WriteRecord,
)
from holdfast.state.tags import tagged, untagged

T = TypeVar("T")

_SORTED: Final = orjson.OPT_SORT_KEYS


class _Kind(NamedTuple):
    """How a kind of value is written, and read back; reading raises for anything else."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _exactly(kind: type) -> _Kind:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r:.80} is not a {kind.__name__}")
        return value

    return _Kind(lambda value: value, read)


def _written_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat("T", "microseconds")[:26] + "Z"


def _read_moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if _written_moment(moment) != value:
        raise ValueError(f"{value!r:.80} is not a time in UTC")
    return moment.astimezone(UTC)


def _read_bytes(value: Any) -> bytes:
    data = b64decode(value, validate=True)
    if b64encode(data).decode() != value:
        raise ValueError("bytes that are written in another way")
    return data


def _read_document(value: Any) -> dict[str, Any]:
    document = untagged(value)
    if type(document) is not dict:
        raise TypeError("a document is an object")
    return document


def _read_payload(value: Any) -> Payload:
    manifest, refs = value
    return Payload(_TEXT.read(manifest), _read_bytes(refs))


_TEXT: Final = _exactly(str)
_MOMENT: Final = _Kind(_written_moment, _read_moment)
_BYTES: Final = _Kind(lambda data: b64encode(data).decode(), _read_bytes)
_DOCUMENT: Final = _Kind(lambda value: tagged(dict(value), "$", jsonb=True), _read_document)
_PAYLOAD: Final = _Kind(lambda value: [value.manifest, _BYTES.write(value.refs)], _read_payload)


def _or_none(kind: _Kind) -> _Kind:
    return _Kind(
        lambda value: None if value is None else kind.write(value),
        lambda value: None if value is None else kind.read(value),
    )


# By the annotation of a record's field. What a text may say is for the store's own checks.
_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(
        ("str", "SessionStatus", "AgentStatus", "CheckpointType", "RetentionClass", "LogLevel",
         "EffectStatus"),
        _TEXT,
    ),
    "str | None": _or_none(_TEXT),
    "int": _exactly(int),
    "bool": _exactly(bool),
    "bytes": _BYTES,
    "datetime": _MOMENT,
    "datetime | None": _or_none(_MOMENT),
    "Mapping[str, Any] | None": _or_none(_DOCUMENT),
    "Payload": _PAYLOAD,
    "Payload | None": _or_none(_PAYLOAD),
}  # fmt: skip
# What a session is that nobody holds, in no project yet.
_UNHELD: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("lease_owner", "lease_since", "lease_expires_at", "project_dir")),
    **dict.fromkeys(("lease_token",), 0),
}


class Rows:
    """How the rows of one kind are written. ``given`` are fields that stand elsewhere or nowhere.

    ``more`` are keys beside the record's own fields, with the annotation of their kind.
    """

    def __init__(
        self, record: type[Any], given: Iterable[str] = (), more: Mapping[str, str] | None = None
    ) -> None:
        self._record = record
        own = {one.name: str(one.type) for one in fields(record) if one.name not in set(given)}
        self._own = {name: _KINDS[kind] for name, kind in own.items()}
        self._more = {name: _KINDS[kind] for name, kind in (more or {}).items()}

    def write(self, record: Any, **more: Any) -> bytes:
        """Return a row as one line."""
        row = {name: kind.write(getattr(record, name)) for name, kind in self._own.items()}
        row |= {name: kind.write(more[name]) for name, kind in self._more.items()}
        return orjson.dumps(row, option=_SORTED)

    def read(self, line: bytes, **given: Any) -> tuple[Any, dict[str, Any]]:
        """Return the record of a line with the fields that are given, and what stands beside it."""
        try:
            row = orjson.loads(line)
            if type(row) is not dict or row.keys() != self._own.keys() | self._more.keys():
                raise ValueError("it has other fields than such a row")
            own = {name: kind.read(row[name]) for name, kind in self._own.items()}
            more = {name: kind.read(row[name]) for name, kind in self._more.items()}
        except (ValueError, TypeError, OverflowError, binascii.Error, StateCorrupt) as error:
            raise BundleRefused(
                f"the bundle has a row that cannot be read: {error}. Nothing was changed"
            ) from None
        return self._record(**own, **given), more


AGENTS: Final = Rows(AgentRecord)
SESSIONS: Final = Rows(SessionRecord, _UNHELD)
CHECKPOINTS: Final = Rows(
    CheckpointRecord,
    ("session_id", "agent_id", "seq"),
    {"consumed_at": "datetime | None", "payload": "Payload"},
)
WRITES: Final = Rows(WriteRecord, more={"namespace": "str", "created_at": "datetime"})
EFFECTS: Final = Rows(EffectRecord, ("session_id",))
LOGS: Final = Rows(LogRecord, ("id", "session_id"))


def read_session_row(line: bytes) -> SessionRecord:
    """Return a session that nobody holds."""
    record: SessionRecord = SESSIONS.read(line, **_UNHELD)[0]
    return record
