"""What keeps snapshots from being swept away: a reference for each, with the name of its commit.

Git frees what no reference reaches. A reference can be lost, or be an empty file after a power cut, while
its snapshot is whole. Its own name says what it has to be, and so does the database that names the
commit: nothing is freed before such references are written anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directories
from holdfast.errors import WorkspaceRefused
from holdfast.workspace.notes import read_bytes
from holdfast.workspace.paths import lines
from holdfast.workspace.process import Deadline, Git

_REFS: Final = "refs/snapshots"
_LAST: Final = "refs/last"
_HEXADECIMAL: Final = frozenset(b"0123456789abcdef")
_OURS: Final = re.compile(rf"{_REFS}/[^/]+/[0-9a-f]+")
# What no name of a reference has in it.
_IMPOSSIBLE: Final = re.compile(r"[\0- \x7f~^:?*\[\\]|\.\.|@\{")


class References:
    """The references of the private store in ``home``: commits by group, and the last snapshot."""

    def __init__(self, home: Path, git: Git) -> None:
        self._home = home
        self._git = git

    # Holding ---------------------------------------------------------------------------------

    def keep(
        self, group: str, commit: str, *, last: bool = True, deadline: Deadline | None = None
    ) -> None:
        """Hold on to a commit under the name of those who need it."""
        name = f"{_REFS}/{group}/{commit}"
        # The last snapshot is held in any case: the next capture builds on it.
        wanted = {name, _LAST} if last else {name}
        missing = [
            one for one in sorted(wanted) if read_bytes(self._home / one).strip() != commit.encode()
        ]
        if missing:
            self._write(dict.fromkeys(missing, commit), deadline=deadline)

    def hold_last(self, commit: str | None) -> None:
        """Hold what the next capture builds on, should a killed one have let it slip."""
        if commit is not None and read_bytes(self._home / _LAST).strip() != commit.encode():
            self._write({_LAST: commit})
        self._remove_unreadable(_LAST)

    def release(self, group: str, commits: Iterable[str]) -> None:
        """Let go of commits; `PrivateStore.repack` then frees what nothing holds."""
        names = [f"{_REFS}/{group}/{commit}" for commit in commits]
        for name in names:
            self._remove_unreadable(name)
        if names:
            self._git.run("update-ref", "--stdin", stdin=lines(f"delete {one}" for one in names))

    def release_last(self) -> None:
        """Let go of what the next capture would have built on."""
        self._remove_unreadable(_LAST)
        self._git.run("update-ref", "-d", _LAST)

    # Looking ---------------------------------------------------------------------------------

    def kept(self, group: str | None = None) -> dict[str, set[str]]:
        """Return the commits that are held, by group. A reference counts if it says what its name says."""
        found: dict[str, set[str]] = {}
        for name, value in self._values(group).items():
            owner, _, commit = name.rpartition("/")
            if value == commit:
                found.setdefault(owner, set()).add(commit)
        return found

    def all_kept(self) -> set[str]:
        """Return the commits that are held, by whomever."""
        return set().union(*self.kept().values())

    # Mending ---------------------------------------------------------------------------------

    def misleading(self) -> dict[str, set[str]]:
        """Return commits, by group, whose reference is there and says nothing, or something else."""
        files = {
            f"{one.parent.name}/{one.name}"
            for one in (self._home / _REFS).glob("*/*")
            if _is_seen(one.parent.name) and not one.is_dir()
        }
        values = self._values()
        right = {name for name, value in values.items() if name.endswith(f"/{value}")}
        found: dict[str, set[str]] = {}
        for name in (files | values.keys()) - right:
            group, _, commit = name.rpartition("/")
            # What git has not finished writing ends otherwise.
            if set(os.fsencode(commit)) <= _HEXADECIMAL:
                found.setdefault(group, set()).add(commit)
        return found

    def refuse_foreign(self) -> None:
        """Raise `WorkspaceRefused` for a file that git takes for a reference and can make nothing of.

        Git frees nothing where there is one. Those that have the name of a snapshot can be mended.
        """
        for where, folders, names in os.walk(self._home / "refs"):
            folders[:] = filter(_is_seen, folders)
            for name in filter(_is_seen, names):
                path = Path(where, name)
                found = path.relative_to(self._home).as_posix()
                ours = found == _LAST or _OURS.fullmatch(found)
                if _IMPOSSIBLE.search(found) or not (ours or _names_object(read_bytes(path))):
                    raise WorkspaceRefused(
                        f"{str(path)!r} is no reference to a snapshot, and git frees nothing where "
                        "it is. Nothing was changed; remove it"
                    )

    def hold_again(self, wanted: Mapping[str, Iterable[str]]) -> None:
        """Write references anew, for commits by group, whatever stands in their place."""
        names = {f"{_REFS}/{group}/{one}": one for group, some in wanted.items() for one in some}
        if names:
            self._write(names)

    def _values(self, group: str | None = None) -> dict[str, str]:
        """Return what those references say that git can read."""
        prefix = f"{_REFS}/{group}" if group is not None else _REFS
        out = self._git.run("for-each-ref", "--format=%(refname) %(objectname)", prefix)
        # A name may hold anything but spaces and the line ends of ASCII.
        found = (line.rpartition(" ") for line in os.fsdecode(out).split("\n") if line)
        return {name.removeprefix(f"{_REFS}/"): value for name, _, value in found}

    def _write(self, wanted: Mapping[str, str], *, deadline: Deadline | None = None) -> None:
        for name in wanted:
            self._remove_unreadable(name)
        updates = lines(f"update {name} {commit}" for name, commit in wanted.items())
        self._git.run("update-ref", "--stdin", stdin=updates, deadline=deadline)
        # Git syncs the files. Their names must last too: the database may be on another disk.
        sync_directories({self._home / above for name in wanted for above in Path(name).parents})

    def _remove_unreadable(self, name: str) -> None:
        """Remove the file of a reference that names no object: git itself refuses to replace it."""
        path = self._home / name
        if not _names_object(read_bytes(path)) and path.is_file():
            path.unlink()


def _names_object(said: bytes) -> bool:
    name = said.strip()
    return len(name) in (40, 64) and set(name) <= _HEXADECIMAL


def _is_seen(name: str) -> bool:
    """Whether git looks at a file or directory of this name where references are."""
    return not (name.startswith(".") or name.endswith(".lock"))
