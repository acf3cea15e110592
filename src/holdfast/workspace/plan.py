"""What a restore would do: worked out from two snapshots before anything is touched.

A plan is plain data, so that it can be shown, and written to the journal to be carried out by another
process if this one dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeGuard

from holdfast.errors import RestoreFailed
from holdfast.workspace.base import Change, Entry, Skipped
from holdfast.workspace.details import Details
from holdfast.workspace.files import LINK
from holdfast.workspace.ignores import ignored_among
from holdfast.workspace.lengths import first_too_long
from holdfast.workspace.paths import fits, folders_of, parents, within
from holdfast.workspace.private_store import PrivateStore
from holdfast.workspace.process import Git
from holdfast.workspace.trees import Difference, check_path, checked_difference

Keep: TypeAlias = Callable[[Change, str], str | None]


@dataclass(slots=True)
class Plan:
    """What to write, delete and set. ``old`` is how things are now, ``new`` how they will be."""

    changes: list[Change] = field(default_factory=list)
    modes: dict[str, tuple[int, int]] = field(default_factory=dict)
    folder_modes: dict[str, tuple[int, int]] = field(default_factory=dict)
    empty_old: list[str] = field(default_factory=list)
    empty_new: list[str] = field(default_factory=list)
    kept: list[Skipped] = field(default_factory=list)
    conflicts: list[Skipped] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.changes or self.modes or self.folder_modes or self.empty_old != self.empty_new
        )

    def reversed(self) -> Plan:
        """Return the plan that takes this one back."""
        turned = {"added": "deleted", "deleted": "added", "modified": "modified"}
        return Plan(
            changes=[
                Change(one.path, turned[one.kind], one.new, one.old)  # type: ignore[arg-type]
                for one in self.changes
            ],
            modes={path: (new, old) for path, (old, new) in self.modes.items()},
            folder_modes={path: (new, old) for path, (old, new) in self.folder_modes.items()},
            empty_old=self.empty_new,
            empty_new=self.empty_old,
        )

    def without(self, conflicts: Sequence[Skipped]) -> Plan:
        """Return the plan less some paths that are to be left alone."""
        if not conflicts:
            return self
        left_alone = {one.path for one in conflicts}
        return replace(
            self,
            changes=[one for one in self.changes if one.path not in left_alone],
            modes={path: mode for path, mode in self.modes.items() if path not in left_alone},
            conflicts=[*self.conflicts, *conflicts],
        )

    def to_document(self) -> dict[str, Any]:
        """Return the plan as plain values for the journal."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Plan:
        """Read a plan from the journal. Raises `SnapshotCorrupt` for paths that no plan may hold."""
        plan = cls(
            changes=[
                Change(
                    one["path"],
                    one["kind"],
                    Entry(**one["old"]) if one["old"] else None,
                    Entry(**one["new"]) if one["new"] else None,
                )
                for one in document["changes"]
            ],
            modes={path: (old, new) for path, (old, new) in document["modes"].items()},
            folder_modes={
                path: (old, new) for path, (old, new) in document["folder_modes"].items()
            },
            empty_old=document["empty_old"],
            empty_new=document["empty_new"],
        )
        plan.check()
        return plan

    def check(self) -> None:
        """Refuse a plan that would reach out of the project, or into what is not ours to write."""
        for path in (
            *(one.path for one in self.changes),
            *self.modes, *self.folder_modes, *self.empty_old, *self.empty_new,
        ):  # fmt: skip
            check_path(path)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two snapshots that a plan leads from and to."""

    commit: str
    tree: str
    details: Details
    parents: tuple[str, ...] = ()


def make_plan(
    store: PrivateStore,
    now: Side,
    target: Side,
    *,
    paths: list[str] | None = None,
    keep: Keep | None = None,
) -> Plan:
    """Work out how to come from one snapshot to another.

    What the target's own ignore rules ignore is kept even though the target lacks it, unless it would
    have been captured all the same; and so are files of secrets (``.env``) and what either side could not capture.
    """
    for path in (*target.details.modes, *target.details.directories, *target.details.empty):
        check_path(path)
    plan = Plan()
    uncaptured = {
        one.path: f"one of the two snapshots could not hold it: {one.reason}"
        for one in (*target.details.skipped, *now.details.skipped)
    }
    difference = checked_difference(store, now.tree, target.tree)
    changes = [one for one in difference.files if within(one.path, paths)]
    gone = [one.path for one in changes if one.kind == "deleted"]
    empty_there = set(target.details.empty)
    hollow = [path for path in now.details.empty if path not in empty_there]
    try:
        ignored = _ignored_by(store, target, gone, hollow) if gone or hollow else set()
    except OSError as error:
        raise RestoreFailed(
            f"the snapshot's ignore rules cannot be read: {error}. Nothing was changed"
        ) from error
    ignored = {path for path in ignored if not _was_wanted(path, target.details)}
    for change in changes:
        if store.is_own(change.path):
            plan.kept.append(Skipped(change.path, "a database of checkpoints is left as it is"))
        elif why := [
            uncaptured[one] for one in (change.path, *parents(change.path)) if one in uncaptured
        ]:
            plan.kept.append(Skipped(change.path, why[0]))
        elif change.kind == "deleted" and change.path in ignored:
            plan.kept.append(Skipped(change.path, "the checkpoint's ignore rules leave it out"))
        elif change.kind == "deleted" and PurePosixPath(change.path).name == ".env":
            plan.kept.append(Skipped(change.path, "files of secrets are never deleted"))
        elif keep is not None and (reason := keep(change, now.commit)) is not None:
            plan.conflicts.append(Skipped(change.path, reason))
        else:
            plan.changes.append(change)
    left_alone = {one.path for one in (*plan.kept, *plan.conflicts)}
    # Nobody knows whether these are as they were.
    told = left_alone | folders_of(left_alone).keys()
    plan.kept += [
        Skipped(path, why)
        for path, why in uncaptured.items()
        if path not in told and within(path, paths)
    ]
    # Those that a change makes empty or fills too, whatever was asked for: they stay directories.
    worked_in = set(folders_of(one.path for one in plan.changes))
    plan.empty_old, plan.empty_new = (
        [
            path
            for path in side.details.empty
            if (path in worked_in or (keep is None and within(path, paths)))
            and not store.is_own(path)
        ]
        for side in (now, target)
    )
    plan.empty_old = [path for path in plan.empty_old if path not in ignored]
    _plan_modes(store, plan, now, target, paths, keep, left_alone)
    _plan_folder_modes(store, plan, now, target, [] if keep is not None else paths, difference)
    plan.modes = {path: one for path, one in plan.modes.items() if not store.is_own(path)}
    plan.folder_modes = {
        path: one for path, one in plan.folder_modes.items() if not store.is_own(path)
    }
    plan.check()
    _check_lengths(store.root, plan)
    return plan


def _was_wanted(path: str, details: Details) -> bool:
    """Whether a snapshot would have held a path, had it been there, whatever rules ignore it."""
    return within(path, details.included) or any(fits(path, one) for one in details.patterns)


def _check_lengths(root: Path, plan: Plan) -> None:
    """Refuse names that cannot be written here: in the middle of the work it would be late for that."""
    wanted = (*(one.path for one in plan.changes if one.new), *plan.empty_new)
    found = first_too_long(root, wanted)
    if found is not None:
        raise RestoreFailed(
            f"the snapshot holds a path that is too long for the file system here, of "
            f"{len(found)} characters, which begins with {found[:40]!r}. Nothing was changed"
        )


def _plan_modes(
    store: PrivateStore,
    plan: Plan,
    now: Side,
    target: Side,
    paths: list[str] | None,
    keep: Keep | None,
    left_alone: set[str],
) -> None:
    old, new = now.details, target.details
    touched = {one.path: one for one in plan.changes}
    if old.defaults == new.defaults:
        known = {**old.modes, **new.modes}
        suspects = {path for path in known if old.modes.get(path) != new.modes.get(path)}
        same = store.entries_of(target.tree, sorted(suspects - touched.keys()))
    else:
        same = store.entries(target.tree)
    for path in sorted((same.keys() | touched.keys()) - left_alone):
        change = touched.get(path)
        entry = change.new if change else same[path]
        was = change.old if change else entry
        if not within(path, paths):
            continue
        before = old.mode_of(path, was.mode) if _has_mode(was) else None
        mode = new.mode_of(path, entry.mode) if _has_mode(entry) else before
        if mode is None:
            continue
        # What goes has its permissions noted too: it comes back with them if the plan is taken back.
        before = mode if before is None else before
        if before == mode and change is None:
            continue
        if change is None and keep is not None:
            reason = keep(Change(path, "modified", was, entry), now.commit)
            if reason is not None:
                plan.conflicts.append(Skipped(path, reason))
                continue
        plan.modes[path] = (before, mode)


def _has_mode(entry: Entry | None) -> TypeGuard[Entry]:
    return entry is not None and entry.mode != LINK


def _plan_folder_modes(
    store: PrivateStore,
    plan: Plan,
    now: Side,
    target: Side,
    paths: list[str] | None,
    difference: Difference,
) -> None:
    """Plan the permissions of directories: of those that differ, and of all that are worked in.

    A directory that the target does not know keeps its own, and so does one that was not asked for:
    others may have closed it. They are set all the same, since one that has to be opened for the work
    may be left open by a process that is killed.
    """
    old, new = now.details, target.details
    files = set(folders_of(one.path for one in plan.changes))
    empty_here, empty_there = (
        set(folders_of(f"{one}/" for one in side.empty)) for side in (old, new)
    )
    worked_in = files | set(folders_of(f"{one}/" for one in plan.empty_old + plan.empty_new))
    if old.defaults[2] != new.defaults[2]:
        here, there = store.folders(now.tree), store.folders(target.tree)
        suspects = (here & there) | old.directories.keys() | new.directories.keys() | worked_in
    else:
        known = {**old.directories, **new.directories}
        unlike = {one for one in known if old.directories.get(one) != new.directories.get(one)}
        suspects = unlike | worked_in
        # Every directory on the way to a changed file is in both trees, or in the difference.
        asked = sorted(suspects - files)
        here = (files - difference.only_new) | store.folders(now.tree, asked)
        there = (files - difference.only_old) | store.folders(target.tree, asked)
    here |= empty_here
    there |= empty_there
    for path in sorted(suspects & (here | there)):
        before = (old if path in here else new).mode_of_directory(path)
        mode = (new if path in there else old).mode_of_directory(path)
        if path in here and not within(path, paths):
            mode = before
        if path in worked_in or before != mode:
            plan.folder_modes[path] = (before, mode)


def _ignored_by(store: PrivateStore, side: Side, files: list[str], folders: list[str]) -> set[str]:
    """Return which paths a snapshot's own rules ignore, with its rules laid out aside."""
    rules = {
        path: entry
        for path, entry in store.entries(side.tree).items()
        if path.rpartition("/")[2] == ".gitignore" and entry.mode != LINK
    }
    for path in rules:
        check_path(path)
    contents = store.read_objects(entry.blob for entry in rules.values())
    with store.aside() as aside:
        top = Path(aside)
        for path, entry in rules.items():
            _write(top / "tree" / path, contents[entry.blob])
        _write(top / "tree" / ".empty", b"")
        for path in folders:
            check_path(path)
            # A rule may be about directories alone. Where a file is in the way, it was none then.
            with suppress(OSError):
                (top / "tree" / path).mkdir(parents=True, exist_ok=True)
        _write(
            top / "git" / "info" / "exclude",
            side.details.excludes.encode("utf-8", "surrogateescape"),
        )
        _write(top / "git" / "HEAD", b"ref: refs/heads/none\n")
        _write(top / "git" / "objects" / ".empty", b"")
        _write(top / "git" / "refs" / ".empty", b"")
        git = Git(top / "git", work_tree=top / "tree")
        return set(ignored_among(git, (*files, *folders)))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
