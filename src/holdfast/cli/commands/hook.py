"""``holdfast hook``."""

from __future__ import annotations

import os
from typing import Any

import click
from click.exceptions import Exit

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer
from holdfast.hooks.command import handle, refuse
from holdfast.places import state_store


class HookCommand(click.Command):
    """A command that does not fail, whatever it is called with: an agent takes that for an answer."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the arguments; those that are none are written down, and nothing else happens."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            refuse(" ".join(error.format_message().split()))
            raise Exit(0) from None


@click.command(
    "hook", cls=HookCommand, short_help="Act on an event of a coding agent, for its hooks."
)
@click.argument("event", required=False)
@click.option(
    "--agent",
    metavar="NAME",
    help="Whose event it is: claude-code, codex, gemini, opencode or another name. "
    "Default: what the event says or looks like.",
)
@common_options
def command(common: Common, event: str | None, agent: str | None) -> None:
    """Act on an event of a coding agent, for its hooks.

    The event comes as one JSON object on standard input. EVENT names it where the object does not:
    session.start, session.end, prompt, task.pre, task.post, tool.pre, tool.post, agent.spawn, agent.stop,
    pre-compact, turn.end; standard input may be empty then.

    The agent is never disturbed: the exit code is 0 whatever happens, and standard output has only what
    the agent asked for, the brief at the start of a session. What went wrong is shown by `holdfast status`.
    The store is the one of the project that the event's cwd lies in, unless --project-dir or --url say otherwise.

    \b
    Examples:
      holdfast hook --agent codex < event.json
      holdfast hook task.pre < /dev/null
    """
    if "" in (common.url, common.tenant):
        refuse("the URL of the store, or the tenant, is empty")
        return
    state_store(common.url, common.tenant)
    try:
        where = None if common.project_dir is None else os.path.abspath(common.project_dir)
        handle(agent=agent, name=event, project_dir=where)
    finally:
        state_store(None, None)
    if common.json:
        answer({"hook": {"event": event, "agent": agent}})
