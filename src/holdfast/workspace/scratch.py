"""A store beside the private one, where snapshots from elsewhere are tried out.

It lies in a directory that its user throws away, so neither the project nor its store sees any of it.
"""

from __future__ import annotations

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

    def check(self, commit: str) -> None:
        """Hash every object of a snapshot whose packs were taken in. Raises `SnapshotCorrupt`."""
        store = self._store_of(commit)
        check_lists(store, [commit])
        for one in store.check([commit]):
            raise SnapshotCorrupt(
                f"the packs of snapshot {commit[:12]} do not make it: {one.problem}"
            )

    def _store_of(self, commit: str) -> PrivateStore:
        return PrivateStore(self._folder, self._folder / f"{len(commit)}.git")
