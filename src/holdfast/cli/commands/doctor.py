"""``holdfast doctor``."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, path_text, plural, print_line
from holdfast.cli.progress import progress_bar
from holdfast.config import load_config
from holdfast.doctor import Finding, SalvageReport, examine_project, salvage
from holdfast.errors import IntegrityError

# Seconds. Whoever asks what is wrong does not want to wait for it too.
_PATIENCE: Final = 1.0
_STYLES: Final = {"ok": "green", "warning": "bold yellow", "bad": "bold red"}


@click.command("doctor", short_help="Explain the installation; save what a damaged file holds.")
@click.option(
    "--salvage",
    "target",
    metavar="NEW",
    type=click.Path(dir_okay=False),
    help="Save what still verifies of a damaged SQLite file into this new file.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, target: str | None) -> None:
    """Explain the installation; save what a damaged file holds.

    Looks at versions, permissions, room, locks, the structure of the database, leases and snapshots, and
    changes nothing. The exit code is 5 when something is damaged.

    With --salvage the damaged file is only read. Everything that still verifies goes into a new file,
    and what was lost is listed. The exit code is 5 when something was. What puts the new file in the
    place of the old one is printed then: with its log left beside the new one, that would be lost again.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --salvage .agents/sessions.new.db
    """
    if target is not None:
        if target.startswith("--"):
            raise click.UsageError(f"--salvage takes the name of a new file, not {target}")
        report = _salvage(common, Path(target))
        if not report.complete:
            ctx.exit(IntegrityError.exit_code)
        return
    findings = examine_project(
        common.project_dir,
        partial(common.open, busy_timeout=_PATIENCE),
        url=common.url,
        tenant=common.tenant,
    )
    if common.json:
        answer({"doctor": [asdict(one) for one in findings]})
    else:
        _print(findings)
    if any(one.level == "bad" for one in findings):
        ctx.exit(IntegrityError.exit_code)


def _print(findings: list[Finding]) -> None:
    for one in findings:
        print_line((f"{one.level:<8}", _STYLES[one.level]), f"{one.name}: {one_line(one.text)}")
        if one.advice is not None:
            print_line(("        ", ""), (one_line(one.advice), "dim"))


def _salvage(common: Common, target: Path) -> SalvageReport:
    url = load_config(common.project_dir, url=common.url, tenant=common.tenant).url
    with progress_bar("reading back", quiet=common.json) as bar:
        report = salvage(
            url, target, progress=None if bar is None else lambda done: bar(done, done)
        )
    if common.json:
        answer({"salvage": _document(report)})
        return report
    for one in report.lost:
        print_line(("lost    ", "bold red"), f"{one_line(one.what)}: {one_line(one.reason)}")
    for table, count in report.lost_rows.items():
        print_line(("lost    ", "bold red"), f"{plural(count, 'unreadable row')} of {table}")
    for session_id in report.remade_sessions:
        text = f"session {one_line(session_id)} from its checkpoints: its own row was lost"
        print_line(("remade  ", "bold yellow"), text)
    print_line(
        ("saved   ", "bold green"),
        f"{plural(report.checkpoints, 'checkpoint')} of {plural(report.sessions, 'session')}, "
        f"{plural(report.effects, 'effect')} and {plural(report.logs, 'log line')} in "
        f"{one_line(path_text(report.target))}",
    )
    look, *moves = (path_text(one) for one in report.next)
    print_line(("next    ", "yellow"), f"look at it: {one_line(look)}")
    text = "then, while nobody works on it, let it take the old one's place, which keeps its log:"
    print_line(("        ", ""), text)
    for move in moves:
        print_line(("          ", ""), one_line(move))
    return report


def _document(report: SalvageReport) -> dict[str, Any]:
    return {
        **asdict(report),
        "source": path_text(report.source),
        "target": path_text(report.target),
        "complete": report.complete,
        "next": [path_text(one) for one in report.next],
    }
