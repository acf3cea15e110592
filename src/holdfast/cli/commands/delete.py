"""``holdfast delete``."""

from __future__ import annotations

import click

from holdfast.cli.asking import check_can_ask, confirm, yes_option
from holdfast.cli.options import (
    Common,
    checkpoint_argument,
    chosen_checkpoint,
    common_options,
    session_option,
    take_over_option,
)
from holdfast.cli.output import answer, columns, one_line, print_line, when


@click.command("delete", short_help="Delete a checkpoint.")
@checkpoint_argument("checkpoint", required=True)
@session_option
@click.option(
    "--force", is_flag=True, help="Also one that is pinned, of class feature, or needed by others."
)
@take_over_option
@yes_option
@common_options
def command(
    common: Common, checkpoint: str, session: str | None, force: bool, take_over: bool, yes: bool
) -> None:
    """Delete a checkpoint.

    CHECKPOINT is a name, an id, a label or the beginning of an id. Later ones stay as they are, and the
    next `holdfast gc` frees what only this one needed. There is no way back.

    \b
    Examples:
      holdfast delete before-refactor
      holdfast delete 0192f3a1-7b5c-7000-8000-0242ac120002 --yes --json
    """
    check_can_ask(common, "delete", yes=yes)
    with common.open() as manager:
        found = chosen_checkpoint(manager, session, checkpoint)
        if not yes:
            print_line(
                (one_line(found.name), "bold cyan"),
                f"  {one_line(found.id)}  {when(found.created_at)}",
            )
            confirm("Delete it?")
        held = manager.hold_session(found.session_id, take_over=take_over)
        held.delete_checkpoint(found.id, force=force)
    if common.json:
        answer({"deleted": columns(found)})
        return
    print_line("deleted ", (one_line(found.name), "bold cyan"))
