"""Taking in what agent frameworks keep in databases of their own."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from holdfast.cli.options import Common
from holdfast.cli.output import answer, one_line, print_line
from holdfast.cli.progress import progress_bar
from holdfast.errors import IntegrityError


def import_langgraph(common: Common, url: str, to: str | None) -> None:
    """Bring the threads of LangGraph's own checkpointers into the store."""
    from holdfast.integrations.langgraph import HoldfastSaver, import_threads

    target = replace(common, url=to) if to is not None else common
    with (
        target.open(create=True) as manager,
        progress_bar("importing", quiet=common.json) as bar,
    ):
        report = import_threads(url, HoldfastSaver(manager), progress=bar)
    if common.json:
        answer({"import": asdict(report)})
    else:
        print_line(
            ("imported ", "bold green"),
            f"{report.checkpoints} checkpoints and {report.writes} writes of {report.threads} threads",
        )
        if report.present:
            print_line(f"{report.present} checkpoints were here already")
        for thread_id in report.diverged:
            print_line(("left alone ", "yellow"), one_line(thread_id), ": it has gone on here")
        for one in report.refused:
            print_line(("left out ", "bold red"), one_line(f"{one.thread_id}  {one.reason}"))
    if report.refused:
        click.get_current_context().exit(IntegrityError.exit_code)
