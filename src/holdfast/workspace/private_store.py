"""The private git store of one project: objects, references, locks.

It lies in ``.agents/workspace.git``, apart from the user's repository, and only git's plumbing works on
it. Its settings are written by us and checked on every opening, since a project may come from strangers
with a ``.agents`` of their making.

Two locks order its users. *Work* is exclusive: one capture, restore or sweep at a time. *Use* is shared
by every save from its capture until its checkpoint is stored, and exclusive for a sweep: so a sweep never
takes a snapshot whose checkpoint is about to name it. Both belong to an open file and end with its
process, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import new as new_hash
from pathlib import Path
from typing import IO, Any, Final, cast

from holdfast.durable import sync_directory
from holdfast.errors import (
    SnapshotCorrupt,
    SnapshotNotFound,
    WorkspaceBusy,
    WorkspaceFull,
    WorkspaceRefused,
    WorkspaceUnavailable,
)
from holdfast.workspace.base import Entry, Problem, is_own
from holdfast.workspace.incoming import UNFINISHED, Incoming
from holdfast.workspace.paths import batches, lines, split
from holdfast.workspace.process import HELD, NO_ROOM, Deadline, Git

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_REFS: Final = "refs/snapshots"
_LAST: Final = "refs/last"
# Bytes as they are: no line endings, keywords, encodings or filters, whatever the project asks for.
_ATTRIBUTES: Final = b"* -text -ident !eol !filter !working-tree-encoding !diff\n"
_SETTINGS: Final = {
    "core.bare": "false",
    "core.autocrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    # Names that mean something on other systems are plain names here. What a restore must not write, it
    # refuses by itself, and a capture lists as skipped.
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "core.logAllRefUpdates": "false",
    # Without these the commands below sync nothing at all. The index can be made anew.
    "core.fsync": "committed,reference",
    "core.fsyncMethod": "batch",
    "core.compression": "1",
    "pack.compression": "6",
    "pack.threads": "2",
    "index.version": "4",
}
# What stands beside a database: the files of SQLite, and the copies made before a migration.
_BESIDE: Final = ("-wal", "-shm", "-journal", ".backup-")
_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    # A fixed time: equal files give an equal commit.
    for what, value in (("NAME", "holdfast"), ("EMAIL", "holdfast"), ("DATE", "@0 +0000"))
}
_PATIENCE: Final = 60.0
_WORK, _USE = "work.lock", "use.lock"
# What stands in the lock file while its holder is at work, and after it let go in peace.
_BUSY, _DONE = b"1", b"0"
_FOLDERS: Final = (
    "", "incoming", "incoming/info", "incoming/info/alternates", "info", "objects", "objects/info", "objects/pack", "refs", "refs/snapshots",
)  # fmt: skip
# How temporary directories of ours begin.
ASIDE: Final = "aside-"
# Where links are looked for, and how those end that do no harm: they are replaced, or not followed.
_LISTED: Final = ("", "incoming", "objects", "refs", "refs/snapshots")
_REPLACED: Final = (
    "HEAD", "config", "index", "index.next", ".gitignore", "last.json", ".new",
)  # fmt: skip
# What may stand in a git directory and send git elsewhere, or hide a part of its objects from it.
_FOREIGN: Final = (
    "commondir", "gitdir", "config.worktree", "shallow", "info/grafts", "info/sparse-checkout",
    "objects/info/alternates", "objects/info/http-alternates",
)  # fmt: skip


# The open lock files of this process.
_HANDLES: Final[set[int]] = set()


class PrivateStore:
    """The store of the project at ``root``. Databases in ``never`` are none of its files."""

    def __init__(self, root: Path, home: Path, *, never: Iterable[Path] = ()) -> None:
        self.root = root
        self.home = home
        self._databases = {inside for one in never for inside in _inside(root, one)}
        self.index = home / "index"
        self.git = Git(home, work_tree=root, settings=_SETTINGS)
        self.incoming = Incoming(home, work_tree=root, settings=_SETTINGS)

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
        return (self.home / "HEAD").exists()

    def prepare(self, *, sha256: bool = False) -> None:
        """Make the store where it is missing, and bring its settings to what they must be."""
        if not self.exists():
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in ("objects/info", "objects/pack", "refs", "info"):
                (self.home / folder).mkdir(parents=True, exist_ok=True)
            _write_if_other(self.home / "config", _config(sha256=sha256))
            # Last, since it is what makes a store of a directory.
            _write_if_other(self.home / "HEAD", b"ref: refs/heads/none\n")
        self.secure()

    def id_digits(self) -> int:
        """Return how many digits the name of an object has here."""
        return 64 if b"sha256" in _read(self.home / "config") else 40

    def secure(self) -> None:
        """Take away whatever could lead git astray: the directory may come from strangers.

        Raises `WorkspaceRefused` where links stand in place of directories, for what is written
        there would land elsewhere.
        """
        for link in self._links():
            raise WorkspaceRefused(
                f"{link} is a link, and snapshots are kept in real directories only. Nothing was "
                "changed; remove it"
            )
        if not self.exists():
            return
        if stat.S_IMODE(self.home.stat().st_mode) != 0o700:
            os.chmod(self.home, 0o700)
        sha256 = b"sha256" in _read(self.home / "config")
        _write_if_other(self.home / "config", _config(sha256=sha256))
        _write_if_other(self.home / "info" / "attributes", _ATTRIBUTES)
        for name in _FOREIGN:
            (self.home / name).unlink(missing_ok=True)
        # To the user's repository this directory is as if it were not there.
        _write_if_other(self.home / ".gitignore", b"*\n")

    def _links(self) -> Iterator[str]:
        """Yield links in places that git or we write to, delete from or walk through."""
        for place in (self.home.parent, *(self.home / folder for folder in _FOLDERS)):
            if place.is_symlink():
                yield str(place)
        for folder in _LISTED:
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                os.scandir(self.home / folder) as entries,
            ):
                yield from (
                    one.path
                    for one in entries
                    if one.is_symlink() and not one.name.endswith(_REPLACED)
                )

    def write_excludes(self, rules: str) -> None:
        """Have git ignore what some rules say."""
        content = rules.encode("utf-8", "surrogateescape")
        _write_if_other(self.home / "info" / "exclude", content)

    # Locks -----------------------------------------------------------------------------------

    @contextmanager
    def working(self, seconds: float = _PATIENCE) -> Iterator[None]:
        """Be the only one that captures, restores or sweeps."""
        try:
            with self._locked(_WORK, shared=False, seconds=seconds) as handle:
                if os.pread(handle, 1, 0) == _BUSY:
                    self._tidy_up()
                with suppress(OSError):
                    os.pwrite(handle, _BUSY, 0)
                yield
                with suppress(OSError):
                    os.pwrite(handle, _DONE, 0)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise WorkspaceFull(
                f"no room is left for the snapshots of {self.root}: {error}. The files are as they were"
            ) from error

    @contextmanager
    def using(self, *, alone: bool = False, seconds: float = _PATIENCE) -> Iterator[None]:
        """Keep sweeps away, or with ``alone`` be the sweep."""
        with self._locked(_USE, shared=not alone, seconds=seconds):
            yield

    @contextmanager
    def _locked(self, name: str, *, shared: bool, seconds: float) -> Iterator[int]:
        if fcntl is None:
            raise WorkspaceUnavailable("file snapshots need a POSIX system; the state is saved")
        self.secure()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(self.home / name, flags, 0o600)
        _HANDLES.add(handle)
        held = HELD.set((*HELD.get(), handle))
        try:
            end = time.monotonic() + seconds
            wait = 0.001
            while True:
                try:
                    fcntl.flock(
                        handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
                    )
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise WorkspaceBusy(
                            f"another process has worked on the files of {self.root} for more than "
                            f"{seconds:g} seconds; nothing was changed. Try again"
                        ) from None
                    time.sleep(wait)
                    wait = min(wait * 2, 0.05)
            yield handle
            # Whoever was forked meanwhile may hold a copy of the handle. After a failure the lock stays
            # until the last git that was started has ended, too.
            fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            HELD.reset(held)
            if handle in _HANDLES:
                _HANDLES.discard(handle)
                os.close(handle)

    def _tidy_up(self) -> None:
        """Remove what somebody who was killed left unfinished. Needs the work lock."""
        for where, folders, names in os.walk(self.home):
            for name in names:
                mine = name in (_WORK, _USE)
                if (not mine and name.endswith((".lock", ".new"))) or name.startswith(UNFINISHED):
                    os.unlink(os.path.join(where, name))
            for name in folders:
                if name.startswith(ASIDE):
                    shutil.rmtree(os.path.join(where, name))

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

    def read_commit(self, commit: str) -> tuple[str, list[str], bytes]:
        """Return a commit's tree, parents and message, verified. Raises when it is not there."""
        raw = self.read_objects([commit], kind="commit")[commit]
        head, _, message = raw.partition(b"\n\n")
        tree = ""
        parents = []
        for line in head.decode("utf-8", "replace").split("\n"):
            key, _, value = line.partition(" ")
            if key == "tree":
                tree = value
            elif key == "parent":
                parents.append(value)
        return tree, parents, message

    def read_objects(self, names: Iterable[str], *, kind: str = "blob") -> dict[str, bytes]:
        """Return objects by name, each hashed anew and compared with its name."""
        return dict(self.each_object(names, kind=kind))

    def each_object(
        self, names: Iterable[str], *, kind: str | None = "blob"
    ) -> Iterator[tuple[str, bytes]]:
        """Yield objects one by one, each hashed anew and compared with its name."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return
        with tempfile.TemporaryFile() as names_file:
            # From a file: git answers before it has read the last name, and a pipe could fill up.
            names_file.write(lines(wanted))
            names_file.seek(0)
            process = self.git.start("cat-file", "--batch", "--buffer", stdin=names_file)
        answers = cast("IO[bytes]", process.stdout)
        try:
            for name in wanted:
                header = answers.readline().split()
                if len(header) != 3:
                    if header[1:] == [b"missing"]:
                        raise SnapshotNotFound(f"the private store has no object {name}")
                    raise SnapshotCorrupt(f"object {name} of the private store cannot be read")
                size = int(header[2])
                data = answers.read(size)
                answers.read(1)
                found = header[1].decode()
                if len(data) != size or found != (kind or found) or not _fits(name, found, data):
                    raise SnapshotCorrupt(f"object {name} of the private store is damaged")
                yield name, data
        finally:
            process.kill()
            answers.close()
            if process.stderr is not None:
                process.stderr.close()
            process.wait()

    def entries(self, tree: str, paths: Iterable[str] = ()) -> dict[str, Entry]:
        """Return the files of a tree by path."""
        out = self.git.run("ls-tree", "-r", "-z", "--full-tree", "--", tree, *paths)
        found = {}
        for line in split(out):
            mode, _, rest = line.partition(" ")
            _, _, rest = rest.partition(" ")
            blob, _, path = rest.partition("\t")
            found[path] = Entry(mode, blob)
        return found

    def sized_entries(self, tree: str) -> dict[str, tuple[Entry, int]]:
        """Return the files of a tree by path, each with its size: slower, for people to look at."""
        out = self.git.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree)
        found = {}
        for line in split(out):
            columns, _, path = line.partition("\t")
            mode, _, blob, size = columns.split()
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
            return set(
                split(self.git.run("ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", tree))
            )
        found: set[str] = set()
        for some in batches(paths):
            out = self.git.run(
                "ls-tree", "-d", "-z", "--name-only", "--full-tree", "--", tree, *some
            )
            found.update(split(out))
        return found

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
            if not _fits(name, kind, data):
                raise SnapshotCorrupt(f"object {name} of the private store is damaged")
            found[path] = dict(_entries(data, id_size=len(name) // 2))
        return found

    # References ------------------------------------------------------------------------------

    def keep(
        self, group: str, commit: str, *, last: bool = True, deadline: Deadline | None = None
    ) -> None:
        """Hold on to a commit under the name of those who need it."""
        name = f"{_REFS}/{group}/{commit}"
        # The last snapshot is held in any case: the next capture builds on it.
        wanted = {name, _LAST} if last else {name}
        missing = [
            one for one in sorted(wanted) if _read(self.home / one).strip() != commit.encode()
        ]
        if missing:
            updates = lines(f"update {one} {commit}" for one in missing)
            self.git.run("update-ref", "--stdin", stdin=updates, deadline=deadline)
            # Git syncs the files. Their names must last too: the database may be on another disk.
            for folder in sorted({above for one in missing for above in Path(one).parents}):
                sync_directory(self.home / folder)

    def hold_last(self, commit: str | None) -> None:
        """Hold what the next capture builds on, should a killed one have let it slip."""
        if commit is not None and _read(self.home / _LAST).strip() != commit.encode():
            self.git.run("update-ref", _LAST, commit)

    def kept(self, group: str | None = None) -> dict[str, set[str]]:
        """Return the commits that are held, by group."""
        prefix = f"{_REFS}/{group}" if group is not None else _REFS
        out = self.git.run("for-each-ref", "--format=%(refname)", prefix) if self.exists() else b""
        found: dict[str, set[str]] = {}
        for name in out.decode().split():
            owner, _, commit = name.removeprefix(f"{_REFS}/").rpartition("/")
            found.setdefault(owner, set()).add(commit)
        return found

    def release(self, group: str, commits: Iterable[str]) -> None:
        """Let go of commits; `repack` then frees what nothing holds."""
        updates = lines(f"delete {_REFS}/{group}/{commit}" for commit in commits)
        if updates:
            self.git.run("update-ref", "--stdin", stdin=updates)

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

    # Small documents beside the objects -------------------------------------------------------

    def read_note(self, name: str) -> dict[str, Any]:
        """Return a small JSON file of ours, empty when it is missing or unreadable."""
        try:
            note = json.loads((self.home / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def write_note(self, name: str, note: Mapping[str, Any], *, durable: bool = False) -> None:
        """Replace a small JSON file of ours in one step."""
        target = self.home / name
        # In ASCII: paths may hold bytes that are no text.
        content = json.dumps(note, separators=(",", ":")).encode()
        if not durable and not target.is_symlink() and _read(target) == content:
            return
        fresh = target.with_name(f"{name}.new")
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, target)
        if durable:
            sync_directory(self.home)

    def remove_note(self, name: str) -> None:
        """Remove a small file of ours for good."""
        (self.home / name).unlink(missing_ok=True)
        sync_directory(self.home)


def _entries(data: bytes, *, id_size: int) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what a tree's bytes say: names with modes and objects."""
    place = 0
    while place < len(data):
        end = data.index(b"\0", place)
        mode, _, name = data[place:end].decode("utf-8", "surrogateescape").partition(" ")
        place = end + 1 + id_size
        yield name, (mode, data[end + 1 : place].hex())


def _inside(root: Path, path: Path) -> set[str]:
    """Return the names by which a file lies in a project: as it is spelled, and with links followed."""
    spelled = ((root, path), (root.resolve(), path.resolve()))
    return {str(one.relative_to(top)) for top, one in spelled if one.is_relative_to(top)}


def _let_go() -> None:
    """In a forked child: a lock belongs to the process that took it."""
    for handle in tuple(_HANDLES):
        _HANDLES.discard(handle)
        with suppress(OSError):
            os.close(handle)
    HELD.set(())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _fits(name: str, kind: str, data: bytes) -> bool:
    digest = new_hash("sha256" if len(name) == 64 else "sha1", usedforsecurity=False)
    digest.update(f"{kind} {len(data)}\0".encode())
    digest.update(data)
    return digest.hexdigest() == name


def _config(*, sha256: bool) -> bytes:
    if not sha256:
        return b"[core]\n\trepositoryformatversion = 0\n"
    return b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _write_if_other(path: Path, content: bytes) -> None:
    if path.is_symlink() or _read(path) != content:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        # A name of one's own: readers hold no lock.
        fresh = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.new")
        fresh.unlink(missing_ok=True)
        fresh.write_bytes(content)
        os.replace(fresh, path)
