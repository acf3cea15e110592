"""``holdfast save``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, Final

import click

from holdfast.cli.documents import read_state
from holdfast.cli.options import (
    Common,
    chosen_session,
    common_options,
    naming,
    path_option,
    take_over_option,
    unfinished_session,
    unfinished_session_option,
)
from holdfast.cli.output import answer, columns, one_line, print_line, size
from holdfast.cli.progress import progress_bar
from holdfast.cli.quantities import pairs
from holdfast.errors import NothingToResume, SessionNotFound
from holdfast.model import CHECKPOINT_TYPES, TYPE_OF_CLASS
from holdfast.sessions import Session, SessionManager

_LISTED: Final = 5


@click.command("save", short_help="Save a checkpoint.")
@click.argument("name", required=False)
@unfinished_session_option
@click.option(
    "--state",
    "source",
    type=click.File("rb"),
    metavar="FILE",
    help="A JSON object to save, - for stdin; without it the latest state is saved again.",
)
@click.option("--description", "-m", metavar="TEXT", help="What this save point is about.")
@click.option("--type", "kind", type=click.Choice(CHECKPOINT_TYPES), help="The checkpoint's type.")
@click.option(
    "--class",
    "kept_as",
    type=click.Choice(tuple(TYPE_OF_CLASS)),
    help="The retention class: decides how long it is kept.",
)
@click.option(
    "--agent-type", metavar="TYPE", help="Start a session of this kind of agent if there is none."
)
@click.option("--task", metavar="TEXT", help="What a session that is started is to do.")
@click.option(
    "--metadata",
    callback=pairs,
    multiple=True,
    metavar="KEY=TEXT",
    help="Metadata of the checkpoint; may be given repeatedly.",
)
@click.option("--overwrite", is_flag=True, help="Replace a checkpoint of the same name.")
@click.option("--pin", is_flag=True, help="Never remove it by rule.")
@take_over_option
@click.option("--no-files", is_flag=True, help="Save the state alone.")
@path_option("Look only at this file or directory for changes; repeatable.")
@common_options
def command(
    common: Common,
    name: str | None,
    session: str | None,
    source: IO[bytes] | None,
    description: str | None,
    kind: str | None,
    kept_as: str | None,
    agent_type: str | None,
    task: str | None,
    metadata: dict[str, str],
    overwrite: bool,
    pin: bool,
    take_over: bool,
    no_files: bool,
    paths: list[str],
) -> None:
    """Save a checkpoint.

    It holds the state and the project's files, committed or not; what the project ignores is left out. The
    git repository is only looked at.

    It goes to the session named, or to the most recent unfinished one of this project, on the present git
    branch if there is one. When this returns, a power cut cannot take it back. --state reads what
    `show --json` prints as "state". A session that a running program holds is left alone unless
    --take-over is given.

    \b
    Examples:
      holdfast save before-refactor -m "tests are green"
      echo '{"step": 1}' | holdfast save first --agent-type researcher --state -
    """
    if no_files and paths:
        raise click.UsageError("--no-files leaves files alone: it does not go with --path")
    state = read_state(source) if source is not None else None
    with (
        common.open(create=agent_type is not None) as manager,
        progress_bar("reading files", quiet=common.json) as bar,
    ):
        chosen = _session(manager, session, agent_type, task, take_over)
        chosen.check_paths(*paths)
        saved = chosen.save_checkpoint(
            name,
            state=chosen.present_state() if state is None else state,
            description=description,
            checkpoint_type=kind,
            retention_class=kept_as,
            metadata=metadata or None,
            overwrite=overwrite,
            pinned=pin,
            workspace=not no_files,
            paths=paths or None,
            progress=bar,
        )
        files = saved.files
        looked_at = chosen_session(manager, None).id
    if common.json:
        answer({"checkpoint": columns(saved) | {"files": _document(files)}})
        return
    print_line(
        "saved ",
        (one_line(saved.name), "bold cyan"),
        (f"  {size(saved.size_bytes)}, {size(saved.stored_bytes)} stored", "dim"),
    )
    print_line(("in session ", "dim"), one_line(saved.session_id))
    if looked_at != saved.session_id:
        print_line(
            (f"show, diff and rollback look at session {one_line(looked_at)} unless told: ", "dim"),
            (naming(saved.session_id).lstrip(), "cyan"),
        )
    _print_files(files)


def _document(files: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "wrote_count": files.get("wrote_count"),
        "skipped": [{"path": path, "reason": reason} for path, reason in files.get("skipped", ())],
        "skipped_count": files.get("skipped_count"),
        "problem": files.get("problem"),
    }


def _print_files(files: Mapping[str, Any]) -> None:
    if "problem" in files:
        why = one_line(files["problem"])
        print_line(("warning: ", "yellow"), f"without files: {why}", err=True)
    skipped = files.get("skipped", [])
    for path, reason in skipped[:_LISTED]:
        print_line(("skipped ", "yellow"), one_line(f"{path}: {reason}"), err=True)
    more = files.get("skipped_count", 0) - len(skipped[:_LISTED])
    if more:
        print_line(f"… and {more:,} more; holdfast show --skipped lists them", err=True)


def _session(
    manager: SessionManager,
    reference: str | None,
    agent_type: str | None,
    task: str | None,
    take_over: bool,
) -> Session:
    try:
        chosen = unfinished_session(manager, reference, agent_type=agent_type)
        return manager.hold_session(chosen, take_over=take_over)
    except NothingToResume:
        if agent_type is None:
            raise
        return manager.create_session(agent_type, task_description=task)
    except SessionNotFound:
        if agent_type is None:
            raise
        return manager.create_session(agent_type, session_id=reference, task_description=task)
