"""``holdfast recover``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import Column, answer, columns, print_line, print_table

_LAYOUT = (
    Column("ID", "cyan"),
    Column("AGENT", give=1, leave=4),
    Column("STATUS", leave=1),
    Column("TIMES", leave=3),
    Column("TASK", give=2, leave=2),
)


@click.command("recover", short_help="Find sessions whose worker died, and mark them.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How often a session may be interrupted before it counts as failed.",
)
@common_options
def command(common: Common, max_attempts: int) -> None:
    """Find sessions whose worker died, and mark them.

    A worker is dead when its process on this machine has ended, or when it has not renewed its lease.
    Its session becomes interrupted, or failed after too many times; either can be resumed. No process
    is ended, and nothing that was saved is changed.

    \b
    Examples:
      holdfast recover
      holdfast recover --json
    """
    with common.open() as manager:
        found = manager.recover(max_attempts=max_attempts)
    if common.json:
        answer({"sessions": [columns(one) for one in found]})
        return
    if not found:
        print_line("no worker died")
        return
    rows = [
        (one.id, one.agent_type, one.status, str(one.recoveries), one.task_description or "")
        for one in found
    ]
    print_table(_LAYOUT, rows)
