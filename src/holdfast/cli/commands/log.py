"""``holdfast log``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, chosen_session, common_options
from holdfast.cli.output import (
    Column,
    answer,
    columns,
    on_terminal,
    one_line,
    print_line,
    print_table,
    size,
    when,
)
from holdfast.sessions import Checkpoint

_LAYOUT = (
    Column("NAME", "cyan", give=1, least=25),
    Column("TYPE"),
    Column("SAVED", "dim"),
    Column("BRANCH", "green", give=2),
    Column("FILES", right=True),
    Column("SIZE", right=True),
    Column("NOTE", give=3, least=8),
)


@click.command("log", short_help="List the checkpoints of a session, newest first.")
@click.argument("session", required=False)
@click.option("--limit", "-n", type=click.IntRange(min=1), help="At most so many.")
@common_options
def command(common: Common, session: str | None, limit: int | None) -> None:
    """List the checkpoints of a session, newest first.

    SESSION is an id or its beginning; the most recently created session by default. A * behind the
    branch says that files were uncommitted at the time. FILES is how many files differ from the checkpoint
    before it.

    \b
    Examples:
      holdfast log
      holdfast log my-session --limit 5 --json
    """
    with common.open() as manager:
        chosen = chosen_session(manager, session)
        # One more, for what the last one is compared with.
        listed = chosen.list_checkpoints(limit=limit and limit + 1)
        changed = manager.count_changed_files(listed)
        found = listed[:limit]
    if common.json:
        rows = [{**columns(one), "files_changed": changed.get(one.id)} for one in found]
        answer({"checkpoints": rows})
        return
    if on_terminal():
        about = f"  {chosen.agent_type}, {chosen.status}"
        print_line("session ", (one_line(chosen.id), "bold cyan"), (one_line(about), "dim"))
    if not found:
        print_line("no checkpoints")
        return
    print_table(_LAYOUT, [_row(one, changed.get(one.id)) for one in found])


def _row(checkpoint: Checkpoint, changed: int | None) -> tuple[str, ...]:
    notes = [checkpoint.description] if checkpoint.description else []
    notes += [
        word
        for word, holds in (
            ("pinned", checkpoint.pinned),
            ("not resumable", not checkpoint.resumable),
            ("restored", checkpoint.restored_at is not None),
        )
        if holds
    ]
    branch = checkpoint.git_branch or (checkpoint.git_commit or "")[:10]
    return (
        checkpoint.name,
        _kind(checkpoint),
        when(checkpoint.created_at),
        f"{branch}*" if checkpoint.git_uncommitted else branch,
        f"{changed:,}" if changed else "",
        size(checkpoint.size_bytes),
        ", ".join(notes),
    )


def _kind(checkpoint: Checkpoint) -> str:
    """The type, and the class where it says more."""
    kind, kept_as = checkpoint.checkpoint_type, checkpoint.retention_class
    return kind if kind == kept_as else f"{kind}/{kept_as}"
