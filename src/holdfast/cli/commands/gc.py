"""``holdfast gc``."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, plural, print_line, size


@click.command("gc", short_help="Free the space of content that nothing refers to.")
@click.option("--dry-run", is_flag=True, help="Only count; remove nothing.")
@common_options
def command(common: Common, dry_run: bool) -> None:
    """Free the space of content that nothing refers to.

    Removed checkpoints leave their content behind until this runs. Safe beside running saves.

    \b
    Examples:
      holdfast gc --dry-run
      holdfast gc --json
    """
    with common.open() as manager:
        report = manager.gc(dry_run=dry_run)
    if common.json:
        answer({"gc": asdict(report)})
        return
    verb = "would free" if dry_run else "freed"
    print_line(f"{verb} {plural(report.chunks, 'chunk')} ({size(report.bytes)})")
    if report.writes:
        verb = "would remove" if dry_run else "removed"
        print_line(f"{verb} {plural(report.writes, 'pending write')} without a checkpoint")
