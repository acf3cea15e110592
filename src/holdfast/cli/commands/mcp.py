"""``holdfast mcp``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer
from holdfast.integrations.mcp.place import DEFAULT_AGENT, Place
from holdfast.integrations.mcp.tools import NAMES


@click.command("mcp", short_help="Serve an agent over the Model Context Protocol.")
@click.option(
    "--agent",
    metavar="KIND",
    default=DEFAULT_AGENT,
    show_default=True,
    help="What to call the agent in the sessions that it starts: claude-code, codex, gemini, opencode.",
)
@click.option(
    "--session",
    "-s",
    metavar="SESSION",
    help="The only session to work on; by default the agent's own, or the most recent unfinished one.",
)
@common_options
def command(common: Common, agent: str, session: str | None) -> None:
    """Serve an agent over the Model Context Protocol.

    The agent starts this program and talks to it over standard input and output. Its tools save, list, show
    and compare checkpoints, roll back (after showing what would change, and with the confirmation that
    comes with it), undo, brief, record decisions and pause. With --json nothing is served: the answer says how
    to register the server.

    \b
    Examples:
      claude mcp add holdfast -- holdfast mcp --agent claude-code
      holdfast mcp --json
    """
    place = Place(
        url=common.url,
        tenant=common.tenant,
        project_dir=common.project_dir,
        agent=agent,
        session=session,
    )
    if common.json:
        answer({"mcp": place.to_document(NAMES)})
        return
    from holdfast.integrations.mcp.server import build_server

    build_server(place).run("stdio")
