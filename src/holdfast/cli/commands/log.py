"""``holdfast log``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.graph import is_straight, lanes
from holdfast.cli.options import Common, chosen_session, common_options
from holdfast.cli.output import (
    Column,
    answer,
    columns,
    exact,
    on_terminal,
    one_line,
    print_line,
    print_table,
    print_unreadable,
    size,
    unreadable_document,
    when,
)
from holdfast.hooks.authorship import HOOK
from holdfast.sessions import Checkpoint, SessionManager

_LAYOUT = (
    Column("NAME", "cyan", give=1, least=25),
    Column("TYPE", leave=5),
    Column("SAVED", "dim", leave=2),
    Column("BRANCH", "green", give=2, leave=4),
    Column("FILES", right=True, leave=3),
    Column("SIZE", right=True, leave=6),
    Column("NOTE", give=3, least=24, leave=1),
)


@click.command("log", short_help="List the checkpoints of a session, newest first.")
@click.argument("session", required=False)
@click.option("--limit", "-n", type=click.IntRange(min=1), help="At most so many.")
@common_options
def command(common: Common, session: str | None, limit: int | None) -> None:
    """List the checkpoints of a session, newest first.

    SESSION is an id or its beginning; the most recently created session by default. A * behind the
    branch says that files were uncommitted at the time. FILES is how many files differ from the checkpoint
    before it; below the list stands why the newest has none, if they could not be captured. NOTE says what is in quarantine: it failed verification, and is neither loaded nor resumed
    from until `holdfast verify --deep` finds it whole again. Where work went back and took another way, or another session was forked off, lines beside
    the list show which checkpoint each builds on.

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
        forks = _forks(manager, found)
        quarantined = {one.id for one in manager.list_quarantined(chosen.id)}
        problem = found[0].files_problem if found else None
        unreadable = chosen.unreadable_checkpoints(limit=limit)
    print_unreadable(unreadable, "checkpoint")
    if common.json:
        rows = [
            {
                **columns(one),
                "quarantined": one.id in quarantined,
                "files_changed": changed.get(one.id),
                "forks": forks.get(one.id, []),
                "did": exact((one.metadata or {}).get(HOOK)),
            }
            for one in found
        ]
        answer(
            {
                "checkpoints": rows,
                "unreadable": unreadable_document(unreadable),
                "files_problem": problem,
            }
        )
        return
    if on_terminal():
        about = f"  {chosen.agent_type}, {chosen.status}"
        print_line("session ", (one_line(chosen.id), "bold cyan"), (one_line(about), "dim"))
    if not found:
        print_line("no checkpoints")
        return
    cells = [
        _row(one, changed.get(one.id), forks.get(one.id, []), quarantined=one.id in quarantined)
        for one in found
    ]
    drawn = lanes((one.id, one.parent_id) for one in found)
    if not on_terminal() or is_straight(drawn):
        print_table(_LAYOUT, cells)
    else:
        _print_beside(cells, drawn)
    if problem is not None:
        print_line((one_line(f"files not captured by {found[0].name}: {problem}"), "bold red"))


def _print_beside(
    cells: Sequence[tuple[str, ...]], drawn: Sequence[tuple[str, str | None]]
) -> None:
    beside: list[tuple[str, ...]] = []
    for row, (here, below) in zip(cells, drawn, strict=True):
        beside.append((here, *row))
        if below is not None:
            beside.append((below, *("" for _ in row)))
    print_table((Column("", "dim"), *_LAYOUT), beside)


def _forks(manager: SessionManager, checkpoints: list[Checkpoint]) -> dict[str, list[str]]:
    """Return which sessions were forked off at which checkpoint."""
    found: dict[str, list[str]] = {}
    ids = {one.id for one in checkpoints}
    for record in manager.list_sessions() if ids else ():
        if record.forked_from in ids:
            found.setdefault(str(record.forked_from), []).append(record.id)
    return found


def _row(
    checkpoint: Checkpoint, changed: int | None, forks: list[str], *, quarantined: bool
) -> tuple[str, ...]:
    # Before the description, which a narrow terminal cuts off.
    notes = ["in quarantine"] if quarantined else []
    notes += [checkpoint.description] if checkpoint.description else []
    notes += [
        word
        for word, holds in (
            ("pinned", checkpoint.pinned),
            ("not resumable", not checkpoint.resumable),
            ("restored", checkpoint.restored_at is not None),
        )
        if holds
    ]
    notes += [f"fork {one_line(one)}" for one in forks]
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
