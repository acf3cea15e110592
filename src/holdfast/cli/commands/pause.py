"""``holdfast pause``."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.cli.options import Common, common_options, take_over_option, unfinished_session
from holdfast.cli.output import answer, columns, one_line, print_line
from holdfast.cli.quantities import later


@click.command("pause", short_help="Pause a session: save it and say why.")
@click.argument("session", required=False)
@click.option("--reason", "-m", metavar="TEXT", help="Why, for whoever looks.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]),
    callback=later,
    metavar="TIME",
    help="When work is to go on, in UTC: `resume` without a session leaves it alone before.",
)
@take_over_option
@common_options
def command(
    common: Common, session: str | None, reason: str | None, until: datetime | None, take_over: bool
) -> None:
    """Pause a session: save it and say why.

    Takes the session named, or the most recent unfinished one of this project. Its latest state and
    the project's files as they are now are saved first. `holdfast resume`, or the program itself, goes
    on with it.

    \b
    Examples:
      holdfast pause -m "waits for approval"
      holdfast pause 01a1dd1f --until 2030-02-01T08:00
    """
    with common.open() as manager:
        chosen = unfinished_session(manager, session, parked=True)
        held = manager.hold_session(chosen, take_over=take_over)
        saved = held.pause(reason, until=until)
        record = held.record
    if common.json:
        answer({"session": columns(record), "checkpoint": columns(saved)})
        return
    print_line("paused ", (one_line(record.id), "bold cyan"))
    print_line(("saved as ", "dim"), one_line(saved.name))
