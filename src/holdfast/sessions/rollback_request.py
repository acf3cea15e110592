"""What a rollback is asked to do, and how its checkpoints remember it.

The safety checkpoint and the landing carry the same facts in their metadata. An undo, a redo and whoever
finds a rollback killed in its middle read there what it was about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from holdfast.model import CheckpointRecord, LogRecord, SessionCopy
from holdfast.sessions.files import path_from, storable

Kind: TypeAlias = Literal["rollback", "undo", "redo"]

ROLLBACK: Final = "rollback"
# In the data of a log line: the safety checkpoint of a rollback that came to nothing.
CAME_TO_NOTHING: Final = "rollback_came_to_nothing"


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be rolled back, and how far. ``title`` is what people call it.

    ``restored`` are the paths that a rollback with ``only_mine`` is about to restore, and that an undo
    has to put back.
    """

    kind: Kind = "rollback"
    title: str = "rollback"
    state: bool = True
    files: bool = True
    paths: Sequence[str] | None = None
    only_mine: bool = False
    move_head: bool = False
    dry_run: bool = False
    undoes: str | None = None
    restored: Sequence[str] | None = None

    def to_metadata(self, phase: str, target: str) -> dict[str, Any]:
        """Return what the safety and the landing checkpoint remember of it."""
        return {
            ROLLBACK: {
                "phase": phase,
                "kind": self.kind,
                "title": self.title,
                "target": target,
                "state": self.state,
                "files": self.files,
                "paths": _as_stored(self.paths),
                "move_head": self.move_head,
                "undoes": self.undoes,
                "restored": _as_stored(self.restored),
            }
        }


def is_of_rollback(record: CheckpointRecord) -> bool:
    """Whether a checkpoint was stored by a rollback rather than by the agent."""
    return facts_of(record) is not None


def is_landing(record: CheckpointRecord) -> bool:
    """Whether a rollback stored this checkpoint to go on from."""
    facts = facts_of(record)
    return facts is not None and facts["phase"] == "landed"


def landed_on(record: CheckpointRecord) -> str | None:
    """Return the checkpoint whose state a rollback has brought back and stored here, if it has."""
    facts = facts_of(record)
    if facts is None or facts["phase"] != "landed" or not facts["state"]:
        return None
    return str(facts["target"])


def facts_of(record: CheckpointRecord) -> dict[str, Any] | None:
    """Return what a rollback noted. Metadata is anybody's: what none can have noted is no rollback's."""
    facts = (record.metadata or {}).get(ROLLBACK)
    return facts if isinstance(facts, dict) and _is_noted(facts) else None


def without_file_rollbacks(there: SessionCopy, before: SessionCopy) -> SessionCopy:
    """Return a session without what rollbacks of files alone have added to it since it was as ``before``.

    By these nobody has gone on with it: its state is the same. When it was changed last is that of before.
    """
    known = {one.id for one in before.checkpoints}
    count = len(before.logs)
    return replace(
        there,
        session=replace(there.session, updated_at=before.session.updated_at),
        checkpoints=tuple(
            one for one in there.checkpoints if one.id in known or not _is_of_files_alone(one)
        ),
        logs=tuple(
            line for at, line in enumerate(there.logs) if at < count or not _tells_of_rollback(line)
        ),
    )


def _is_of_files_alone(record: CheckpointRecord) -> bool:
    facts = facts_of(record)
    return facts is not None and facts["files"] and not facts["state"]


def _tells_of_rollback(line: LogRecord) -> bool:
    return not {ROLLBACK, CAME_TO_NOTHING}.isdisjoint(line.data or ())


def _is_noted(facts: Mapping[str, Any]) -> bool:
    return (
        all(type(facts.get(key)) is str for key in ("phase", "kind", "title", "target"))
        and all(type(facts.get(key)) is bool for key in ("state", "files", "move_head"))
        and type(facts.get("undoes", 0)) in (str, type(None))
        and _are_paths(facts.get("paths", 0))
        and _are_paths(facts.get("restored"))
    )


def _are_paths(value: Any) -> bool:
    return value is None or (
        type(value) is list and all(type(one) in (str, bytes) for one in value)
    )


def request_of(facts: Mapping[str, Any]) -> Request:
    """Return what was asked of the rollback that noted these facts."""
    return Request(
        kind=facts["kind"],
        title=facts["title"],
        state=facts["state"],
        files=facts["files"],
        paths=_as_named(facts["paths"]),
        move_head=facts["move_head"],
        undoes=facts["undoes"],
        restored=_as_named(facts.get("restored")),
    )


def _as_stored(paths: Sequence[str] | None) -> list[str | bytes] | None:
    return [*map(storable, paths)] if paths is not None else None


def _as_named(paths: Sequence[str | bytes] | None) -> list[str] | None:
    return [*map(path_from, paths)] if paths is not None else None
