"""The section of HANDOFF.md that is ours: a table of checkpoints between two markers.

Only what stands between the markers is ever changed, byte for byte; where there are none, they are added
at the very end. The file has a budget of tokens, since agents read it whole: decisions give way first, then
rows, until the file fits or nothing of ours is left but the markers.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from holdfast.brief import Note, estimate_tokens, moment, one_line
from holdfast.config import AGENTS_DIR, HandoffSettings, load_config
from holdfast.errors import HandoffRefused, IntegrityError
from holdfast.handoff.files import create_new, inside, replace_file
from holdfast.ids import is_uuid
from holdfast.model import CheckpointQuery, CheckpointRecord
from holdfast.regular_files import read_small_file
from holdfast.sessions import Session, SessionManager
from holdfast.sessions.passed_over import PassedOver, find_passed_over
from holdfast.sessions.rollback_request import is_of_rollback
from holdfast.stores.readable import list_readable_checkpoints
from holdfast.stores.unwritable import writing

START: Final = "<!-- checkpoints:start -->"
END: Final = "<!-- checkpoints:end -->"
NAME: Final = "HANDOFF.md"

_TITLE: Final = "# Handoff\n\n"
_HEADER: Final = ("| name | id | saved | branch | resume |", "|---|---|---|---|---|")
# What a program saves for itself is of no use to a reader.
_CLASSES: Final = ("manual", "feature", "session", "failure")
_DECISIONS: Final = 5
_DAMAGED: Final = 3
_ATTEMPTS: Final = 5
# How many marks a heading of Markdown may begin with.
_DEEPEST: Final = 6


@dataclass(frozen=True, slots=True)
class SectionReport:
    """What became of the section. ``text`` is it, as it stands or would stand in the file.

    ``action`` is ``shown`` when nothing was to be written, ``left_alone`` when the settings forbid it,
    ``created``, ``updated`` or ``unchanged``. ``rows`` of ``found`` checkpoints fit. ``passed_over`` is newer
    than what is listed of its session, and damaged.
    """

    path: Path
    action: str
    text: str
    rows: int
    found: int
    tokens: int
    passed_over: tuple[PassedOver, ...] = ()


@dataclass(frozen=True, slots=True)
class Handoff:
    """A HANDOFF.md as it was read, by hand or by us, old or new.

    ``sections`` are its parts by heading (what comes before the first one under an empty heading),
    ``checkpoints`` the rows of our table, if it has one.
    """

    path: Path
    text: str
    sections: tuple[tuple[str, str], ...]
    checkpoints: tuple[dict[str, str], ...]


def handoff_path(project_dir: Path, settings: HandoffSettings) -> Path:
    """Return the file: the configured one, else the one there is, else ``.agents/HANDOFF.md``."""
    if settings.file:
        return inside(project_dir, Path(settings.file))
    usual = Path(AGENTS_DIR, NAME)
    if not (project_dir / usual).exists() and (project_dir / NAME).exists():
        usual = Path(NAME)
    return inside(project_dir, usual)


def update_handoff(
    manager: SessionManager,
    *,
    session: Session | None = None,
    write: bool = False,
    rows: int | None = None,
) -> SectionReport:
    """Bring the section up to date with the latest checkpoints, of one session or of all.

    Without ``write`` nothing is written. Doing it again changes nothing. Raises `HandoffRefused` for a
    file in which our section cannot be told from the rest.
    """
    project_dir = manager.project_dir
    settings = load_config(project_dir).handoff
    path = handoff_path(project_dir, settings)
    listed = listed_checkpoints(manager, session, most=rows or settings.rows)
    finished = _finished(manager, listed)
    table = [_row(one, finished) for one in listed]
    newer = _passed_over(manager, session, listed)
    decisions = _decisions(manager, session)
    for _ in range(_ATTEMPTS):
        before = _read(path)
        parts = _split(before if before is not None else _TITLE.encode(), path)
        text, shown = _section(table, newer, decisions, parts, settings.max_tokens)
        after = parts.head + text.encode() + parts.tail
        if before is None:
            after += parts.end.encode()
        action = _write(path, before, after) if write and settings.enabled else "shown"
        if write and not settings.enabled:
            action = "left_alone"
        if action != "again":
            tokens = estimate_tokens(after.decode("utf-8", "replace"))
            return SectionReport(path, action, text, shown, len(listed), tokens, newer)
    raise HandoffRefused(f"{path} keeps changing while it is being updated; nothing was written")


def read_handoff(path: Path) -> Handoff:
    """Read any HANDOFF.md: whatever its line ends, byte order mark or encoding."""
    try:
        data = read_small_file(path)
    except FileNotFoundError:
        raise HandoffRefused(f"there is no {path}") from None
    except OSError as error:
        raise HandoffRefused(f"{path} cannot be read: {error.strerror}") from None
    utf_16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if utf_16 else "utf-8-sig", "replace")
    text = text.replace("\r\n", "\n")
    return Handoff(path, text, tuple(_sections(text)), tuple(_rows(text)))


# Finding what to say --------------------------------------------------------------------------


def listed_checkpoints(
    manager: SessionManager, session: Session | None, *, most: int
) -> list[CheckpointRecord]:
    """Return the latest checkpoints that a handoff tells of, of one session or of all, newest first.

    What is in quarantine is not among them: nobody can go on from it. Nor is what a rollback saved for itself.
    """
    session_id = None if session is None else session.id
    found: list[CheckpointRecord] = []
    for kept_as in _CLASSES:
        query = CheckpointQuery(
            session_id, namespace="", retention_class=kept_as, quarantined=False, limit=most
        )
        found += islice(_saved_by_hand(manager, query), most)
    return sorted(found, key=lambda one: one.seq, reverse=True)[:most]


def _saved_by_hand(manager: SessionManager, query: CheckpointQuery) -> Iterator[CheckpointRecord]:
    """Return what a query finds, newest first and a page at a time, without what rollbacks saved."""
    while page := list_readable_checkpoints(manager.store, query):
        yield from (one for one in page if not is_of_rollback(one))
        query = replace(query, before_seq=page[-1].seq)


def _passed_over(
    manager: SessionManager, session: Session | None, listed: Sequence[CheckpointRecord]
) -> tuple[PassedOver, ...]:
    """Return what is newer and damaged of the sessions that a handoff tells of, newest first in each."""
    if session is not None:
        return tuple(session.passed_over())
    ids = [one.session_id for one in (*listed, *manager.list_quarantined())]
    found = (find_passed_over(manager.store, one) for one in dict.fromkeys(ids))
    return tuple(chain.from_iterable(found))


def _finished(manager: SessionManager, records: Sequence[CheckpointRecord]) -> set[str]:
    """Return which of the sessions of these checkpoints are final, as far as their rows can be read."""
    found = set()
    for session_id in {one.session_id for one in records}:
        with suppress(IntegrityError):
            record = manager.store.find_session(session_id)
            if record is not None and record.status == "completed":
                found.add(session_id)
    return found


def _decisions(manager: SessionManager, session: Session | None) -> Sequence[Note]:
    if session is None:
        newest = manager.list_sessions(limit=1)
        if not newest:
            return ()
        session = manager.get_session(newest[0].id)
    return session.brief().decisions[:_DECISIONS]


# The file -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """A file around our section, and how it ends its lines."""

    head: bytes
    tail: bytes
    end: str

    @property
    def tokens(self) -> int:
        return estimate_tokens((self.head + self.tail).decode("utf-8", "replace"))


def _read(path: Path) -> bytes | None:
    try:
        return read_small_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HandoffRefused(f"{path}: {error.strerror}; nothing was written") from None


def _split(data: bytes, path: Path) -> _Parts:
    """Part a file at the markers; without any, our section comes at the end."""
    try:
        if b"\0" in data:
            raise UnicodeDecodeError("utf-8", data, 0, 1, "NUL")
        data.decode("utf-8")
    except UnicodeDecodeError:
        raise HandoffRefused(f"{path} is not UTF-8 text; nothing was written") from None
    end = "\r\n" if b"\r\n" in data else "\n"
    start, stop = START.encode(), END.encode()
    if start not in data and stop not in data:
        if data and not data.endswith(b"\n") and _needs_line(data):
            data += end.encode()
        return _Parts(data, b"", end)
    first, last = data.find(start), data.find(stop)
    if data.count(start) != 1 or data.count(stop) != 1 or last < first:
        raise HandoffRefused(
            f"{path} does not have the markers {START} and {END} once each and in this order, so it "
            "cannot be told what may be replaced. Nothing was written: correct the markers"
        )
    return _Parts(data[:first], data[last + len(stop) :], end)


def _needs_line(data: bytes) -> bool:
    """Tell whether the last line means something else with a comment behind it: the end of a fence."""
    return data.rpartition(b"\n")[2].lstrip().startswith((b"```", b"~~~"))


def _write(path: Path, before: bytes | None, after: bytes) -> str:
    if before == after:
        return "unchanged"
    with writing(path):
        if before is not None:
            return "updated" if replace_file(path, before, after) else "again"
        try:
            create_new(path, after)
        except FileExistsError:
            return "again"
        return "created"


# The text -------------------------------------------------------------------------------------


def _section(
    table: Sequence[str],
    newer: Sequence[PassedOver],
    decisions: Sequence[Note],
    parts: _Parts,
    most: int,
) -> tuple[str, int]:
    """Return the section with as many rows as the file has room for, and how many those are."""
    room = most - parts.tokens
    sizes = [(len(table), count) for count in range(len(decisions), 0, -1)]
    sizes += [(count, 0) for count in range(len(table), -1, -1)]
    for rows, notes in sizes:
        text = _lines(table[:rows], newer, decisions[:notes], parts.end)
        if estimate_tokens(text) <= room:
            return text, rows
    return f"{START}{parts.end}{END}", 0


def _lines(
    table: Sequence[str], newer: Sequence[PassedOver], decisions: Sequence[Note], end: str
) -> str:
    lines = [START, "", "## Checkpoints", ""]
    if table:
        lines += [*_HEADER, *table, ""]
    else:
        lines += ["None.", ""]
    if newer:
        lines += [
            "Newer, and damaged:",
            "",
            *(f"- {_damaged(one)}" for one in newer[:_DAMAGED]),
            "",
        ]
    if decisions:
        lines += ["Decisions:", "", *(f"- {_decision(one)}" for one in decisions), ""]
    return end.join([*lines, END])


def _row(one: CheckpointRecord, finished: Collection[str]) -> str:
    branch = one.git_branch or (one.git_commit or "")[:10]
    cells = (
        _cell(one.name),
        _cell(one.id),
        moment(one.created_at),
        _cell(f"{branch}*" if one.git_uncommitted else branch),
        f"`{_command(one, finished=one.session_id in finished)}`",
    )
    return f"| {' | '.join(cells)} |"


def _command(one: CheckpointRecord, *, finished: bool) -> str:
    """Return what to type; an id that no table can hold is left to be looked up."""
    # In a database from elsewhere it may be anything.
    checkpoint = one.id if is_uuid(one.id) else "CHECKPOINT"
    if not one.resumable:
        return f"holdfast show {checkpoint}"
    if finished:
        return f"holdfast fork {checkpoint}"
    known = one.session_id if re.fullmatch(r"[^`|<>\x00-\x1f]+", one.session_id) else "SESSION"
    return f"holdfast resume {shlex.quote(known)} --checkpoint {checkpoint}"


def _cell(text: str) -> str:
    return html.escape(one_line(text, 80), quote=False).replace("\\", "\\\\").replace("|", "\\|")


def _damaged(one: PassedOver) -> str:
    return html.escape(one_line(f"session {one.session_id}: {one.text}"), quote=False)


def _decision(one: Note) -> str:
    text = one.text if not one.rationale else f"{one.text} (because: {one.rationale})"
    return html.escape(one_line(text), quote=False)


# Reading --------------------------------------------------------------------------------------


def _sections(text: str) -> Iterator[tuple[str, str]]:
    title, lines, fence = "", [""], ""
    for line in text.split("\n"):
        mark = re.match(r" {0,3}(```+|~~~+)", line)
        if mark is not None and fence in ("", mark[1][:3]):
            fence = "" if fence else mark[1][:3]
        heading = None if fence else _heading(line)
        if heading is None:
            lines.append(line)
            continue
        if title or "".join(lines).strip():
            yield title, "\n".join(lines).strip()
        title, lines = heading, []
    if title or "".join(lines).strip():
        yield title, "\n".join(lines).strip()


def _heading(line: str) -> str | None:
    """Return what a heading says, None for another line.

    Without a pattern: one would try every place where the marks at its end may begin.
    """
    said = line.lstrip("#")
    if not 1 <= len(line) - len(said) <= _DEEPEST or not said[:1].isspace():
        return None
    title = said.strip()
    before = title.rstrip("#")
    # Marks at the end belong to the heading only where they stand by themselves.
    return before.rstrip() if not before or before[-1].isspace() else title


def _rows(text: str) -> Iterator[dict[str, str]]:
    inner = text.partition(START)[2].partition(END)[0]
    names = [name.strip() for name in _HEADER[0].strip("| ").split("|")]
    for line in inner.split("\n"):
        cells = [one.strip() for one in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) == len(names) and not set("".join(cells)) <= set("-:") and cells != names:
            yield dict(zip(names, (_plain(cell) for cell in cells), strict=True))


def _plain(cell: str) -> str:
    return html.unescape(cell.replace("\\|", "|").replace("\\\\", "\\")).strip("`")


def to_document(report: SectionReport) -> dict[str, Any]:
    """Return a report as plain values."""
    return {
        "path": str(report.path),
        "action": report.action,
        "rows": report.rows,
        "found": report.found,
        "tokens": report.tokens,
        "text": report.text,
        "passed_over": [one.to_document() for one in report.passed_over],
    }
