"""What can still be read of a damaged SQLite file, saved into a new one.

Nothing is repaired in place: the damaged file is copied with its log, and only the copy is opened. Rows
are read in ranges, and a range that cannot be read is halved until what is damaged stands alone. The
new file has the present schema with all its checks, so a row that makes no sense is not taken over. A time that cannot be
read costs no row, unless the row's link in its chain is of that time too: what the row proves is not in it.
Statements are made of the names in that schema, never of one that stands in the damaged file.

What refers to something that was lost is made whole where that invents nothing: a session whose row is
gone, but whose checkpoints are there, comes back as *interrupted* and of an unknown type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from holdfast.errors import StateCorrupt, StoreUnavailable
from holdfast.ids import is_uuid
from holdfast.model import utc_now
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_copy import copy_database
from holdfast.stores.sqlite_damaged import TABLES, open_damaged
from holdfast.stores.sqlite_file import DatabaseFile
from holdfast.stores.sqlite_log import is_unreadable
from holdfast.stores.sqlite_rows import moment, stamp
from holdfast.stores.sqlite_schema import check_schema, ensure_schema
from holdfast.stores.sums import Sums

# What a page of 4 KB can hold at most, of rows without content: bounds the search for the last one.
_ROWS_PER_PAGE: Final = 200
# A number of a row may be anything; what cannot be read after so many attempts is given up.
_MOST_FAILURES: Final = 100_000
# How the names of columns with times end.
_TIMES: Final = ("_at", "_until", "_since")
# Times that a link of the chain is of: with another one there the row would not fit it.
_CHAINED: Final = {("session_checkpoints", "created_at"), ("session_checkpoints", "expires_at")}
# Times that say by being there that something happened or is so, whenever that was.
_MARKS: Final = frozenset({"consumed_at", "quarantined_at", "lease_since", "lease_expires_at"})


@dataclass(slots=True)
class Salvaged:
    """How many rows of each table were taken over, and of how many it is known that they are lost."""

    taken: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    # Of checkpoints whose rows cannot be read an index may still know the ids.
    lost_checkpoints: list[str] = field(default_factory=list)
    remade_sessions: list[str] = field(default_factory=list)
    mended: list[MendedTime] = field(default_factory=list)
    # Nobody knows what the log had, if it was not all in the file.
    unread_log: bool = False


class MendedTime(NamedTuple):
    """A time that could not be read, and what its row, which was taken over, says instead."""

    table: str
    column: str
    session_id: str | None
    agent_id: str | None
    instead: str | None


def salvage_rows(source: Path, target: Path) -> Salvaged:
    """Save every row of ``source`` that can be read into the new file ``target``.

    The directory of the target is scratch space. Raises `StoreUnavailable` when there is no source, and
    `NotADatabase` when not even its list of tables can be read. The source is not changed.
    """
    if not source.is_file():
        raise StoreUnavailable(f"there is no file {source}")
    copy = target.with_name("damaged.db")
    found = Salvaged()
    with suppress(FileNotFoundError):
        found.unread_log = is_unreadable(Path(f"{source}-wal"))
    copy_database(source, copy)
    damaged = open_damaged(copy, str(source))
    new = DatabaseFile(target, str(target), busy_timeout=1)
    try:
        new.open(lambda connection: ensure_schema(connection, new))
        new.write(lambda connection: _fill(damaged, connection, found))
    finally:
        new.close()
        damaged.close()
    return found


def forget_result(path: Path, place: tuple[str, str, int | None], sums: Sums) -> None:
    """Let an effect whose result cannot be read count as one of which nobody knows how it ended.

    ``place`` is its session, key and occurrence, as the database has them.
    """
    key = (sums.tenant, *place)

    def change(connection: apsw.Connection) -> None:
        for row in connection.execute(SQL["sqlite.salvage.forget_result"], key).fetchall():
            connection.execute(SQL["sqlite.salvage.sums"], (*sums.effect(row), *key))

    _change(path, change)


def forget(path: Path, what: str, place: tuple[object, ...]) -> None:
    """Take out of a file what cannot be read: a text, a line, a write, by its place in the tables."""
    statement = SQL[f"sqlite.salvage.forget_{what}"]
    _change(path, lambda connection: connection.execute(statement, place))


def _change(path: Path, work: Callable[[apsw.Connection], object]) -> None:
    file = DatabaseFile(path, str(path), busy_timeout=1)
    try:
        file.open(lambda connection: check_schema(connection, file))
        file.write(work)
    finally:
        file.close()


def listed(path: Path, what: str, of: tuple[object, ...]) -> list[tuple[Any, ...]]:
    """Return the places of things in the tables: ids of agents or lines, pending writes, failed effects."""
    file = DatabaseFile(path, str(path), busy_timeout=1)
    query = SQL["writes.session" if what == "writes" else f"sqlite.salvage.{what}"]
    try:
        file.open(lambda connection: check_schema(connection, file))
        return file.read(lambda connection: connection.execute(query, of).fetchall())
    finally:
        file.close()


def mend_chains(path: Path) -> None:
    """Let tombstones stand for what was lost, so that a hash chain tells of later changes only.

    What is left was verified; each link names the one before it, lost or not.
    """
    file = DatabaseFile(path, str(path), busy_timeout=1)
    try:
        file.open(lambda connection: check_schema(connection, file))
        file.write(_mend_chains)
    finally:
        file.close()


def _mend_chains(connection: apsw.Connection) -> None:
    connection.execute(SQL["sqlite.salvage.tombstones"])
    chains: list[tuple[Any, ...]] = connection.execute(SQL["sqlite.salvage.chains"]).fetchall()
    for tenant, session_id, length, head in chains:
        key = (tenant, session_id)
        reached, last = 0, b""
        lost = []
        links: list[Any] = list(connection.execute(SQL["chain.links"], key))
        for _, seq, number, previous, link in links:
            if number > reached + 1:
                lost.append((*key, reached + 1, number - 1, seq, previous))
            reached, last = number, link
        if length > reached:
            lost.append((*key, reached + 1, length, 0, head))
        else:
            connection.execute(SQL["sqlite.chain.set"], (reached, last, *key))
        connection.executemany(SQL["sqlite.chain.bury"], lost)


def tenants_of(path: Path) -> list[str]:
    """Return whose rows a file has."""
    return [str(tenant) for (tenant,) in listed(path, "tenants", ())]


def _fill(damaged: apsw.Connection, connection: apsw.Connection, found: Salvaged) -> None:
    # Rows are looked at one by one and may come before those that they refer to.
    connection.pragma("defer_foreign_keys", True)
    for table in TABLES:
        columns = [row[1] for row in connection.pragma("table_info", table)]
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        insert = SQL["sqlite.salvage.add"].format(table=table, columns=names, values=marks)
        taken = lost = 0
        times = _Times(table, connection.pragma("table_info", table))
        agents = [at for at, column in enumerate(columns) if column == "agent_id"]
        for row in _rows(damaged, table, names, _indexes(connection, table)):
            mended = None if row is None else times.mended(row)
            try:
                if mended is None or not _has_agents(mended.row, agents):
                    lost += 1
                    continue
                connection.execute(insert, mended.row)
                taken += 1
                found.mended += mended.times
            except apsw.Error:
                lost += 1
        found.taken[table] = taken
        if lost:
            found.lost[table] = lost
    _leave_out_strange(connection, found)
    found.lost_checkpoints = sorted(_known_ids(damaged) - _taken_ids(connection))
    _make_whole(connection, found)
    _take_tombstones(damaged, connection, found)
    # Last: from then on nothing unsealed is added.
    for tenant, seal in _seals(damaged):
        connection.execute(SQL["sqlite.seal"], (tenant, seal, stamp(utc_now())))


def _leave_out_strange(connection: apsw.Connection, found: Salvaged) -> None:
    """Leave out rows whose tenant was altered: they are of another than the agent that made them."""
    connection.execute(SQL["sqlite.salvage.owners"])
    for table, query in (
        ("session_checkpoints", "sqlite.salvage.strange_checkpoints"),
        ("sessions", "sqlite.salvage.strange_sessions"),
    ):
        strange = connection.execute(SQL[query]).fetchall()
        if strange:
            found.taken[table] -= len(strange)
            found.lost[table] = found.lost.get(table, 0) + len(strange)


def _take_tombstones(
    damaged: apsw.Connection, connection: apsw.Connection, found: Salvaged
) -> None:
    """Take over what was left of links that went in the course of things: others were removed."""
    read: set[tuple[Any, ...]] = set()
    for order in ("", "DESC"):
        walk = SQL["sqlite.salvage.buried"].format(order=order)
        try:
            for row in damaged.execute(walk):
                read.add(row)
        except (apsw.Error, UnicodeDecodeError):
            found.lost["chain_tombstones"] = 1
    sessions = set(connection.execute(SQL["sqlite.salvage.session_keys"]).fetchall())
    for row in read:
        # Without its session there is no chain that it could be a part of.
        if row[:2] in sessions:
            try:
                connection.execute(SQL["sqlite.chain.bury"], row)
            except apsw.Error:
                found.lost["chain_tombstones"] = found.lost.get("chain_tombstones", 0) + 1


def _seals(damaged: apsw.Connection) -> list[tuple[str, str]]:
    with suppress(apsw.Error, UnicodeDecodeError):
        return [
            (tenant, seal)
            for tenant, seal in damaged.execute(SQL["sqlite.salvage.seals"])
            if isinstance(tenant, str) and isinstance(seal, str)
        ]
    return []


def lost_seals(path: Path) -> list[str]:
    """Return the tenants that have sealed rows, and nothing any more that says so."""
    return [str(tenant) for (tenant,) in listed(path, "lost_seals", ())]


def add_seal(path: Path, tenant: str, seal: str) -> None:
    """Say again that a tenant is sealed."""
    file = DatabaseFile(path, str(path), busy_timeout=1)
    values = (tenant, seal, stamp(utc_now()))
    try:
        file.open(lambda connection: check_schema(connection, file))
        file.write(lambda connection: connection.execute(SQL["sqlite.seal"], values))
    finally:
        file.close()


class _Mended(NamedTuple):
    row: tuple[Any, ...]
    times: list[MendedTime]


class _Times:
    """The columns of a table that have times, or nothing: the database itself does not look."""

    def __init__(self, table: str, columns: Iterable[tuple[Any, ...]]) -> None:
        # As SQLite tells of columns: number, name, type, whether something must be there.
        described = [(column[1], bool(column[3])) for column in columns]
        self._table = table
        self._names = [name for name, _ in described]
        self._at = {
            at: required or name in _MARKS
            for at, (name, required) in enumerate(described)
            if name.endswith(_TIMES)
        }

    def mended(self, row: tuple[Any, ...]) -> _Mended | None:
        """Return a row whose times can all be read, or None where its link proves another one."""
        odd = [at for at in self._at if not _is_time(row[at])]
        if not odd:
            return _Mended(row, [])
        if any((self._table, self._names[at]) in _CHAINED for at in odd):
            return None
        readable = [row[at] for at in self._at if at not in odd and row[at] is not None]
        some = min(readable, default=stamp(utc_now()))
        values = list(row)
        for at in odd:
            values[at] = some if self._at[at] else None
        whose = self._whose(row)
        return _Mended(
            tuple(values),
            [MendedTime(self._table, self._names[at], *whose, values[at]) for at in odd],
        )

    def _whose(self, row: tuple[Any, ...]) -> tuple[str | None, str | None]:
        named = dict(zip(self._names, row, strict=True))
        if self._table == "agents":
            return None, named["id"]
        return named["id"] if self._table == "sessions" else named.get("session_id"), None


def _has_agents(row: tuple[Any, ...], agents: list[int]) -> bool:
    return all(isinstance(row[at], str) and is_uuid(row[at]) for at in agents)


def _is_time(value: Any) -> bool:
    """Whether a column that has a time, or nothing, has one."""
    if value is None:
        return True
    try:
        moment(value)
    except StateCorrupt:
        return False
    return True


def _indexes(connection: apsw.Connection, table: str) -> list[str]:
    """Return the indexes of a table by our own schema: a name in a damaged file may be anything."""
    found = connection.execute(SQL["sqlite.salvage.indexes"], (table,)).fetchall()
    return [str(name) for (name,) in found]


def _rows(
    damaged: apsw.Connection, table: str, names: str, indexes: list[str]
) -> Iterator[tuple[Any, ...] | None]:
    """Yield every row that can be read, and None for each that is known to be lost."""
    read = SQL["sqlite.salvage.rows"].format(table=table, columns=names)
    known = _row_ids(damaged, table, indexes)
    # A last page that was damaged may say anything.
    ranges = [(1, max(_last_row(damaged, table), *known, 1))]
    failures = lost = 0
    while ranges and failures < _MOST_FAILURES:
        first, last = ranges.pop()
        try:
            rows = damaged.execute(read, (first, last)).fetchall()
        except apsw.SQLError:
            # It is not the rows: the table is not there, is none of ours, or has other columns.
            failures += 1
            lost = len(known)
            yield from [None] * lost
            break
        except (apsw.Error, UnicodeDecodeError):
            failures += 1
            if first >= last:
                # Where an index knows the row it was there; elsewhere it may never have been.
                if first in known:
                    lost += 1
                    yield None
                continue
            middle = (first + last) // 2
            ranges += [(middle + 1, last), (first, middle)]
        else:
            yield from rows
    if failures and not lost:
        # There was something, and nothing that says how much.
        yield None


def _last_row(damaged: apsw.Connection, table: str) -> int:
    with suppress(apsw.Error):
        last = int(damaged.execute(SQL["sqlite.salvage.last_row"].format(table=table)).get or 0)
        if last > 0:
            return last
    pages = 1
    with suppress(apsw.Error):
        pages = int(damaged.pragma("page_count"))
    return pages * _ROWS_PER_PAGE


def _row_ids(damaged: apsw.Connection, table: str, indexes: list[str]) -> set[int]:
    """Return the numbers of rows that the table's indexes know of, as far as they can be read."""
    found: set[int] = set()
    for index in indexes:
        # From both ends, since one damaged page stops a walk.
        for order in ("", "DESC"):
            walk = SQL["sqlite.salvage.row_ids"].format(table=table, index=index, order=order)
            with suppress(apsw.Error):
                found.update(int(row) for (row,) in damaged.execute(walk))
    return found


def _known_ids(damaged: apsw.Connection) -> set[str]:
    found: set[str] = set()
    for order in ("", "DESC"):
        with suppress(apsw.Error):
            walk = damaged.execute(SQL["sqlite.salvage.checkpoint_ids"] + order)
            found.update(id_ for (id_,) in walk if isinstance(id_, str))
    return found


def _taken_ids(connection: apsw.Connection) -> set[str]:
    return {id_ for (id_,) in connection.execute(SQL["sqlite.salvage.checkpoint_ids"])}


def _make_whole(connection: apsw.Connection, found: Salvaged) -> None:
    """Put back what rows refer to, so that everything in the new file fits together."""
    connection.execute(SQL["sqlite.salvage.parents"])
    remade = connection.execute(SQL["sqlite.salvage.sessions"]).fetchall()
    found.remade_sessions = [str(id_) for (id_,) in remade]
    connection.execute(SQL["sqlite.salvage.agents"])
    connection.execute(SQL["sqlite.salvage.sequence"])
