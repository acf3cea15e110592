"""``holdfast fork``."""

from __future__ import annotations

import shlex

import click

from holdfast.cli.options import (
    Common,
    checkpoint_argument,
    chosen_checkpoint,
    common_options,
    passed_over,
    session_option,
)
from holdfast.cli.output import answer, columns, one_line, print_line, print_passed_over


@click.command("fork", short_help="Start a second line of work from a checkpoint.")
@checkpoint_argument("checkpoint")
@session_option
@click.option("--as", "new_id", metavar="ID", help="The id of the new session.")
@click.option("--task", metavar="TEXT", help="What it is for; the task of the old one by default.")
@common_options
def command(
    common: Common,
    checkpoint: str | None,
    session: str | None,
    new_id: str | None,
    task: str | None,
) -> None:
    """Start a second line of work from a checkpoint.

    The new session begins with the state of the checkpoint named, or of the latest one; the old session
    goes on undisturbed. Files stay as they are: rollback in the new session brings those of the
    checkpoint.

    \b
    Examples:
      holdfast fork before-refactor --task "Try it with a queue"
      holdfast fork --session 01a1dd1f --as second-try --json
    """
    with common.open() as manager:
        source = chosen_checkpoint(manager, session, checkpoint)
        newer = passed_over(manager, source, checkpoint)
        made = manager.get_session(source.session_id).fork(
            source.id, session_id=new_id, task_description=task
        )
        record, first = made.record, made.latest_checkpoint()
    if common.json:
        document = {"session": columns(record), "checkpoint": columns(first.record)}
        answer(document | {"passed_over": [one.to_document() for one in newer]})
        return
    print_passed_over(newer)
    print_line("forked ", (one_line(record.id), "bold cyan"), f" from {one_line(source.name)}")
    named = one_line(shlex.quote(record.id))
    print_line((f"its files: holdfast rollback --session {named}", "dim"))
