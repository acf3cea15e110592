"""`Workspace`: the files of one project, captured, compared and put back.

    workspace = Workspace(".")
    before = workspace.snapshot()
    ...
    report = workspace.restore(before.commit)
    workspace.restore(report.safety)          # and back again

It knows nothing of sessions and databases: a snapshot's commit is all that a checkpoint keeps of it. The
work is done elsewhere: `capture` finds out what is there, `restore` puts it back, `private_store` holds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.config import AGENTS_DIR, find_project_root
from holdfast.errors import (
    InvalidIdentifier,
    SnapshotCorrupt,
    SnapshotNotFound,
    WorkspaceRefused,
    WorkspaceUnavailable,
)
from holdfast.regular_files import read_small_file
from holdfast.workspace.arrivals import note_arrivals
from holdfast.workspace.base import (
    STORE,
    Change,
    FileDiff,
    GitState,
    Limits,
    Problem,
    Progress,
    RestoreReport,
    SavedFile,
    Skipped,
    Snapshot,
    Sweep,
    Usage,
    check_possible,
    listed,
    readable,
)
from holdfast.workspace.basis import NOTE, forget_cache, read_cache
from holdfast.workspace.capture import Capture
from holdfast.workspace.compare import changes_between, count_between, modes_between, text_between
from holdfast.workspace.damaged import set_damaged_aside
from holdfast.workspace.details import Details
from holdfast.workspace.journal import JOURNAL
from holdfast.workspace.packs import check_lists, export_pack, import_pack, take_in, write_pack
from holdfast.workspace.passing import PassingGroup, passed_groups
from holdfast.workspace.position import Position
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import find_git
from holdfast.workspace.repository import Repository, read_git_state
from holdfast.workspace.restore import (
    SAFETY_GROUP,
    After,
    Before,
    Restore,
    finish_interrupted,
    finished_note,
)
from holdfast.workspace.store_settings import refuse_linked_references

_DEFAULT_GROUP: Final = "local"


class Workspace:
    """The files of the project that ``project_dir`` lies in.

    ``group`` names whose snapshots these are: `gc` looks at its own, and at those that nobody has any
    more of stores that were in memory. Objects may be used from several threads and processes; a capture, a restore or a sweep waits for the one before it.
    ``never`` names databases that may lie among the project's files and are not to be touched.
    """

    def __init__(
        self,
        project_dir: str | Path | None = None,
        *,
        limits: Limits | None = None,
        group: str | PassingGroup = _DEFAULT_GROUP,
        never: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self.root = refuse_unsuitable(find_project_root(project_dir))
        self.limits = limits or Limits()
        self._owner = group
        self._store = PrivateStore(
            self.root,
            self.root / AGENTS_DIR / STORE,
            never=[Path(os.path.abspath(one)) for one in never],
        )

    @property
    def store_dir(self) -> Path:
        """Where the private store lies."""
        return self._store.home

    # Capturing -------------------------------------------------------------------------------

    def snapshot(
        self,
        paths: Sequence[str | os.PathLike[str]] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Snapshot:
        """Capture every file of the project. When this returns, it is durable.

        With ``paths`` only those are looked at, on top of the last snapshot: for a caller that knows
        what it wrote. What ``git`` then says of other changed and untracked files is what the last
        whole snapshot found; branch, commit and what is staged are of now. What could not be captured
        is listed in ``skipped``.
        """
        find_git()
        told = None if paths is None else self.relatives(paths)
        repository = Repository.find(self.root)
        with self._store.working():
            finish_interrupted(self._store, self.limits, repository)
            self._store.prepare(sha256=_uses_sha256(repository))
            capture = Capture(self._store, self.limits, repository=repository, progress=progress)
            return capture.run(told, group=self._held_group())

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Keep sweeps away from a snapshot until its checkpoint is stored."""
        with self._store.using():
            yield

    def git_state(self) -> GitState | None:
        """Return where the user's own repository stands, None when there is none."""
        return read_git_state(self.root)

    # Looking ---------------------------------------------------------------------------------

    def has(self, commit: str) -> bool:
        """Whether the private store holds a snapshot."""
        try:
            self.details(commit)
        except (SnapshotNotFound, SnapshotCorrupt):
            return False
        return True

    def details(self, commit: str) -> Details:
        """Return what a snapshot knows beyond its files' contents."""
        self._check(commit)
        return Details.from_message(self._store.read_commit(commit)[2])

    def files(self, commit: str) -> list[str]:
        """Return the paths that a snapshot holds."""
        self._check(commit)
        return list(self._store.entries(self._store.read_commit(commit)[0]))

    def position(self, commit: str) -> str | None:
        """Say where HEAD of the user's repository stood at a snapshot, None when there was none."""
        self._check(commit)
        _, parents, message = self._store.read_commit(commit)
        found = Position.of(Details.from_message(message), parents)
        return found.describe() if found is not None else None

    def list_files(self, commit: str) -> list[SavedFile]:
        """Return the files that a snapshot holds, with permissions and sizes."""
        self._check(commit)
        tree, _, message = self._store.read_commit(commit)
        details = Details.from_message(message)
        return [
            SavedFile(path, details.mode_of(path, entry.mode), size, link=entry.mode == "120000")
            for path, (entry, size) in self._store.sized_entries(tree).items()
        ]

    def skipped(self, commit: str) -> list[Skipped]:
        """Return the paths that a snapshot could not hold, with reasons."""
        return self.details(commit).skipped

    def read(self, commit: str, path: str) -> bytes:
        """Return the content of a file as a snapshot holds it, verified."""
        self._check(commit)
        name = self.relative(path)
        entry = self._store.entries(self._store.read_commit(commit)[0], [name]).get(name)
        if entry is None:
            raise SnapshotNotFound(f"the checkpoint's snapshot has no file {readable(name)!r}")
        return self._store.read_objects([entry.blob])[entry.blob]

    def diff(self, old: str, new: str, *, paths: Sequence[str] = ()) -> list[Change]:
        """Return the paths that differ between two snapshots."""
        for commit in (old, new):
            self._check(commit)
        return changes_between(self._store, old, new, self.relatives(paths))

    def differing(self, old: str, new: str) -> set[str]:
        """Return the paths that two snapshots hold otherwise, be it in their permissions alone."""
        changes = self.diff(old, new)
        return {*(one.path for one in changes), *modes_between(self._store, old, new)}

    def diff_text(self, old: str, new: str, *, paths: Sequence[str] = ()) -> list[FileDiff]:
        """Return the differing paths with their unified text."""
        for commit in (old, new):
            self._check(commit)
        return text_between(self._store, old, new, self.relatives(paths))

    def count_changes(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """Return in how many paths each two snapshots differ."""
        for pair in pairs:
            for commit in pair:
                self._check(commit)
        return count_between(self._store, pairs)

    # Putting back ----------------------------------------------------------------------------

    def restore(
        self,
        commit: str,
        *,
        paths: Sequence[str] | None = None,
        keep: Callable[[Change, str], str | None] | None = None,
        move_head: bool = False,
        dry_run: bool = False,
        before: Before | None = None,
        after: After | None = None,
    ) -> RestoreReport:
        """Make the project's files what a snapshot holds, or refuse and change nothing.

        A safety snapshot comes first; ``restore(report.safety)`` undoes it. Only what differs is
        written, only what the safety snapshot holds is deleted, and the result is read again and
        compared. ``paths`` (files or directories) restores a part. ``keep(change, safety)`` may
        return a reason to leave a path alone; such paths are reported as conflicts. ``move_head`` also
        puts HEAD, branch, index and a merge or rebase in progress where they were. With ``dry_run``
        nothing is changed.

        ``before`` is called with the safety snapshot when nothing was changed yet; what it raises stops
        the restore, and what it returns (a mapping with an ``id``) is what `was_finished` answers by
        should this process be killed and another finish the work. ``after`` is called with the
        snapshot of the result before the restore counts as done.
        """
        find_git()
        self._check(commit)
        wanted = None if paths is None else self.relatives(paths)
        repository = Repository.find(self.root)
        with self._store.working():
            finish_interrupted(self._store, self.limits, repository)
            work = Restore(self._store, self.limits, repository, commit, group=self._held_group())
            return work.run(
                paths=wanted,
                keep=keep,
                move_head=move_head,
                dry_run=dry_run,
                before=before,
                after=after,
            )

    def recover(self) -> RestoreReport | None:
        """Finish or revert a restore that was killed. Returns what was done, None if nothing was."""
        if not self._store.exists():
            return None
        with self._store.working():
            return finish_interrupted(self._store, self.limits, Repository.find(self.root))

    def is_interrupted(self) -> bool:
        """Tell whether a restore has begun that is neither finished nor taken back."""
        return (self._store.home / JOURNAL).exists()

    def was_finished(self, purpose_id: str) -> bool:
        """Tell whether a killed restore with this purpose was finished by somebody else."""
        return (self._store.home / finished_note(purpose_id)).exists()

    def forget_finished(self, purpose_id: str) -> None:
        """Let go of what `was_finished` goes by, when all that was left to do is done."""
        if self.was_finished(purpose_id):
            self._store.notes.remove(finished_note(purpose_id))

    # Another machine -------------------------------------------------------------------------

    def export_pack(self, commit: str, *, without: Sequence[str] = ()) -> bytes:
        """Return a snapshot as one git pack, less what the snapshots ``without`` already hold."""
        self._check(commit)
        return export_pack(self._store, commit, without)

    def import_packs(self, commit: str, packs: Iterable[bytes]) -> None:
        """Take in a snapshot from elsewhere: its packs, bases first. Every object is hashed."""
        with self._store.working():
            self._store.prepare(sha256=len(commit) == 64)
            new = [] if self.has(commit) else [commit]
            for data in packs:
                import_pack(self._store, commit, data, largest=self.limits.max_file_bytes)
            check_lists(self._store, [commit])
            note_arrivals(self._store, new)
            self._hold([commit])

    def write_pack(self, commits: Sequence[str], write: Callable[[bytes], object]) -> int:
        """Write snapshots as one git pack, and return the bytes that their files have unpacked.

        The same snapshots give the same bytes, as long as git and its compression are the same.
        """
        for commit in commits:
            self._check(commit)
        return write_pack(self._store, commits, write)

    def take_in(self, commits: Sequence[str], pack: Iterable[bytes], *, size: int) -> None:
        """Take in snapshots from one pack with ``size`` bytes of files: all of them, or none.

        Raises `SnapshotCorrupt`, and `WorkspaceRefused` for a file that is larger than those of this
        project may be.
        """
        digits = {len(commit) for commit in commits}
        with self._store.working():
            self._store.prepare(sha256=digits == {64})
            if digits != {self._store.id_digits()}:
                raise WorkspaceRefused(
                    f"the snapshots have names of {sorted(digits)} digits and those of {self.root} "
                    f"have {self._store.id_digits()}: their git repositories are of different kinds. "
                    "Nothing was changed; import the state alone, or into another project"
                )
            largest = self.limits.max_file_bytes
            new = [commit for commit in commits if not self.has(commit)]
            take_in(self._store, commits, pack, size=size, largest=largest)
            note_arrivals(self._store, new)
            self._hold(commits)

    def hold(self, commits: Sequence[str]) -> None:
        """Keep snapshots for this group that the private store holds for another."""
        for commit in commits:
            self._check(commit)
        with self._store.working():
            self._hold(commits)

    def _hold(self, commits: Iterable[str]) -> None:
        group = self._held_group()
        for commit in commits:
            self._store.read_commit(commit)
            self._store.references.keep(group, commit, last=False)

    @property
    def _group(self) -> str:
        return self._owner if isinstance(self._owner, str) else self._owner.name

    def _held_group(self) -> str:
        """Return the group, which no sweep lets go of from here on. Needs the work lock."""
        return self._owner if isinstance(self._owner, str) else self._owner.hold(self._store.home)

    def last(self) -> str | None:
        """Return the project's latest snapshot, whoever made it; None if it is not there any more."""
        commit = self._store.notes.read(NOTE).get("commit")
        return commit if isinstance(commit, str) and self.has(commit) else None

    # Upkeep ----------------------------------------------------------------------------------

    def snapshots(self) -> set[str]:
        """Return the commits that are kept for this group."""
        if not self._is_there():
            return set()
        return self._store.references.kept(self._group).get(self._group, set())

    def rescued(self) -> set[str]:
        """Return what failed and interrupted restores have kept, whose newest bytes may be nowhere else.

        No sweep frees it.
        """
        if not self._is_there():
            return set()
        return self._store.references.kept(SAFETY_GROUP).get(SAFETY_GROUP, set())

    def verify(self, commits: Collection[str] | None = None) -> list[Problem]:
        """Read every object of the snapshots again, hash it, and report what is wrong."""
        if not self._store.exists():
            return [Problem(commit, "is not in the private store") for commit in commits or ()]
        with self._store.working():
            return self._store.check(commits if commits is not None else self.snapshots())

    def set_damaged_aside(self) -> int:
        """Have the next capture read every file again, and store those whose objects are damaged.

        Returns how many objects were taken out of the way.
        """
        if not self._store.exists():
            return 0
        with self._store.working():
            count = set_damaged_aside(self._store)
            forget_cache(self._store)
        return count

    def usage(self) -> Usage:
        """Return what the private store takes on disk."""
        if not self._is_there():
            return Usage(0, 0, 0, self.limits.quota_bytes)
        kept = self._store.references.all_kept()
        return Usage(
            self._store.size(), len(kept), self._store.count_objects(), self.limits.quota_bytes
        )

    def gc(
        self,
        needed: Callable[[], Collection[str]],
        *,
        dry_run: bool = False,
        repack: bool = True,
        last: bool = True,
        only_here: bool = True,
    ) -> Sweep:
        """Let go of this group's snapshots that ``needed()`` does not name, and free their room.

        Those of stores in memory that are gone go as well.
        Saves wait meanwhile: ``needed`` is asked when none is between its capture and its checkpoint.
        The last snapshot stays, since the next capture builds on it; with ``last=False`` it goes as
        well, and the next capture reads every file.

        Git frees what no reference holds, so references that were lost are written anew first. Where
        there were any, nothing is freed this time: those of another group may be lost as well. Snapshots
        that can be had from elsewhere too (``only_here=False``) may be here without one.
        """
        if not self._store.exists():
            return Sweep(0, 0, dry_run)
        with self._store.using(alone=True), self._store.working():
            refuse_linked_references(self._store.home)
            self._store.references.refuse_foreign()
            # It needs its snapshots, whether or not anything else does.
            finish_interrupted(self._store, self.limits, Repository.find(self.root))
            wanted = set(needed())
            mended = self._hold_again(wanted if only_here else set(), dry_run=dry_run)
            if mended:
                return Sweep(0, 0, dry_run, mended=mended)
            held, passed = self._store.references.kept(), passed_groups(self._store.home)
            orphans = {group: held.get(group, set()) for group in passed}
            orphans[self._group] = held.get(self._group, set()) - wanted
            before = self._store.size()
            if not dry_run:
                self._store.references.hold_last(self.last() if read_cache(self._store) else None)
                for group, commits in orphans.items():
                    self._store.references.release(group, sorted(commits))
                for group in passed:
                    (self._store.home / group).unlink(missing_ok=True)
                if not last and self.last() not in self._store.references.all_kept():
                    forget_cache(self._store)
                if repack:
                    self._store.repack()
            freed = 0 if dry_run else max(0, before - self._store.size())
            return Sweep(sum(map(len, orphans.values())), freed, dry_run)

    def absent(self, commits: Collection[str]) -> set[str]:
        """Return those of the snapshots that the private store does not have."""
        return set(commits) - (self._store.present(commits) if self._is_there() else set())

    def unheld(self, commits: Collection[str]) -> set[str]:
        """Return snapshots that the private store has and no reference holds: git would free them."""
        if not self._is_there():
            return set()
        held: set[str] = set()
        # References that cannot be read hold nothing.
        with suppress(WorkspaceUnavailable):
            held = self._store.references.all_kept()
        return self._store.present(set(commits) - held)

    def _hold_again(self, wanted: set[str], *, dry_run: bool) -> int:
        """Write references that are missing or misleading; return how many snapshots nothing held."""
        references = self._store.references
        held, again = references.kept(), references.misleading()
        again.setdefault(self._group, set()).update(wanted - held.get(self._group, set()))
        there = self._store.present(set().union(*again.values()))
        lost = there.difference(*held.values())
        if not dry_run:
            self._held_group()
            references.hold_again({group: commits & there for group, commits in again.items()})
            # What a reference is named after may be gone; then it holds nothing and stops every sweep.
            for group, commits in references.misleading().items():
                references.release(group, sorted(commits))
        return len(lost)

    # Paths -----------------------------------------------------------------------------------

    def relative(self, path: str | os.PathLike[str]) -> str:
        """Return a path as snapshots name it. Raises `InvalidIdentifier` for one outside.

        Relative paths count from the project's top directory.
        """
        text = check_possible(os.fspath(path) if isinstance(path, os.PathLike) else path)
        joined = os.path.normpath(os.path.join(self.root, text))
        # Either of the two may have been reached through a link; a link itself is not followed.
        folder, name = os.path.split(joined)
        real = os.path.join(os.path.realpath(folder), name)
        for path, root in ((joined, str(self.root)), (real, os.path.realpath(self.root))):
            if path == root or path.startswith(f"{root}{os.sep}"):
                return os.path.relpath(path, root)
        raise InvalidIdentifier(f"{text!r} is outside of the project {self.root}")

    def relatives(self, paths: Iterable[str | os.PathLike[str]]) -> list[str]:
        """Return paths as snapshots name them, and refuse a single one in place of several."""
        return [self.relative(path) for path in listed(paths)]

    def behind_links(self, path: str) -> str:
        """Return the name by which snapshots know a path of the project that leads through links.

        Raises `InvalidIdentifier` where they lead out of it.
        """
        folder, name = os.path.split(path)
        return self.relative(os.path.join(os.path.realpath(self.root / folder), name))

    def _check(self, commit: str) -> None:
        plausible = len(commit) in (40, 64) and set(commit) <= set("0123456789abcdef")
        if not plausible:
            raise SnapshotNotFound(f"{commit!r} does not name a snapshot")
        if not self._store.exists():
            raise SnapshotNotFound(f"{self.root} has no snapshots; nothing was changed")
        self._store.secure()

    def _is_there(self) -> bool:
        """Whether there are snapshots at all; where there are, git knows them for a store from here on.

        One that is refused, since links lead there, can still be looked at.
        """
        found = self._store.exists()
        if found:
            with suppress(WorkspaceRefused):
                self._store.secure()
        return found


def refuse_unsuitable(root: Path) -> Path:
    """Return a project's directory, or raise `WorkspaceRefused` for one that cannot be meant."""
    real = root.resolve()
    homes = {Path(real.anchor)}
    with suppress(RuntimeError):
        homes.add(Path.home().resolve())
    if real in homes:
        raise WorkspaceRefused(
            f"{root} is not a project: capturing it would take everything that is in it. "
            "Work in a directory below, or switch file snapshots off with workspace=False (on the command "
            "line: --no-files)"
        )
    for above in (real, *real.parents):
        if above.name == STORE and (above / "objects").is_dir():
            raise WorkspaceRefused(
                f"{root} lies inside of {above}, where another project keeps its snapshots"
            )
    return root


def _uses_sha256(repository: Repository | None) -> bool:
    if repository is None:
        return False
    with suppress(OSError):
        config = read_small_file(repository.common_dir / "config").lower()
        return b"objectformat = sha256" in config
    return False
