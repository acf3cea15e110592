"""``holdfast save``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import click

from holdfast.cli.documents import read_state
from holdfast.cli.options import Common, common_options, session_option, take_over_option
from holdfast.cli.output import answer, columns, one_line, print_line, size
from holdfast.cli.quantities import pairs
from holdfast.errors import CheckpointNotFound, NothingToResume, SessionNotFound
from holdfast.model import CHECKPOINT_TYPES, TYPE_OF_CLASS
from holdfast.sessions import Session, SessionManager


@click.command("save", short_help="Save a checkpoint.")
@click.argument("name", required=False)
@session_option
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
) -> None:
    """Save a checkpoint.

    It goes to the session named, or to the most recently created one that is not completed. When this
    returns, a power cut cannot take it back. --state reads what `show --json` prints as "state".
    A session that a running program holds is left alone unless --take-over is given.

    \b
    Examples:
      holdfast save before-refactor -m "tests are green"
      echo '{"step": 1}' | holdfast save first --agent-type researcher --state -
    """
    state = read_state(source) if source is not None else None
    with common.open(create=agent_type is not None) as manager:
        chosen = _session(manager, session, agent_type, task, take_over)
        saved = chosen.save_checkpoint(
            name,
            state=_present_state(chosen) if state is None else state,
            description=description,
            checkpoint_type=kind,
            retention_class=kept_as,
            metadata=metadata or None,
            overwrite=overwrite,
            pinned=pin,
        )
    if common.json:
        answer({"checkpoint": columns(saved)})
        return
    print_line(
        "saved ",
        (one_line(saved.name), "bold cyan"),
        (f"  {size(saved.size_bytes)}, {size(saved.stored_bytes)} stored", "dim"),
    )
    print_line(("in session ", "dim"), one_line(saved.session_id))


def _session(
    manager: SessionManager,
    reference: str | None,
    agent_type: str | None,
    task: str | None,
    take_over: bool,
) -> Session:
    try:
        chosen = reference or manager.latest_unfinished_session(agent_type=agent_type).id
        return manager.hold_session(chosen, take_over=take_over)
    except NothingToResume:
        if agent_type is None:
            raise NothingToResume(
                "there is no session to save to; start one with: holdfast save --agent-type NAME"
            ) from None
        return manager.create_session(agent_type, task_description=task)
    except SessionNotFound:
        if agent_type is None:
            raise
        return manager.create_session(agent_type, session_id=reference, task_description=task)


def _present_state(session: Session) -> Mapping[str, Any]:
    try:
        return session.state
    except CheckpointNotFound:
        return {}
