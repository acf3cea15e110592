"""Hash chains in SQLite: rows that prove themselves, and tombstones for those that go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import apsw

from holdfast.model import Chain, ChainLink, Payload, Tombstone
from holdfast.stores.chain import GENESIS, altered, in_quarantine, link_of, runs
from holdfast.stores.checks import check_filter
from holdfast.stores.sqlite_access import SqliteAccess, all_rows
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_rows import Row

_MOST_LINES: Final = 10_000


class SqliteChain(SqliteAccess):
    """The links of checkpoints."""

    def read_chain(self, session_id: str) -> Chain | None:
        check_filter(session_id, "session id", str)
        return self._file.read_consistently(lambda connection: self._chain(connection, session_id))

    def _chain(self, connection: apsw.Connection, session_id: str) -> Chain | None:
        key = (self.tenant, session_id)
        found = all_rows(connection, "chain.session", key)
        if not found:
            return None
        links = all_rows(connection, "chain.links", key)
        tombstones = all_rows(connection, "chain.tombstones", key)
        length, head = found[0]
        return Chain(
            session_id,
            # What makes no sense proves nothing either: the chain shows that it is not whole.
            length if type(length) is int else 0,
            head if type(head) is bytes else GENESIS,
            links=tuple(ChainLink(*row) for row in links if _is_link(row)),
            tombstones=tuple(Tombstone(*row) for row in tombstones if _is_tombstone(row)),
            # A row without an id is missing from the chain: there is no name to show it under.
            unlinked=tuple(row[0] for row in links if type(row[0]) is str and not _is_link(row)),
        )

    def _verified(self, row: Row, *, quarantined: bool = False) -> Payload:
        """Return the payload of a row that has everything, or raise unless the row fits its link."""
        number, previous, link, manifest, refs, since = row[26:32]
        if since is not None and not quarantined:
            raise in_quarantine(row[0])
        try:
            fits = _is_link((*row[:2], number, previous, link)) and link == link_of(
                self.row_digest, self.tenant, row, number, previous, manifest.encode(), refs
            )
        except (AttributeError, TypeError):
            # The bit that was turned says of which type a value is.
            fits = False
        if not fits:
            raise altered(row[0])
        return Payload(manifest, refs, row[1])

    def _next_seq(self, connection: apsw.Connection, session_id: str, namespace: str) -> int:
        """Draw the place of a new checkpoint, which is the newest of its line.

        A sequence that was damaged shows in the first draw for a line, and is mended; looking each time
        would cost every put.
        """
        line = (session_id, namespace)
        if line in self._drawn_for:
            connection.execute(SQL["sqlite.put.next_seq"])
        else:
            connection.execute(SQL["sqlite.put.first_seq"], (self.tenant, *line))
            if len(self._drawn_for) >= _MOST_LINES:
                self._drawn_for.clear()
            if connection.changes():
                self._drawn_for.add(line)
        if not connection.changes():
            connection.execute(SQL["sqlite.put.mended_seq"])
        [(seq,)] = all_rows(connection, "sqlite.put.drawn_seq", ())
        return int(seq)

    def _bury(self, connection: apsw.Connection, gone: Sequence[Row]) -> int:
        """Leave tombstones for rows that were removed (session, then a link); return how many."""
        links: dict[str, list[ChainLink]] = defaultdict(list)
        for session_id, *link in gone:
            if _is_link(tuple(link)):
                links[session_id].append(ChainLink(*link))
        for session_id, going in links.items():
            for run in runs(going):
                self._bury_run(connection, (self.tenant, session_id), run)
        return len(gone)

    def _bury_run(self, connection: apsw.Connection, key: tuple[str, str], run: Tombstone) -> None:
        first, last, seq, link = run.first_number, run.last_number, run.seq, run.hash
        following = all_rows(connection, "sqlite.chain.following", (*key, last + 1))
        if following:
            last, seq, link = following[0]
        connection.execute(SQL["sqlite.chain.extend"], (*key, first, last, seq, link))
        if not connection.changes():
            connection.execute(SQL["sqlite.chain.bury"], (*key, first, last, seq, link))

    def _set_chain(
        self, connection: apsw.Connection, session_id: str, length: int, head: bytes
    ) -> None:
        values = (length, head, self.tenant, session_id)
        connection.execute(SQL["sqlite.chain.set"], values)


def _is_link(row: Row) -> bool:
    """Whether a row has an id, a number, the link before it and its own: who lost one proves nothing."""
    checkpoint_id, _, number, previous, link = row
    found = (type(checkpoint_id), type(number), type(previous), type(link))
    return found == (str, int, bytes, bytes)


def _is_tombstone(row: Row) -> bool:
    """Whether a row has the numbers of a run of links, and the last of them."""
    *numbers, link = row
    return all(type(one) is int for one in numbers) and type(link) is bytes
