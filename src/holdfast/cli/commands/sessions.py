"""``holdfast sessions``."""

from __future__ import annotations

from collections import Counter

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import (
    Column,
    answer,
    columns,
    print_line,
    print_table,
    print_unreadable,
    standing,
    unreadable_document,
    when,
)
from holdfast.model import SESSION_STATUSES

_LAYOUT = (
    Column("ID", "cyan"),
    Column("AGENT", give=1, leave=4),
    Column("STATUS", leave=1),
    Column("CREATED", "dim", leave=3),
    Column("TASK", give=2, leave=2),
)


@click.command("sessions", short_help="List sessions, newest first.")
@click.option("--status", type=click.Choice(SESSION_STATUSES), help="Only those in this status.")
@click.option("--agent-type", metavar="TYPE", help="Only those of this kind of agent.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="At most so many.")
@common_options
def command(common: Common, status: str | None, agent_type: str | None, limit: int | None) -> None:
    """List sessions, newest first.

    STATUS also says how many checkpoints of a session are in quarantine: `holdfast status` tells more.

    \b
    Examples:
      holdfast sessions
      holdfast sessions --status active --limit 5 --json
    """
    with common.open() as manager:
        found = manager.list_sessions(status=status, agent_type=agent_type, limit=limit)
        unreadable = manager.unreadable_sessions(limit=limit)
        quarantined = Counter(one.session_id for one in manager.list_quarantined())
    print_unreadable(unreadable)
    if common.json:
        answer(
            {
                "sessions": [columns(one) | {"quarantined": quarantined[one.id]} for one in found],
                "unreadable": unreadable_document(unreadable),
            }
        )
        return
    if not found:
        print_line("no sessions")
        return
    rows = [
        (
            one.id,
            one.agent_type,
            standing(one, quarantined[one.id]),
            when(one.created_at),
            one.task_description or "",
        )
        for one in found
    ]
    print_table(_LAYOUT, rows)
