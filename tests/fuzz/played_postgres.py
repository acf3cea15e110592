"""Rows as PostgreSQL hands them out, read without a server: an input stands for the columns of one row.

The first byte chooses the reader. Then comes a column after the other: a byte for its type, two for the size of its
value (all ones for none), and the value as the server sends it; the parts of a list have zero bytes between them. Psycopg reads it as it does for the store, so a
value is what a column of that type can hold; which types the columns have is up to whoever made the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

from psycopg.adapt import Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult

from holdfast.model import NewCheckpoint, NewEffect
from holdfast.stores.chain import breaks, link_of, plain_digest, record_row
from holdfast.stores.postgres_connection import execute
from holdfast.stores.postgres_pool import AnyConnection
from holdfast.stores.postgres_prepared import _read
from holdfast.stores.postgres_rows import (
    parse_agent,
    parse_begun,
    parse_chain,
    parse_checkpoint,
    parse_effect,
    parse_lease,
    parse_log,
    parse_read,
    parse_session,
)
from holdfast.stores.postgres_statements import Statement, parse_put
from holdfast.stores.rules import needs_in, pack_of, pack_order, unneeded_packs
from holdfast.stores.sums import Sums
from tests.fuzz.contract import Target

_ID: Final = "0" * 8 + "-0000-0000-0000-" + "0" * 12
_NOW: Final = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_COLUMN: Final = Struct("!BH")
_LIST: Final = Struct("!iiIii")
_LENGTH: Final = Struct("!i")
_NOTHING: Final = 0xFFFF
# By the type's number in PostgreSQL's catalog: text, bigint, boolean, bytea, uuid, timestamptz, double, lists of bytea
# and text. The server sends as many bytes for a value as its type has.
_TYPES: Final = (25, 20, 16, 17, 2950, 1184, 701, 1001, 1009)
_SIZES: Final = {20: 8, 16: 1, 2950: 16, 1184: 8, 701: 8}
_LISTS: Final = {1001: 17, 1009: 25}
_LINK: Final = 28

_DRAFT: Final = NewCheckpoint(_ID, "s", "n", "{}", b"", {}, (), 2, label="l")
_EFFECT: Final = NewEffect("s", "k", 0, "n", b"", _ID)


# From bytes to a row ------------------------------------------------------------------------------


def _columns(data: bytes, count: int) -> list[tuple[int, bytes | None]]:
    """Return types and values of so many columns; those that the input lacks are empty."""
    found: list[tuple[int, bytes | None]] = []
    place = 0
    while place + _COLUMN.size <= len(data) and len(found) < count:
        kind, size = _COLUMN.unpack_from(data, place)
        place += _COLUMN.size
        value = None if size == _NOTHING else data[place : place + size]
        place += len(value or b"")
        number = _TYPES[kind % len(_TYPES)]
        found.append((number, None if value is None else _as_sent(number, value)))
    return found + [(_TYPES[0], None)] * (count - len(found))


def _as_sent(kind: int, value: bytes) -> bytes:
    """Return a value in the form that the server has for its type."""
    if kind in _LISTS:
        parts = [_LENGTH.pack(len(one)) + one for one in value.split(b"\0")]
        return b"".join((_LIST.pack(1, 0, _LISTS[kind], len(parts), 1), *parts))
    size = _SIZES.get(kind)
    return value if size is None else value[:size].rjust(size, b"\0")


def _row(columns: Sequence[tuple[int, bytes | None]]) -> tuple[Any, ...]:
    """Return a row as the store's own `execute` does, whose connection is played."""
    loaders = Transformer()

    def load() -> list[tuple[Any, ...]]:
        return [
            tuple(
                None if value is None else loaders.get_loader(kind, Format.BINARY).load(value)
                for kind, value in columns
            )
        ]

    cursor = SimpleNamespace(
        execute=lambda *_, **__: None, pgresult=SimpleNamespace(nfields=1), fetchall=load
    )
    connection = SimpleNamespace(cursor=lambda **_: nullcontext(cursor))
    [row] = execute(cast("AnyConnection", connection), Statement("", {}))
    return row


def _prepared_row(columns: Sequence[tuple[int, bytes | None]]) -> tuple[Any, ...]:
    """Return a row as a prepared statement does."""
    result = SimpleNamespace(
        nfields=len(columns),
        ntuples=1,
        ftype=lambda column: columns[column][0],
        get_value=lambda _, column: columns[column][1],
    )
    [row] = _read(cast("PGresult", result))
    return row


def _sent(*values: Any) -> bytes:
    """Return values as columns of an input."""
    parts = []
    for value in values:
        kind, sent = _TYPES.index(25), b""
        if isinstance(value, bool):
            kind, sent = _TYPES.index(16), bytes((value,))
        elif isinstance(value, int):
            kind, sent = _TYPES.index(20), value.to_bytes(8, "big", signed=True)
        elif isinstance(value, bytes):
            kind, sent = _TYPES.index(17), value
        elif isinstance(value, UUID):
            kind, sent = _TYPES.index(2950), value.bytes
        elif isinstance(value, datetime):
            since = round((value - _EPOCH).total_seconds() * 1e6)
            kind, sent = _TYPES.index(1184), since.to_bytes(8, "big", signed=True)
        elif isinstance(value, list):
            kind, sent = _TYPES.index(1001), b"\0".join(value)
        elif isinstance(value, str):
            sent = value.encode()
        parts.append(_COLUMN.pack(kind, _NOTHING if value is None else len(sent)) + sent)
    return b"".join(parts)


# Readers ------------------------------------------------------------------------------------------


def _read_whole(data: bytes) -> None:
    """Read a checkpoint with its chunks. Its link is made to fit, or nothing gets past it."""
    row = list(_row(_columns(data, 34)))
    record = parse_checkpoint(row)
    try:
        number, previous, _, manifest, refs = row[26:31]
        columns = record_row(record, row[23])
        row[_LINK] = link_of(
            plain_digest, "default", columns, number, previous, manifest.encode(), refs
        )
    except (TypeError, ValueError, AttributeError):
        pass
    parse_read(row, "default")


def _read_put(data: bytes) -> None:
    [answer] = _prepared_row(_columns(data, 1))
    parse_put(answer, _DRAFT).read()


def _read_effect(data: bytes) -> None:
    row = _row(_columns(data, 15))
    parse_effect(row)
    Sums(plain_digest, "default").check_effect(row, row[13:])


def _read_chain(data: bytes) -> None:
    row = _row(_columns(data, 11))
    list(breaks(parse_chain("s", row[:2], [row[2:7]], [row[7:]])))


def _read_packs(data: bytes) -> None:
    """Read the needs of three packs, two columns each, and the content of one."""
    *columns, content = _row(_columns(data, 7))
    needs = needs_in([columns[at : at + 2] for at in range(0, 6, 2)])
    pack_of("c", ("b",), content)
    unneeded_packs(needs, needs, ["c"])
    pack_order("c", needs, ())


def _plain(parse: Callable[[Any], object], count: int) -> Callable[[bytes], object]:
    return lambda data: parse(_row(_columns(data, count)))


_UUID: Final = UUID(_ID)
_RECORD: Final = (
    _UUID, "s", _UUID, "", 7, None, None, "n", "l", None, "custom", "manual", None, 1, 2, 3,
    "main", "1" * 40, False, "1" * 40, True, False, None, '{"a":1}', _NOW, None,
)  # fmt: skip
_READERS: Final[tuple[tuple[Callable[[bytes], object], tuple[Any, ...]], ...]] = (
    (_plain(parse_agent, 10), (_UUID, "a", "t", "active", None, 0, "{}", _NOW, _NOW, None)),
    (
        _plain(parse_session, 20),
        ("s", _UUID, "t", None, "active", None, None, None, None, None, None, '{"a":1}', _NOW, _NOW,
         None, 0, None, None, 0, "/x"),
    ),
    (_plain(parse_lease, 6), ("s", "o", 1, _NOW, _NOW, False)),
    (_plain(parse_checkpoint, 26), _RECORD),
    (_read_whole, (*_RECORD, 1, b"", b"", "{}", b"", None, [b"digest"], [b"data"])),
    (
        _read_effect,
        ("s", "k", 0, "n", b"", "failed", _UUID, 1, None, b"", '{"type":"x"}', _NOW, _NOW, b"", b""),
    ),
    (_plain(parse_log, 6), (1, "s", "info", "m", "{}", _NOW)),
    (lambda data: parse_begun(_EFFECT, _prepared_row(_columns(data, 3))), (1, _NOW, None)),
    (_read_put, (f"old older\n{_ID}\n7\n3\n1767323045.000006\n" + '{"a":1}' + "\n\nl",)),
    (_read_chain, (2, b"head", _UUID, 7, 2, b"", b"head", 1, 1, 6, b"")),
    (_read_packs, ("c", '["b"]', "b", '["a"]', "a", "[]", b"PACK")),
)  # fmt: skip
_STORED: Final = (
    '{"id":"x","session_id":"s","agent_id":"a","namespace":"","seq":1,"external_id":null,"parent_id":null,'
    '"name":"n","label":null,"description":null,"checkpoint_type":"custom","retention_class":"manual",'
    '"run_id":null,"version":1,"size_bytes":2,"stored_bytes":3,"git_branch":null,"git_commit":null,'
    '"git_uncommitted":false,"workspace_commit":null,"resumable":true,"pinned":false,"expires_at":null,'
    '"metadata":"{}","created_at":"2026-01-02T03:04:05.000006+00:00","restored_at":null}'
)


def read_row(data: bytes) -> None:
    read, _ = _READERS[(data[0] if data else 0) % len(_READERS)]
    read(data[1:])


def row_seeds() -> Iterator[bytes]:
    for number, (read, values) in enumerate(_READERS):
        yield bytes((number,)) + _sent(*values)
        if read is _read_put:
            yield bytes((number,)) + _sent(_STORED)


TARGETS: Final = (Target("postgres-rows", read_row, row_seeds),)
