"""``holdfast complete``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options, take_over_option, unfinished_session
from holdfast.cli.output import answer, columns, one_line, print_line


@click.command("complete", short_help="Mark a session as done.")
@click.argument("session", required=False)
@take_over_option
@common_options
def command(common: Common, session: str | None, take_over: bool) -> None:
    """Mark a session as done.

    Takes the session named, or the most recent unfinished one of this project. A completed session is
    final: nothing more is saved to it, and its checkpoints stay.

    \b
    Examples:
      holdfast complete
      holdfast complete 01a1dd1f --json
    """
    with common.open() as manager:
        chosen = unfinished_session(manager, session)
        held = manager.hold_session(chosen, take_over=take_over)
        held.complete()
        record = held.record
    if common.json:
        answer({"session": columns(record)})
        return
    print_line("completed ", (one_line(record.id), "bold cyan"))
