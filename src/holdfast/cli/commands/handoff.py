"""``holdfast handoff``."""

from __future__ import annotations

import os

import click

from holdfast.cli.options import Common, chosen_session, common_options
from holdfast.cli.output import answer, one_line, path_text, print_line, print_text
from holdfast.config import load_config
from holdfast.gates import check_gate
from holdfast.handoff import (
    export_session_log,
    handoff_path,
    read_handoff,
    update_handoff,
    write_issue_handoff,
)
from holdfast.handoff.section import to_document


@click.command("handoff", short_help="Leave the latest checkpoints in HANDOFF.md.")
@click.option(
    "--session",
    "-s",
    metavar="SESSION",
    help="A session's id or its beginning; the table is of all sessions by default, everything "
    "else of the most recently created one.",
)
@click.option("--write", is_flag=True, help="Write to the file; without it the section is printed.")
@click.option(
    "--rows", type=click.IntRange(min=1), metavar="N", help="At most so many checkpoints."
)
@click.option("--read", is_flag=True, help="Print what HANDOFF.md says, whoever wrote it.")
@click.option("--issue", metavar="NUMBER", help="Write a handoff file of its own for an issue.")
@click.option("--title", metavar="TEXT", help="The title of the issue.")
@click.option(
    "--template",
    metavar="FILE",
    # The one of the settings counts from the top of the project, what is typed from where it is typed.
    callback=lambda ctx, param, value: os.path.abspath(value) if value else value,
    help="Another template for the handoff of an issue.",
)
@click.option("--session-log", is_flag=True, help="Write the log of the session to files.")
@common_options
def command(
    common: Common,
    session: str | None,
    write: bool,
    rows: int | None,
    read: bool,
    issue: str | None,
    title: str | None,
    template: str | None,
    session_log: bool,
) -> None:
    """Leave the latest checkpoints in HANDOFF.md.

    Between the markers <!-- checkpoints:start --> and <!-- checkpoints:end --> stands a table with the
    command that goes on from each checkpoint; every other byte of the file stays as it is. Nothing is written
    without --write, and nothing at all where [handoff] enabled = false.

    \b
    Examples:
      holdfast handoff --write
      holdfast handoff --issue 42 --title "Move auth to OAuth"
      holdfast handoff --session-log --json
    """
    if sum((write, read, issue is not None, session_log)) > 1:
        raise click.UsageError("give one of --write, --read, --issue and --session-log")
    if issue is None and (title is not None or template is not None):
        raise click.UsageError("--title and --template go with --issue")
    if read:
        _read(common)
        return
    with common.open() as manager:
        if issue is not None:
            path = write_issue_handoff(
                manager,
                chosen_session(manager, session),
                issue=issue,
                title=title,
                template=template,
            )
            _wrote(common, [path_text(path)])
        elif session_log:
            chosen = chosen_session(manager, session)
            gates = {
                gate: check_gate(
                    gate,
                    common.open,
                    project_dir=common.project_dir,
                    session_id=chosen.id,
                    save=False,
                ).items
                for gate in ("start", "end")
            }
            log = export_session_log(manager, chosen, gates=gates)
            _wrote(common, [path_text(log.markdown), path_text(log.json)])
        else:
            of = chosen_session(manager, session) if session is not None else None
            report = update_handoff(manager, session=of, write=write, rows=rows)
            if common.json:
                answer({"handoff": to_document(report)})
            elif write:
                said = f"  {report.rows} of {report.found} checkpoints, {report.tokens} tokens"
                print_line(
                    f"{report.action.replace('_', ' ')} ",
                    (one_line(path_text(report.path)), "bold cyan"),
                    (said, "dim"),
                )
            else:
                print_text(report.text.replace("\r\n", "\n") + "\n")


def _wrote(common: Common, paths: list[str]) -> None:
    if common.json:
        answer({"handoff": {"action": "created", "paths": paths}})
        return
    for path in paths:
        print_line("wrote ", (one_line(path), "bold cyan"))


def _read(common: Common) -> None:
    config = load_config(common.project_dir)
    found = read_handoff(handoff_path(config.project_dir, config.handoff))
    if common.json:
        sections = [{"title": title, "text": text} for title, text in found.sections]
        document = {
            "path": path_text(found.path),
            "sections": sections,
            "checkpoints": list(found.checkpoints),
        }
        answer({"handoff": document})
        return
    print_text(found.text if found.text.endswith("\n") else f"{found.text}\n")
