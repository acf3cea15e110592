"""``holdfast decide``."""

from __future__ import annotations

import click

from holdfast.cli.options import (
    Common,
    common_options,
    unfinished_session,
    unfinished_session_option,
)
from holdfast.cli.output import answer, one_line, print_line
from holdfast.sessions.briefing import DECISION, LEARNING, note_data


@click.command("decide", short_help="Record a decision for whoever comes next.")
@click.argument("text")
@unfinished_session_option
@click.option("--because", "rationale", metavar="TEXT", help="Why.")
@click.option(
    "--instead-of",
    "alternatives",
    multiple=True,
    metavar="TEXT",
    help="What was considered and not chosen; repeatable.",
)
@click.option("--learned", is_flag=True, help="It is something learnt, not decided.")
@common_options
def command(
    common: Common,
    text: str,
    session: str | None,
    rationale: str | None,
    alternatives: tuple[str, ...],
    learned: bool,
) -> None:
    """Record a decision for whoever comes next.

    TEXT is what was decided. The brief and the handoff of the session list it, and so do those of the
    sessions that continue it. It stands beside the checkpoints: a rollback does not take it back. The
    session may be in use meanwhile.

    \b
    Examples:
      holdfast decide "Use OAuth 2.1" --because "the provider requires it"
      holdfast decide "Keep SQLite" --instead-of PostgreSQL --instead-of files --json
      holdfast decide --learned "The staging database is reset every night"
    """
    key = LEARNING if learned else DECISION
    data = note_data(key, text, rationale, alternatives)
    with common.open() as manager:
        chosen = unfinished_session(manager, session, parked=True)
        line = manager.get_session(chosen).log("info", f"{key}: {text}", data=data)
    if common.json:
        answer({key: data[key] | {"session_id": line.session_id, "at": line.created_at}})
        return
    print_line("learnt " if learned else "decided ", (one_line(text), "bold cyan"))
    print_line(("in session ", "dim"), one_line(line.session_id))
