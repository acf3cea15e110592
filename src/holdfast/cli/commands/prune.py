"""``holdfast prune``."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.cli import quantities
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import (
    Column,
    answer,
    columns,
    plural,
    print_line,
    print_table,
    size,
)
from holdfast.retention import Decision

_LAYOUT = (
    Column("", "bold"),
    Column("CHECKPOINT", "cyan", give=2, least=24),
    Column("SESSION", give=3, leave=2),
    Column("STORED", right=True, leave=3),
    Column("REASON", give=1, least=24, leave=1),
)


@click.command("prune", short_help="Remove old checkpoints by the rules, with a reason each.")
@click.option("--dry-run", is_flag=True, help="Only say what would go and why; remove nothing.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep so many checkpoints of class step in each session.",
)
@click.option(
    "--max-age",
    callback=quantities.age,
    metavar="AGE",
    help="Remove what is older, for example 30d (s, m, h, d or w).",
)
@click.option(
    "--max-bytes",
    callback=quantities.size,
    metavar="SIZE",
    help="Remove the oldest until the rest fits, for example 500MB.",
)
@common_options
def command(
    common: Common,
    dry_run: bool,
    keep: int | None,
    max_age: timedelta | None,
    max_bytes: int | None,
) -> None:
    """Remove old checkpoints by the rules, with a reason each.

    What must stay stays: pinned ones, the newest resumable one of each session, the classes manual
    and feature, and what others are computed from. What has expired goes, whatever it is. `holdfast gc` frees
    the space afterwards.

    \b
    Examples:
      holdfast prune --dry-run
      holdfast prune --keep 100 --max-age 30d --max-bytes 500MB
    """
    with common.open() as manager:
        decisions = manager.prune(dry_run=dry_run, keep=keep, max_age=max_age, max_bytes=max_bytes)
    removed = [one for one in decisions if not one.keep]
    if common.json:
        checkpoints = [
            columns(one.record) | {"keep": one.keep, "reason": one.reason} for one in decisions
        ]
        counts = {
            "dry_run": dry_run,
            "kept": len(decisions) - len(removed),
            "removed": len(removed),
        }
        answer({"prune": counts | {"checkpoints": checkpoints}})
        return
    shown = decisions if dry_run else removed
    if shown:
        print_table(_LAYOUT, [_row(one) for one in shown])
    verb = "would remove" if dry_run else "removed"
    print_line(
        f"{verb} {plural(len(removed), 'checkpoint')}, keeping {len(decisions) - len(removed):,}"
    )
    if removed and not dry_run:
        print_line("`holdfast gc` frees their space")


def _row(decision: Decision) -> tuple[str, ...]:
    record = decision.record
    return (
        "keep" if decision.keep else "remove",
        record.name,
        record.session_id,
        size(record.stored_bytes),
        decision.reason,
    )
