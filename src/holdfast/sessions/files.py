"""The project's files as checkpoints see them: captured before each save, fetched before each rollback.

Files come first, then the database's row that names them. A sweep is kept away in between, so that a row
never names a snapshot that is gone; a crash in between leaves a snapshot that no row names, for the next
sweep. With a store that several machines share, the snapshot's objects travel along as packs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, Final

from holdfast.bundle.container import Sink
from holdfast.config import WorkspaceSettings, load_config
from holdfast.errors import (
    IntegrityError,
    InvalidIdentifier,
    PackMissing,
    SnapshotCorrupt,
    SnapshotNotFound,
    WorkspaceRefused,
    WorkspaceTimeout,
    WorkspaceUnavailable,
)
from holdfast.model import CheckpointQuery, CheckpointRecord, PackReport
from holdfast.sessions.packs import find_damaged_packs, lacking, mend_packs
from holdfast.stores.base import Store
from holdfast.stores.readable import list_readable_checkpoints
from holdfast.workspace.base import (
    MB,
    GitState,
    Limits,
    Progress,
    Snapshot,
    Sweep,
    as_document,
    listed,
    readable,
)
from holdfast.workspace.files import Files
from holdfast.workspace.git import Workspace
from holdfast.workspace.passing import PassingGroup, group_of
from holdfast.workspace.repository import read_git_state

GIT: Final = "git"
FILES: Final = "workspace"
_NAMED: Final = 1000
_READ: Final = 1 << 20
# What keeps files from being captured, but not the state from being saved.
_Stays: Final = (WorkspaceUnavailable, WorkspaceTimeout, WorkspaceRefused)


@dataclass(frozen=True, slots=True)
class Captured:
    """What a save knows about the files. ``problem`` tells why there is no snapshot."""

    git: GitState | None = None
    snapshot: Snapshot | None = None
    told: tuple[str, ...] | None = None
    problem: str | None = None
    packed: bool = False

    @classmethod
    def again(cls, record: CheckpointRecord) -> Captured:
        """Return what an earlier checkpoint captured, to be stored under a second one."""
        if record.workspace_commit is None:
            return cls()
        git = GitState(record.git_branch, record.git_commit, record.git_uncommitted)
        return cls(git, Snapshot(record.workspace_commit, "", None, (), (), git))

    @property
    def commit(self) -> str | None:
        """The snapshot's commit, if there is one."""
        return self.snapshot.commit if self.snapshot is not None else None

    def context(self) -> dict[str, Any]:
        """Return what the checkpoint keeps of it beside the state."""
        context: dict[str, Any] = {}
        if self.git is not None:
            context[GIT] = as_document(self.git)
        if self.snapshot is not None:
            told = self.told is not None
            wrote = self.told if self.told is not None else self.snapshot.touched
            context[FILES] = {
                "told": told,
                # What is no text is kept as bytes: it has to match a path again.
                "wrote": [storable(path) for path in wrote[:_NAMED]],
                "wrote_count": len(wrote),
                "skipped": [
                    [readable(one.path), one.reason] for one in self.snapshot.skipped[:_NAMED]
                ],
                "skipped_count": len(self.snapshot.skipped),
            }
        elif self.problem is not None:
            context[FILES] = {"problem": self.problem}
        return context


def context_of_files(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint's context says of the files."""
    return {key: context[key] for key in (GIT, FILES) if key in context}


def limits_from(settings: WorkspaceSettings, include: Sequence[str] = ()) -> Limits:
    """Return the bounds that a project's settings ask for, with further paths to include."""
    return Limits(
        max_file_bytes=settings.max_file_mb * MB,
        quota_bytes=settings.quota_mb * MB,
        seconds=settings.seconds,
        include=(*settings.include, *listed(include)),
    )


def paths_written(context: Mapping[str, Any]) -> tuple[set[str], bool]:
    """Return the paths that a checkpoint's session wrote before it, and whether that is all of them."""
    files = context.get(FILES, {})
    wrote = files.get("wrote", [])
    return {path_from(one) for one in wrote}, files.get("wrote_count", 0) == len(wrote)


@dataclass(frozen=True, slots=True)
class Capture:
    """Whether and how a project's files are captured, whatever the store that names them."""

    project_dir: Path
    wanted: bool
    limits: Limits | None
    share: bool

    def files(self, store: Store) -> ProjectFiles:
        """Return the files for the sessions of a store."""
        return ProjectFiles(store, self.project_dir, limits=self.limits, share=self.share)

    def elsewhere(self, project_dir: Path) -> Capture:
        """Return the same for another project, as its own settings say."""
        if os.path.realpath(project_dir) == os.path.realpath(self.project_dir):
            return self
        settings = load_config(project_dir).workspace
        return Capture(
            project_dir, self.wanted and settings.capture, limits_from(settings), settings.share
        )


class ProjectFiles:
    """The files of one project, for the sessions of one store."""

    def __init__(
        self, store: Store, project_dir: Path, *, limits: Limits | None = None, share: bool = True
    ) -> None:
        self._store = store
        self._project_dir = project_dir
        self._limits = limits
        self._share = share and store.shared
        self._opened: Workspace | None = None
        self._seen_changed: set[str] = set()
        # The snapshot that was sent last: all that it is made of was stored then.
        self._sent: str | None = None

    @property
    def workspace(self) -> Workspace:
        """The project's workspace. Raises `WorkspaceRefused` for a directory that is none."""
        if self._opened is None:
            path: Path | None = getattr(self._store, "path", None)
            never = [path] if path is not None else ()
            self._opened = Workspace(
                self._project_dir, limits=self._limits, group=self._group(), never=never
            )
        return self._opened

    def include(self, paths: Sequence[str], patterns: Sequence[str]) -> None:
        """Capture these from now on, ignored or not, besides those that the limits name for good.

        The ``patterns`` tell what further paths would have been among them.
        """
        workspace = self.workspace
        given = self._limits or Limits()
        workspace.limits = replace(
            given, include=(*given.include, *listed(paths)), patterns=[*listed(patterns)]
        )

    def _group(self) -> str | PassingGroup:
        """Return a name for what this store and tenant keep, the same wherever the project lies."""
        if self._store.passing:
            return group_of(self._store)
        name = self._store.url
        path = getattr(self._store, "path", None)
        if path is not None:
            name = os.path.relpath(path, self._project_dir)
            name = name if not name.startswith("..") else str(path)
        return sha256(f"{name}\0{self._store.tenant}".encode()).hexdigest()[:16]

    @contextmanager
    def captured(
        self,
        paths: Sequence[str | PathLike[str]] | None = None,
        *,
        told: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Captured]:
        """Capture the files, or the ``paths`` of them, and keep sweeps away during the block.

        ``told`` is what the session says it wrote, None when it does not say.

        Where files cannot be captured at all (no git, no time, not a project) the state is still
        worth saving: the reason takes the snapshot's place.
        """
        with ExitStack() as stack:
            try:
                workspace = self.workspace
                stack.enter_context(workspace.saving())
                snapshot = workspace.snapshot(paths, progress=progress)
            except _Stays as error:
                found = Captured(git=read_git_state(self._project_dir), problem=str(error))
            else:
                wrote = {*(told or ()), *workspace.relatives(paths or ())}
                tells = bool(wrote) or told is not None
                if self._seen_changed and paths is None:
                    touched = tuple(sorted({*snapshot.touched, *self._seen_changed}))
                    snapshot = replace(snapshot, touched=touched)
                    self._seen_changed.clear()
                found = self.describe(snapshot, tuple(sorted(wrote)) if tells else None)
            yield found

    def describe(self, snapshot: Snapshot, told: tuple[str, ...] | None = None) -> Captured:
        """Return a snapshot as a save needs it; where the store is shared, its pack is sent."""
        if self._share:
            self.send(snapshot.commit, snapshot.before)
        return Captured(git=snapshot.git, snapshot=snapshot, told=told, packed=self._share)

    def send(self, commit: str, before: str | None) -> None:
        """Store a snapshot's pack for other machines, with what the one before it lacks."""
        near = self._store.find_packs([one for one in (commit, before) if one])
        whole = near - self._lacking(near)
        if commit not in whole:
            needs = [before] if before in whole and before is not None else []
            # One that is stored and of no use, since what it needs is gone, makes room.
            again = commit in near
            data = self.workspace.export_pack(commit, without=needs)
            try:
                self._store.put_pack(commit, needs=needs, data=data, replace=again)
            except PackMissing:
                data = self.workspace.export_pack(commit)
                self._store.put_pack(commit, needs=(), data=data, replace=again)
        self._sent = commit

    def _lacking(self, commits: Set[str]) -> set[str]:
        """Return those that are made of a pack which the server lost, told by the names of packs alone.

        They are read once, and again where another process has saved in between.
        """
        if commits <= {self._sent}:
            return set()
        try:
            return lacking(commits, self._store.pack_needs())
        except IntegrityError:
            # One row that cannot be read, of whichever snapshot, is for verification to find.
            return set()

    @property
    def shared(self) -> bool:
        """Whether snapshots travel through the store."""
        return self._share

    def pack_out(self, commits: list[str], sink: Sink) -> int:
        """Write the files of snapshots as one pack, and return their bytes unpacked."""
        for commit in commits:
            self.fetch(commit)
        self._check(commits)
        return self.workspace.write_pack(commits, sink.write)

    def pack_in(
        self, commits: Sequence[str], pack: Callable[[], Iterable[bytes]], size: int
    ) -> None:
        """Have the files of snapshots, from one pack unless they are here; send them on if need be."""
        if all(self.workspace.has(commit) for commit in commits):
            self.workspace.hold(commits)
        else:
            self.workspace.take_in(commits, pack(), size=size)
        self._send_all(commits)

    def take_over(self, source: ProjectFiles, commits: Sequence[str]) -> None:
        """Have the files of snapshots that another store names, in the same project or in another one."""
        same = self.workspace.store_dir == source.workspace.store_dir
        if same:
            for commit in commits:
                source.fetch(commit)
        if same or all(self.workspace.has(commit) for commit in commits):
            self.workspace.hold(commits)
        else:
            self._take_in_from(source, commits)
        if self._share or not same:
            self._check(commits)
        self._send_all(commits)

    def _take_in_from(self, source: ProjectFiles, commits: Sequence[str]) -> None:
        with tempfile.TemporaryFile() as between:
            size = source.pack_out(list(commits), between)
            between.seek(0)
            pack = iter(lambda: between.read(_READ), b"")
            self.workspace.take_in(commits, pack, size=size)

    def holds(self, commits: Iterable[str]) -> bool:
        """Whether the files of all these snapshots can be had here."""
        return self._share or all(self.workspace.has(commit) for commit in commits)

    def _check(self, commits: Sequence[str]) -> None:
        """Hash what is about to leave, or has arrived: git packs wrong bytes too, and no one could unpack them."""
        for one in self.workspace.verify(commits):
            raise SnapshotCorrupt(
                f"the files of snapshot {one.commit[:12]} are damaged: {one.problem}"
            )

    def _send_all(self, commits: Sequence[str]) -> None:
        before = None
        for commit in commits if self._share else ():
            self.send(commit, before)
            before = commit

    def differ_from(self, commit: str | None) -> bool:
        """Tell whether the files are others than a snapshot holds; see `compared_with`."""
        return self.compared_with(commit)[0]

    def compared_with(self, commit: str | None) -> tuple[bool, str | None]:
        """Tell whether the files are others than a snapshot holds, and which snapshot holds them now.

        Where they cannot be captured nobody knows. That is worth one save, which says so: the next has no
        snapshot to be compared with.
        """
        try:
            snapshot = self.workspace.snapshot()
        except _Stays:
            return commit is not None, None
        # The next save finds these unchanged, but it is the one that names who wrote them.
        self._seen_changed.update(snapshot.touched)
        return snapshot.commit != commit, snapshot.commit

    def sweep(
        self, *, dry_run: bool = False, last: bool = True, release: bool = True
    ) -> tuple[Sweep, PackReport]:
        """Let go of snapshots and packs that no checkpoint names any more.

        The last snapshot stays for the next capture to build on, unless ``last`` is false. With
        ``release=False`` all stay, and only lost references are written anew.
        """

        def needed() -> set[str]:
            named = self._store.workspace_commits()
            return named if release else named | self.workspace.snapshots()

        snapshots = self.workspace.gc(needed, dry_run=dry_run, last=last, only_here=not self._share)
        packs = self._store.sweep_packs(dry_run=dry_run) if release else PackReport(0, 0)
        return snapshots, packs

    def problems(
        self, records: Iterable[CheckpointRecord] | None = None, *, deep: bool = False
    ) -> dict[str, str]:
        """Return what is wrong with the files of which checkpoint, each object hashed anew.

        Of those that are still with the server only, the packs are read and their digests compared. With
        ``deep`` all that the server has are unpacked, and each object is hashed; one that is damaged or
        gone is sent again where this machine can.
        """
        if records is None:
            records = all_records(self._store)
        named: dict[str, list[str]] = {}
        for record in sorted(records, key=lambda one: one.seq):
            if record.workspace_commit is not None:
                named.setdefault(record.workspace_commit, []).append(record.id)
        held = {commit for commit in named if self.workspace.has(commit)}
        wrong = {one.commit: one.problem for one in self.workspace.verify(held)}
        if self._share and deep:
            wrong = self._mended_packs(list(named), own=held - wrong.keys()) | wrong
        elif self._share:
            have = self.workspace.snapshots()
            wrong |= self._still_named(
                find_damaged_packs(self._store, named.keys() - held, have=have)
            )
        else:
            wrong |= dict.fromkeys(named.keys() - held, "its files are not in the private store")
        return {
            checkpoint: problem for commit, problem in wrong.items() for checkpoint in named[commit]
        }

    def _mended_packs(self, commits: Sequence[str], *, own: Set[str]) -> dict[str, str]:
        def export(commit: str, base: Sequence[str]) -> bytes:
            with self.workspace.saving():
                return self.workspace.export_pack(commit, without=base)

        largest = self.workspace.limits.max_file_bytes
        return self._still_named(
            mend_packs(self._store, commits, own=own, export=export, largest=largest)
        )

    def _still_named(self, wrong: dict[str, str]) -> dict[str, str]:
        """Leave out what was removed while it was read, and so is not damaged."""
        named = self._store.workspace_commits() if wrong else ()
        return {commit: problem for commit, problem in wrong.items() if commit in named}

    def unheld(self) -> set[str]:
        """Return snapshots that checkpoints name, that are whole, and that git is free to remove.

        Those that other machines can have from the store need no reference here.
        """
        if self._share:
            return set()
        return self.workspace.unheld(self._store.workspace_commits())

    def absent(self) -> set[str]:
        """Return snapshots that checkpoints name and that are not here, where they should be.

        A store that several machines share names what others captured, too.
        """
        if self._store.shared:
            return set()
        return self.workspace.absent(self._store.workspace_commits())

    def unheld_checkpoints(self) -> list[str]:
        """Return the checkpoints whose snapshot nothing holds."""
        unheld = self.unheld()
        records = all_records(self._store) if unheld else ()
        return [one.id for one in records if one.workspace_commit in unheld]

    def of(self, record: CheckpointRecord) -> str:
        """Return the snapshot of a checkpoint, fetched if need be; raises when it has none."""
        if record.workspace_commit is None:
            raise SnapshotNotFound(f"checkpoint {record.name!r} was saved without files")
        self.fetch(record.workspace_commit)
        return record.workspace_commit

    def check_paths(self, commits: Iterable[str], paths: Sequence[str]) -> None:
        """Refuse paths that neither snapshots nor the project have: nobody can mean them.

        What lies behind a link is in no snapshot by that name: the one that it has is told.
        """
        workspace = self.workspace
        seen = Files(workspace.root)
        linked = {path for path in paths if seen.passes_link(path)}
        unknown = [
            path for path in paths if path in linked or not os.path.lexists(workspace.root / path)
        ]
        held = [one for commit in commits for one in self._held_by(commit)] if unknown else ()
        for path in unknown:
            if any(one == path or one.startswith(f"{path}/") for one in held):
                continue
            if path in linked:
                raise InvalidIdentifier(
                    f"{readable(path)!r} leads through a link, which is not followed; in checkpoints "
                    f"this is {readable(workspace.behind_links(path))!r}"
                )
            raise InvalidIdentifier(
                f"neither the checkpoint nor the project has {readable(path)!r}"
            )

    def _held_by(self, commit: str) -> list[str]:
        return [*self.workspace.files(commit), *self.workspace.details(commit).empty]

    def fetch(self, commit: str) -> None:
        """Have a snapshot in the private store, from the shared one if need be."""
        if self.workspace.has(commit):
            return
        if not self._share:
            raise SnapshotNotFound(
                f"the files of this checkpoint ({commit[:12]}) are not in this project's private "
                "store, and this database does not hold them: they were captured elsewhere, or the "
                "private store was removed"
            )
        have = self.workspace.snapshots()
        packs = self._store.read_packs(commit, have=have)
        self.workspace.import_packs(commit, (one.data for one in packs))


def all_records(store: Store) -> list[CheckpointRecord]:
    """List all checkpoints that can be opened; the others are told of by the store's own verification."""
    return list_readable_checkpoints(store, CheckpointQuery())


def storable(path: str) -> str | bytes:
    """Return a path as a checkpoint can keep it: what is no text as bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogateescape")
    return path


def path_from(stored: str | bytes) -> str:
    """Return the path that `storable` made fit for a checkpoint."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogateescape")
