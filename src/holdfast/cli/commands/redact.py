"""``holdfast redact``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line
from holdfast.cli.progress import progress_bar
from holdfast.errors import IntegrityError
from holdfast.sessions.inspection import SecretsReport


@click.command("redact", short_help="Find secrets that are stored already.")
@click.option("--check", is_flag=True, required=True, help="Look, and change nothing.")
@click.option("--files", is_flag=True, help="Look into the files of the latest checkpoints too.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, check: bool, files: bool) -> None:
    """Find secrets that are stored already.

    Looks through states, metadata, descriptions, logs and recorded effects of all sessions, and the
    names of checkpoints, agents and steps, which are stored as given. Says of which kind each secret
    is and where it is stored, not what it is. What is saved by commands and hooks has none besides,
    unless redaction was turned off. Changes nothing. The exit code is 1 when there are any, and 5 when
    something is damaged and could not be looked at, whatever was found.

    \b
    Examples:
      holdfast redact --check
      holdfast redact --check --files --json
    """
    with common.open() as manager, progress_bar("looking", quiet=common.json) as bar:
        total = sum(one.checkpoints for one in manager.usage()) if bar is not None else 0
        told = None if bar is None else lambda done: bar(done, total)
        report = manager.find_secrets(files=files, progress=told)
    if common.json:
        secrets, damaged = ([asdict(one) for one in of] for of in (report.secrets, report.damaged))
        answer({"redact": {"ok": report.ok, "secrets": secrets, "damaged": damaged}})
    else:
        _show(report)
    if report.damaged:
        ctx.exit(IntegrityError.exit_code)
    if report.secrets:
        ctx.exit(1)


def _show(report: SecretsReport) -> None:
    for one in report.secrets:
        where = [one_line(one.session_id)]
        where += [one_line(one.checkpoint)] if one.checkpoint is not None else []
        place = f"{one.where} {one_line(one.path)}"
        print_line((f"{one.kind}  ", "bold red"), f"{'  '.join(where)}  {place}")
    for damage in report.damaged:
        reason = f"{one_line(damage.what)}: {one_line(damage.reason)}"
        print_line(("not looked at  ", "bold red"), reason)
    if report.secrets:
        kinds = Counter(one.kind for one in report.secrets)
        summary = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        print_line(("secrets", "bold red"), f"  {plural(len(report.secrets), 'place')}: {summary}")
    elif report.ok:
        print_line(("ok", "bold green"), "  no secrets of a known kind are stored")
