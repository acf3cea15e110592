"""opencode, whose plugin sends what it is told in the shape of the others."""

from __future__ import annotations

from holdfast.hooks import events
from holdfast.hooks.agents import CHANGES, EDITS, READS, claude_code

EVENTS = {
    **claude_code.EVENTS,
    "session.created": events.SESSION_START,
    "chat.message": events.PROMPT,
    "tool.execute.before": events.BEFORE_TOOL,
    "tool.execute.after": events.AFTER_TOOL,
    "session.idle": events.STOP,
    "experimental.session.compacting": events.BEFORE_COMPACTION,
    "session.compacted": events.BEFORE_COMPACTION,
    "session.deleted": events.SESSION_END,
}
TOOLS = {
    **dict.fromkeys(("edit", "write", "multiedit", "patch", "apply_patch"), EDITS),
    "bash": CHANGES,
    **dict.fromkeys(
        (
            "read", "grep", "glob", "list", "webfetch", "websearch", "codesearch", "todowrite",
            "todoread", "task", "skill", "lsp", "question", "invalid", "plan_enter", "plan_exit",
        ),
        READS,
    ),
}  # fmt: skip
PATHS = ("filePath", "file_path")
TRANSCRIPT = "opencode"


def resume(session_id: str) -> str:
    """Return the command line that goes on with a conversation."""
    return f"opencode --session {session_id}"
