"""``holdfast hook``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer
from holdfast.hooks.command import handle


@click.command("hook", short_help="Act on an event of a coding agent, for its hooks.")
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
    The store is the one of the project that the event's cwd lies in.

    \b
    Examples:
      holdfast hook --agent codex < event.json
      holdfast hook task.pre < /dev/null
    """
    handle(agent=agent, name=event)
    if common.json:
        answer({"hook": {"event": event, "agent": agent}})
