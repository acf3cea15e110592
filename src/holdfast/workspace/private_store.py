"""The private git store of one project: objects, and the references that hold them (`references`).

It lies in ``.agents/workspace.git``, apart from the user's repository, and only git's plumbing works on
it. How it is kept from misleading git is in `store_settings`, who may use it when in `store_locks`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Final, cast

from holdfast.errors import SnapshotCorrupt, SnapshotNotFound, WorkspaceUnavailable
from holdfast.workspace import store_settings
from holdfast.workspace.base import MB, Entry, Problem, is_own
from holdfast.workspace.environment import STORE_SETTINGS
from holdfast.workspace.incoming import Incoming
from holdfast.workspace.notes import Notes, write_if_other
from holdfast.workspace.objects import has_name, names_in, tree_entries
from holdfast.workspace.paths import batches, lines, split
from holdfast.workspace.process import Deadline, Git, understood
from holdfast.workspace.references import References
from holdfast.workspace.store_locks import ASIDE, PATIENCE, StoreLocks

# What stands beside a database: the files of SQLite, and the copies made before a migration.
_BESIDE: Final = ("-wal", "-shm", "-journal", ".backup-")
# What a snapshot knows beyond its files is read whole; that of a million files has room in this.
_MOST_DETAILS: Final = 32 * MB
_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    # A fixed time: equal files give an equal commit.
    for what, value in (("NAME", "holdfast"), ("EMAIL", "holdfast"), ("DATE", "@0 +0000"))
}


class PrivateStore:
    """The store of the project at ``root``. Databases in ``never`` are none of its files."""

    def __init__(self, root: Path, home: Path, *, never: Iterable[Path] = ()) -> None:
        self.root = root
        self.home = home
        self._databases = {inside for one in never for inside in _inside(root, one)}
        self.index = home / "index"
        self.git = Git(home, work_tree=root, settings=STORE_SETTINGS)
        self.references = References(home, self.git)
        self.notes = Notes(home)
        self.incoming = Incoming(home, work_tree=root, settings=STORE_SETTINGS)
        self._locks = StoreLocks(home, project=root)

    # Opening ---------------------------------------------------------------------------------

    def is_own(self, path: str) -> bool:
        """Whether a path is Holdfast's own: never captured, written or deleted."""
        return is_own(path) or any(
            path == one or path.removeprefix(one).startswith(_BESIDE)
            for one in self._databases
            if path.startswith(one)
        )

    def exists(self) -> bool:
        """Whether the store was ever made."""
        return store_settings.exists(self.home)

    def prepare(self, *, sha256: bool = False) -> None:
        """Make the store where it is missing, and bring its settings to what they must be."""
        if not self.exists():
            store_settings.make(self.home, sha256=sha256)
        self.secure()

    def id_digits(self) -> int:
        """Return how many digits the name of an object has here."""
        return 64 if store_settings.uses_sha256(self.home) else 40

    def secure(self) -> None:
        """Take away whatever could lead git astray. Raises `WorkspaceRefused` for links."""
        store_settings.secure(self.home)

    def write_excludes(self, rules: str) -> None:
        """Have git ignore what some rules say."""
        content = rules.encode("utf-8", "surrogateescape")
        write_if_other(self.home / "info" / "exclude", content)

    # Locks -----------------------------------------------------------------------------------

    def working(self, seconds: float = PATIENCE) -> AbstractContextManager[None]:
        """Be the only one that captures, restores or sweeps."""
        return self._locks.working(seconds)

    def using(
        self, *, alone: bool = False, seconds: float = PATIENCE
    ) -> AbstractContextManager[None]:
        """Keep sweeps away, or with ``alone`` be the sweep."""
        return self._locks.using(alone=alone, seconds=seconds)

    def aside(self) -> TemporaryDirectory[str]:
        """Return a temporary directory for ``with``; what a kill leaves of it is tidied up."""
        return TemporaryDirectory(dir=self.home, prefix=ASIDE)

    # Objects ---------------------------------------------------------------------------------

    def commit(
        self, tree: str, message: bytes, parents: Iterable[str] = (), *, deadline: Deadline
    ) -> str:
        """Add a commit to what is incoming and return its id."""
        arguments = [part for parent in parents for part in ("-p", parent)]
        out = self.incoming.git.run(
            "commit-tree", tree, *arguments, "-F", "-",
            stdin=message, variables=_AUTHOR, deadline=deadline,
        )  # fmt: skip
        return out.decode().strip()

    def write_trees(self, trees: Sequence[bytes], *, deadline: Deadline) -> list[str]:
        """Add directories, as `objects.tree_data` has them, to what is incoming and return their names.

        This is no task for ``git mktree``: it writes objects without sending them to the disk.
        """
        with self.aside() as aside:
            for number, tree in enumerate(trees):
                Path(aside, str(number)).write_bytes(tree)
            out = self.incoming.git.run(
                # Their names are checked as any other's before they come back to a disk.
                "hash-object", "-w", "-t", "tree", "--literally", "--no-filters", "--stdin-paths",
                stdin=lines(map(str, range(len(trees)))),
                # Git reads these names from the top of its work tree, wherever it was started.
                variables={"GIT_WORK_TREE": aside}, cwd=Path(aside), deadline=deadline,
            )  # fmt: skip
        return out.decode().split()

    def read_commit(self, commit: str) -> tuple[str, list[str], bytes]:
        """Return a commit's tree, parents and message, verified. Raises when it is not there."""
        raw = self.read_objects([commit], kind="commit")[commit]
        tree, *parents = names_in(commit, raw)
        return tree, parents, raw.partition(b"\n\n")[2]

    def read_objects(self, names: Iterable[str], *, kind: str = "blob") -> dict[str, bytes]:
        """Return objects by name, each hashed anew and compared with its name."""
        return dict(self.each_object(names, kind=kind))

    def each_object(
        self, names: Iterable[str], *, kind: str | None = "blob", git: Git | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Yield objects one by one, each hashed anew and compared with its name.

        Another ``git`` sees those that are not delivered yet, too.
        """
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return
        with TemporaryFile() as names_file:
            # From a file: git answers before it has read the last name, and a pipe could fill up.
            names_file.write(lines(wanted))
            names_file.seek(0)
            process = (git or self.git).start("cat-file", "--batch", "--buffer", stdin=names_file)
        answers = cast("IO[bytes]", process.stdout)
        try:
            with understood("cat-file"):
                for name in wanted:
                    yield name, _next_object(answers, name, kind)
        finally:
            process.kill()
            answers.close()
            if process.stderr is not None:
                process.stderr.close()
            process.wait()

    def entries(self, tree: str, paths: Iterable[str] = ()) -> dict[str, Entry]:
        """Return the files of a tree by path."""
        out = self.git.listed("ls-tree", "-r", "-z", "--full-tree", "--", tree, *paths)
        found = {}
        for line in split(out):
            mode, _, rest = line.partition(" ")
            _, _, rest = rest.partition(" ")
            blob, _, path = rest.partition("\t")
            found[path] = Entry(mode, blob)
        return found

    def sized_entries(self, tree: str) -> dict[str, tuple[Entry, int]]:
        """Return the files of a tree by path, each with its size: slower, for people to look at."""
        out = self.git.listed("ls-tree", "-r", "-z", "-l", "--full-tree", tree)
        found = {}
        with understood("ls-tree"):
            for line in split(out):
                columns, _, path = line.partition("\t")
                mode, kind, blob, size = columns.split()
                # Of what is missing, and of what is no file, there is no size.
                if kind != "blob" or not size.isdecimal():
                    raise SnapshotCorrupt(f"the snapshot holds something that is no file: {path!r}")
                found[path] = (Entry(mode, blob), int(size))
        return found

    def entries_of(self, tree: str, paths: Sequence[str]) -> dict[str, Entry]:
        """Return some files of a tree, as far as it has them."""
        found: dict[str, Entry] = {}
        for some in batches(paths):
            found |= self.entries(tree, some)
        return {path: found[path] for path in paths if path in found}

    def folders(self, tree: str, paths: Sequence[str] | None = None) -> set[str]:
        """Return the directories of a tree; with ``paths`` only those among them."""
        if paths is None:
            every = ("ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", tree)
            return set(split(self.git.listed(*every)))
        found: set[str] = set()
        for some in batches(paths):
            # Without -t git leaves out the one that it enters to look for another.
            out = self.git.run(
                "ls-tree", "-d", "-t", "-z", "--name-only", "--full-tree", "--", tree, *some
            )
            found.update(split(out))
        return found.intersection(paths)

    def read_folders(
        self, tree: str, paths: Sequence[str]
    ) -> dict[str, dict[str, tuple[str, str]]] | None:
        """Return the content of directories of a tree: mode and object by name, verified.

        ``paths`` begins with the top, and each is preceded by the one above it. One that the tree
        lacks is empty. Returns None where something else has the name, or where it cannot be read.
        """
        names = lines(f"{tree}:{path}" for path in paths)
        out = self.git.run("cat-file", "--batch", stdin=names)
        found: dict[str, dict[str, tuple[str, str]]] = {}
        place = 0
        with understood("cat-file"):
            for path in paths:
                end = out.index(b"\n", place)
                header = out[place:end]
                place = end + 1
                if header.endswith(b" missing"):
                    above, _, name = path.rpartition("/")
                    if not path or name in found[above]:
                        return None
                    found[path] = {}
                    continue
                name, kind, size = header.decode().split(" ")
                data = out[place : place + int(size)]
                place += len(data) + 1
                if kind != "tree":
                    return None
                if not has_name(name, kind, data):
                    raise SnapshotCorrupt(f"object {name} of the private store is damaged")
                found[path] = dict(tree_entries(data, id_size=len(name) // 2))
        return found

    def present(self, commits: Iterable[str]) -> set[str]:
        """Return those of the commits that are stored, held or not."""
        wanted = sorted(commits)
        if not wanted:
            return set()
        out = self.git.run("cat-file", "--batch-check", stdin=lines(wanted))
        found = (line.split(" ") for line in out.decode().splitlines())
        return {words[0] for words in found if words[1:2] == ["commit"]}

    # Upkeep ----------------------------------------------------------------------------------

    def repack(self) -> None:
        """Pack everything that is held into one pack and delete the rest. Needs both locks."""
        self.git.run("pack-refs", "--all", "--prune")
        self.git.run("repack", "-a", "-d", "-q", "--window=20", "--depth=50")
        self.git.run("prune", "--expire=now")
        self.git.run("prune-packed", "-q")

    def check(self, commits: Iterable[str]) -> list[Problem]:
        """Hash every object that some snapshots consist of, and report what is wrong with which."""
        wanted = sorted(commits)
        if self._first_problem(wanted) is None:
            return []
        found = ((commit, self._first_problem([commit])) for commit in wanted)
        return [Problem(commit, problem) for commit, problem in found if problem is not None]

    def _first_problem(self, commits: list[str]) -> str | None:
        if not commits:
            return None
        listed = lines(commits)
        try:
            out = self.git.run(
                "rev-list", "--objects", "--no-object-names", "--stdin", stdin=listed
            )
            for _ in self.each_object(out.decode().split(), kind=None):
                pass
        except (SnapshotNotFound, SnapshotCorrupt, WorkspaceUnavailable) as error:
            return str(error)
        return None

    def count_objects(self) -> int:
        """Return how many objects the store holds, packed and loose."""
        out = self.git.run("count-objects", "-v").decode()
        numbers = dict(line.split(": ") for line in out.splitlines())
        return int(numbers["count"]) + int(numbers["in-pack"])

    def size(self) -> int:
        """Return the bytes that the store takes on disk."""
        total = 0
        for folder, _, names in os.walk(self.home):
            for name in names:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_size
                except FileNotFoundError:
                    continue
        return total


def _next_object(answers: IO[bytes], name: str, kind: str | None) -> bytes:
    """Return the object that git answers with next. Raises for one that is not what was asked for."""
    header = answers.readline().split()
    if header[1:] == [b"missing"]:
        raise SnapshotNotFound(f"the private store has no object {name}")
    if len(header) != 3:
        raise SnapshotCorrupt(f"object {name} of the private store cannot be read")
    found, size = header[1].decode(), int(header[2])
    if found == "commit" and size > _MOST_DETAILS:
        raise SnapshotCorrupt(f"commit {name} of the private store has {size} bytes")
    data = answers.read(size)
    answers.read(1)
    if len(data) != size or found != (kind or found) or not has_name(name, found, data):
        raise SnapshotCorrupt(f"object {name} of the private store is damaged")
    return data


def _inside(root: Path, path: Path) -> set[str]:
    """Return the names by which a file lies in a project: as it is spelled, and with links followed."""
    spelled = ((root, path), (root.resolve(), path.resolve()))
    return {str(one.relative_to(top)) for top, one in spelled if one.is_relative_to(top)}
