"""Snapshots on their way to another machine: as git packs, each with what the one before it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.workspace.paths import lines
from holdfast.workspace.private_store import PrivateStore


def export_pack(store: PrivateStore, commit: str, without: Sequence[str] = ()) -> bytes:
    """Return the objects of a snapshot as one pack, less those of snapshots that are there already."""
    wanted = lines((commit, *(f"^{one}" for one in without)))
    return store.git.run("pack-objects", "--revs", "--thin", "--stdout", "-q", stdin=wanted)


def import_pack(store: PrivateStore, data: bytes) -> None:
    """Add a pack's objects; git hashes every one of them on the way in."""
    store.git.run("index-pack", "--stdin", "--fix-thin", stdin=data)
