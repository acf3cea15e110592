"""Workspace packs in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import apsw

from holdfast.errors import PackMissing
from holdfast.model import PackReport, WorkspacePack
from holdfast.stores.checks import check_commit, check_pack
from holdfast.stores.rules import (
    MOST_PACKS,
    ORPHAN_AGE,
    needs_in,
    pack_missing,
    pack_of,
    pack_order,
    packs_below,
    refuse_pack_circle,
    unneeded_packs,
)
from holdfast.stores.sqlite_access import SqliteAccess, all_rows, text_list
from holdfast.stores.sqlite_connection import SQL
from holdfast.stores.sqlite_rows import Row, stamp


class SqlitePacks(SqliteAccess):
    """Packs of workspaces and what needs them."""

    def workspace_commits(self) -> set[str]:
        return {commit for (commit,) in self._rows("checkpoints.workspace_commits", (self.tenant,))}

    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        check_pack(commit, needs, data)
        listed = text_list(needs, "commit")

        def store(connection: apsw.Connection) -> bool:
            now = self._clock()
            if not replace:
                connection.execute(SQL["sqlite.packs.touch"], (now, self.tenant, commit))
                if connection.changes():
                    return False
            self._require_packs(connection, needs)
            if replace:
                refuse_pack_circle(commit, needs, self._needs(connection))
            values = (self.tenant, commit, listed, now, data)
            connection.execute(SQL["sqlite.packs.put"], values)
            return True

        return self._file.write(store)

    def _require_packs(self, connection: apsw.Connection, commits: Collection[str]) -> None:
        if commits:
            found = all_rows(connection, "packs.find", (self.tenant, text_list(commits)))
            if missing := sorted(set(commits).difference(commit for (commit,) in found)):
                raise pack_missing(missing[0])

    def _needs(self, connection: apsw.Connection) -> dict[str, tuple[str, ...]]:
        return needs_in(all_rows(connection, "sqlite.packs.all", (self.tenant,)))

    def find_packs(self, commits: Collection[str]) -> set[str]:
        for commit in commits:
            check_commit(commit, "commit")
        found = self._rows("packs.find", (self.tenant, text_list(commits)))
        return {commit for (commit,) in found}

    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        check_commit(commit, "commit")
        values = (self.tenant, commit, text_list(have, "commit"), MOST_PACKS + 1)
        needs = needs_in(self._rows("packs.below", values))
        return (self._read_pack(one, needs[one]) for one in pack_order(commit, needs, have))

    def _read_pack(self, commit: str, needs: tuple[str, ...]) -> WorkspacePack:
        found = self._rows("packs.data", (self.tenant, commit))
        if not found:
            raise PackMissing(f"the workspace pack of commit {commit} was removed meanwhile")
        return pack_of(commit, needs, found[0][0])

    def delete_packs(self, commits: Collection[str]) -> PackReport:
        for commit in commits:
            check_commit(commit, "commit")
        wanted = set(commits)
        return self._file.erase(
            lambda connection: self._remove_packs(connection, lambda row: row[0] in wanted)
        )

    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        def sweep(connection: apsw.Connection) -> PackReport:
            before = stamp(self._now() - ORPHAN_AGE)

            def is_old(row: Row) -> bool:
                return type(row[2]) is str and row[2] < before

            return self._remove_packs(connection, is_old, dry_run=dry_run)

        return self._file.read_consistently(sweep) if dry_run else self._file.erase(sweep)

    def _remove_packs(
        self,
        connection: apsw.Connection,
        may_go: Callable[[Row], bool],
        *,
        dry_run: bool = False,
    ) -> PackReport:
        stored = all_rows(connection, "sqlite.packs.all", (self.tenant,))
        candidates = {row[0] for row in stored if may_go(row)}
        named = all_rows(connection, "checkpoints.workspace_commits", (self.tenant,))
        doomed = unneeded_packs(candidates, needs_in(stored), [commit for (commit,) in named])
        if doomed and not dry_run:
            connection.execute(SQL["sqlite.packs.delete"], (self.tenant, text_list(doomed)))
        return PackReport(len(doomed), sum(row[3] or 0 for row in stored if row[0] in doomed))

    def _snapshots_of(self, connection: apsw.Connection, sessions: str) -> set[str]:
        """Return the packs that the files of some sessions (as JSON) are made of."""
        named = all_rows(connection, "sqlite.packs.of_sessions", (self.tenant, sessions))
        return packs_below([row[0] for row in named], self._needs(connection)) if named else set()

    def _remove_snapshots(self, connection: apsw.Connection, packs: Collection[str]) -> None:
        """Remove the packs of erased checkpoints, unless something else needs them."""
        if packs:
            self._remove_packs(connection, lambda row: row[0] in packs)

    def pack_needs(self) -> dict[str, tuple[str, ...]]:
        return needs_in(self._rows("sqlite.packs.all", (self.tenant,)))

    def pack_usage(self) -> PackReport:
        ((packs, size),) = self._rows("packs.usage", (self.tenant,))
        return PackReport(packs, size)
