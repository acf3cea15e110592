"""Claude Code."""

from __future__ import annotations

from holdfast.hooks import events
from holdfast.hooks.agents import CHANGES, EDITS, READS

EVENTS = {
    "SessionStart": events.SESSION_START,
    "UserPromptSubmit": events.PROMPT,
    "PreToolUse": events.BEFORE_TOOL,
    "PostToolUse": events.AFTER_TOOL,
    "PostToolUseFailure": events.AFTER_TOOL,
    "SubagentStart": events.SUBAGENT_START,
    "SubagentStop": events.SUBAGENT_STOP,
    "TaskCompleted": events.TASK_COMPLETED,
    "PreCompact": events.BEFORE_COMPACTION,
    "Stop": events.STOP,
    "StopFailure": events.STOP,
    "SessionEnd": events.SESSION_END,
    "Notification": events.IGNORED,
    "PermissionRequest": events.IGNORED,
    "PermissionDenied": events.IGNORED,
    "PostCompact": events.IGNORED,
    "PostToolBatch": events.IGNORED,
    "TaskCreated": events.IGNORED,
    "TeammateIdle": events.IGNORED,
    "InstructionsLoaded": events.IGNORED,
    "ConfigChange": events.IGNORED,
    "CwdChanged": events.IGNORED,
    "FileChanged": events.IGNORED,
    "WorktreeCreate": events.IGNORED,
    "WorktreeRemove": events.IGNORED,
    "Elicitation": events.IGNORED,
    "ElicitationResult": events.IGNORED,
    "Setup": events.IGNORED,
}
TOOLS = {
    **dict.fromkeys(("Edit", "Write", "MultiEdit", "NotebookEdit"), EDITS),
    **dict.fromkeys(("Bash", "PowerShell", "KillShell"), CHANGES),
    # A subagent's own tools are reported one by one.
    **dict.fromkeys(
        (
            "Read", "Glob", "Grep", "LS", "LSP", "NotebookRead", "WebFetch", "WebSearch", "ToolSearch",
            "TodoWrite", "TodoRead", "Task", "Agent", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate",
            "TaskOutput", "TaskStop", "BashOutput", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode",
            "Skill", "SlashCommand", "SendMessage", "ListMcpResourcesTool", "ReadMcpResourceTool",
        ),
        READS,
    ),
}  # fmt: skip
PATHS = ("file_path", "notebook_path")
TRANSCRIPT = "claude"


def resume(session_id: str) -> str:
    """Return the command line that goes on with a conversation."""
    return f"claude --resume {session_id}"
