"""Any other agent or script: it calls ``holdfast hook EVENT`` with names of ours."""

from __future__ import annotations

from holdfast.hooks import events
from holdfast.hooks.agents import EDITS, READS, claude_code

EVENTS = {
    **claude_code.EVENTS,
    "session.start": events.SESSION_START,
    "session.end": events.SESSION_END,
    "prompt": events.PROMPT,
    "tool.pre": events.BEFORE_TOOL,
    "tool.post": events.AFTER_TOOL,
    "task.pre": events.BEFORE_TOOL,
    "task.post": events.TASK_COMPLETED,
    "agent.spawn": events.SUBAGENT_START,
    "agent.stop": events.SUBAGENT_STOP,
    "pre-compact": events.BEFORE_COMPACTION,
    "turn.end": events.STOP,
}
TOOLS = {"edit": EDITS, "write": EDITS, "read": READS, **claude_code.TOOLS}
PATHS = ("path", "file_path", "filePath")
TRANSCRIPT = ""


def resume(session_id: str) -> str:
    """No command is known that would take up a conversation."""
    return ""
