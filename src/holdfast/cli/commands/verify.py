"""``holdfast verify``."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line
from holdfast.cli.progress import progress_bar
from holdfast.errors import IntegrityError


@click.command("verify", short_help="Read everything back and check every digest.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common) -> None:
    """Read everything back and check every digest.

    States, files and results of effects. Changes nothing. The exit code is 5 when anything is damaged.

    \b
    Examples:
      holdfast verify
      holdfast verify --json
    """
    with common.open() as manager, progress_bar("reading back", quiet=common.json) as bar:
        total = sum(one.checkpoints for one in manager.usage()) if bar is not None else 0
        report = manager.verify(
            progress=None if bar is None else lambda checked: bar(checked, total)
        )
    if common.json:
        damaged = [asdict(one) for one in report.damaged]
        counts = {"checked": report.checked, "effects": report.effects}
        answer({"verify": {"ok": report.ok, **counts, "damaged": damaged}})
    else:
        for one in report.damaged:
            what = one.checkpoint_id or f"effect {one.effect_key} of session {one.session_id}"
            print_line(("damaged ", "bold red"), f"{one_line(what)}: {one_line(one.reason)}")
        effects = f" and {plural(report.effects, 'effect')}" if report.effects else ""
        checked = f"{plural(report.checked, 'checkpoint')}{effects} read back"
        if report.ok:
            print_line(("ok", "bold green"), f"  {checked}, every digest is right")
        else:
            print_line(("damaged", "bold red"), f"  {checked}, {len(report.damaged):,} damaged")
    if not report.ok:
        ctx.exit(IntegrityError.exit_code)
