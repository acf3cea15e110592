"""``holdfast gc``."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line, size
from holdfast.cli.progress import spinner
from holdfast.errors import WorkspaceError
from holdfast.model import GcReport


@click.command("gc", short_help="Free the space of content that nothing refers to.")
@click.option("--dry-run", is_flag=True, help="Only count; remove nothing.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, dry_run: bool) -> None:
    """Free the space of content that nothing refers to.

    Removed checkpoints leave their content and their snapshots of files behind until this runs. Safe
    beside running saves. Where references to snapshots are lost that checkpoints need, it writes them
    anew and frees no files this time. Nothing is freed as long as a checkpoint is in quarantine.

    The exit code is 9 when the files could not be looked at, as without git: states are freed all the same.

    \b
    Examples:
      holdfast gc --dry-run
      holdfast gc --json
    """
    with common.open() as manager, spinner("freeing", quiet=common.json):
        report = manager.gc(dry_run=dry_run)
    if common.json:
        answer({"gc": asdict(report)})
    else:
        _show(report)
    if report.notes:
        ctx.exit(WorkspaceError.exit_code)


def _show(report: GcReport) -> None:
    dry_run = report.dry_run
    verb = "would free" if dry_run else "freed"
    print_line(f"{verb} {plural(report.chunks, 'chunk')} ({size(report.bytes)})")
    if report.in_quarantine:
        print_line(
            f"{plural(report.in_quarantine, 'checkpoint')} in quarantine: nothing is freed, since nobody "
            "knows what they need. `holdfast verify --deep` releases what is whole again; give the others up "
            "with `holdfast delete`"
        )
    if report.held_again:
        verb_held = "would hold" if dry_run else "held"
        print_line(
            f"{verb_held} {plural(report.held_again, 'snapshot')} of files again whose references were "
            "lost; no files are freed this time. Verify other databases of this project before the next"
        )
    if report.snapshots or report.packs or report.file_bytes:
        packs = f" and {plural(report.packs, 'pack')}" if report.packs else ""
        # What a snapshot alone takes is known once it is gone.
        room = f" ({size(report.file_bytes)})" if report.file_bytes or not dry_run else ""
        print_line(f"{verb} {plural(report.snapshots, 'snapshot')} of files{packs}{room}")
    if report.writes:
        verb = "would remove" if dry_run else "removed"
        print_line(f"{verb} {plural(report.writes, 'pending write')} without a checkpoint")
    for note in report.notes:
        print_line((f"note: {one_line(note)}", "yellow"))
