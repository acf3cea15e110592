"""The agents that can call us: where each keeps its hooks, which events it has, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from holdfast.config import agent_home

AgentName: TypeAlias = Literal["claude-code", "codex", "gemini", "opencode"]
Scope: TypeAlias = Literal["project", "user"]

_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class HookingAgent:
    """One agent.

    ``in_project`` counts from the project, ``in_home`` from the agent's own directory. ``events`` maps
    each event to how long the agent should wait for us, in its own unit; ``tool_events`` are those that
    want a matcher. ``wants`` says what is left to do for a person, by scope.
    """

    name: AgentName
    title: str
    in_project: str
    in_home: str
    wants: Mapping[Scope, str]
    events: Mapping[str, int]
    tool_events: frozenset[str] = frozenset()
    named: bool = False

    def path(self, scope: Scope, project_dir: Path) -> Path:
        """Return the file that is edited."""
        if scope == "project":
            return project_dir / self.in_project
        return agent_home(self.name) / self.in_home

    def groups(self, command: str) -> dict[str, dict[str, Any]]:
        """Return what each event's list gets."""
        return {event: self._group(event, command) for event in self.events}

    def _group(self, event: str, command: str) -> dict[str, Any]:
        name = {"name": "holdfast"} if self.named else {}
        handler = {**name, "type": "command", "command": command, "timeout": self.events[event]}
        matcher = {"matcher": "*"} if event in self.tool_events else {}
        return {**matcher, "hooks": [handler]}


def _events(*names: str, timeout: int, **others: int) -> dict[str, int]:
    return {name: others.get(name, timeout) for name in names}


_TOOLS: Final = frozenset({"PreToolUse", "PostToolUse"})
_CODEX_WANTS: Final = (
    "Codex runs no hook before you trust it, and says nothing about it: start codex once, open /hooks "
    "and trust the ones of holdfast. It asks again whenever the command changes."
)

AGENTS: Final[Mapping[AgentName, HookingAgent]] = {
    "claude-code": HookingAgent(
        name="claude-code",
        title="Claude Code",
        in_project=".claude/settings.json",
        in_home="settings.json",
        wants={
            "project": "Claude Code reads the project's hooks once you trust the folder, which it asks "
            "for at its first start there.",
            "user": "",
        },
        events=_events(
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "SubagentStart",
            "SubagentStop",
            "TaskCompleted",
            "PreCompact",
            "Stop",
            "SessionEnd",
            timeout=_SECONDS,
        ),
        tool_events=_TOOLS,
    ),
    "codex": HookingAgent(
        name="codex",
        title="Codex",
        in_project=".codex/hooks.json",
        in_home="hooks.json",
        wants={
            "project": f"{_CODEX_WANTS} The project itself has to be trusted, too.",
            "user": _CODEX_WANTS,
        },
        # Codex cuts SessionEnd off after three seconds, and complains when more is asked for.
        events=_events(
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "SubagentStart",
            "SubagentStop",
            "PreCompact",
            "Stop",
            "SessionEnd",
            timeout=_SECONDS,
            SessionEnd=3,
        ),
        tool_events=_TOOLS,
    ),
    "gemini": HookingAgent(
        name="gemini",
        title="Gemini CLI",
        in_project=".gemini/settings.json",
        in_home="settings.json",
        wants={
            "project": "Gemini CLI reads the project's settings only if you trust the folder: it asks at "
            "its first start there; without a person GEMINI_CLI_TRUST_WORKSPACE=true says so.",
            "user": "Gemini CLI runs hooks only in folders that you trust.",
        },
        events=_events(
            "SessionStart",
            "BeforeAgent",
            "BeforeTool",
            "AfterTool",
            "PreCompress",
            "AfterAgent",
            "SessionEnd",
            timeout=_SECONDS * 1000,
        ),
        tool_events=frozenset({"BeforeTool", "AfterTool"}),
        named=True,
    ),
    "opencode": HookingAgent(
        name="opencode",
        title="opencode",
        in_project=".opencode/plugin/holdfast.js",
        in_home="plugin/holdfast.js",
        wants={"project": "", "user": ""},
        events={},
    ),
}
