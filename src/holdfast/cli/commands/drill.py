"""``holdfast drill``."""

from __future__ import annotations

import math

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, print_line, size
from holdfast.cli.progress import progress_bar
from holdfast.drill import DrillReport, run_drill


@click.command("drill", short_help="Kill a worker again and again, and count what comes back.")
@click.option(
    "--kills", type=click.IntRange(min=1), default=200, show_default=True, help="How often to kill."
)
@click.option(
    "--target",
    type=click.FloatRange(0, 100),
    default=100.0,
    show_default=True,
    help="The recovery rate, in per cent, below which the command fails.",
)
@click.option("--seed", type=int, help="Repeat the choices of an earlier drill.")
@common_options
def command(common: Common, kills: int, target: float, seed: int | None) -> None:
    """Kill a worker again and again, and count what comes back.

    It is killed with SIGKILL at random moments of saves, steps, pauses and rollbacks. It works in a
    directory of its own: on an embedded store, or with --url on yours, in a session of its own that is
    erased afterwards. Fails when fewer than --target per cent of the kills were recovered from, or
    anything acknowledged was lost, repeated or damaged.

    \b
    Examples:
      holdfast drill --kills 50
      holdfast drill --url postgresql://localhost/agents --json
    """
    if math.isnan(target):
        raise click.BadParameter("it has to be a number", param_hint="--target")
    with progress_bar("killing", quiet=common.json) as bar:
        told = None if bar is None else lambda done: bar(done, kills)
        report = run_drill(common.url, kills=kills, seed=seed, progress=told)
    if common.json:
        answer({"drill": report.to_document()})
    else:
        _show(report)
    wrong = report.lost or report.repeated_effects or report.damaged
    if wrong or 100 * report.rate < target:
        raise SystemExit(1)


def _show(report: DrillReport) -> None:
    figures = report.to_document()
    print_line(("recovered ", "dim"), (f"{report.rate:.1%}", "bold"), f" of {report.kills} kills")
    if (seconds := figures["seconds_to_context"]) is not None:
        print_line(("time to context ", "dim"), f"{1000 * seconds:.0f} ms")
    print_line(("mean checkpoint ", "dim"), size(figures["mean_checkpoint_bytes"] or 0))
    print_line(
        ("saves ", "dim"), f"{report.acknowledged} acknowledged, {report.lost} lost, ",
        f"{report.damaged} damaged",
    )  # fmt: skip
    print_line(
        ("effects ", "dim"), f"{report.effects} happened, {report.repeated_effects} repeated, ",
        f"{report.unknown_effects} reported as unknown",
    )  # fmt: skip
    for problem in figures["problems"]:
        print_line((problem, "red"))
