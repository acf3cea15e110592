"""Codex. Its events are called as those of Claude Code."""

from __future__ import annotations

from holdfast.hooks.agents import CHANGES, EDITS, READS
from holdfast.hooks.agents.claude_code import EVENTS

__all__ = ["EVENTS", "PATHS", "TOOLS", "TRANSCRIPT", "resume"]

TOOLS = {
    **dict.fromkeys(("apply_patch", "Edit", "Write"), EDITS),
    **dict.fromkeys(
        ("Bash", "shell", "shell_command", "local_shell", "exec_command", "write_stdin"), CHANGES
    ),
    **dict.fromkeys(
        (
            "update_plan", "view_image", "web_search", "read_file", "list_dir", "grep_files",
            "list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource",
            "request_user_input", "spawn_agent", "wait_agent", "send_input", "close_agent",
        ),
        READS,
    ),
}  # fmt: skip
PATHS = ("path", "file_path")
TRANSCRIPT = "codex"


def resume(session_id: str) -> str:
    """Return the command line that goes on with a conversation."""
    return f"codex resume {session_id}"
