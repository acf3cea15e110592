"""Packs of files that need those of a session that is to be erased: made anew, so that they do not.

A pack has what the snapshot before it lacks, whoever saved that one, and so do the packs below it. As long as a
checkpoint of another session needs them, they stay, with files that only the erased session had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.errors import HoldfastError
from holdfast.sessions.files import all_records
from holdfast.stores import Store
from holdfast.stores.rules import packs_below
from holdfast.workspace.base import Limits
from holdfast.workspace.packs import export_pack, import_pack
from holdfast.workspace.private_store import PrivateStore


def detach(store: Store, session_id: str) -> tuple[set[str], str | None]:
    """Have the packs of all other sessions need each other only; return those that can go with this one.

    Where one cannot be read or made anew, others may go on needing what is to go: then the reason is
    returned as well.
    """
    try:
        needs = store.pack_needs()
    except HoldfastError as error:
        return set(), str(error)
    if not needs:
        return set(), None
    named: tuple[set[str], set[str]] = (set(), set())
    for one in all_records(store):
        if one.workspace_commit in needs:
            named[one.session_id == session_id].add(one.workspace_commit)
    kept, own = named
    going = packs_below([*kept, *own], needs) - kept
    bound = [commit for commit in sorted(kept) if not kept.issuperset(needs[commit])]
    try:
        with TemporaryDirectory(prefix="holdfast-packs-") as aside:
            _make_anew(store, Path(aside), {one: _nearest(one, needs, kept) for one in bound})
    except (HoldfastError, OSError) as error:
        return going, str(error)
    return going, None


def _nearest(commit: str, needs: Mapping[str, Collection[str]], kept: Collection[str]) -> list[str]:
    """Return the first of those that are kept on every way down from a commit."""
    found: set[str] = set()
    seen: set[str] = set()
    ahead = list(needs[commit])
    while ahead:
        one = ahead.pop()
        if one in kept:
            found.add(one)
        elif one not in seen:
            seen.add(one)
            ahead += needs.get(one, ())
    return sorted(found)


def _make_anew(store: Store, aside: Path, wanted: Mapping[str, list[str]]) -> None:
    """Exchange the packs of snapshots for such as need only what is named for each."""
    there: set[str] = set()
    for commit, needs in wanted.items():
        private = PrivateStore(aside, aside / str(len(commit)))
        private.prepare(sha256=len(commit) == 64)
        for pack in store.read_packs(commit, have=there):
            # Git hashes every object on the way in.
            import_pack(private, pack.commit, pack.data, largest=Limits().max_file_bytes)
            there.add(pack.commit)
        data = export_pack(private, commit, needs)
        store.put_pack(commit, needs=needs, data=data, replace=True)
