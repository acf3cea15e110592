"""The journal of a restore: what it was about to do, for whoever has to finish it after a kill.

It is written before anything is touched. The project may come from strangers, and the journal with it, so
reading one takes nothing for granted: every value has the type it must have, no path leads out of the
project, and no name that becomes part of a file's name leads elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import RestoreFailed, SnapshotCorrupt
from holdfast.workspace.base import Change
from holdfast.workspace.notes import Notes
from holdfast.workspace.plan import Plan
from holdfast.workspace.position import Position

JOURNAL: Final = "journal.json"
_NAME: Final = re.compile("[0-9A-Za-z_-]{1,100}")
_MODES: Final = frozenset({"100644", "100755", "120000"})
_COMMIT: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_SIDES: Final = {"added": (False, True), "deleted": (True, False), "modified": (True, True)}


@dataclass(frozen=True, slots=True)
class Journal:
    """What a restore leads from and to. ``purpose`` is what its caller has to do afterwards."""

    mark: str
    safety: str
    target: str
    plan: Plan
    old: Position | None
    new: Position | None
    tip: str | None
    purpose: Mapping[str, Any] | None

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **{name: getattr(self, name) for name in ("mark", "safety", "target", "tip")},
            "purpose": dict(self.purpose) if self.purpose is not None else None,
            "plan": self.plan.to_document(),
            "old": asdict(self.old) if self.old is not None else None,
            "new": asdict(self.new) if self.new is not None else None,
        }

    @classmethod
    def read(cls, home: Path) -> Journal:
        """Read the journal in a store. Raises `RestoreFailed` for one that no restore has written."""
        document = Notes(home).read(JOURNAL)
        try:
            plan = Plan.from_document(document["plan"])
            journal = cls(
                mark=document["mark"],
                safety=document["safety"],
                target=document["target"],
                plan=plan,
                old=_position(document["old"]),
                new=_position(document["new"]),
                tip=document.get("tip"),
                purpose=document.get("purpose"),
            )
            journal._check()
        except (LookupError, TypeError, ValueError, AttributeError, SnapshotCorrupt):
            raise RestoreFailed(
                f"{home / JOURNAL} cannot be read, so an interrupted restore cannot be finished. "
                "The snapshots are intact; remove that file and roll back again"
            ) from None
        return journal

    def _check(self) -> None:
        names = [self.mark, *([self.purpose["id"]] if self.purpose is not None else ())]
        commits = [self.safety, self.target, *([self.tip] if self.tip is not None else ())]
        plan = self.plan
        modes = [*plan.modes.values(), *plan.folder_modes.values()]
        if not (
            all(_NAME.fullmatch(name) for name in names)
            and all(_COMMIT.fullmatch(commit) for commit in commits)
            and all(_is_change(one) for one in plan.changes)
            and all(type(mode) is int and 0 <= mode < 1 << 16 for pair in modes for mode in pair)
            and type(plan.empty_old) is type(plan.empty_new) is list
        ):
            raise ValueError("a value that no restore writes")


def _is_change(one: Change) -> bool:
    entries = [entry for entry in (one.old, one.new) if entry is not None]
    return _SIDES[one.kind] == (one.old is not None, one.new is not None) and all(
        entry.mode in _MODES and _COMMIT.fullmatch(entry.blob) for entry in entries
    )


def _position(document: Mapping[str, Any] | None) -> Position | None:
    if document is None:
        return None
    return Position(**document).checked()
