"""``holdfast redact``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line
from holdfast.cli.progress import progress_bar


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
    unless redaction was turned off. Changes nothing. The exit code is 1 when there are any.

    \b
    Examples:
      holdfast redact --check
      holdfast redact --check --files --json
    """
    with common.open() as manager, progress_bar("looking", quiet=common.json) as bar:
        total = sum(one.checkpoints for one in manager.usage()) if bar is not None else 0
        told = None if bar is None else lambda done: bar(done, total)
        found = manager.find_secrets(files=files, progress=told)
    if common.json:
        answer({"redact": {"ok": not found, "secrets": [asdict(one) for one in found]}})
    else:
        for one in found:
            where = [one_line(one.session_id)]
            where += [one_line(one.checkpoint)] if one.checkpoint is not None else []
            place = f"{one.where} {one_line(one.path)}"
            print_line((f"{one.kind}  ", "bold red"), f"{'  '.join(where)}  {place}")
        if found:
            kinds = Counter(one.kind for one in found)
            summary = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            print_line(("secrets", "bold red"), f"  {plural(len(found), 'place')}: {summary}")
        else:
            print_line(("ok", "bold green"), "  no secrets of a known kind are stored")
    if found:
        ctx.exit(1)
