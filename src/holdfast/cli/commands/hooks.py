"""``holdfast hooks``: let a coding agent call Holdfast."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import Column, answer, one_line, path_text, print_line, print_table
from holdfast.hooks.installing import (
    HooksReport,
    HooksStatus,
    hooks_status,
    install_hooks,
    uninstall_hooks,
)
from holdfast.hooks.installing.agents import AGENTS, AgentName, Scope

_DONE = {
    "installed": "installed",
    "updated": "brought up to date",
    "present": "there already, nothing changed",
    "removed": "removed",
    "absent": "no hooks of ours, nothing changed",
}


@click.command("hooks", short_help="Let a coding agent call Holdfast.")
@click.argument("action", type=click.Choice(["install", "uninstall", "status"]))
@click.argument("agent", required=False, metavar="[AGENT]", type=click.Choice(list(AGENTS)))
@click.option(
    "--scope",
    type=click.Choice(["project", "user"]),
    help="This project's settings of the agent, or those of yours for all projects. "
    "Default: project; status shows both.",
)
@common_options
def command(common: Common, action: str, agent: str | None, scope: str | None) -> None:
    """Let a coding agent call Holdfast.

    AGENT is claude-code, codex, gemini or opencode. Installing adds hooks to the agent's own settings, so
    that every session is saved before it changes files and told what to know when it starts again. What
    is in the settings stays as it is, byte for byte, and a copy is kept beside them. Doing it again
    changes nothing; uninstall takes out what install put in.

    \b
    Examples:
      holdfast hooks install claude-code
      holdfast hooks install codex --scope user
      holdfast hooks status
      holdfast hooks uninstall claude-code
    """
    if action == "status":
        _status(common, agent, scope)
        return
    if agent is None:
        raise click.UsageError(f"which agent? one of {', '.join(AGENTS)}")
    change = install_hooks if action == "install" else uninstall_hooks
    report = change(
        cast("AgentName", agent),
        scope=cast("Scope", scope or "project"),
        project_dir=common.project_dir,
    )
    if common.json:
        answer({"hooks": _document(report)})
        return
    print_line(("Hooks  ", "bold"), f"{one_line(path_text(report.path))}: {_DONE[report.done]}")
    if report.backup is not None:
        print_line(("copy   ", "dim"), f"{one_line(path_text(report.backup))}: as it was before")
    if report.wants:
        print_line(("next   ", "yellow"), report.wants)


def _status(common: Common, agent: str | None, scope: str | None) -> None:
    found = [
        hooks_status(
            cast("AgentName", name), scope=cast("Scope", where), project_dir=common.project_dir
        )
        for name in ([agent] if agent is not None else AGENTS)
        for where in ([scope] if scope is not None else ("project", "user"))
    ]
    if common.json:
        answer({"hooks": [_document(one) for one in found]})
        return
    print_table(
        [
            Column("agent"),
            Column("scope"),
            Column("status"),
            Column("settings", give=1),
            Column(""),
        ],
        [[one.agent, one.scope, one.status, path_text(one.path), _remark(one)] for one in found],
    )


def _remark(one: HooksStatus) -> str:
    missing = f"without {', '.join(one.missing)}" if one.missing else ""
    return one.problem or missing


def _document(report: HooksReport | HooksStatus) -> dict[str, Any]:
    return {
        key: path_text(value) if key in ("path", "backup") and value is not None else value
        for key, value in asdict(report).items()
    }
