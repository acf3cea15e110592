"""The log of a session as two files: Markdown for people, JSON for programs.

``.agents/sessions/2026-01-31-session-07.md`` and ``.json``. The number is the next one that no file has,
over all days. Of many who export at once each gets its own: the JSON file is created first and only if it
is not there, which reserves the number for both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from holdfast.brief import Brief, one_line
from holdfast.config import AGENTS_DIR
from holdfast.handoff.files import create_new, inside, make_folder
from holdfast.ids import is_uuid
from holdfast.model import CheckpointRecord, LogRecord
from holdfast.sessions import Session, SessionManager
from holdfast.stores.unwritable import writing

FOLDER: Final = Path(AGENTS_DIR, "sessions")
SCHEMA_VERSION: Final = "1.0"
EXPORTED: Final = "session_log"

_NUMBERED: Final = re.compile(r"\d{4}-\d{2}-\d{2}-session-(\d{1,9})(?:\D.*)?")
_ENTRIES: Final = 500
_COMMIT: Final = 40


class Answered(Protocol):
    """What a gate asked for: its name and level, whether it was so, and how that is known."""

    @property
    def name(self) -> str:
        """What was asked for."""
        ...

    @property
    def level(self) -> str:
        """``MUST`` or ``SHOULD``."""
        ...

    @property
    def met(self) -> bool:
        """Whether it was so."""
        ...

    @property
    def evidence(self) -> str:
        """How that is known."""
        ...


@dataclass(frozen=True, slots=True)
class SessionLog:
    """An exported log: its number and its two files."""

    number: int
    markdown: Path
    json: Path


def export_session_log(
    manager: SessionManager,
    session: Session,
    *,
    gates: Mapping[str, Sequence[Answered]] | None = None,
) -> SessionLog:
    """Write the log of a session under the next free number. ``gates`` are answers to record in it."""
    folder = inside(manager.project_dir, FOLDER)
    with writing(folder):
        make_folder(folder)
        number = 1 + max((_number(path.name) for path in folder.iterdir()), default=0)
    logged = manager.store.list_logs(session.id, newest=True, limit=_ENTRIES)
    document = _document(session, session.brief(), logged, gates or {})
    while True:
        stem = f"{session.created_at:%Y-%m-%d}-session-{number:02}"
        written = SessionLog(number, folder / f"{stem}.md", folder / f"{stem}.json")
        document["session"]["number"] = number
        with suppress(FileExistsError):
            _create(written, document, stem)
            break
        number += 1
    session.log("info", _exported_as(stem), data={EXPORTED: f"{FOLDER.as_posix()}/{stem}.json"})
    return written


def last_session_log(manager: SessionManager, session_id: str) -> str | None:
    """Return the latest exported log of a session, as a path of the project."""
    for line in manager.store.list_logs(session_id, key=EXPORTED, newest=True):
        # A program may use the same key for lines of its own.
        path = str((line.data or {})[EXPORTED])
        if line.message == _exported_as(Path(path).stem):
            return path
    return None


def _exported_as(stem: str) -> str:
    return f"exported as {stem}"


def _number(name: str) -> int:
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else 0


def _create(log: SessionLog, document: Mapping[str, Any], stem: str) -> None:
    """Write both files, or none. Raises `FileExistsError` where one of them is there already."""
    with writing(log.json):
        create_new(log.json, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    try:
        with writing(log.markdown):
            create_new(log.markdown, _markdown(document, stem).encode())
    except BaseException:
        log.json.unlink()
        raise


def _document(
    session: Session,
    brief: Brief,
    logged: Sequence[LogRecord],
    gates: Mapping[str, Sequence[Answered]],
) -> dict[str, Any]:
    saved = [one.record for one in session.list_checkpoints(limit=_ENTRIES)][::-1]
    about: dict[str, Any] = {
        "number": 0,
        "date": f"{session.created_at:%Y-%m-%d}",
        "branch": next((one.git_branch for one in reversed(saved) if one.git_branch), ""),
        "startingCommit": _commit(saved[:1]),
        "objective": one_line(session.task_description or session.agent_type, 1000),
    }
    if is_uuid(session.id):
        about["traceId"] = session.id
    return {
        "schemaVersion": SCHEMA_VERSION,
        "session": about,
        "protocolCompliance": {
            "sessionStart": _checklist(gates.get("start", ())),
            "sessionEnd": _checklist(gates.get("end", ())),
        },
        "workLog": _work(logged, saved),
        "outcomes": {
            "decisions": [
                {
                    "decision": one.text,
                    "rationale": one.rationale or "",
                    "impact": f"instead of: {'; '.join(one.alternatives)}"
                    if one.alternatives
                    else "",
                }
                for one in brief.decisions
            ]
        },
        "learnings": {"patterns": [{"pattern": one.text} for one in brief.learnings]},
        "endingCommit": _commit(saved[-1:]),
        "nextSteps": brief.next_steps,
    }


def _commit(saved: Sequence[CheckpointRecord]) -> str:
    # Forty characters is what readers of this format know, also of a longer one.
    return next((one.git_commit[:_COMMIT] for one in saved if one.git_commit), "")


def _checklist(items: Sequence[Answered]) -> dict[str, Any]:
    return {
        re.sub(r"_([a-z])", lambda found: found[1].upper(), item.name): {
            "complete": item.met,
            "level": item.level,
            "evidence": item.evidence,
        }
        for item in items
    }


def _work(logged: Sequence[LogRecord], saved: Sequence[CheckpointRecord]) -> list[dict[str, Any]]:
    entries = [
        (one.created_at, {"action": f"checkpoint {one.name}", "result": one.description or "saved"})
        for one in saved
    ]
    entries += [
        (line.created_at, {"action": line.message, "result": line.level})
        for line in reversed(logged)
    ]
    ordered = sorted(entries, key=lambda entry: entry[0])
    return [{"at": at.isoformat(), **entry} for at, entry in ordered]


def _markdown(document: Mapping[str, Any], stem: str) -> str:
    about = document["session"]
    lines = [
        f"# {stem}",
        "",
        f"- **Objective**: {about['objective']}",
        f"- **Branch**: {about['branch'] or 'none'}",
        f"- **Commits**: {about['startingCommit'] or 'none'} to {document['endingCommit'] or 'none'}",
    ]
    for name, title in (("sessionStart", "Session start"), ("sessionEnd", "Session end")):
        items = document["protocolCompliance"][name]
        if items:
            lines += ["", f"## {title}", ""]
            lines += [
                f"- [{'x' if one['complete'] else ' '}] {one['level']} {key}: "
                f"{one_line(one['evidence'])}"
                for key, one in items.items()
            ]
    lines += ["", "## Work log", ""]
    lines += [
        f"- {one['at'][:16].replace('T', ' ')} {one_line(one['action'])}: {one_line(one['result'])}"
        for one in document["workLog"]
    ] or ["- nothing"]
    if document["outcomes"]["decisions"]:
        lines += ["", "## Decisions", ""]
        lines += [
            f"- **{one_line(one['decision'])}**: {one_line(one['rationale'] or 'no rationale')}"
            for one in document["outcomes"]["decisions"]
        ]
    if document["learnings"]["patterns"]:
        lines += ["", "## Learned", ""]
        lines += [f"- {one_line(one['pattern'])}" for one in document["learnings"]["patterns"]]
    lines += ["", "## Next steps", ""]
    lines += [f"{at}. {step}" for at, step in enumerate(document["nextSteps"], 1)] or ["None."]
    return "\n".join(lines) + "\n"
