"""The handoff of one issue: what the next session has to know about it, from a template.

The parts have the names that such files have in the projects which invented them: Status, Files Modified,
Decisions Made, Blocked Items, Next Steps, Context for Next Session, Verification on Resume, Related.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from importlib.resources import files
from itertools import count
from pathlib import Path
from string import Template
from typing import Final

from holdfast.brief import Brief, Note, one_line, title_of
from holdfast.config import AGENTS_DIR, load_config
from holdfast.errors import CheckpointNotFound, HandoffRefused, InvalidIdentifier
from holdfast.handoff.files import create_new, inside
from holdfast.handoff.session_log import last_session_log
from holdfast.model import CheckpointRecord, utc_now
from holdfast.regular_files import read_small_file
from holdfast.sessions import Session, SessionManager
from holdfast.stores.unwritable import writing

FOLDER: Final = Path(AGENTS_DIR, "sessions", "handoffs")
_ISSUE: Final = re.compile(r"#?([A-Za-z0-9][A-Za-z0-9._-]{0,63})")
_FILES: Final = 50
_NOTHING: Final = "- none"


def write_issue_handoff(
    manager: SessionManager,
    session: Session,
    *,
    issue: str,
    title: str | None = None,
    template: str | Path | None = None,
) -> Path:
    """Write a handoff for an issue to ``.agents/sessions/handoffs/`` and return its path.

    A second one on the same day gets a number: nothing is overwritten. Another ``template`` has
    ``$placeholders`` where ours has.
    """
    found = _ISSUE.fullmatch(issue)
    if found is None:
        raise InvalidIdentifier(f"an issue is a number or a short name, not {issue!r}")
    chosen = template or load_config(manager.project_dir).handoff.template
    text = _template(manager.project_dir, chosen)
    log = last_session_log(manager, session.id)
    values = _values(session, session.brief(files=True), found[1], title, log)
    try:
        data = Template(text).substitute(values).encode()
    except (KeyError, ValueError) as error:
        known = ", ".join(f"${name}" for name in values)
        raise HandoffRefused(
            f"the template cannot be filled in ({error}); it may use {known}. Nothing was written"
        ) from None
    name = f"{utc_now():%Y-%m-%d}-{found[1]}-handoff"
    for number in count(1):
        path = inside(
            manager.project_dir, FOLDER / f"{name if number == 1 else f'{name}-{number}'}.md"
        )
        try:
            with writing(path):
                create_new(path, data)
        except FileExistsError:
            continue
        break
    return path


def _template(project_dir: Path, chosen: str | Path | None) -> str:
    if not chosen:
        return (files("holdfast.handoff") / "issue.md").read_text(encoding="utf-8")
    try:
        return read_small_file(project_dir / chosen).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise HandoffRefused(
            f"the template {chosen} cannot be read: {error}. Nothing was written"
        ) from None


def _values(
    session: Session, brief: Brief, issue: str, title: str | None, log: str | None
) -> Mapping[str, str]:
    saved = brief.checkpoint
    total, done = len(brief.tasks), len(brief.tasks_with("completed"))
    return {
        "timestamp": utc_now().isoformat(timespec="seconds"),
        "issue": f"#{issue}" if issue.isdigit() else issue,
        "title": one_line(title or session.task_description or session.agent_type),
        "branch": (saved.git_branch if saved else None) or "none",
        "task": one_line(session.task_description or session.agent_type),
        "phase": _phase(brief),
        "progress": f"{done} of {total} tasks completed" if total else "no tasks recorded",
        "files": _listed(f"`{path}`" for path in _changed(session)),
        "decisions": _listed(_decision(one) for one in brief.decisions),
        "blocked": _listed(
            f"**{title_of(task)}**: {task['status']}"
            for task in brief.tasks_with("blocked", "failed")
        ),
        "next": "\n".join(f"{at}. {step}" for at, step in enumerate(brief.next_steps, 1))
        or "1. decide what is next",
        "context": _listed(
            [one_line(one.text) for one in brief.learnings]
            + [f"{one.code}: {one_line(one.message)}" for one in brief.preflight.reasons]
        ),
        "checks": "\n".join(
            [
                "- [ ] `holdfast brief --check` says clean, or every reason is understood",
                f"- [ ] the branch is `{(saved.git_branch if saved else None) or 'none'}`",
                "- [ ] blocked items are still blocked",
                "- [ ] the first next step is still the right one",
            ]
        ),
        "session": session.id,
        "resume": _resume(session, saved),
        "log": f"`{log}`" if log else "none yet",
    }


def _resume(session: Session, saved: CheckpointRecord | None) -> str:
    if saved is not None and session.status == "completed":
        return f"holdfast fork {shlex.quote(saved.id)}"
    from_there = "" if saved is None else f" --checkpoint {shlex.quote(saved.id)}"
    return f"holdfast resume {shlex.quote(session.id)}{from_there}"


def _phase(brief: Brief) -> str:
    if brief.session.status == "completed":
        return "complete"
    if brief.tasks_with("blocked") and not brief.tasks_with("in_progress"):
        return "blocked"
    started = brief.tasks_with("in_progress", "completed") or brief.checkpoint is not None
    return "implementing" if started else "planning"


def _changed(session: Session) -> list[str]:
    """Return the paths that were uncommitted at the last checkpoint."""
    try:
        git = session.latest_checkpoint().git or {}
    except CheckpointNotFound:
        return []
    paths = {path for name in ("staged", "unstaged", "untracked") for path in git.get(name) or ()}
    listed = sorted(paths)
    more = [f"… and {len(listed) - _FILES} more"] if len(listed) > _FILES else []
    return listed[:_FILES] + more


def _decision(one: Note) -> str:
    text = f"**{one_line(one.text)}**: {one_line(one.rationale or 'no rationale recorded')}"
    if one.alternatives:
        text += f"\n  - Alternatives considered: {one_line('; '.join(one.alternatives))}"
    return text


def _listed(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items) or _NOTHING
