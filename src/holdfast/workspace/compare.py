"""What differs between two snapshots: names from git's trees, text from git's diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from holdfast.errors import SnapshotCorrupt
from holdfast.workspace.base import Change, Entry, FileDiff, Kind
from holdfast.workspace.details import Details
from holdfast.workspace.objects import names_in
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import understood


def changes_between(
    store: PrivateStore, old: str, new: str, paths: Sequence[str] = ()
) -> list[Change]:
    """Return the paths that differ between two commits or trees, in order."""
    return raw_changes(store, old, new, paths)


def modes_between(store: PrivateStore, old: str, new: str) -> set[str]:
    """Return the files of two commits whose permissions differ, and files that only one of them has."""
    before, after = (Details.from_message(store.read_commit(one)[2]) for one in (old, new))
    if before.defaults == after.defaults:
        known = {**before.modes, **after.modes}
        return {path for path in known if before.modes.get(path) != after.modes.get(path)}
    return {
        path
        for path, entry in store.entries(store.read_commit(new)[0]).items()
        if entry.mode != "120000"
        and before.mode_of(path, entry.mode) != after.mode_of(path, entry.mode)
    }


def raw_changes(
    store: PrivateStore, old: str, new: str, paths: Sequence[str] = (), *, folders: bool = False
) -> list[Change]:
    """Return the paths that differ; with ``folders`` the directories on the way to them too."""
    out = store.git.listed(
        "diff-tree", "-r", *(("-t",) if folders else ()), "-z", "--raw", "--no-renames",
        "--no-abbrev", old, new, "--", *_pathspecs(paths),
    )  # fmt: skip
    with understood("diff-tree"):
        return list(_parse(out.decode("utf-8", "surrogateescape")))


def text_between(
    store: PrivateStore, old: str, new: str, paths: Sequence[str] = ()
) -> list[FileDiff]:
    """Return the differing paths with their unified text."""
    found = []
    changes = changes_between(store, old, new, paths)
    out = store.git.run(
        "diff-tree", "-r", "-p", "-z", "--no-renames", "--no-ext-diff", "--no-textconv",
        "--no-color", "--full-index", "--src-prefix=a/", "--dst-prefix=b/",
        old, new, "--", *_pathspecs(paths),
    )  # fmt: skip
    texts = iter(_split_patch(out.decode("utf-8", "surrogateescape")))
    for change in changes:
        text = next(texts, "")
        if change.old and change.new and change.old.mode[:3] != change.new.mode[:3]:
            # A file that became a link, or the other way round, is shown as gone and new.
            text += next(texts, "")
        binary = "\nBinary files " in text or text.startswith("Binary files ")
        found.append(FileDiff(change, "" if binary else text, binary))
    return found


def count_between(store: PrivateStore, pairs: Sequence[tuple[str, str]]) -> list[int]:
    """Return in how many paths each two commits differ, all with two commands."""
    commits = {commit for pair in pairs for commit in pair}
    trees = {
        name: names_in(name, raw)[0].encode()
        for name, raw in store.each_object(commits, kind="commit")
    }
    asked = [b"%s %s\n" % (trees[old], trees[new]) for old, new in pairs]
    if not asked:
        return []
    out = store.git.listed(
        "diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", stdin=b"".join(asked)
    )
    counts = []
    place = 0
    for question in asked:
        # An answer repeats its question; then each path comes with a part that begins with a colon. What git
        # cannot read it passes over, with no word of it here.
        if not out.startswith(question, place):
            raise SnapshotCorrupt(
                f"one of the trees {question.decode().strip()} is not in the private store"
            )
        place += len(question)
        count = 0
        with understood("diff-tree"):
            while out[place : place + 1] == b":":
                count += 1
                place = out.index(b"\0", out.index(b"\0", place) + 1) + 1
        counts.append(count)
    return counts


def _pathspecs(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if path != "."]


def _parse(raw: str) -> Iterator[Change]:
    parts = iter(raw.split("\0"))
    for header in parts:
        if not header:
            break
        old_mode, new_mode, old_blob, new_blob, status = header.removeprefix(":").split(" ")
        path = next(parts, None)
        if path is None:
            raise ValueError("a change without a path")
        kind: Kind = {"A": "added", "D": "deleted"}.get(status[:1], "modified")  # type: ignore[assignment]
        yield Change(
            path,
            kind,
            None if kind == "added" else Entry(old_mode, old_blob),
            None if kind == "deleted" else Entry(new_mode, new_blob),
        )


def _split_patch(patch: str) -> list[str]:
    starts = [0] if patch.startswith("diff --git ") else []
    place = patch.find("\ndiff --git ")
    while place >= 0:
        starts.append(place + 1)
        place = patch.find("\ndiff --git ", place + 1)
    return [patch[start:end] for start, end in pairwise((*starts, len(patch)))]
