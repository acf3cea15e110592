"""Events that are acted upon: each in a process of its own that joins the agent's session.

The session of ours is found by the agent's own session id, which stands in its metadata. All processes of one
agent session are one owner of the lease, and one of them at a time saves.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.config import AGENTS_DIR, CONFIG_FILE, Config, HookSettings, load_config
from holdfast.errors import SnapshotCorrupt
from holdfast.hooks import events
from holdfast.hooks.agents import EDITS, READS
from holdfast.hooks.briefing import brief_of
from holdfast.hooks.desk import Desk
from holdfast.hooks.events import Event, clean
from holdfast.hooks.quick import AHEAD, ASKED, line_of, prompt_of
from holdfast.hooks.saving import DID, SAVED, Saving
from holdfast.hooks.starting import BEGUN_BY, Started, agent_process, end, open_session, start
from holdfast.hooks.tools import Use, use_of
from holdfast.places import keep_out_of_git, stated_store
from holdfast.sessions import Session, SessionManager
from holdfast.workspace.glance import remember, stamp
from holdfast.workspace.notes import read_bytes

LEASE: Final = timedelta(hours=1)
_SHORT_SECONDS: Final = 2.0
_SUBAGENT_CHARACTERS: Final = 100


def act(event: Event, root: str) -> str | None:
    """Do what an event asks for. Returns what the agent is to be told, if anything."""
    config = load_config(root)
    settings = config.hooks
    desk = Desk(root, event.agent, event.session_id)
    toml = [os.path.join(root, AGENTS_DIR, CONFIG_FILE)]
    if not settings.enabled:
        if desk.exists():
            desk.write_note({"enabled": False, **_checked(toml)})
        return None
    # Before anything is written: a link may lead out of the project.
    _ = config.url
    _make_private(config)
    patience = float(settings.seconds)
    if event.agent == "codex" and event.kind == events.SESSION_END:
        # It waits for three seconds, and then ends us.
        patience = min(patience, _SHORT_SECONDS)
    with desk.holding(patience):
        with SessionManager.open(
            project_dir=root,
            owner=event.owner,
            lease_ttl=LEASE,
            busy_timeout=patience,
            redact="unless off",
            rehydrate=False,
        ) as manager:
            acting = _Acting(manager, event, desk, settings)
            answer = acting.run()
            path = getattr(manager.store, "path", None)
        # The database is closed now, and its files are what they stay.
        files = [str(path), f"{path}-wal"] if path is not None else []
        desk.write_note(acting.note(_checked([*toml, *files])))
    return answer


def _checked(paths: list[str]) -> dict[str, Any]:
    return {"checked_ns": time.time_ns(), "marks": [[path, stamp(path)] for path in paths]}


def _make_private(config: Config) -> None:
    """Before anything is written: make ``.agents``, and keep what is ours out of the user's git."""
    home = config.project_dir / AGENTS_DIR
    home.mkdir(mode=0o700, exist_ok=True)
    keep_out_of_git(str(home))


class _Acting:
    """One event, with the session it belongs to."""

    def __init__(
        self, manager: SessionManager, event: Event, desk: Desk, settings: HookSettings
    ) -> None:
        self.manager = manager
        self.event = event
        self.desk = desk
        self.settings = settings
        self.before = desk.read_note()
        self.began_ns = time.time_ns()
        self.saved_ns: int | None = None
        self.keep: dict[str, Any] = {
            key: self.before[key]
            for key in ("prompt", "turn", "compacted_at", SAVED, DID, ASKED)
            if key in self.before
        }
        self.begun_by: str | None = None
        self.commit: str | None = None

    def run(self) -> str | None:
        """Act by what happened."""
        event = self.event
        if event.kind == events.SESSION_START:
            return self.start()
        session = open_session(self.manager, event, self.desk)
        if session is None:
            return None
        if event.kind == events.BEFORE_TOOL:
            self.before_tool(session)
        elif event.kind == events.PROMPT:
            self.prompt(session)
        elif event.kind == events.AFTER_TOOL:
            self.after_tool()
        elif event.kind == events.SUBAGENT_START:
            self.subagent_starts(session)
        elif event.kind == events.SUBAGENT_STOP:
            self.subagent_stops(session)
        elif event.kind == events.TASK_COMPLETED:
            self.task_completed(session)
        elif event.kind == events.BEFORE_COMPACTION:
            self.before_compaction(session)
        elif event.kind == events.STOP:
            self.stop(session)
        else:
            self.end(session)
        return None

    # What happens at each event ---------------------------------------------------------------

    def start(self) -> str | None:
        self.desk.tidy()
        self.keep.pop(ASKED, None)
        started: Started = start(self.manager, self.event, self.desk)
        self.begun_by = agent_process()
        source = clean(self.event.text("source"), 40)
        self.save(
            started.session,
            "session",
            f"session starts ({source})" if source else "session starts",
        )
        if started.told is None:
            return None
        return brief_of(self.manager, started.told, self.desk.root, self.settings.brief_tokens)

    def before_tool(self, session: Session) -> None:
        use = use_of(self.event, self.settings.read_only)
        if use.does == READS:
            return
        self.save_changes(session, f"before {self.event.tool} {use.detail}".rstrip(), use)
        if use.does != EDITS:
            self.desk.append(AHEAD)

    def prompt(self, session: Session) -> None:
        """Keep the first request as the task: the agent may be killed before there is a checkpoint."""
        prompt = prompt_of(self.event)
        if not self.before:
            # It could not be put into the journal before there was a place for one.
            self.desk.append({"prompt": prompt})
        if session.task_description is None and prompt.strip():
            session.describe_task(prompt)
        self.keep[ASKED] = True

    def after_tool(self) -> None:
        """Put into the journal what could not be put there before the session existed."""
        if (line := line_of(self.event, use_of(self.event, self.settings.read_only))) is not None:
            self.desk.append(line)

    def subagent_starts(self, session: Session) -> None:
        name, kind = self.subagent()
        self.agent_of(session, name, kind, "running")
        self.save_changes(session, f"before the subagent {kind}")

    def subagent_stops(self, session: Session) -> None:
        name, kind = self.subagent()
        self.agent_of(session, name, kind, "completed")
        self.save(session, "automatic", f"the subagent {kind} ended", subagent=name)

    def task_completed(self, session: Session) -> None:
        event = self.event
        title = event.text("task_subject", "task_description", "task", "task_id", "title")
        self.save(
            session, "step", f"task completed: {clean(title, 160)}" if title else "task completed"
        )

    def before_compaction(self, session: Session) -> None:
        last = self.before.get("compacted_at")
        now = time.time()
        if isinstance(last, (int, float)) and 0 <= now - last < self.settings.compaction_seconds:
            return
        self.save(session, "step", "before the conversation is compacted")
        self.keep["compacted_at"] = now

    def stop(self, session: Session) -> None:
        self.save(session, "step", None)

    def end(self, session: Session) -> None:
        reason = clean(self.event.text("reason"), 40)
        self.save(session, "step", f"session ends ({reason})" if reason else "session ends")
        end(session, self.event, finished=self.keep.get("turn") != "open")

    # Saving -----------------------------------------------------------------------------------

    def save_changes(self, session: Session, description: str, use: Use | None = None) -> None:
        """Save an automatic checkpoint, unless every file is as the last one has it."""
        differ, self.commit = session.look_at_files()
        if differ:
            self.save(session, "automatic", description, use=use)
        elif use is not None and use.does == EDITS:
            self.saved_ns = self.before.get("saved_ns")

    def save(
        self,
        session: Session,
        retention_class: str,
        description: str | None,
        *,
        use: Use | None = None,
        subagent: str | None = None,
    ) -> None:
        began = time.time_ns()
        saving = Saving(self.manager, session, self.event, self.desk, self.settings, self.keep)
        saving.commit = self.commit
        saving.save(retention_class, description, use=use, subagent=subagent)
        if self.event.kind == events.BEFORE_TOOL:
            self.saved_ns = began

    def subagent(self) -> tuple[str, str]:
        name = clean(self.event.text("agent_id", "subagent_id"), _SUBAGENT_CHARACTERS)
        kind = clean(self.event.text("agent_type", "subagent_type"), _SUBAGENT_CHARACTERS)
        return name or "subagent", kind or "subagent"

    def agent_of(self, session: Session, name: str, kind: str, status: str) -> None:
        """Keep the subagent as an agent below the session's own."""
        for agent in self.manager.list_agents(parent_id=session.agent_id):
            if agent.name == name:
                self.manager.update_agent(agent.id, status=status)
                return
        self.manager.create_agent(name, agent_type=kind, parent_id=session.agent_id, status=status)

    def note(self, checked: dict[str, Any]) -> dict[str, Any]:
        """Return what the next process may go by."""
        return {
            **checked,
            **self.keep,
            "enabled": True,
            BEGUN_BY: self.begun_by,
            "saved_ns": self.saved_ns,
            "debounce_ms": self.settings.debounce_ms,
            "read_only": list(self.settings.read_only),
            "store": stated_store(),
            "glance": self.glance(),
        }

    def glance(self) -> dict[str, Any] | None:
        import json

        path = Path(self.desk.root, AGENTS_DIR, "workspace.git", "last.json")
        try:
            return remember(self.desk.root, json.loads(read_bytes(path)))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, SnapshotCorrupt):
            # A note of somebody else's making: the next process has to look for itself.
            return None
