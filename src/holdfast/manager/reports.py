"""What going back and starting did, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.manager.documents import SavePoint, save_point
from holdfast.sessions.rollback import RollbackReport
from holdfast.workspace.base import Change, Skipped, readable

Mode: TypeAlias = Literal["INIT", "CONTINUE"]


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a rollback did, or with ``dry_run`` would do.

    ``changes`` are the paths written and deleted, ``modes`` those whose permissions alone were set, and
    ``kept`` those left alone, with reasons. ``commits`` are those that the branch no longer contains;
    ``backup`` is the reference that keeps them where no other does. ``safety`` is the id of the save point
    that holds how things were: `undo` returns to it.
    """

    checkpoint: SavePoint
    changes: tuple[Change, ...] = ()
    modes: tuple[str, ...] = ()
    kept: tuple[Skipped, ...] = ()
    head: str | None = None
    commits: tuple[str, ...] = ()
    backup: str | None = None
    safety: str | None = None
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def paths(self) -> list[str]:
        """Every path that was changed."""
        return sorted({*(one.path for one in self.changes), *self.modes})

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "checkpoint": self.checkpoint.id,
            "changes": [{"path": readable(one.path), "kind": one.kind} for one in self.changes],
            "modes": [readable(path) for path in self.modes],
            "kept": [{"path": readable(one.path), "reason": one.reason} for one in self.kept],
            "head": self.head,
            "commits": list(self.commits),
            "backup": self.backup,
            "safety": self.safety,
            "notes": list(self.notes),
            "dry_run": self.dry_run,
        }


@dataclass(frozen=True, slots=True)
class SessionStart:
    """How an agent's session begins: from nothing, or with a feature list to go on with."""

    mode: Mode
    session_number: int | None
    checkpoint: SavePoint


def rollback_of(report: RollbackReport) -> Rollback:
    """Return a session's report in the manager's words."""
    files = report.files
    safety = report.safety
    return Rollback(
        checkpoint=save_point(report.checkpoint),
        changes=files.changes if files is not None else (),
        modes=files.modes if files is not None else (),
        kept=(*files.kept, *files.conflicts) if files is not None else (),
        head=files.head if files is not None else None,
        commits=files.commits if files is not None else (),
        backup=files.backup if files is not None else None,
        safety=(safety.label or safety.id) if safety is not None else None,
        notes=report.notes,
        dry_run=report.dry_run,
    )
