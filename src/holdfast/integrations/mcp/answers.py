"""What the tools answer: plain dataclasses, from which the protocol's schemas are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import orjson

from holdfast.brief import Brief
from holdfast.model import LogRecord, SessionRecord
from holdfast.sessions import Checkpoint, Comparison, RollbackReport
from holdfast.state.tags import tagged
from holdfast.workspace.base import SavedFile, readable

# An answer is read by a model: what is longer than this is cut, and says so.
MOST: Final = 200
STATE_BYTES: Final = 64 * 1024
TEXT_CHARACTERS: Final = 20_000
ALL_CHARACTERS: Final = 200_000


@dataclass
class CheckpointInfo:
    """One checkpoint. ``has_files`` tells whether the project's files can be rolled back to it.

    ``quarantined``: it failed verification, and is neither shown nor gone back to.
    """

    id: str
    session_id: str
    name: str
    label: str | None
    description: str | None
    created_at: str
    checkpoint_type: str
    size_bytes: int
    git_branch: str | None
    git_commit: str | None
    has_files: bool
    resumable: bool
    quarantined: bool = False


@dataclass
class PathNote:
    """A path and what is to be said of it."""

    path: str
    note: str


@dataclass
class SavedCheckpoint:
    """A checkpoint that is durable. ``problem`` tells why it has no files, if it has none.

    ``skipped_count`` counts what was left out, of which ``skipped`` may name the first only.
    """

    checkpoint: CheckpointInfo
    skipped: list[PathNote] = field(default_factory=list)
    problem: str | None = None
    skipped_count: int = 0


@dataclass
class CheckpointList:
    """Checkpoints of a session, newest first."""

    session_id: str
    checkpoints: list[CheckpointInfo]


@dataclass
class ShownCheckpoint:
    """A checkpoint with its state, as JSON with tags for what JSON lacks, and its files.

    ``state`` is null where it is larger than an answer may be: ``keys`` names its parts, which can
    be asked for one by one. Of many keys or files the first are named, and ``key_count`` and
    ``file_count`` tell how many there are.
    """

    checkpoint: CheckpointInfo
    state: dict[str, Any] | None
    keys: list[str]
    key_count: int
    files: list[PathNote]
    file_count: int


@dataclass
class Change:
    """One change: of a value of the state, or of a file. ``text`` is the change itself, as a diff.

    Of a long text it is the beginning, and says so at its end.
    """

    kind: str
    path: str
    text: str = ""


@dataclass
class CheckpointDiff:
    """What differs. ``left_out`` counts changes beyond what an answer may hold.

    ``state`` or ``files`` are null where they were not compared, and ``notes`` say why.
    """

    before: str
    after: str
    state: list[Change] | None
    files: list[Change] | None
    left_out: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class RollbackAnswer:
    """A rollback, or what it would do. ``confirmation`` is the token to carry out what is shown.

    ``done`` is false for a preview. A path with a slash at its end is an empty directory. ``safety`` is the checkpoint that holds how things were; undo
    returns to it.
    """

    done: bool
    checkpoint: CheckpointInfo
    state: bool
    changes: list[Change]
    left_alone: list[PathNote]
    notes: list[str]
    confirmation: str | None = None
    safety: str | None = None
    session_id: str | None = None
    left_out: int = 0


@dataclass
class BriefAnswer:
    """What to know before going on."""

    session_id: str
    verdict: str
    text: str


@dataclass
class DecisionAnswer:
    """A decision that is recorded."""

    session_id: str
    text: str
    at: str


@dataclass
class PausedSession:
    """A session that is paused, and the checkpoint that was saved for it."""

    session_id: str
    status: str
    reason: str | None
    checkpoint: CheckpointInfo


def checkpoint_info(one: Checkpoint, *, quarantined: bool = False) -> CheckpointInfo:
    """Return a checkpoint as tools answer with it."""
    return CheckpointInfo(
        id=one.id,
        session_id=one.session_id,
        name=one.name,
        label=one.label,
        description=one.description,
        created_at=one.created_at.isoformat(),
        checkpoint_type=one.checkpoint_type,
        size_bytes=one.size_bytes,
        git_branch=one.git_branch,
        git_commit=one.git_commit,
        has_files=one.workspace_commit is not None,
        resumable=one.resumable,
        quarantined=quarantined,
    )


def saved_checkpoint(one: Checkpoint) -> SavedCheckpoint:
    """Return what was saved, and what was left out."""
    files = one.files
    skipped = [PathNote(path, reason) for path, reason in files.get("skipped", ())[:MOST]]
    return SavedCheckpoint(
        checkpoint_info(one), skipped, files.get("problem"), files.get("skipped_count", 0)
    )


def shown_checkpoint(
    one: Checkpoint, keys: list[str] | None, files: list[SavedFile]
) -> ShownCheckpoint:
    """Return a checkpoint with as much of its state as was asked for and fits."""
    whole = one.state
    wanted = whole if keys is None else {key: whole[key] for key in keys if key in whole}
    state = tagged(wanted, "$")
    fits = isinstance(state, dict) and len(orjson.dumps(state)) <= STATE_BYTES
    return ShownCheckpoint(
        checkpoint=checkpoint_info(one),
        state=state if fits and isinstance(state, dict) else None,
        keys=list(whole)[:MOST],
        key_count=len(whole),
        files=[PathNote(readable(file.path), f"{file.bytes} bytes") for file in files[:MOST]],
        file_count=len(files),
    )


def checkpoint_diff(found: Comparison, before: str, after: str) -> CheckpointDiff:
    """Return what differs between two checkpoints, or one and the present."""
    state = [Change(one.kind, one.path, _value(one)) for one in found.state or ()]
    files = [
        Change(one.change.kind, readable(one.change.path), _beginning(readable(one.text)))
        for one in found.files or ()
    ]
    some_state, some_files = _fitting(state), _fitting(files)
    return CheckpointDiff(
        before,
        after,
        state=None if found.state is None else some_state,
        files=None if found.files is None else some_files,
        left_out=len(state) - len(some_state) + len(files) - len(some_files),
        notes=[readable(note) for note in found.notes],
    )


def _fitting(changes: list[Change]) -> list[Change]:
    """Return the first changes, as many as an answer may hold."""
    lengths = accumulate(len(one.path) + len(one.text) for one in changes[:MOST])
    return [one for one, length in zip(changes, lengths, strict=False) if length <= ALL_CHARACTERS]


def _beginning(text: str) -> str:
    if len(text) <= TEXT_CHARACTERS:
        return text
    return f"{text[:TEXT_CHARACTERS]} … and {len(text) - TEXT_CHARACTERS:,} more characters"


def _value(change: Any) -> str:
    sides = []
    if change.kind != "added":
        sides.append(f"- {_text(change.before)}")
    if change.kind != "removed":
        sides.append(f"+ {_text(change.after)}")
    return "\n".join(sides)


def _text(value: object) -> str:
    return _beginning(orjson.dumps(tagged(value, "$")).decode())


def rollback_answer(
    report: RollbackReport, *, confirmation: str | None = None, session: SessionRecord
) -> RollbackAnswer:
    """Return what a rollback did, or would do."""
    files = report.files
    changes: list[Change] = []
    left_alone: list[PathNote] = []
    if files is not None:
        changes = [Change(one.kind, readable(one.path)) for one in files.changes]
        changes += [Change(one.kind, f"{readable(one.path)}/") for one in files.folders]
        changes += [Change("mode", readable(path)) for path in files.modes]
        left_alone = [
            PathNote(readable(one.path), one.reason) for one in (*files.kept, *files.conflicts)
        ]
    return RollbackAnswer(
        done=not report.dry_run,
        checkpoint=checkpoint_info(report.checkpoint),
        state=report.state,
        changes=changes[:MOST],
        left_alone=left_alone[:MOST],
        notes=list(report.notes),
        confirmation=confirmation,
        safety=None if report.safety is None else report.safety.name,
        session_id=session.id,
        left_out=max(0, len(changes) - MOST) + max(0, len(left_alone) - MOST),
    )


def brief_answer(brief: Brief) -> BriefAnswer:
    """Return a brief."""
    return BriefAnswer(brief.session.id, brief.preflight.verdict, brief.text)


def decision_answer(line: LogRecord, text: str) -> DecisionAnswer:
    """Return a decision that the log has."""
    return DecisionAnswer(line.session_id, text, line.created_at.isoformat())


def checkpoint_list(
    session_id: str, found: Iterable[Checkpoint], quarantined: Iterable[Checkpoint]
) -> CheckpointList:
    """Return a listing, with what is in quarantine marked."""
    bad = {one.id for one in quarantined}
    listed = [checkpoint_info(one, quarantined=one.id in bad) for one in found]
    return CheckpointList(session_id, listed)
