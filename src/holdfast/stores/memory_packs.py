"""Workspace packs in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from holdfast.errors import PackMissing
from holdfast.model import PackReport, WorkspacePack
from holdfast.stores.checks import check_commit, check_pack
from holdfast.stores.memory_tables import MemoryTables
from holdfast.stores.rules import (
    ORPHAN_AGE,
    pack_missing,
    pack_order,
    packs_below,
    refuse_pack_circle,
    unneeded_packs,
)


class MemoryPacks(MemoryTables):
    """Packs of workspaces and what needs them."""

    def workspace_commits(self) -> set[str]:
        with self._open():
            return self._snapshots()

    def _snapshots(self) -> set[str]:
        found = (one.record.workspace_commit for one in self._checkpoints.values())
        return {commit for commit in found if commit is not None}

    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        check_pack(commit, needs, data)
        with self._open():
            stored = self._packs.get(commit)
            if stored is not None and not replace:
                self._packs[commit] = (stored[0], self._now())
                return False
            self._require_packs(needs)
            refuse_pack_circle(commit, needs, self._needs())
            self._packs[commit] = (WorkspacePack(commit, tuple(needs), bytes(data)), self._now())
            return True

    def _require_packs(self, commits: Collection[str]) -> None:
        if missing := sorted(set(commits) - self._packs.keys()):
            raise pack_missing(missing[0])

    def _needs(self) -> dict[str, tuple[str, ...]]:
        return {commit: pack.needs for commit, (pack, _) in self._packs.items()}

    def find_packs(self, commits: Collection[str]) -> set[str]:
        for commit in commits:
            check_commit(commit, "commit")
        with self._open():
            return set(commits) & self._packs.keys()

    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        check_commit(commit, "commit")
        with self._open():
            order = pack_order(commit, self._needs(), have)
        return map(self._read_pack, order)

    def _read_pack(self, commit: str) -> WorkspacePack:
        with self._open():
            found = self._packs.get(commit)
            if found is None:
                raise PackMissing(f"the workspace pack of commit {commit} was removed meanwhile")
            return found[0]

    def delete_packs(self, commits: Collection[str]) -> PackReport:
        for commit in commits:
            check_commit(commit, "commit")
        with self._open():
            return self._remove_packs(set(commits))

    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        with self._open():
            before = self._now() - ORPHAN_AGE
            old = {commit for commit, (_, touched) in self._packs.items() if touched < before}
            return self._remove_packs(old, dry_run=dry_run)

    def _remove_packs(self, candidates: set[str], *, dry_run: bool = False) -> PackReport:
        doomed = unneeded_packs(candidates, self._needs(), self._snapshots())
        size = sum(len(self._packs[commit][0].data) for commit in doomed)
        if not dry_run:
            for commit in doomed:
                del self._packs[commit]
        return PackReport(len(doomed), size)

    def _remove_snapshots(self, snapshots: Collection[str]) -> None:
        """Remove the packs of erased checkpoints, unless something else needs them."""
        if snapshots:
            self._remove_packs(packs_below(snapshots, self._needs()))

    def pack_needs(self) -> dict[str, tuple[str, ...]]:
        with self._open():
            return self._needs()

    def pack_usage(self) -> PackReport:
        with self._open():
            size = sum(len(pack.data) for pack, _ in self._packs.values())
            return PackReport(len(self._packs), size)
