"""``holdfast gate``."""

from __future__ import annotations

from typing import Final

import click

from holdfast.cli.options import Common, common_options, unfinished_session_option
from holdfast.cli.output import answer, one_line, print_line
from holdfast.config import GATES
from holdfast.gates import MUST, GateReport, Item, check_gate

UNMET: Final = 1


@click.command("gate", short_help="Check what the project's protocol asks for.")
@click.argument("gate", type=click.Choice(GATES))
@unfinished_session_option
@click.option("--no-save", is_flag=True, help="Let the start gate save no checkpoint.")
@common_options
@click.pass_context
def command(
    ctx: click.Context, common: Common, gate: str, session: str | None, no_save: bool
) -> None:
    """Check what the project's protocol asks for.

    GATE is start or end. What is asked for stands in .agents/holdfast.toml under [gates.start] and
    [gates.end]; without them this does nothing. The exit code is 1 as long as something that must hold
    does not; what should hold is a warning. An open start gate saves a checkpoint to come back to; the end
    gate's "checkpoint" asks for a later one with the files as they are.

    \b
    Examples:
      holdfast gate start
      holdfast gate end --json
    """
    report = check_gate(
        gate, common.open, project_dir=common.project_dir, session_id=session, save=not no_save
    )
    if common.json:
        answer({"gate": report.to_document()})
    else:
        _show(report)
    if not report.ok:
        ctx.exit(UNMET)


def _show(report: GateReport) -> None:
    if not report.configured:
        return
    for item in report.items:
        _print(item)
    if report.checkpoint is not None:
        print_line(("saved ", "dim"), one_line(report.checkpoint.name))
    if report.ok:
        print_line(("open", "bold green"), f"  the {report.gate} gate")
    else:
        names = ", ".join(item.name for item in report.unmet)
        print_line(("closed", "bold red"), f"  the {report.gate} gate: {names}")


def _print(item: Item) -> None:
    missing = ("no", "red") if item.level == MUST else ("warn", "yellow")
    mark, style = ("ok", "green") if item.met else missing
    print_line((f"{mark:<6}", style), f"{item.level:<8}{item.name:<14}", one_line(item.evidence))
