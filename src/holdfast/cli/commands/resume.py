"""``holdfast resume``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options, take_over_option
from holdfast.cli.output import answer, columns, one_line, print_line, when
from holdfast.errors import CheckpointNotFound
from holdfast.sessions import Checkpoint, Session


@click.command("resume", short_help="Show what to go on from, and make a session active.")
@click.argument("session", required=False)
@click.option("--checkpoint", "-c", metavar="CHECKPOINT", help="Go on from this one.")
@take_over_option
@common_options
def command(common: Common, session: str | None, checkpoint: str | None, take_over: bool) -> None:
    """Show what to go on from, and make a session active.

    Takes the session named, or the most recent unfinished one of this project, on the present git
    branch if there is one. It becomes active, and is held for this command only: a program that calls
    resume_session goes on with it.

    \b
    Examples:
      holdfast resume
      holdfast resume 01a1dd1f --checkpoint before-refactor --json
    """
    with common.open() as manager:
        resumed = manager.resume_session(session, checkpoint=checkpoint, take_over=take_over)
        found = _latest(resumed, checkpoint)
        record, paused_for = resumed.record, resumed.paused_for
        tasks = [] if found is None else found.task_state["tasks"]
        lineage = [one.id for one in resumed.lineage()[1:]]
    seconds = None if paused_for is None else paused_for.total_seconds()
    if common.json:
        document = columns(record) | {"paused_for": seconds, "lineage": lineage}
        answer({"session": document, "checkpoint": None if found is None else columns(found)})
        return
    print_line("resumed ", (one_line(record.id), "bold cyan"), f"  {one_line(record.agent_type)}")
    if record.task_description:
        print_line(("task    ", "dim"), one_line(record.task_description))
    if seconds is not None:
        print_line(("paused  ", "dim"), f"for {seconds:.0f} s")
    if found is None:
        print_line(("from    ", "dim"), "nothing saved yet")
        return
    print_line(("from    ", "dim"), one_line(found.name), (f"  {when(found.created_at)}", "dim"))
    done = [task for task in tasks if task.get("status") == "completed"]
    if tasks:
        print_line(("tasks   ", "dim"), f"{len(done)} of {len(tasks)} completed")
    for task in tasks:
        if task not in done:
            print_line(("  next  ", "dim"), one_line(str(task.get("title") or task["id"])))


def _latest(session: Session, reference: str | None) -> Checkpoint | None:
    try:
        if reference is not None:
            return session.get_checkpoint(reference)
        return session.latest_checkpoint(resumable=True)
    except CheckpointNotFound:
        return None
