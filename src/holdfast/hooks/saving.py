"""A checkpoint for an event: the conversation as far as it has come, the files, and what was done.

What happened since the last checkpoint comes from the journal; which files were written in it, `authorship`
finds out.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.config import HookSettings, read_agent_context
from holdfast.errors import InvalidState
from holdfast.hooks import events
from holdfast.hooks.authorship import HOOK, Authorship
from holdfast.hooks.desk import Desk
from holdfast.hooks.events import Event, clean
from holdfast.hooks.tools import Use
from holdfast.hooks.transcripts import HISTORY, SUBAGENTS, TRANSCRIPT, add_conversation
from holdfast.sessions import Session, SessionManager
from holdfast.state.documented import validate_documented

# The key in a note for the last checkpoint: where it is, of which session, and its number.
SAVED: Final = "saved"
# And for what was done since a turn last ended: how many steps, and the latest of them.
DID: Final = "did"
# What in a state is about one conversation; the rest is about the work, whoever goes on with it.
_CONVERSATION: Final = ("agent", "context", HISTORY, SUBAGENTS, TRANSCRIPT)
_STEPS: Final = 20
_TOLD_STEPS: Final = 3
_FILES: Final = 50
_MOST_INT: Final = 10**15
_PROMPT_CHARACTERS: Final = 200


class Saving:
    """One checkpoint. ``note`` is what is known from one event to the next, and is brought up to date."""

    def __init__(
        self,
        manager: SessionManager,
        session: Session,
        event: Event,
        desk: Desk,
        settings: HookSettings,
        note: dict[str, Any],
    ) -> None:
        self.manager = manager
        self.session = session
        self.event = event
        self.desk = desk
        self.settings = settings
        self.note = note
        # A snapshot of the files as they are, if one was taken already.
        self.commit: str | None = None

    def save(
        self,
        retention_class: str,
        description: str | None,
        *,
        use: Use | None = None,
        subagent: str | None = None,
    ) -> None:
        """Store a checkpoint; what the journal told of is stored with it."""
        lines = self.desk.take()
        authorship = Authorship(self.manager, self.session, self.desk)
        written = authorship.find(lines, self.commit)
        wrote = sorted(written.mine)
        self.session.wrote(*wrote)
        authorship.tell_others(written)
        state = self._state(lines, subagent)
        self._follow_turn(lines)
        done = self._metadata(lines, use, subagent, len(wrote), wrote[:_FILES])
        saved = self.session.save_checkpoint(
            state=state,
            retention_class=retention_class,
            description=self._told(description, done),
            metadata={HOOK: done},
        )
        self.desk.forget_taken()
        store = self.manager.store
        self.note[SAVED] = {
            "session_id": self.session.id,
            "url": store.url,
            "tenant": store.tenant,
            "after_seq": saved.seq,
        }

    # What the agent knows ------------------------------------------------------------------------

    def _state(self, lines: list[dict[str, Any]], subagent: str | None) -> dict[str, Any]:
        state = self.session.outline()
        event = self.event
        about = {"kind": event.agent, "session_id": clean(event.session_id, 200)}
        known = _dict(state.get("agent"))
        if any(known.get(key, value) != value for key, value in about.items()):
            # The first checkpoint of an agent that goes on with another one's work.
            for key in _CONVERSATION:
                state.pop(key, None)
        if model := clean(event.text("model"), 100):
            about["model"] = model
        state["agent"] = {**_dict(state.get("agent")), **about}
        self._add_given(state, "open_files", event.given.get("open_files"))
        tasks = [line["tasks"] for line in lines if "tasks" in line]
        self._add_given(state, "task_state", tasks[-1] if tasks else None)
        self._add_given(state, "context", self._context(state))
        if self.settings.transcripts:
            add_conversation(state, event, self.session, subagent)
        return state

    def _context(self, state: dict[str, Any]) -> dict[str, Any] | None:
        from_environment = read_agent_context()
        found = _dict(state.get("context"))
        given = {**self.event.mapping("context"), **self.event.given}
        for name, present in (
            ("session_number", from_environment.session_number),
            ("token_usage", from_environment.token_usage),
        ):
            value = given.get(name, present)
            if type(value) is int and 0 <= value <= _MOST_INT:
                found[name] = value
        return found or None

    def _add_given(self, state: dict[str, Any], key: str, value: Any) -> None:
        """Take over what the agent gave, unless it is not what it should be."""
        if value is None:
            return
        try:
            validate_documented({key: value})
        except InvalidState as error:
            self.session.log("warning", f"a hook gave {key} in a shape that is not kept: {error}")
        else:
            state[key] = value

    # What was done -------------------------------------------------------------------------------

    def _follow_turn(self, lines: list[dict[str, Any]]) -> None:
        event = self.event
        prompts = [line["prompt"] for line in lines if isinstance(line.get("prompt"), str)]
        if prompts:
            # It is kept in a file, too, as long as the session lasts.
            asked = self.session.redaction.text(prompts[-1])
            self.note["prompt"] = clean(asked, _PROMPT_CHARACTERS)
            if self.session.task_description is None and prompts[0].strip():
                self.session.describe_task(prompts[0])
        if event.kind == events.STOP:
            self.note["turn"] = "ended"
        elif prompts or event.kind == events.BEFORE_TOOL:
            self.note["turn"] = "open"

    def _metadata(
        self,
        lines: list[dict[str, Any]],
        use: Use | None,
        subagent: str | None,
        count: int,
        files: list[str],
    ) -> dict[str, Any]:
        event = self.event
        steps = [_step(line) for line in lines if line.get("tool")]
        done: dict[str, Any] = {"event": event.kind, "agent": event.agent}
        if event.tool:
            done["tool"] = event.tool
        if use is not None and use.detail:
            done["detail"] = use.detail
        if (prompt := self.note.get("prompt")) and isinstance(prompt, str):
            done["prompt"] = prompt
        if steps:
            done["steps"] = steps[-_STEPS:]
            done["step_count"] = len(steps)
        if files:
            done["files"] = [one.encode("utf-8", "backslashreplace").decode() for one in files]
            done["file_count"] = count
        name = subagent or clean(event.text("agent_id"), 100)
        if name:
            done["subagent"] = name
        return done

    def _told(self, description: str | None, done: dict[str, Any]) -> str:
        """Return in a line what a checkpoint is, and what was done since the one before it.

        The end of a turn has no other description than what the turn was about and all that was done in it.
        """
        steps = [f"{one['tool']} {one.get('detail', '')}".strip() for one in done.get("steps", ())]
        count, latest = done.get("step_count", 0), steps[-_TOLD_STEPS:]
        before, earlier = _did(self.note.pop(DID, None))
        turn = before + count, [*earlier, *latest][-_TOLD_STEPS:]
        if description is not None:
            self.note[DID] = turn
            return _with_steps(description, ", after ", count, latest)
        about = f"“{' '.join(done['prompt'].split())}”" if done.get("prompt") else "turn ended"
        return _with_steps(about, ": ", *turn)


def _step(line: dict[str, Any]) -> dict[str, Any]:
    step = {
        "tool": clean(str(line["tool"]), 100),
        "detail": clean(str(line.get("detail", "")), 160),
    }
    return {key: value for key, value in step.items() if value}


def _did(value: Any) -> tuple[int, list[str]]:
    """Return how many steps a note tells of, and the latest of them. What is no such thing tells of none."""
    if isinstance(value, list) and len(value) == 2:
        count, latest = value
        texts = isinstance(latest, list) and all(isinstance(one, str) for one in latest)
        if type(count) is int and 0 <= count <= _MOST_INT and texts:
            return count, latest
    return 0, []


def _with_steps(text: str, joint: str, count: int, latest: list[str]) -> str:
    """Return a line with steps behind it, the latest of them by name."""
    if latest:
        more = count - len(latest)
        text += joint + ", ".join(latest) + (f" and {more} more" if more > 0 else "")
    return clean(text, 400)


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
