"""A store beside the private one, where snapshots from elsewhere are tried out.

It lies in a directory that its user throws away, so neither the project nor its store sees any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import SnapshotCorrupt
from holdfast.workspace.packs import check_lists, import_pack
from holdfast.workspace.private_store import PrivateStore


class Scratch:
    """A store in ``folder`` that takes packs within the bounds that hold for any import.

    Objects that are named by SHA-256 have a store of their own.
    """

    def __init__(self, folder: Path, *, largest: int) -> None:
        self._folder = folder
        self._largest = largest

    def take_in(self, commit: str, data: bytes) -> None:
        """Unpack the pack of a snapshot, its bases before it. Raises `SnapshotCorrupt`."""
        store = self._store_of(commit)
        store.prepare(sha256=len(commit) == 64)
        import_pack(store, commit, data, largest=self._largest)

    def problems(self, commits: Sequence[str]) -> dict[str, str]:
        """Hash every object of snapshots whose packs were taken in; return what is wrong with which.

        All at once, since they share most of what they hold; one by one where that tells of anything.
        """
        if self._problem(commits) is None:
            return {}
        found = ((commit, self._problem([commit])) for commit in commits)
        return {
            commit: f"the packs of snapshot {commit[:12]} do not make it: {problem}"
            for commit, problem in found
            if problem is not None
        }

    def _problem(self, commits: Sequence[str]) -> str | None:
        for digits in sorted({len(commit) for commit in commits}):
            some = [commit for commit in commits if len(commit) == digits]
            store = self._store_of(some[0])
            try:
                check_lists(store, some)
            except SnapshotCorrupt as error:
                return str(error)
            for one in store.check(some):
                return one.problem
        return None

    def _store_of(self, commit: str) -> PrivateStore:
        return PrivateStore(self._folder, self._folder / f"{len(commit)}.git")
