"""Files that a server holds and this machine does not: can they still be had?

Each pack is read once, although later snapshots are made of those before: what was found good counts as had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.errors import IntegrityError
from holdfast.stores.base import Store
from holdfast.workspace.packs import check_digest
from holdfast.workspace.scratch import Scratch


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


def unpack_all(store: Store, commits: Iterable[str], *, largest: int) -> dict[str, str]:
    """Unpack snapshots where nobody sees them, as a machine without any, and return what is wrong.

    ``largest`` bounds the files, as it does when they are taken in.
    """
    good, wrong = set[str](), dict[str, str]()
    with TemporaryDirectory(prefix="holdfast-packs-") as folder:
        scratch = Scratch(Path(folder), largest=largest)
        for commit in sorted(commits):
            try:
                for pack in store.read_packs(commit, have=good):
                    scratch.take_in(pack.commit, pack.data)
                    good.add(pack.commit)
                scratch.check(commit)
            except IntegrityError as error:
                wrong[commit] = str(error)
    return wrong
