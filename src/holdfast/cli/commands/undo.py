"""``holdfast undo``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, chosen_session, common_options, session_option
from holdfast.cli.rolling import Asked, asking_options, carry_out


@click.command("undo", short_help="Take back the last rollback, or the last undo.")
@click.option("--redo", is_flag=True, help="Take back the last undo instead.")
@session_option
@asking_options
@common_options
def command(
    common: Common,
    redo: bool,
    session: str | None,
    asked: Asked,
) -> None:
    """Take back the last rollback, or the last undo.

    Files and state become what they were just before. What will happen is shown first, and nothing
    happens without a yes. What was changed since is not lost either: --redo brings it back.

    \b
    Examples:
      holdfast undo
      holdfast undo --dry-run --diff
      holdfast undo --redo --yes
    """
    with common.open() as manager:
        carry_out(
            common,
            manager,
            chosen_session(manager, session).id,
            lambda held, _, dry_run: (
                held.redo(dry_run=dry_run) if redo else held.undo(dry_run=dry_run)
            ),
            asked,
            name="redo" if redo else "undo",
            session=session,
        )
