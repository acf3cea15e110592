"""``holdfast rollback``."""

from __future__ import annotations

import click

from holdfast.cli.options import (
    Common,
    checkpoint_argument,
    chosen_checkpoint,
    chosen_session,
    common_options,
    path_option,
    session_option,
)
from holdfast.cli.rolling import Asked, asking_options, carry_out
from holdfast.hooks.rewind import (
    GoingOn,
    check_conversation,
    fork_conversation,
    going_on,
    tell_pending,
)
from holdfast.sessions import RollbackReport, Session


@click.command("rollback", short_help="Put files and state back to a checkpoint.")
@checkpoint_argument("checkpoint")
@session_option
@path_option("Only this file or directory; repeatable. The state stays as it is.")
@click.option("--state-only", is_flag=True, help="Leave the files as they are.")
@click.option("--files-only", is_flag=True, help="Leave the state as it is.")
@click.option("--only-mine", is_flag=True, help="Leave alone what this session did not write.")
@click.option(
    "--move-head",
    is_flag=True,
    help="Put HEAD, branch and index of the git repository back as well.",
)
@click.option(
    "--with-conversation",
    is_flag=True,
    help="Write a coding agent's conversation down as it was then, for the agent to go on from there.",
)
@asking_options
@common_options
def command(
    common: Common,
    checkpoint: str | None,
    session: str | None,
    paths: list[str],
    state_only: bool,
    files_only: bool,
    only_mine: bool,
    move_head: bool,
    with_conversation: bool,
    asked: Asked,
) -> None:
    """Put files and state back to a checkpoint.

    CHECKPOINT is a name, an id, a label or the beginning of an id. By default it is the latest one that
    was saved as a good one: neither a failure nor part of an earlier rollback. What will happen is shown
    first, and nothing happens without a yes.

    Files that came since are removed, apart from those that the project ignores. Everything as it was is
    kept in a safety checkpoint: `holdfast undo` brings it back. The git repository keeps its HEAD, branch
    and index. A completed session is final: what happens is stored in a fork of it.

    A coding agent's own transcript is never changed; how to go on with the conversation is printed.
    --with-conversation writes a second one that ends at the checkpoint, where the agent's form of
    transcripts allows it.

    \b
    Examples:
      holdfast rollback
      holdfast rollback before-refactor --dry-run --diff
      holdfast rollback before-refactor --path src --yes
    """
    if state_only and (files_only or paths or only_mine or move_head):
        raise click.UsageError(
            "--state-only leaves files alone: it goes with none of --files-only, --path, --only-mine "
            "and --move-head"
        )
    with common.open() as manager:
        if checkpoint is None:
            target, session_id = None, chosen_session(manager, session).id
        else:
            found = chosen_checkpoint(manager, session, checkpoint)
            target, session_id = found.id, found.session_id

        def act(held: Session, name: str | None, looking: bool) -> RollbackReport:
            if only_mine:
                tell_pending(manager, held)
            report = held.rollback(
                name or target,
                paths=paths or None,
                dry_run=looking,
                move_head=move_head,
                only_mine=only_mine,
                state=False if files_only else None,
                files=not state_only,
            )
            if looking and with_conversation:
                # Before anything is changed.
                check_conversation(held, report.checkpoint)
            return report

        def then(held: Session, report: RollbackReport) -> GoingOn | None:
            if with_conversation:
                return fork_conversation(held, report.checkpoint)
            return going_on(held)

        carry_out(
            common,
            manager,
            session_id,
            act,
            asked,
            name="rollback",
            session=session,
            going_on=then,
        )
