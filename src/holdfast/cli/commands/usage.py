"""``holdfast usage``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import Column, answer, one_line, plural, print_line, print_table, size
from holdfast.sessions import StorageReport

_LAYOUT = (
    Column("SESSION", "cyan"),
    Column("CHECKPOINTS", right=True, leave=2),
    Column("STATE", right=True, leave=3),
    Column("STORED", right=True, leave=1),
)


@click.command("usage", short_help="Show how much room states and files take.")
@common_options
def command(common: Common) -> None:
    """Show how much room states and files take.

    STATE is what the states of a session's checkpoints amount to, STORED what storing them took: content
    that checkpoints share is stored once.

    \b
    Examples:
      holdfast usage
      holdfast usage --json
    """
    with common.open() as manager:
        report = manager.storage()
    if common.json:
        answer({"usage": _document(report)})
        return
    rows = [
        (one.session_id, f"{one.checkpoints:,}", size(one.size_bytes), size(one.stored_bytes))
        for one in report.sessions
    ]
    if rows:
        print_table(_LAYOUT, rows)
    stored = sum(one.stored_bytes for one in report.sessions)
    print_line(("States  ", "bold"), f"{size(stored)} in {plural(len(report.sessions), 'session')}")
    files = report.files
    if files is not None:
        held = f"{plural(files.snapshots, 'snapshot')}, {plural(files.objects, 'object')}"
        share = f"{files.bytes / files.quota_bytes:.1%} of {size(files.quota_bytes)}"
        print_line(("Files   ", "bold"), f"{size(files.bytes)} in {held}; {share}")
    for note in report.notes:
        print_line((f"note: {one_line(note)}", "yellow"))
    if report.packs.packs:
        held = plural(report.packs.packs, "pack")
        print_line(("Packs   ", "bold"), f"{size(report.packs.bytes)} in {held} for other machines")


def _document(report: StorageReport) -> dict[str, Any]:
    return {
        "sessions": [asdict(one) for one in report.sessions],
        "size_bytes": sum(one.size_bytes for one in report.sessions),
        "stored_bytes": sum(one.stored_bytes for one in report.sessions),
        "files": asdict(report.files) if report.files is not None else None,
        "packs": asdict(report.packs),
        "notes": list(report.notes),
    }
