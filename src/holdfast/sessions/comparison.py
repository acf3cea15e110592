"""What differs between two checkpoints, or between one and the present: state and files together.

The present is the state that the session would go on from, and the project's files as they are now, of
which a snapshot is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holdfast.errors import (
    InvalidFilter,
    SnapshotCorrupt,
    SnapshotNotFound,
    WorkspaceRefused,
    WorkspaceUnavailable,
)
from holdfast.sessions.checkpoint import Checkpoint
from holdfast.sessions.files import ProjectFiles
from holdfast.sessions.rollback import RollbackReport
from holdfast.state.diff import Change, diff_states
from holdfast.workspace.base import FileDiff
from holdfast.workspace.git import Workspace


@dataclass(frozen=True, slots=True)
class Comparison:
    """What leads from ``before`` to ``after``; None is the present.

    ``state`` and ``files`` are None where they were not compared; ``notes`` say why where that was not
    asked for.
    """

    before: Checkpoint | None
    after: Checkpoint | None
    state: tuple[Change, ...] | None
    files: tuple[FileDiff, ...] | None
    notes: tuple[str, ...] = ()


def compare(
    before: Checkpoint | None,
    after: Checkpoint | None,
    *,
    files: ProjectFiles | None,
    present_state: Callable[[str], dict[str, Any]],
    with_state: bool,
    with_files: bool,
    text: bool,
    paths: Sequence[str],
) -> Comparison:
    """Compare two checkpoints; see `SessionManager.diff`."""
    known = before or after
    if known is None:
        raise InvalidFilter("give at least one checkpoint: the present does not differ from itself")
    states = None
    if with_state:
        old, new = (
            one.state if one is not None else present_state(known.session_id)
            for one in (before, after)
        )
        states = tuple(diff_states(old, new))
    found = None
    notes: tuple[str, ...] = ()
    if with_files:
        try:
            found = _compare_files(before, after, files, text, paths)
        except (SnapshotNotFound, WorkspaceUnavailable, WorkspaceRefused) as error:
            if not with_state:
                raise
            if not (_lacks_files(before) and _lacks_files(after)):
                notes = (f"files were not compared: {error}",)
    return Comparison(before, after, states, found, notes)


def compare_rollback(
    report: RollbackReport,
    *,
    files: ProjectFiles | None,
    present_state: Callable[[str], dict[str, Any]],
    text: bool,
) -> Comparison:
    """Compare the present with what a rollback that was only looked at leads to."""
    target = report.checkpoint
    states = None
    if report.state:
        states = tuple(diff_states(present_state(target.session_id), target.state))
    found = None
    if report.files is not None and files is not None:
        touched = {one.path for one in report.files.changes}
        found = tuple(FileDiff(one) for one in report.files.changes)
        if text:
            # All of it, since a command line does not hold any number of paths.
            whole = files.workspace.diff_text(report.files.safety, report.files.target)
            found = tuple(one for one in whole if one.change.path in touched)
    return Comparison(None, target, states, found)


def _lacks_files(one: Checkpoint | None) -> bool:
    return one is not None and one.workspace_commit is None


def _compare_files(
    before: Checkpoint | None,
    after: Checkpoint | None,
    files: ProjectFiles | None,
    text: bool,
    paths: Sequence[str],
) -> tuple[FileDiff, ...]:
    if files is None:
        raise SnapshotNotFound("file snapshots are off")
    with ExitStack() as stack:
        # What checkpoints lack is found out before a snapshot is taken.
        commits = [files.of(one.record) if one is not None else None for one in (before, after)]
        files.check_paths(filter(None, commits), files.workspace.relatives(paths))
        if None in commits:
            stack.enter_context(files.workspace.saving())
        old, new = (one or files.workspace.snapshot().commit for one in commits)
        if text:
            return tuple(files.workspace.diff_text(old, new, paths=paths))
        return tuple(FileDiff(one) for one in files.workspace.diff(old, new, paths=paths))


def count_changes(files: ProjectFiles, checkpoints: Sequence[Checkpoint]) -> dict[str, int]:
    """Return how many files changed before each checkpoint, newest first, since the one before it.

    One is left out whose files cannot be read, or cannot be compared at all since git is missing.
    """
    try:
        held = files.workspace.snapshots()
    except (WorkspaceUnavailable, WorkspaceRefused):
        return {}
    saved = [
        (one.id, one.workspace_commit)
        for one in checkpoints
        if one.workspace_commit is not None and one.workspace_commit in held
    ]
    followed = list(pairwise(saved))
    counts = _counts(files.workspace, [(old, new) for (_, new), (_, old) in followed])
    return {
        new: count
        for ((new, _), _), count in zip(followed, counts, strict=True)
        if count is not None
    }


def _counts(workspace: Workspace, pairs: Sequence[tuple[str, str]]) -> list[int | None]:
    """Return in how many paths each two snapshots differ, all at once unless one of them is damaged."""
    try:
        return [*workspace.count_changes(pairs)]
    except (SnapshotNotFound, SnapshotCorrupt, WorkspaceUnavailable):
        half = len(pairs) // 2
        if not half:
            return [None]
        return [*_counts(workspace, pairs[:half]), *_counts(workspace, pairs[half:])]
