"""``holdfast show``."""

from __future__ import annotations

import click

from holdfast.cli.options import (
    Common,
    chosen_checkpoint,
    common_options,
    session_option,
)
from holdfast.cli.output import (
    answer,
    columns,
    exact,
    one_line,
    print_document,
    print_line,
    size,
    when,
)
from holdfast.sessions import Checkpoint


@click.command("show", short_help="Print a checkpoint with its whole state.")
@click.argument("checkpoint", required=False)
@session_option
@common_options
def command(common: Common, checkpoint: str | None, session: str | None) -> None:
    """Print a checkpoint with its whole state.

    CHECKPOINT is a name, an id, a label or the beginning of an id; the latest one by default. Looking
    restores nothing. Values that JSON lacks are printed with tags: {"$t": "date", "v": "2026-01-31"}.

    \b
    Examples:
      holdfast show
      holdfast show before-refactor --session my-session
      holdfast show --json | jq .checkpoint.state
    """
    with common.open() as manager:
        found = chosen_checkpoint(manager, session, checkpoint)
        state = exact(found.state)
        if common.json:
            content = {
                "state": state,
                "task_state": exact(found.task_state),
                "progress": exact(found.progress),
            }
            answer({"checkpoint": columns(found) | content})
            return
        for title, value in _facts(found):
            if value:
                print_line((f"{title:<12}", "bold"), one_line(value))
        print_line()
        print_document(state)


def _facts(found: Checkpoint) -> list[tuple[str, str | None]]:
    progress = found.progress
    done = f"{progress['completed']} of {progress['total']} tasks completed"
    branch = found.git_branch or ("detached" if found.git_commit else None)
    commit = (found.git_commit or "no commit yet")[:13]
    dirty = ", files uncommitted" if found.git_uncommitted else ""
    kept = ", ".join(
        word
        for word, holds in (
            (found.checkpoint_type, True),
            (f"class {found.retention_class}", True),
            ("pinned", found.pinned),
            ("not resumable", not found.resumable),
        )
        if holds
    )
    return [
        ("Checkpoint", found.name),
        ("Id", found.id),
        ("Session", found.session_id),
        ("About", found.description),
        ("Saved", when(found.created_at)),
        ("Kept as", kept),
        ("Expires", when(found.expires_at)),
        ("Restored", when(found.restored_at)),
        ("Git", f"{branch}, {commit}{dirty}" if branch else None),
        ("Size", f"{size(found.size_bytes)}, {size(found.stored_bytes)} stored"),
        ("Progress", done if progress["total"] else None),
        ("Metadata", ", ".join(f"{k}={v}" for k, v in (found.metadata or {}).items())),
    ]
