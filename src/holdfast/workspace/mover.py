"""Putting the user's repository back where a snapshot found it, when somebody asks for that.

HEAD, branch, index and git's notes move; commits that no branch and no tag has then are kept under a
reference. A move may be stopped anywhere: every step may be repeated, and one that was interrupted goes on
only while nobody else moved the repository since.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.durable import sync_directories, sync_directory, sync_file
from holdfast.errors import RestoreFailed, SnapshotCorrupt, WorkspaceBusy, WorkspaceError
from holdfast.workspace.paths import lines, split
from holdfast.workspace.position import (
    BISECTING,
    FLAGGED,
    OPERATION_FOLDERS,
    Extra,
    Position,
    copy_objects,
    is_strange,
    list_tried,
    named_commits,
    operation_files,
    read_extra,
)
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.repository import Repository
from holdfast.workspace.trees import leads_elsewhere

_BACKUPS: Final = "refs/holdfast"
_FRESH: Final = "holdfast-index"
# References of the user's that keep commits, as git names them all.
_HOLDING: Final = ("--branches", "--tags", "--remotes")
# Says in the user's repository which restore may move it: what a project brings along cannot.
_TOKEN: Final = "holdfast-move"
# Seconds after the epoch. None at all would tell git that an index has no time.
_LONG_AGO: Final = 1
_WHO: Final = {
    f"GIT_{who}_{what}": "holdfast" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}


@dataclass(frozen=True, slots=True)
class Move:
    """What a `Mover` did: a sentence, the commits left behind, the reference where one has to keep them."""

    what: str
    commits: tuple[str, ...]
    backup: str | None


class Mover:
    """Puts the user's repository where a snapshot found it. Every step may be repeated."""

    def __init__(self, store: PrivateStore, repository: Repository, position: Position) -> None:
        self._store = store
        self._repository = repository
        self._position = position
        self._git = repository.git()
        # Whether anything was moved yet.
        self.started = False

    def check(self) -> None:
        """Refuse before anything is touched: a lock held, a commit gone, a branch used elsewhere."""
        extra = read_extra(self._store, self._position)
        if is_strange(self._position, extra):
            raise RestoreFailed(
                "the snapshot was taken in the middle of a rebase, or of picking commits, and not by you "
                "on this machine: what was still to be done may run programs. Nothing was changed; "
                "restore the files alone, without move_head"
            )
        self._check_index(extra.index)
        for name in ("index.lock", "HEAD.lock"):
            if (self._repository.git_dir / name).exists():
                raise WorkspaceBusy(
                    f"{self._repository.git_dir / name} exists: another git command is at work, or "
                    "one died. Nothing was changed; when no git is running, remove that file"
                )
        commit = self._position.commit
        if commit is not None and not self._succeeds("cat-file", "-e", f"{commit}^{{tree}}"):
            raise RestoreFailed(
                f"the repository no longer has commit {commit}, so HEAD cannot go back there. "
                "Nothing was changed; restore the files alone, without move_head"
            )
        for name in named_commits(extra):
            if not self._succeeds("cat-file", "-e", f"{name}^{{commit}}"):
                raise RestoreFailed(
                    f"the snapshot was taken in the middle of a git operation with commit {name}, which "
                    "the repository no longer has. Nothing was changed; restore the files alone, without "
                    "move_head"
                )
        branch = self._position.branch
        if branch is not None and not self._succeeds("check-ref-format", branch):
            raise SnapshotCorrupt(f"the snapshot names a branch that cannot be: {branch!r}")
        if branch is not None and branch in self._branches_elsewhere():
            raise RestoreFailed(
                f"{branch.removeprefix('refs/heads/')} is checked out in another worktree. Nothing "
                "was changed; restore the files alone, without move_head"
            )

    def _check_index(self, saved: bytes | None) -> None:
        """Refuse an index with names that lead elsewhere: git writes them out as it finds them."""
        if saved is None:
            return
        with self._store.aside() as aside:
            index = Path(aside, "index").absolute()
            index.write_bytes(saved)
            try:
                names = split(self._git.run("ls-files", "-z", index=index))
            except WorkspaceError as error:
                raise SnapshotCorrupt(
                    f"the snapshot's index cannot be read: {error}. Nothing was changed"
                ) from error
        for name in names:
            if leads_elsewhere(name):
                raise SnapshotCorrupt(
                    f"the snapshot's index has a path that none may have: {name!r}"
                )

    def preview(self) -> Move:
        """Tell what `move` would do."""
        behind = self._left_behind()
        return Move(self._sentence(), behind, None)

    def announce(self, mark: str) -> None:
        """Leave word in the repository, for good, that a restore is going to move it."""
        token = self._repository.git_dir / _TOKEN
        # A link in its place would lead to anybody's file.
        token.unlink(missing_ok=True)
        with token.open("x") as file:
            file.write(mark)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self._repository.git_dir)

    def is_announced(self, mark: str) -> bool:
        """Whether a restore left word that it is going to move the repository."""
        token = self._repository.git_dir / _TOKEN
        return token.is_file() and token.read_text("utf-8", "replace") == mark

    def conclude(self) -> None:
        """Take the word back."""
        forget_announcement(self._repository)

    def tip(self) -> str | None:
        """Return where the branch that is going to be moved stands now, None when it does not."""
        branch = self._position.branch
        return self._resolve(branch) if branch is not None else None

    def is_untouched(self, old: Position | None, tip: str | None) -> bool:
        """Whether nobody but us moved the repository since it was at ``old``.

        HEAD, branches, index and notes must each be as they were, or as this move makes them: it may
        have been stopped anywhere. ``tip`` is where the branch to be moved stood.
        """
        if old is None or self._repository.head() not in (old.head, self._position.head):
            return False
        allowed: dict[str, set[str | None]] = {}
        for branch, commits in (
            (old.branch, (old.commit,)),
            (self._position.branch, (tip, self._position.commit)),
        ):
            if branch is not None:
                allowed.setdefault(branch, set()).update(commits)
        if any(self._resolve(branch) not in commits for branch, commits in allowed.items()):
            return False
        before = Mover(self._store, self._repository, old)
        ways = [(one, read_extra(self._store, one._position)) for one in (before, self)]
        for path in operation_files(self._repository.git_dir):
            data = (self._repository.git_dir / path).read_bytes()
            if all(extra.notes.get(str(path)) != data for _, extra in ways):
                return False
        staged = self._staged(self._repository.index)
        return any(one._staged_there(extra) == staged for one, extra in ways)

    def _staged(self, index: Path) -> bytes:
        """Return what an index stages; git may write its file anew at any look at it."""
        return self._git.run("ls-files", "-s", "-z", index=index) if index.exists() else b""

    def _staged_there(self, extra: Extra) -> bytes | None:
        """Return what the index of the position stages, None when that cannot be told any more."""
        with self._store.aside() as aside:
            index = Path(aside, "index").absolute()
            if extra.index is not None:
                index.write_bytes(extra.index)
            elif self._position.commit is not None and not self._succeeds(
                "read-tree", self._position.commit, index=index
            ):
                return None
            return self._staged(index)

    def move(self, label: str, is_untouched: Callable[[], bool]) -> Move:
        """Move HEAD, branch, index and notes; abandoned commits are kept under a reference.

        Raises `WorkspaceBusy`, with nothing moved, when another git command holds the index, and when
        somebody was faster: ``is_untouched`` is asked once no git command can stage anything.
        """
        extra = read_extra(self._store, self._position)
        behind = self._left_behind()
        what = self._sentence()
        if extra.staged:
            # The user's repository may have let go of them.
            copy_objects(self._store.git, self._git, extra.staged)
        self.clear_own_lock()
        self._lock_index(extra.index)
        try:
            if not is_untouched():
                raise WorkspaceBusy(
                    "something was staged, or an operation begun, in the git repository meanwhile. "
                    "It was not moved"
                )
            self.started = True
            # Whatever comes after this look is not kept, so it must stop the move.
            there, detached = self.tip(), self._resolve("HEAD")
            backup = self._keep_tips(label)
            self._move_references(there, detached)
            self._move_bisection(extra.tried)
            self._write_notes(extra.notes)
            self._replace_index()
        finally:
            self.clear_own_lock()
        self._sync(extra.notes, backup)
        return Move(what, behind, backup)

    def _sentence(self) -> str:
        now = self._now()
        there = self._position.describe()
        return f"HEAD stays on {there}" if now == there else f"HEAD moves from {now} to {there}"

    def _now(self) -> str:
        head = self._repository.head()
        return Position(head, self._resolve("HEAD"), None).describe()

    def _resolve(self, name: str) -> str | None:
        out = self._git.run("rev-parse", "-q", "--verify", f"{name}^{{commit}}", ok=(0, 1, 128))
        return out.decode().strip() or None

    def _succeeds(self, *arguments: str, index: Path | None = None) -> bool:
        try:
            self._git.run(*arguments, index=index)
        except WorkspaceError:
            return False
        return True

    def _tips(self) -> dict[str, tuple[str, ...]]:
        """Return the commits that moving would leave, each with those that only it leads to.

        The branch loses what it gained since; a detached HEAD loses what is on no branch or tag.
        """
        commit = self._position.commit
        without = [f"^{commit}"] if commit else []
        found = {}
        branch = self._position.branch
        if branch is not None and (tip := self._resolve(branch)) is not None:
            found[tip] = self._listed(tip, *without)
        if not self._repository.head().startswith("ref: "):
            tip = self._resolve("HEAD")
            if tip is not None:
                found.setdefault(tip, self._listed(tip, *without, "--not", *_HOLDING))
        return {tip: commits for tip, commits in found.items() if commits}

    def _stays(self, tip: str) -> bool:
        """Whether all commits behind one stay on other branches, remote ones too, or on tags."""
        position = self._position
        without = [f"^{position.commit}"] if position.commit else []
        branch = (position.branch or "").removeprefix("refs/heads/")
        itself = [f"--exclude={branch}"] if branch else []
        return not self._listed(tip, *without, "--not", *itself, *_HOLDING)

    def _listed(self, *wanted: str) -> tuple[str, ...]:
        return tuple(self._git.run("rev-list", "--max-count=1000", *wanted).decode().split())

    def _left_behind(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for commits in self._tips().values() for one in commits))

    def _keep_tips(self, label: str) -> str | None:
        """Keep under references what nothing else does; an earlier one is never overwritten."""
        kept = None
        for tip in self._tips():
            if self._stays(tip):
                continue
            name = f"{_BACKUPS}/{label}"
            number = 1
            while (there := self._resolve(name)) not in (None, tip):
                number += 1
                name = f"{_BACKUPS}/{label}-{number}"
            if there is None:
                self._git.run("update-ref", name, tip)
            kept = kept or name
        return kept

    def _branches_elsewhere(self) -> set[str]:
        """Return the branches that other worktrees of the repository are on."""
        out = self._git.run("worktree", "list", "--porcelain", "-z").decode("utf-8", "replace")
        first, *linked = out.split("\0\0")
        # The first is the one that is not linked. Git may tell its own directory for the place of it.
        is_linked = self._repository.git_dir != self._repository.common_dir
        used = set()
        for block in (first, *linked) if is_linked else linked:
            words = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            here = os.path.realpath(words.get("worktree", "")) == os.path.realpath(
                self._repository.top
            )
            if not here and "branch" in words:
                used.add(words["branch"])
        return used

    def _move_references(self, there: str | None, detached: str | None) -> None:
        """Move the branch from where it was found (``there``), or HEAD (``detached``); or fail."""
        branch, commit = self._position.branch, self._position.commit
        said = ("-m", "holdfast: move to a checkpoint")
        head = self._repository.head()
        if branch is None:
            if head != commit:
                expected = (detached,) if detached is not None else ()
                self._run("update-ref", *said, "--no-deref", "HEAD", str(commit), *expected)
            return
        # What is right already is not written again: somebody may hold it.
        if commit is not None and there != commit:
            self._run("update-ref", *said, branch, commit, there or "0" * len(commit))
        elif commit is None and there is not None:
            self._run("update-ref", "-d", branch, there)
        if head != self._position.head:
            self._run("symbolic-ref", *said, "HEAD", branch)

    def _move_bisection(self, wanted: Mapping[str, str]) -> None:
        """Have the references of a bisection fit its notes, which come and go after them."""
        under_way = (self._repository.git_dir / BISECTING).exists()
        if not wanted and not under_way:
            return
        there = (line.partition(" ")[2] for line in os.fsdecode(list_tried(self._git)).splitlines())
        gone = [name for name in there if name not in wanted]
        updates = [f"update {name} {commit}" for name, commit in wanted.items()]
        updates += [f"delete {name}" for name in gone]
        self._git.run("update-ref", "--stdin", stdin=lines(updates), variables=_WHO)

    def _run(self, *arguments: str) -> None:
        self._git.run(*arguments, variables=_WHO)

    def _lock_index(self, saved: bytes | None) -> None:
        """Take the index's lock as git does, with the index to come as its content."""
        lock, fresh = self._repository.git_dir / "index.lock", self._repository.git_dir / _FRESH
        # A git that a power cut ended leaves its lock on the file behind.
        for left in (fresh, fresh.with_name(f"{_FRESH}.lock")):
            left.unlink(missing_ok=True)
        if saved is not None:
            fresh.write_bytes(saved)
            # Git takes a file that is older than its index for compared with it. Nobody has compared these
            # with this one, so it is to be older than all of them: what differs is marked when git writes it.
            os.utime(fresh, (_LONG_AGO, _LONG_AGO))
            self._git.run("update-index", "--force-write-index", index=fresh)
        elif self._position.commit is not None:
            if self._repository.index.exists():
                shutil.copy2(self._repository.index, fresh)
            self._git.run("read-tree", "--reset", self._position.commit, index=fresh)
            self._clear_flags(fresh)
            self._git.run("update-index", "-q", "--refresh", index=fresh, ok=(0, 1))
        else:
            fresh.touch()
        sync_file(fresh)
        try:
            # A second name for the same file: after a kill it tells that the lock is ours.
            os.link(fresh, lock)
        except FileExistsError:
            fresh.unlink()
            raise WorkspaceBusy(f"another git command took {lock} meanwhile") from None

    def _clear_flags(self, index: Path) -> None:
        paths = FLAGGED.findall(self._git.run("ls-files", "-v", "-z", index=index))
        for option in ("--no-assume-unchanged", "--no-skip-worktree") if paths else ():
            listed = b"".join(path + b"\0" for path in paths)
            self._git.run("update-index", option, "-z", "--stdin", stdin=listed, index=index)

    def _replace_index(self) -> None:
        lock = self._repository.git_dir / "index.lock"
        if lock.stat().st_size:
            os.replace(lock, self._repository.index)
        else:
            self._repository.index.unlink(missing_ok=True)

    def clear_own_lock(self) -> None:
        """Remove the index lock that a killed move of ours left behind, and only that."""
        lock, fresh = self._repository.git_dir / "index.lock", self._repository.git_dir / _FRESH
        if lock.exists() and fresh.exists() and lock.samefile(fresh):
            lock.unlink()
        fresh.unlink(missing_ok=True)

    def _write_notes(self, wanted: Mapping[str, bytes]) -> None:
        for path in list(operation_files(self._repository.git_dir)):
            if str(path) not in wanted:
                (self._repository.git_dir / path).unlink()
        for name, data in wanted.items():
            target = self._repository.git_dir / name
            for above in (*reversed(Path(name).parents), Path(name)):
                if (self._repository.git_dir / above).is_symlink() and above != Path():
                    (self._repository.git_dir / above).unlink()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        for folder in OPERATION_FOLDERS:
            _remove_empty(self._repository.git_dir / folder)

    def _sync(self, notes: Iterable[str], backup: str | None) -> None:
        """Wait until the move outlasts a power cut. Git itself syncs references, but not where HEAD leads."""
        git_dir, common_dir = self._repository.git_dir, self._repository.common_dir
        files = [git_dir / name for name in ("HEAD", *notes)]
        for file in files:
            sync_file(file)
        references = (Path(name) for name in (self._position.branch, backup) if name is not None)
        folders = {common_dir / folder for name in references for folder in name.parents}
        # A reference may stand in a file with others, and not in directories of its own.
        sync_directories(filter(Path.is_dir, folders | {file.parent for file in files}))


def forget_announcement(repository: Repository) -> None:
    """Remove the word of a restore that will not move the repository any more."""
    token = repository.git_dir / _TOKEN
    # Where nothing can be written, removing what is not there fails too.
    if os.path.lexists(token):
        token.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    for where, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(where):
            os.rmdir(where)
