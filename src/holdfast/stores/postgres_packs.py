"""Workspace packs in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from holdfast.errors import PackMissing
from holdfast.model import PackReport, WorkspacePack
from holdfast.stores.checks import check_commit, check_pack
from holdfast.stores.postgres_access import PostgresAccess
from holdfast.stores.rules import MOST_PACKS, ORPHAN_AGE, needs_in, pack_of, pack_order


class PostgresPacks(PostgresAccess):
    """File snapshots on their way to other machines."""

    def workspace_commits(self) -> set[str]:
        return {row[0] for row in self._rows("checkpoints.workspace_commits", again=True)}

    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        check_pack(commit, needs, data)
        [(stored,)] = self._rows(
            "postgres.packs.put", commit=commit, needs=list(needs), data=data, replace=replace
        )
        return bool(stored)

    def find_packs(self, commits: Collection[str]) -> set[str]:
        for commit in commits:
            check_commit(commit, "commit")
        return {row[0] for row in self._rows("packs.find", again=True, commits=list(commits))}

    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        check_commit(commit, "commit")
        rows = self._rows(
            "packs.below", again=True, commit=commit, have=list(have), limit=MOST_PACKS + 1
        )
        needs = needs_in(rows)
        return (self._read_pack(one, needs[one]) for one in pack_order(commit, needs, have))

    def _read_pack(self, commit: str, needs: tuple[str, ...]) -> WorkspacePack:
        rows = self._rows("packs.data", again=True, commit=commit)
        if not rows:
            raise PackMissing(f"the workspace pack of commit {commit} was removed meanwhile")
        return pack_of(commit, needs, rows[0][0])

    def delete_packs(self, commits: Collection[str]) -> PackReport:
        for commit in commits:
            check_commit(commit, "commit")
        return self._remove_packs(commits=list(commits), dry_run=False)

    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        return self._remove_packs(commits=None, dry_run=dry_run)

    def _remove_packs(self, *, commits: list[str] | None, dry_run: bool) -> PackReport:
        [(packs, size)] = self._rows(
            "postgres.packs.remove", commits=commits, grace=ORPHAN_AGE, dry_run=dry_run
        )
        return PackReport(packs, size)

    def pack_needs(self) -> dict[str, tuple[str, ...]]:
        return needs_in(self._rows("postgres.packs.needs", again=True))

    def pack_usage(self) -> PackReport:
        [(packs, size)] = self._rows("packs.usage", again=True)
        return PackReport(packs, size)
