"""What fits into the private store's quota: the largest new files are left out first.

The room that a snapshot takes is estimated before anything is written. The estimate of the last one is in
the note; what really is on the disk is looked at only when it seems to be too much.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from typing import Final

from holdfast.errors import WorkspaceFull
from holdfast.workspace.basis import Basis
from holdfast.workspace.files import lstat
from holdfast.workspace.findings import Findings

_ROOM_PER_FILE: Final = 1024
_ROOM_PER_ENTRY: Final = 100


def fit_quota(
    basis: Basis, findings: Findings, *, rescue: Sequence[str] = (), held: Sequence[str] = ()
) -> None:
    """Leave out new files that do not fit, and note the room that the others take.

    ``rescue`` may not be left out, and ``held`` needs no room. Raises `WorkspaceFull` where not even
    the rest fits.
    """
    known = set(held)
    sizes = {
        path: looked.st_size + _ROOM_PER_FILE
        for path, looked in findings.add.items()
        if not stat.S_ISLNK(looked.st_mode) and path not in known
    }
    growth = sum(sizes.values()) + _bookkeeping(basis, findings)
    quota = basis.limits.quota_bytes
    taken = basis.note.get("bytes", 0) + growth
    if taken > quota or "bytes" not in basis.note:
        # The estimate only ever grows; what is really there decides.
        taken = basis.store.size() + growth
    protected = set(rescue)
    for path, size in sorted(sizes.items(), key=lambda one: -one[1]):
        if taken <= quota:
            break
        if path not in protected:
            findings.leave_out(path, f"over the quota of {quota:,} bytes")
            taken -= size
    if taken > quota and protected:
        raise WorkspaceFull(
            "the files that would be overwritten cannot be saved first: they do not fit into the "
            f"quota of {quota:,} bytes. Nothing was changed; raise the quota"
        )
    if taken > quota and (findings.add or findings.drop):
        raise WorkspaceFull(
            f"the snapshots of {basis.store.root} fill their quota of {quota:,} bytes. Nothing was "
            "changed; remove old checkpoints and collect garbage, or raise the quota"
        )
    basis.note["bytes"] = taken


def _bookkeeping(basis: Basis, findings: Findings) -> int:
    """Return a bound for what a snapshot takes beside contents: trees, indexes, details.

    The trees that change are not known yet; all of them together are no larger than the index.
    """
    indexes = [basis.store.index, *([basis.repository.index] if basis.repository else ())]
    sizes = [looked.st_size for one in indexes if (looked := lstat(one)) is not None]
    paths = sum(len(path) + _ROOM_PER_ENTRY for path in findings.add)
    return 2 * (sum(sizes) + paths) + len(basis.note.get("message", "")) + _ROOM_PER_FILE
