"""``holdfast diff``."""

from __future__ import annotations

import click

from holdfast.cli.changes import (
    file_documents,
    print_names,
    print_patch,
    print_stat,
    print_state,
    state_documents,
    summary,
    title,
)
from holdfast.cli.options import (
    Common,
    checkpoint_argument,
    chosen_checkpoint,
    common_options,
    no_pager_option,
    passed_over,
    path_option,
    session_option,
)
from holdfast.cli.output import answer, columns, one_line, print_line, print_passed_over
from holdfast.cli.paging import paged
from holdfast.sessions import Comparison


@click.command("diff", short_help="Show what changed between two checkpoints, or since one.")
@checkpoint_argument("before")
@checkpoint_argument("after")
@session_option
@click.option("--state", "only_state", is_flag=True, help="Only the state.")
@click.option("--files", "only_files", is_flag=True, help="Only the files.")
@path_option("Only this file or directory; repeatable.")
@click.option("--name-only", is_flag=True, help="Only name the files that differ.")
@click.option("--stat", is_flag=True, help="Only count the lines that differ in each file.")
@click.option("--full", is_flag=True, help="Print long values of the state in full.")
@no_pager_option
@common_options
def command(
    common: Common,
    before: str | None,
    after: str | None,
    session: str | None,
    only_state: bool,
    only_files: bool,
    paths: list[str],
    name_only: bool,
    stat: bool,
    full: bool,
    no_pager: bool,
) -> None:
    """Show what changed between two checkpoints, or since one.

    BEFORE and AFTER are names, ids, labels or beginnings of ids. Without AFTER, BEFORE is compared with the
    present: the project's files as they are, and the session's latest state. Without either, the latest
    checkpoint is.

    Lines of the state begin with + for what was added, - for what was removed and ~ for what has another
    value. Files follow as a patch.

    \b
    Examples:
      holdfast diff
      holdfast diff step-03 step-04 --stat
      holdfast diff before-refactor --files > since.patch
    """
    if only_state and (only_files or paths or name_only or stat):
        raise click.UsageError(
            "--state leaves files out: it goes with none of --files, --path, --name-only and --stat"
        )
    if name_only and stat:
        raise click.UsageError("give either --name-only or --stat")
    with common.open() as manager:
        old = chosen_checkpoint(manager, session, before)
        newer = passed_over(manager, old, before)
        new = chosen_checkpoint(manager, session, after, beside=old) if after is not None else None
        found = manager.diff(
            old,
            new,
            state=not (only_files or paths or name_only or stat),
            files=not only_state,
            text=not name_only,
            paths=paths,
        )
    if common.json:
        document = {
            "before": columns(old),
            "after": columns(new) if new is not None else None,
            "changes": state_documents(found),
            "files": file_documents(found, text=not name_only),
            "notes": list(found.notes),
            "passed_over": [one.to_document() for one in newer],
        }
        answer({"diff": document})
        return
    print_passed_over(newer)
    with paged(wanted=not no_pager):
        _print(found, name_only=name_only, stat=stat, full=full)


def _print(found: Comparison, *, name_only: bool, stat: bool, full: bool) -> None:
    patch_only = found.state is None and not name_only and not stat
    if not patch_only:
        print_line((f"--- {title(found.before)}", "bold"))
        print_line((f"+++ {title(found.after)}", "bold"))
    print_state(found, full=full)
    if name_only:
        print_names((one.change.kind, one.change.path) for one in found.files or ())
    elif stat:
        print_stat(found)
    else:
        print_patch(found)
    for note in found.notes:
        print_line((f"note: {one_line(note)}", "yellow"), err=True)
    if not patch_only:
        print_line((summary(found), "dim"))
