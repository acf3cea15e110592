"""``holdfast delete``."""

from __future__ import annotations

import click

from holdfast.cli.asking import check_can_ask, confirm, yes_option
from holdfast.cli.options import (
    Common,
    checkpoint_argument,
    chosen_checkpoint,
    chosen_session,
    common_options,
    session_option,
    take_over_option,
)
from holdfast.cli.output import answer, columns, one_line, print_line, when
from holdfast.errors import IntegrityError


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
        try:
            found = chosen_checkpoint(manager, session, checkpoint)
            name, id_, made = found.name, found.id, when(found.created_at)
            session, document = found.session_id, columns(found)
        except IntegrityError:
            # Its row cannot be read; that it is of no use is known without.
            chosen = chosen_session(manager, session)
            unreadable = list(chosen.unreadable_checkpoints(checkpoint))
            if len(unreadable) != 1:
                raise
            session, (id_,) = chosen.id, unreadable
            name, made = checkpoint, "cannot be read"
            document = {"id": id_, "session_id": session}
        if not yes:
            print_line((one_line(name), "bold cyan"), f"  {one_line(id_)}  {made}")
            confirm("Delete it?")
        held = manager.hold_session(session, take_over=take_over)
        held.delete_checkpoint(id_, force=force)
    if common.json:
        answer({"deleted": document})
        return
    print_line("deleted ", (one_line(name), "bold cyan"))
