"""The contract of a store, what is about the files of a project: packs of their snapshots.

A pack brings the git objects of one snapshot to where the private git store is not. Packs are
shared within the tenant. Two things hold at every moment: a stored pack's needs are stored, and
so is the pack of every checkpoint that was put with ``pack_required``. Both are checked where they
could break, under the lock that every removal of packs takes exclusively.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence

from holdfast.model import PackReport, WorkspacePack


class PackStore(ABC):
    """The part of a `Store` that brings the files of checkpoints to other machines."""

    @abstractmethod
    def workspace_commits(self) -> set[str]:
        """Return every commit that a stored checkpoint of the tenant names, expired ones included."""

    @abstractmethod
    def put_pack(
        self, commit: str, *, needs: Sequence[str], data: bytes, replace: bool = False
    ) -> bool:
        """Store the pack that brings ``commit`` to where the commits ``needs`` are; tell if it is new.

        Where one is stored for the commit it stays, and counts as just put; with ``replace`` it is
        exchanged, for example for one that needs nothing. Put the pack before the checkpoint, and
        the checkpoint with ``pack_required``: should a sweep have come in between, that put raises
        `PackMissing` and both are repeated. Raises `PackMissing` for a need that is not stored, and
        `InvalidIdentifier` for what is no commit, needs itself or is larger than 512 MiB.
        """

    @abstractmethod
    def find_packs(self, commits: Collection[str]) -> set[str]:
        """Return those of the commits whose pack is stored, which saves sending it.

        A sweep may remove one the next moment; ``pack_required`` is what one can rely on.
        """

    @abstractmethod
    def read_packs(self, commit: str, *, have: Collection[str] = ()) -> Iterator[WorkspacePack]:
        """Return the packs that ``commit`` is made of in the order in which they must be applied.

        Bases come first, each pack once. What ``have`` names is there already: neither it nor what only
        it needs is returned. Packs are read one by one, so that one at a time is in memory. Raises
        `PackMissing`, which names the commit, before the first pack if one is not stored, and later
        if one is removed while they are being read. Raises `StateCorrupt` for packs that need each
        other, or more than 100,000.
        """

    @abstractmethod
    def delete_packs(self, commits: Collection[str]) -> PackReport:
        """Remove those of the packs that neither a checkpoint nor a pack that stays needs."""

    @abstractmethod
    def sweep_packs(self, *, dry_run: bool = False) -> PackReport:
        """Remove packs that neither a checkpoint nor a pack that stays needs.

        Packs that were put within the last day stay, since their checkpoint may be on its way.
        Erasing a session removes the packs that only it needed at once, whatever their age.
        """

    @abstractmethod
    def pack_needs(self) -> dict[str, tuple[str, ...]]:
        """Return the commits whose packs are stored, each with those whose packs its own needs."""

    @abstractmethod
    def pack_usage(self) -> PackReport:
        """Count the packs of the tenant and their bytes."""
