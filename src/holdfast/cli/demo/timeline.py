"""The timeline of a session, read from the database: its checkpoints as a tree, and what fell between.

Each checkpoint knows the one that it builds on. Those that the last one descends from are the trunk;
what was rolled back hangs beside it. Nothing here goes by clocks: checkpoints come in the order of the
database, and what the log tells says itself at which checkpoint it happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from holdfast.cli.demo.agent import MARK
from holdfast.model import LogRecord
from holdfast.sessions import Checkpoint, Session, SessionManager
from holdfast.sessions.rollback_request import ROLLBACK

Kind: TypeAlias = Literal["effect", "killed", "resumed", "approval"]
Part: TypeAlias = tuple[str, str]
"""Some text and its style."""

_SIGNS: Final = {"added": ("+", "green"), "modified": ("~", "yellow"), "deleted": ("-", "red")}
_MARKS: Final[Mapping[Kind, Part]] = {
    "effect": ("$", "magenta"),
    "killed": ("✗", "bold red"),
    "resumed": ("↻", "cyan"),
    "approval": ("✓", "green"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened after a checkpoint and before the next."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint of the timeline.

    ``title`` is its name, or what it is for when it was made by a pause or a rollback; ``lane`` is 0 on
    the trunk; ``changes`` are the files that differ from the checkpoint before it; ``went`` is
    rollback, undo or redo when the files were put back.
    """

    id: str
    title: str
    kind: str
    what: str
    lane: int
    changes: tuple[tuple[str, str], ...]
    marks: tuple[Mark, ...]
    went: str | None = None
    minor: bool = False


def read_timeline(manager: SessionManager, session: Session, *, killed: int) -> Iterator[Entry]:
    """Yield the session's checkpoints, oldest first."""
    checkpoints = session.list_checkpoints()[::-1]
    names = {one.id: one.name for one in checkpoints}
    trunk = _ancestors(checkpoints)
    marks = _marks(session.logs(), killed)
    changes = [(), *(_changed(manager, *pair) for pair in pairwise(checkpoints))]
    for checkpoint, changed in zip(checkpoints, changes, strict=True):
        metadata = checkpoint.metadata or {}
        moved: Mapping[str, Any] = metadata.get(ROLLBACK, {})
        landed = moved.get("phase") == "landed"
        title, what = checkpoint.name, checkpoint.description or ""
        if landed:
            title, what = moved["kind"], _moved(moved, names)
        elif moved:
            title, what = f"before {moved['kind']}", "as things were, in case"
        elif "paused" in metadata:
            title, what = "paused", f"for {metadata['paused']}"
        yield Entry(
            id=checkpoint.id,
            title=title,
            kind=checkpoint.retention_class,
            what=what,
            lane=0 if checkpoint.id in trunk else 1,
            changes=changed,
            marks=tuple(marks.get(checkpoint.id, ())),
            went=moved["kind"] if landed else None,
            minor=bool(moved) and not landed,
        )


def _ancestors(checkpoints: Sequence[Checkpoint]) -> set[str]:
    parents = {one.id: one.parent_id for one in checkpoints}
    found: set[str] = set()
    at = checkpoints[-1].id if checkpoints else None
    while at is not None and at not in found:
        found.add(at)
        at = parents.get(at)
    return found


def _changed(
    manager: SessionManager, before: Checkpoint, after: Checkpoint
) -> tuple[tuple[str, str], ...]:
    old, new = before.workspace_commit, after.workspace_commit
    if old is None or new is None or old == new:
        return ()
    return tuple((one.kind, one.path) for one in manager.workspace.diff(old, new))


def _moved(moved: Mapping[str, Any], names: Mapping[str, str]) -> str:
    if moved["kind"] == "rollback":
        return f"to {names.get(moved['target'], moved['target'])}"
    return "the rollback is taken back" if moved["kind"] == "undo" else "the undo is taken back"


def _marks(logs: Iterable[LogRecord], killed: int) -> dict[str, list[Mark]]:
    """Return what the log tells, by the checkpoint at which it happened."""
    found: dict[str, list[Mark]] = {}
    taken_over = False
    for log in logs:
        data = log.data or {}
        anchor = data.get("checkpoint")
        if log.message.startswith("taken over from "):
            taken_over = True
        elif anchor is not None and MARK in data:
            found.setdefault(anchor, []).append(Mark(data[MARK], log.message))
        elif anchor is not None and log.message.startswith("resumed from "):
            marks = found.setdefault(anchor, [])
            if taken_over:
                marks.append(Mark("killed", f"SIGKILL hit process {killed}"))
                taken_over = False
            marks.append(Mark("resumed", "another process went on from here"))
    return found


# Drawing ------------------------------------------------------------------------------------------


def draw(entries: Sequence[Entry], width: int) -> Iterator[list[Part]]:
    """Yield the lines of the tree, each as parts with their styles, no longer than ``width``."""
    aside = [at for at, entry in enumerate(entries) if entry.lane]
    titles = max((len(entry.title) for entry in entries), default=0)
    kinds = max((len(entry.kind) for entry in entries), default=0)
    for at, entry in enumerate(entries):
        beside = bool(aside) and aside[0] <= at <= aside[-1]
        yield list(
            _cut(
                [
                    _node(entry, beside=beside, opens=bool(aside) and at == aside[0]),
                    (f"{entry.title:<{titles}}  ", _style(entry)),
                    (f"{entry.kind:<{kinds}}  ", "dim"),
                    *_events(entry),
                ],
                width,
            )
        )
        rail = "│" if at < len(entries) - 1 else " "
        side = " │" if bool(aside) and aside[0] <= at < aside[-1] else "  "
        for mark in entry.marks:
            sign, style = _MARKS[mark.kind]
            yield list(_cut([(f"{rail}{side}   ", "dim"), (f"{sign} {mark.text}", style)], width))


def _node(entry: Entry, *, beside: bool, opens: bool) -> Part:
    sign = "◆" if entry.went else "○" if entry.minor else "●"
    if entry.lane:
        return f"{'├─' if opens else '│ '}{sign}  ", "bold"
    return f"{sign}{' │' if beside else '  '}  ", "bold"


def _style(entry: Entry) -> str:
    if entry.went:
        return "bold magenta"
    return "dim" if entry.minor else "red" if entry.lane else "cyan"


def _events(entry: Entry) -> Iterator[Part]:
    if entry.what and not entry.changes:
        yield entry.what, "dim" if entry.minor else ""
    for number, (kind, path) in enumerate(entry.changes):
        sign, style = _SIGNS[kind]
        yield f"{' ' if number else ''}{sign} {path}", style


def _cut(parts: Sequence[Part], width: int) -> Iterator[Part]:
    """Yield the parts, with a sign at the end of a line that would be too long."""
    if sum(len(text) for text, _ in parts) <= width:
        yield from parts
        return
    room = width - 1
    for text, style in parts:
        yield text[:room], style
        room -= len(text[:room])
    yield "…", "dim"
