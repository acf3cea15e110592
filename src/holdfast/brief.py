"""The brief: what an agent or a person reads to go on, in as few words as they have room for.

A `Brief` holds what was found, whole; `Brief.text` is as much of it as fits into ``max_tokens``. What no
longer holds comes first and goes last: an agent that believes an outdated checkpoint does harm, one that
does not know who finished a task yesterday does not. What was left out is counted where it is missing.

Tokens are estimated, since every model counts differently: one for four ASCII characters, and one for
every other character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.errors import InvalidFilter
from holdfast.model import BRIEF_TOKENS, CheckpointRecord, LogRecord, SessionRecord
from holdfast.preflight import MemoryRefReport, Preflight, Reason
from holdfast.state.tags import tagged

LEAST_TOKENS: Final = 100

_LINE: Final = 240
_TASK: Final = 1000
_BLANK: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_OPEN: Final = {"in_progress": "in progress", "pending": "next"}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a session recorded for those after it: a decision, or what it learnt.

    ``at`` is None for one that stands in a state.
    """

    text: str
    session_id: str
    rationale: str | None = None
    alternatives: tuple[str, ...] = ()
    at: datetime | None = None

    def to_document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "text": self.text,
            "rationale": self.rationale,
            "alternatives": list(self.alternatives),
            "session_id": self.session_id,
            "at": None if self.at is None else self.at.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A session that this one goes on from: continued, or forked."""

    record: SessionRecord
    relation: str


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything that a brief may say, each list with what matters most first.

    A ``preflight`` that names no checkpoint has compared nothing, and the text says nothing of it.
    ``checkpoint`` is that of an earlier session as long as this one has saved nothing. ``tasks`` are
    all of them, ``open_files`` those of the state, each with whether it is ``missing``.
    """

    session: SessionRecord
    checkpoint: CheckpointRecord | None
    preflight: Preflight
    tasks: Sequence[Mapping[str, Any]] = ()
    progress: Any = None
    decisions: Sequence[Note] = ()
    learnings: Sequence[Note] = ()
    open_files: Sequence[Mapping[str, Any]] = ()
    memory: Sequence[MemoryRefReport] = ()
    errors: Sequence[LogRecord] = ()
    lineage: Sequence[Ancestor] = ()
    max_tokens: int = BRIEF_TOKENS

    @property
    def text(self) -> str:
        """The brief as Markdown, of at most ``max_tokens``."""
        return _fitted(_heading(self), _sections(self), self.max_tokens)

    def __str__(self) -> str:
        return self.text

    def tasks_with(self, *statuses: str) -> list[Mapping[str, Any]]:
        """Return the tasks in these statuses, in order; one without a status is pending."""
        return [task for task in self.tasks if (task.get("status") or "pending") in statuses]

    @property
    def next_steps(self) -> list[str]:
        """What to do next: tasks in progress first, then pending ones."""
        return [
            title_of(task)
            for task in (*self.tasks_with("in_progress"), *self.tasks_with("pending"))
        ]

    def to_document(self) -> dict[str, Any]:
        """Return all of it as plain values, the text included."""
        checkpoint = self.checkpoint
        return {
            "session_id": self.session.id,
            "agent_type": self.session.agent_type,
            "task": self.session.task_description,
            "status": self.session.status,
            "pause_reason": self.session.pause_reason,
            "checkpoint": None
            if checkpoint is None
            else {
                "id": checkpoint.id,
                "name": checkpoint.name,
                "session_id": checkpoint.session_id,
                "description": checkpoint.description,
                "created_at": checkpoint.created_at.isoformat(),
                "git_branch": checkpoint.git_branch,
                "git_commit": checkpoint.git_commit,
                "git_uncommitted": checkpoint.git_uncommitted,
            },
            "preflight": self.preflight.to_document(),
            "progress": {
                "completed": len(self.tasks_with("completed")),
                "total": len(self.tasks),
                "reported": tagged(self.progress, "$"),
            },
            "completed": [title_of(task) for task in self.tasks_with("completed")],
            "next": self.next_steps,
            "open_items": [
                {"title": title_of(task), "status": task["status"]}
                for task in self.tasks_with("blocked", "failed")
            ],
            "task_state": {"tasks": [tagged(dict(task), "$") for task in self.tasks]},
            "decisions": [one.to_document() for one in self.decisions],
            "learnings": [one.to_document() for one in self.learnings],
            "open_files": [tagged(dict(one), "$") for one in self.open_files],
            "memory": [
                {"key": one.key, "location": one.location, "status": one.status}
                for one in self.memory
            ],
            "errors": [
                {"at": one.created_at.isoformat(), "message": one.message} for one in self.errors
            ],
            "lineage": [
                {
                    "session_id": one.record.id,
                    "relation": one.relation,
                    "task": one.record.task_description,
                    "status": one.record.status,
                }
                for one in self.lineage
            ],
            "max_tokens": self.max_tokens,
            "tokens": estimate_tokens(self.text),
            "text": self.text,
        }


def check_max_tokens(value: int) -> int:
    """Refuse a budget in which nothing can be said."""
    if type(value) is not int or value < LEAST_TOKENS:
        raise InvalidFilter(f"max_tokens must be a whole number from {LEAST_TOKENS}: {value!r}")
    return value


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: a quarter of its ASCII, and all other characters."""
    ascii_only = len(text.encode("ascii", "ignore"))
    return -(-ascii_only // 4) + len(text) - ascii_only


def one_line(text: object, most: int = _LINE) -> str:
    """Return stored text as one line without control characters, cut where it is too long."""
    plain = _BLANK.sub(" ", str(text)).strip()
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def title_of(task: Mapping[str, Any]) -> str:
    """Return what a task is called."""
    return one_line(task.get("title") or task["id"])


def moment(at: datetime) -> str:
    """Return a time as briefs and handoffs write it."""
    return at.strftime("%Y-%m-%d %H:%M UTC")


# Text -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Section:
    """A part of the text. The one with the lowest ``rank`` gives way first."""

    title: str
    rank: int
    lines: list[str]
    shown: int = 0


def _heading(brief: Brief) -> list[str]:
    record, saved = brief.session, brief.checkpoint
    lines = [f"# Resume: {one_line(record.task_description or record.agent_type, _TASK)}", ""]
    status: str = record.status
    if record.pause_reason and status == "paused":
        status += f" ({one_line(record.pause_reason)})"
    lines.append(f"Session {one_line(record.id)}, agent {one_line(record.agent_type)}, {status}.")
    if saved is None:
        lines.append("There is no checkpoint to go on from.")
        return lines
    place = ""
    if saved.git_commit or saved.git_branch:
        where = saved.git_branch or "detached"
        place = f" on {one_line(where)} at {(saved.git_commit or 'no commit')[:10]}"
        place += ", files uncommitted" if saved.git_uncommitted else ""
    of = f" of session {saved.session_id}" if saved.session_id != record.id else ""
    lines.append(f"Last checkpoint: {one_line(saved.name)}{of}, {moment(saved.created_at)}{place}.")
    if saved.description:
        lines.append(one_line(saved.description))
    if brief.preflight.checkpoint is not None:
        lines.append(_verdict(brief.preflight))
    return lines


def _verdict(found: Preflight) -> str:
    said = {
        "clean": "Compared with the project as it is: nothing found that differs",
        "drifted": "The project has changed since: DRIFTED",
        "unsafe": "Do not simply go on: UNSAFE",
    }[found.verdict]
    left = ", ".join(found.unchecked)
    return f"{said} (not compared: {left})." if left else f"{said}."


def _sections(brief: Brief) -> list[_Section]:
    done = [f"- {title_of(task)}" for task in reversed(brief.tasks_with("completed"))]
    steps = [
        f"- [{_OPEN[status]}] {title_of(task)}"
        for status in _OPEN
        for task in brief.tasks_with(status)
    ]
    stuck = [
        f"- [{task['status']}] {title_of(task)}" for task in brief.tasks_with("blocked", "failed")
    ]
    total = len(brief.tasks)
    progress = [f"{len(done)} of {total} tasks completed"] if total else []
    if isinstance(brief.progress, (int, float)):
        # A whole number may be larger than any that is shown so.
        with suppress(OverflowError):
            progress.append(f"reported: {brief.progress:g}")
    elif brief.progress:
        progress += [f"{one_line(k)}: {one_line(v, 80)}" for k, v in brief.progress.items()][:5]
    return [
        _Section("No longer true", 9, [_reason(one) for one in brief.preflight.reasons]),
        _Section("Progress", 8, [f"- {line}" for line in progress]),
        _Section("Next", 7, steps),
        _Section("Open items", 6, stuck),
        _Section("Decisions", 5, [_note(one) for one in brief.decisions]),
        _Section("Learned", 3, [_note(one) for one in brief.learnings]),
        _Section("Open files", 4, [_open_file(one) for one in brief.open_files]),
        _Section("Memory", 2, [f"- {_memory(one)}" for one in brief.memory]),
        _Section("Last errors", 1, [_error(one) for one in brief.errors]),
        _Section("Done", 0, done),
        _Section("Earlier sessions", 2, [_ancestor(one) for one in brief.lineage]),
    ]


def _reason(one: Reason) -> str:
    return f"- {one.code}: {one_line(one.message)}"


def _note(one: Note) -> str:
    text = f"- {one_line(one.text)}"
    if one.rationale:
        text += f" Because: {one_line(one.rationale)}"
    if one.alternatives:
        text += f" Instead of: {one_line('; '.join(one.alternatives))}"
    return text


def _open_file(one: Mapping[str, Any]) -> str:
    place = ":".join(str(one[key]) for key in ("line", "column") if one.get(key) is not None)
    states = (("active", one.get("active")), ("MISSING", one["missing"]))
    flags = [word for word, holds in states if holds]
    said = f" ({', '.join(flags)})" if flags else ""
    return f"- {one_line(one['path'])}{':' + place if place else ''}{said}"


def _memory(one: MemoryRefReport) -> str:
    return f"{one_line(one.key)} ({one_line(one.location)}): {one.status}"


def _error(one: LogRecord) -> str:
    return f"- {moment(one.created_at)}: {one_line(one.message)}"


def _ancestor(one: Ancestor) -> str:
    task = one_line(one.record.task_description or one.record.agent_type, 120)
    return f"- {one.relation} {one_line(one.record.id)}, {one.record.status}: {task}"


def _fitted(heading: list[str], sections: list[_Section], room: int) -> str:
    """Put the parts together, leaving out lines from the least important on until it fits."""
    present = [section for section in sections if section.lines]
    for section in present:
        section.shown = len(section.lines)
    spare = room - _cost(heading) - sum(_cost(_text_of(section)) for section in present)
    # First all lists are kept short, and only then does anything go altogether.
    for least in (5, 2, 1, 0):
        for section in sorted(present, key=lambda one: one.rank):
            while spare < 0 and section.shown > least:
                before = _cost([*_text_of(section), *_left_out(present)])
                section.shown -= 1
                spare += before - _cost([*_text_of(section), *_left_out(present)])
    parts = [line for one in present for line in _text_of(one)]
    text = "\n".join([*heading, *parts, *_left_out(present)]) + "\n"
    return text if estimate_tokens(text) <= room else _cut(text, room)


def _text_of(section: _Section) -> list[str]:
    if not section.shown:
        return []
    more = len(section.lines) - section.shown
    rest = [f"- … and {more} more"] if more else []
    return ["", f"## {section.title}", *section.lines[: section.shown], *rest]


def _left_out(sections: list[_Section]) -> list[str]:
    """Say how much did not fit at all."""
    gone = [len(one.lines) for one in sections if not one.shown]
    return ["", f"Left out: {sum(gone)} lines in {len(gone)} more sections."] if gone else []


def _cost(lines: Iterable[str]) -> int:
    return sum(estimate_tokens(f"{line}\n") for line in lines)


def _cut(text: str, room: int) -> str:
    """Return the beginning of a text that fits: a task may be longer than the whole room."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(f"{text[:middle]}…\n") <= room:
            low = middle
        else:
            high = middle - 1
    return f"{text[:low].rstrip()}…\n"
