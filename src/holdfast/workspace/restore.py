"""Making the project's files what a snapshot holds: exactly, or not at all.

The order is what keeps the promise. Take a safety snapshot; work out the plan; check that everything it
needs is there and intact; write the plan to a journal on disk; carry it out; read the project again and
compare; remove the journal. Whoever comes next after a kill finds the journal and finishes the plan, or
reverts it where finishing fails. What somebody changed after the safety snapshot is left alone throughout,
and told as a conflict.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import (
    RestoreFailed,
    SnapshotCorrupt,
    SnapshotNotFound,
    WorkspaceBusy,
    WorkspaceError,
    WorkspaceFull,
)
from holdfast.ids import new_id
from holdfast.places import file_name
from holdfast.workspace.apply import Applier
from holdfast.workspace.arrivals import disarmed
from holdfast.workspace.base import MB, Change, Limits, RestoreReport, Skipped, Snapshot
from holdfast.workspace.capture import Capture
from holdfast.workspace.compare import changes_between
from holdfast.workspace.details import Details
from holdfast.workspace.files import LINK
from holdfast.workspace.journal import JOURNAL, Journal
from holdfast.workspace.lengths import is_link_target
from holdfast.workspace.mover import Move, Mover, forget_announcement
from holdfast.workspace.passing import is_passing
from holdfast.workspace.paths import folders_of, within
from holdfast.workspace.plan import Keep, Plan, Side, make_plan
from holdfast.workspace.position import Position
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import NO_ROOM
from holdfast.workspace.repository import Repository

# Called with the safety snapshot before anything is changed: may tell what this is for, or raise.
Before: TypeAlias = Callable[[Snapshot], Mapping[str, Any] | None]
# Called with the snapshot of the result, while the journal still stands.
After: TypeAlias = Callable[[Snapshot], None]

SAFETY_GROUP: Final = "safety"
# What is to be written is kept from its check until then, up to so many bytes.
_IN_MEMORY: Final = 64 * MB
_MOVED_SINCE: Final = Skipped(
    ".git", "HEAD, the branch or the index was changed after the restore began to move them"
)
_ANOTHER: Final = Skipped(".git", "the checkpoint was saved in a git repository that is not here")


class Restore:
    """One restore of a project to a snapshot. Needs the store's work lock."""

    def __init__(
        self,
        store: PrivateStore,
        limits: Limits,
        repository: Repository | None,
        commit: str,
        *,
        group: str,
    ) -> None:
        self._store = store
        self._limits = limits
        self._repository = repository
        self._group = group
        target = load_side(store, commit)
        details, self._disarmed = disarmed(store, commit, target.details)
        self._target = replace(target, details=details)
        self._mark = new_id()

    def run(
        self,
        *,
        paths: list[str] | None,
        keep: Keep | None,
        move_head: bool,
        dry_run: bool,
        before: Before | None,
        after: After | None,
    ) -> RestoreReport:
        """Do it; see `Workspace.restore`."""
        opened: dict[str, int] = {}
        try:
            safety, now, plan = self._look(paths, keep)
            while not dry_run and self._open_closed(plan, paths, keep, opened):
                safety, now, plan = self._look(paths, keep)
            if rescue := self._uncaptured(plan):
                safety, now, plan = self._look(paths, keep, rescue)
            for path, mode in opened.items():
                wanted = self._target.details.mode_of_directory(path)
                plan.folder_modes[path] = (mode, wanted)
            contents = self._read_contents(plan)
            mover = self._mover() if move_head else None
            if move_head and self._is_elsewhere():
                plan.kept.append(_ANOTHER)
            if mover is not None:
                mover.check()
            report = self._report(safety, plan, mover.preview() if mover else None, dry_run=dry_run)
            if dry_run:
                return report
            purpose = before(safety) if before is not None else None
            if mover is not None:
                mover.announce(self._mark)
            old = _position(now)
            new = _position(self._target) if mover else None
            tip = mover.tip() if mover else None
            journal = Journal(
                self._mark, safety.commit, self._target.commit, plan, old, new, tip, purpose
            )
            self._store.notes.write(JOURNAL, journal.to_document(), durable=True)
        except BaseException:
            self._set_modes(opened)
            raise
        try:
            done = plan.without(Applier(self._store, self._mark).carry_out(plan, contents))
            move = _move(mover, old, tip, self._mark) if mover else None
            landed = self._capture(held=[one.path for one in done.changes if one.new])
            self._compare(landed, done)
        except BaseException as error:
            self._revert(plan, mover, old, tip, error)
            raise
        if after is not None:
            try:
                after(landed)
            except Exception as error:
                # The journal stays: the files are right, the rest is to be made up for. The cause
                # tells its own story, and says that nothing was written where it only means itself.
                raise RestoreFailed(
                    "the files are restored, but the checkpoint about it could not be stored "
                    f"({type(error).__name__}). Nothing is lost: snapshot {safety.commit} holds the "
                    "files as they were before, and the next resume of the session makes up for the "
                    "rest"
                ) from error
        self._store.notes.remove(JOURNAL)
        if mover is not None:
            mover.conclude()
        return replace(self._report(safety, done, move, dry_run=False), landed=landed.commit)

    # Before ----------------------------------------------------------------------------------

    def _look(
        self, paths: list[str] | None, keep: Keep | None, rescue: Sequence[str] = ()
    ) -> tuple[Snapshot, Side, Plan]:
        """Capture how things are, and work out the way from there."""
        safety = self._capture(rescue)
        now = load_side(self._store, safety.commit)
        return safety, now, make_plan(self._store, now, self._target, paths=paths, keep=keep)

    def _open_closed(
        self, plan: Plan, paths: list[str] | None, keep: Keep | None, opened: dict[str, int]
    ) -> bool:
        """Open directories that are closed to us now, and are open in the target.

        Nobody could tell what is in them, nor keep it. Their modes go to ``opened``.
        """
        suspects = {*plan.folder_modes, *folders_of(one.path for one in plan.kept)}
        applier = Applier(self._store, self._mark)
        closed = {}
        for path in sorted(suspects - opened.keys()) if keep is None else ():
            mode = applier.closed_mode(path) if within(path, paths) else None
            if mode is not None and self._target.details.mode_of_directory(path) & 0o500 == 0o500:
                closed[path] = mode
        found = self._store.folders(self._target.tree, sorted(closed)) if closed else set()
        before = len(opened)
        for path in sorted(found & closed.keys()):
            # That of another user stays closed.
            with suppress(PermissionError):
                self._set_modes({path: closed[path] | 0o700})
                opened[path] = closed[path]
        return len(opened) > before

    def _set_modes(self, folders: Mapping[str, int]) -> None:
        plan = Plan(folder_modes={path: (mode, mode) for path, mode in folders.items()})
        Applier(self._store, self._mark).carry_out(plan)

    def _capture(self, rescue: Sequence[str] = (), held: Sequence[str] = ()) -> Snapshot:
        capture = Capture(self._store, self._limits, repository=self._repository)
        return capture.run(group=self._group, rescue=rescue, held=held)

    def _uncaptured(self, plan: Plan) -> list[str]:
        """Return files that the plan would overwrite and the safety snapshot does not hold."""
        deleted = {one.path for one in plan.changes if one.kind == "deleted"}
        found = []
        for change in plan.changes:
            if change.kind != "added":
                continue
            parts = change.path.split("/")
            for depth in range(1, len(parts) + 1):
                path = "/".join(parts[:depth])
                if path not in deleted and _is_file(self._store.root / path):
                    found.append(path)
        return found

    def _read_contents(self, plan: Plan) -> dict[str, bytes]:
        """Read what is going to be written once before, so that damage stops us in time.

        Returns as much of it as memory should hold; the rest is read again when it is written.
        """
        contents = {}
        room = _IN_MEMORY
        links = {one.new.blob for one in plan.changes if one.new and one.new.mode == LINK}
        try:
            wanted = (one.new.blob for one in plan.changes if one.new)
            for blob, content in self._store.each_object(wanted):
                if blob in links and not is_link_target(content):
                    raise SnapshotCorrupt(
                        f"snapshot {self._target.commit} holds a link that no file system can have. "
                        "Nothing was changed"
                    )
                room -= len(content)
                if room >= 0:
                    contents[blob] = content
        except SnapshotNotFound as error:
            raise SnapshotCorrupt(
                f"snapshot {self._target.commit} is not complete: {error}. Nothing was changed"
            ) from error
        return contents

    def _mover(self) -> Mover | None:
        position = _position(self._target)
        if position is None or self._repository is None or self._is_elsewhere():
            return None
        return Mover(self._store, self._repository, position)

    def _is_elsewhere(self) -> bool:
        """Whether the repository around the project is another one than that of the target."""
        return (
            self._repository is not None
            and self._target.details.head is not None
            and self._target.details.below != self._repository.below
        )

    def _report(
        self, safety: Snapshot, plan: Plan, move: Move | None, *, dry_run: bool
    ) -> RestoreReport:
        touched = {one.path for one in plan.changes}
        return RestoreReport(
            target=self._target.commit,
            safety=safety.commit,
            landed=None,
            changes=tuple(plan.changes),
            modes=tuple(
                path
                for path, (old, new) in {**plan.modes, **plan.folder_modes}.items()
                if path not in touched and old != new
            ),
            folders=_folders(plan),
            kept=(*plan.kept, *self._disarmed),
            conflicts=tuple(plan.conflicts),
            head=move.what if move else None,
            commits=move.commits if move else (),
            backup=move.backup if move else None,
            dry_run=dry_run,
        )

    # After -----------------------------------------------------------------------------------

    def _compare(self, landed: Snapshot, plan: Plan) -> None:
        """Refuse a result that is not what the plan promised; others may have changed the rest."""
        touched = {one.path for one in plan.changes}
        without_mode = {one.path for one in plan.changes if not one.new or one.new.mode == LINK}
        wrong = []
        if landed.tree != self._target.tree:
            found = changes_between(self._store, landed.tree, self._target.tree)
            wrong = [one.path for one in found if one.path in touched]
        same = landed.commit == self._target.commit
        details = (self._target if same else load_side(self._store, landed.commit)).details
        wrong += [
            path
            for path, (_, mode) in plan.modes.items()
            if path not in without_mode
            and details.mode_of(path, "100755" if mode & 0o100 else "100644") != mode
        ]
        if wrong:
            # Another program's newest bytes may be in it alone, and no sweep looks into this group.
            self._store.references.keep(SAFETY_GROUP, landed.commit, last=False)
            raise RestoreFailed(
                f"{len(wrong)} paths are not what they should be, {wrong[0]!r} among them: "
                f"another program may be writing to them. Snapshot {landed.commit} holds them as "
                "they were found"
            )

    def _revert(
        self,
        plan: Plan,
        mover: Mover | None,
        old: Position | None,
        tip: str | None,
        error: BaseException,
    ) -> None:
        applier = Applier(self._store, self._mark)
        try:
            conflicts = applier.take_back(plan)
            if mover is not None and mover.started:
                conflicts += _move_back(self._store, self._repository, mover, old, tip, self._mark)
        except Exception as second:
            raise RestoreFailed(
                f"the restore stopped ({error}), and taking it back failed too ({second}). Nothing "
                "is lost: the safety snapshot holds every file. Remove the cause; the next command "
                "finishes the work"
            ) from error
        self._store.notes.remove(JOURNAL)
        if mover is not None:
            mover.conclude()
        if isinstance(error, (OSError, WorkspaceError)):
            full = isinstance(error, OSError) and error.errno in NO_ROOM
            kind = WorkspaceFull if full else RestoreFailed
            raise kind(
                f"the restore stopped and was taken back: {error}. The files are as before"
                f"{_except_for(conflicts)}"
            ) from error


def finish_interrupted(
    store: PrivateStore, limits: Limits, repository: Repository | None
) -> RestoreReport | None:
    """Finish the restore that a journal tells of, or take it back. Needs the work lock."""
    if not (store.home / JOURNAL).exists():
        if repository is not None:
            forget_announcement(repository)
        return None
    journal = Journal.read(store.home)
    plan, mark, purpose = journal.plan, journal.mark, journal.purpose
    old, new, tip = journal.old, journal.new, journal.tip
    applier = Applier(store, mark)
    _rescue(store, journal.safety)
    try:
        put_back = applier.clean_up(plan)
    except OSError as error:
        raise RestoreFailed(
            f"what an interrupted restore had moved aside cannot be put back: {error}. Nothing is "
            "lost: it lies beside its place. Remove the cause and try again"
        ) from error
    now = Capture(store, limits, repository=repository).run(group=SAFETY_GROUP)
    if rescue := _unheld(store, plan, now):
        capture = Capture(store, limits, repository=repository)
        now = capture.run(group=SAFETY_GROUP, rescue=rescue)
    left = _still_to_do(store, plan.without(put_back), now)
    move = None
    mover = Mover(store, repository, new) if new is not None and repository else None
    if mover is not None and not mover.is_announced(mark):
        mover = None
    try:
        left = left.without(applier.carry_out(left))
        if mover is not None:
            mover.clear_own_lock()
            if mover.is_untouched(old, tip):
                mover.check()
                move = _move(mover, old, tip, mark)
            else:
                left = left.without([_MOVED_SINCE])
    except WorkspaceBusy:
        raise
    except Exception as error:
        _take_back(store, repository, applier, left, mover, old, tip, mark, error)
        return None
    if purpose is not None:
        # Whoever began it has more to do; this tells that the files are done.
        store.notes.write(finished_note(purpose["id"]), purpose, durable=True)
    store.notes.remove(JOURNAL)
    if repository is not None:
        forget_announcement(repository)
    return RestoreReport(
        target=journal.target,
        safety=journal.safety,
        landed=None,
        changes=tuple(left.changes),
        conflicts=tuple(left.conflicts),
        head=move.what if move else None,
        commits=move.commits if move else (),
        backup=move.backup if move else None,
    )


def _rescue(store: PrivateStore, safety: str) -> None:
    """Keep the safety snapshot of a store in memory, which may be gone: what it holds may be nowhere else.

    A store that lasts names its own.
    """
    held = store.references.kept()
    passing = any(is_passing(group) and safety in commits for group, commits in held.items())
    if passing and store.present([safety]):
        store.references.keep(SAFETY_GROUP, safety, last=False)


def finished_note(purpose_id: str) -> str:
    """Return the name of the note about a restore that somebody else finished."""
    return f"finished-{file_name(purpose_id)}.json"


def _take_back(
    store: PrivateStore,
    repository: Repository | None,
    applier: Applier,
    done: Plan,
    mover: Mover | None,
    old: Position | None,
    tip: str | None,
    mark: str,
    error: Exception,
) -> None:
    try:
        applier.take_back(done)
        if mover is not None:
            # It may have been moved by the one that was killed.
            _move_back(store, repository, mover, old, tip, f"{mark}-reverted")
            mover.conclude()
    except Exception as second:
        raise RestoreFailed(
            f"an interrupted restore can be neither finished ({error}) nor taken back ({second}). "
            "Nothing is lost: the snapshots hold every file. Remove the cause and try again"
        ) from error
    store.notes.remove(JOURNAL)


def _move_back(
    store: PrivateStore,
    repository: Repository | None,
    mover: Mover,
    old: Position | None,
    tip: str | None,
    mark: str,
) -> list[Skipped]:
    """Take a move back, unless somebody moved the repository since: that is told as a conflict."""
    mover.clear_own_lock()
    if old is None or repository is None or not mover.is_untouched(old, tip):
        return [_MOVED_SINCE]
    back = Mover(store, repository, old)
    back.move(_backup_label(mark), lambda: mover.is_untouched(old, tip))
    return []


def _move(mover: Mover, old: Position | None, tip: str | None, mark: str) -> Move:
    """Move the repository, if it still is where the safety snapshot found it."""
    return mover.move(_backup_label(mark), lambda: mover.is_untouched(old, tip))


def _unheld(store: PrivateStore, plan: Plan, now: Snapshot) -> list[str]:
    """Return files that a plan is about, that are there, and that a snapshot does not hold."""
    entries = store.entries(now.tree)
    paths = [one.path for one in plan.changes if one.path not in entries]
    return [path for path in paths if _is_file(store.root / path)]


def _still_to_do(store: PrivateStore, plan: Plan, now: Snapshot) -> Plan:
    """Return the part of a plan whose paths are as the plan left or found them."""
    entries = store.entries(now.tree)
    conflicts = [
        Skipped(one.path, "it was changed after the restore was interrupted")
        for one in plan.changes
        if entries.get(one.path) not in (None, one.old, one.new)
    ]
    return plan.without(conflicts)


def load_side(store: PrivateStore, commit: str) -> Side:
    """Read a snapshot's tree and details, verified."""
    tree, parents, message = store.read_commit(commit)
    return Side(commit, tree, Details.from_message(message), tuple(parents))


def _position(side: Side) -> Position | None:
    return Position.of(side.details, list(side.parents))


def _folders(plan: Plan) -> tuple[Change, ...]:
    """Return the empty directories that come and go by themselves, with no file in them."""
    old, new = set(plan.empty_old), set(plan.empty_new)
    filled = folders_of(one.path for one in plan.changes if one.kind == "added")
    emptied = folders_of(one.path for one in plan.changes if one.kind == "deleted")
    gone = [one for one in old - new if one not in filled]
    come = [one for one in new - old if one not in emptied]
    found = [*(Change(one, "deleted") for one in gone), *(Change(one, "added") for one in come)]
    return tuple(sorted(found, key=lambda one: one.path))


def _except_for(conflicts: Sequence[Skipped]) -> str:
    if not conflicts:
        return ""
    return (
        f", except for {len(conflicts)} that another program changed meanwhile and that were left "
        f"alone, {conflicts[0].path!r} among them"
    )


def _backup_label(mark: str) -> str:
    return f"backup-{mark}"


def _is_file(path: Path) -> bool:
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):
            raise
        # Behind a link that leads nowhere but to itself, or by a name that no file has here.
        return False
