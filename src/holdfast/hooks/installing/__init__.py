"""Letting coding agents call Holdfast: hooks go into an agent's own settings, and out again.

Claude Code, Codex and Gemini CLI have their hooks in a JSON file, which is edited where it stands;
opencode loads a plugin, which is a file of ours alone. Installing adds what is missing and brings an
older installation of ours up to date; doing it again changes nothing. Uninstalling takes out what is
ours and leaves every other byte. See `holdfast.hooks.installing.agents` for who is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.config import find_project_root
from holdfast.errors import AgentSettingsRefused
from holdfast.hooks.installing.agents import AGENTS, AgentName, HookingAgent, Scope
from holdfast.hooks.installing.forms import Form, NotOurs, form_of
from holdfast.hooks.installing.program import missing_program, program
from holdfast.hooks.installing.settings_file import SettingsFile, read_settings, refused

Done: TypeAlias = Literal["installed", "updated", "present", "removed", "absent"]
Status: TypeAlias = Literal["installed", "outdated", "absent", "unreadable"]


@dataclass(frozen=True, slots=True)
class HooksReport:
    """What was done to an agent's settings, and where.

    ``backup`` is the file as it was before our hooks came in, if there was one; ``wants`` is what the
    agent itself still asks of a person.
    """

    agent: AgentName
    scope: Scope
    path: Path
    done: Done
    command: str | None = None
    backup: Path | None = None
    wants: str = ""


@dataclass(frozen=True, slots=True)
class HooksStatus:
    """Whether an agent calls us. ``missing`` are events without a hook of ours, and ``problem`` is why
    what is there cannot work.
    """

    agent: AgentName
    scope: Scope
    path: Path
    status: Status
    command: str | None = None
    missing: tuple[str, ...] = ()
    problem: str | None = None


def install_hooks(
    agent: AgentName, *, scope: Scope = "project", project_dir: str | Path | None = None
) -> HooksReport:
    """Add our hooks to an agent's settings. Raises `AgentSettingsRefused`; then nothing is changed."""
    who, file, form = _open(agent, scope, project_dir)
    before = file.text
    try:
        had = form.command(before) is not None
        after = form.added(before, program())
        command = form.command(after)
    except NotOurs as error:
        raise refused(file.path, str(error)) from None
    done: Done = "present" if after == before else "updated" if had else "installed"
    if done != "present":
        file.write(after, keep=not had)
    return HooksReport(agent, scope, file.path, done, command, file.kept(), who.wants[scope])


def uninstall_hooks(
    agent: AgentName, *, scope: Scope = "project", project_dir: str | Path | None = None
) -> HooksReport:
    """Take our hooks out of an agent's settings. Raises `AgentSettingsRefused`; then nothing changes."""
    _, file, form = _open(agent, scope, project_dir)
    before = file.text
    try:
        command = form.command(before)
        if before is None or command is None:
            return HooksReport(agent, scope, file.path, "absent")
        after = form.taken_out(before, file.original())
    except NotOurs as error:
        raise refused(file.path, str(error)) from None
    file.put_back(after)
    return HooksReport(agent, scope, file.path, "removed", command, file.kept())


def hooks_status(
    agent: AgentName, *, scope: Scope = "project", project_dir: str | Path | None = None
) -> HooksStatus:
    """Look whether an agent calls us. What cannot be read is a status, too, and no error."""
    who = AGENTS[agent]
    path = who.path(scope, find_project_root(project_dir))
    try:
        _, file, form = _open(agent, scope, project_dir)
        text = file.text
        command = form.command(text)
        if command is None:
            return HooksStatus(agent, scope, path, "absent")
        missing = form.missing(text)
        current = form.added(text, program()) == text
    except (AgentSettingsRefused, NotOurs) as error:
        return HooksStatus(agent, scope, path, "unreadable", problem=str(error))
    gone = missing_program(command)
    problem = f"there is no program {gone} any more; install the hooks again" if gone else None
    status: Status = "installed" if current and problem is None else "outdated"
    return HooksStatus(agent, scope, path, status, command, missing, problem)


def _open(
    agent: AgentName, scope: Scope, project_dir: str | Path | None
) -> tuple[HookingAgent, SettingsFile, Form]:
    who = AGENTS[agent]
    file = read_settings(who.path(scope, find_project_root(project_dir)))
    return who, file, form_of(who)
