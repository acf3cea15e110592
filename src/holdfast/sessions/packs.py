"""Files that a server holds: can another machine still have them, and which packs have to be sent again?

Each pack is read once, although later snapshots are made of those before: what was found good counts as had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from holdfast.errors import HoldfastError, IntegrityError, InvalidIdentifier
from holdfast.stores.base import Store
from holdfast.stores.rules import packs_below
from holdfast.workspace.packs import check_digest
from holdfast.workspace.scratch import Scratch

# Makes the pack of a snapshot anew, less what the snapshots given with it have.
Export: TypeAlias = Callable[[str, Sequence[str]], bytes]
_UNCHANGED: Final = ". Nothing was changed"
_SENT: Final = ". This machine has it whole and has sent it again"


def lacking(commits: Iterable[str], needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the snapshots that are made of a pack which is not stored."""
    return {
        commit
        for commit in commits
        if commit not in needs
        or any(base not in needs for one in packs_below([commit], needs) for base in needs[one])
    }


def find_damaged_packs(
    store: Store, commits: Iterable[str], *, have: Collection[str]
) -> dict[str, str]:
    """Read the packs that snapshots are made of, less what is had, and return what is wrong with which.

    A pack that is not stored is found, and one that is not what git wrote.
    """
    good, wrong = set(have), dict[str, str]()
    for commit in sorted(commits):
        try:
            for pack in store.read_packs(commit, have=good):
                check_digest(pack.commit, pack.data)
                good.add(pack.commit)
        except IntegrityError as error:
            wrong[commit] = str(error)
    return wrong


def mend_packs(
    store: Store, commits: Sequence[str], *, own: Collection[str], export: Export, largest: int
) -> dict[str, str]:
    """Unpack snapshots where nobody sees them, as a machine without any, and return what is wrong.

    ``commits`` are in the order in which they were saved. A pack that is damaged or gone is made anew where
    this machine has its snapshot whole, which ``own`` tells: from then on what needs it can be had, too.
    ``largest`` bounds the files, as it does when they are taken in.
    """
    with TemporaryDirectory(prefix="holdfast-packs-") as folder:
        scratch = Scratch(Path(folder), largest=largest)
        return _Mending(store, scratch, own, export).run(commits)


class _Mending:
    """The packs of a server, unpacked in ``scratch``, and made anew where they do not unpack."""

    def __init__(
        self, store: Store, scratch: Scratch, own: Collection[str], export: Export
    ) -> None:
        self._store = store
        self._scratch = scratch
        self._own = own
        self._export = export
        self._there: set[str] = set()
        self._sent: set[str] = set()

    def run(self, commits: Sequence[str]) -> dict[str, str]:
        wrong: dict[str, str] = {}
        good: list[str] = []
        for commit in commits:
            if (problem := self._take_in(commit)) is not None:
                wrong[commit] = problem
            if problem is None or self._send_again(commit, good):
                good.append(commit)
        wrong |= (odd := self._scratch.problems(good))
        good = [commit for commit in good if commit not in odd]
        for commit in commits:
            if commit in good or commit not in wrong:
                continue
            # What was sent by now may be all that it lacked.
            if (self._sent and self._can_be_had(commit)) or self._send_again(commit, good):
                good.append(commit)
        if forgotten := self._sent - self._store.workspace_commits():
            # What was erased meanwhile must not be back.
            self._store.delete_packs(forgotten)
        return {
            commit: problem.removesuffix(_UNCHANGED) + _SENT if commit in good else problem
            for commit, problem in wrong.items()
        }

    def _take_in(self, commit: str) -> str | None:
        """Unpack a snapshot, and return what keeps it from being had."""
        try:
            for pack in self._store.read_packs(commit, have=self._there):
                self._scratch.take_in(pack.commit, pack.data)
                self._there.add(pack.commit)
        except IntegrityError as error:
            return str(error)
        return None

    def _can_be_had(self, commit: str) -> bool:
        return self._take_in(commit) is None and not self._scratch.problems([commit])

    def _send_again(self, commit: str, good: Sequence[str]) -> bool:
        """Put a pack of one's own in the place of one that is of no use; tell whether it is there."""
        base = [one for one in good if one in self._own][-1:]
        try:
            if commit not in self._own or commit not in self._store.workspace_commits():
                return False
            try:
                self._put(commit, base)
            except InvalidIdentifier:
                # The base is itself made of what is of no use.
                self._put(commit, [])
        except HoldfastError:
            # Who may not write there, or has no room, is told all the same.
            return False
        self._there.add(commit)
        self._sent.add(commit)
        return True

    def _put(self, commit: str, needs: Sequence[str]) -> None:
        data = self._export(commit, needs)
        # What is refused here would be no better than what is stored.
        self._scratch.take_in(commit, data)
        self._store.put_pack(commit, needs=needs, data=data, replace=True)
