"""Gemini CLI."""

from __future__ import annotations

from holdfast.hooks import events
from holdfast.hooks.agents import CHANGES, EDITS, READS

EVENTS = {
    "SessionStart": events.SESSION_START,
    "BeforeAgent": events.PROMPT,
    "BeforeTool": events.BEFORE_TOOL,
    "AfterTool": events.AFTER_TOOL,
    "PreCompress": events.BEFORE_COMPACTION,
    "AfterAgent": events.STOP,
    "SessionEnd": events.SESSION_END,
    "BeforeModel": events.IGNORED,
    "AfterModel": events.IGNORED,
    "BeforeToolSelection": events.IGNORED,
    "Notification": events.IGNORED,
}
TOOLS = {
    **dict.fromkeys(("write_file", "replace", "edit"), EDITS),
    "run_shell_command": CHANGES,
    **dict.fromkeys(
        (
            "read_file", "read_many_files", "list_directory", "glob", "search_file_content",
            "grep_search", "google_web_search", "web_fetch", "write_todos", "save_memory", "ask_user",
            "activate_skill", "get_internal_docs", "enter_plan_mode", "exit_plan_mode",
        ),
        READS,
    ),
}  # fmt: skip
PATHS = ("file_path", "path", "absolute_path")
TRANSCRIPT = "gemini"


def resume(session_id: str) -> str:
    """Return the command line that goes on with a conversation."""
    return f"gemini --resume {session_id}"
