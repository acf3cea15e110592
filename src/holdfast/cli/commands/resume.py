"""``holdfast resume``."""

from __future__ import annotations

import click

from holdfast import runner
from holdfast.cli.commands.run import end_like, tell_problem
from holdfast.cli.options import (
    Common,
    checkpoint_names,
    common_options,
    take_over_option,
    unfinished_session,
)
from holdfast.cli.output import answer, columns, one_line, plural, print_line, when
from holdfast.cli.rolling import undo_command
from holdfast.config import load_config
from holdfast.errors import CheckpointNotFound, InvalidConfiguration
from holdfast.sessions import Checkpoint, Session


@click.command("resume", short_help="Make a session active, and start its program again.")
@click.argument("session", required=False)
@click.option(
    "--checkpoint",
    "-c",
    metavar="CHECKPOINT",
    help="Go on from this one, for good: files stay, and `undo` takes it back.",
    shell_complete=checkpoint_names,
)
@click.option(
    "--start/--no-start",
    default=True,
    help="Start the program of a session that `run` began; the default.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Start a command that you did not record on this machine, too.",
)
@click.option(
    "--when-due",
    is_flag=True,
    help="Start parked sessions whose time has come, each once.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="With --when-due: at most so many; 1 by default.",
)
@click.option(
    "--within",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="With --when-due: wait so long for the next one to be due.",
)
@take_over_option
@common_options
def command(
    common: Common,
    session: str | None,
    checkpoint: str | None,
    start: bool,
    trust: bool,
    when_due: bool,
    limit: int | None,
    within: float | None,
    take_over: bool,
) -> None:
    """Make a session active, and start its program again.

    Shows what to go on from. Takes the session named, or the most recent unfinished one of this project, on the present git
    branch if there is one. A session that `holdfast run` began gets its command started again, with
    HOLDFAST_BRIEF naming a file that tells where it was. Another one becomes active and is held for
    this command only: a program that calls resume_session goes on with it.

    With --checkpoint that is what is gone on from for good, by whoever goes on: the state goes back to it, and
    what came later stays in the log. Files stay as they are; `holdfast rollback` brings those of the checkpoint.

    A session may come from somebody else, in a bundle or with a cloned project. A command that you did not
    record on this machine is shown and not started, unless you say --trust.

    --when-due is for a timer: it starts sessions that were paused until a time that has come. The
    setting run.when_due = false in .agents/holdfast.toml turns it off.

    \b
    Examples:
      holdfast resume
      holdfast resume 01a1dd1f --checkpoint before-refactor --json
      holdfast resume --when-due --within 3600 --limit 3
    """
    if when_due:
        if session is not None or checkpoint is not None or take_over or not start:
            raise click.UsageError(
                "--when-due starts whatever is due: it goes with none of SESSION, --checkpoint, "
                "--no-start and --take-over"
            )
        _start_due(common, limit or 1, within or 0.0, trusted=trust)
        return
    if limit is not None or within is not None:
        raise click.UsageError("--limit and --within go with --when-due")
    with common.open(owner=runner.owner()) as manager:
        chosen = manager.get_session(unfinished_session(manager, session))
        if start and not take_over:
            runner.check_ended(chosen.record)
        resumed = manager.resume_session(chosen.id, checkpoint=checkpoint, take_over=take_over)
        found = _latest(resumed, checkpoint)
        record, paused_for, notices = resumed.record, resumed.paused_for, resumed.notices
        for notice in notices:
            print_line(("notice  ", "bold yellow"), one_line(notice), err=True)
        tasks = [] if found is None else found.task_state["tasks"]
        lineage = [one.id for one in resumed.lineage()[1:]]
        if start and runner.COMMAND in resumed.metadata:
            outcome = runner.start_again(manager, resumed, trusted=trust)
            if common.json:
                answer({"run": {"session_id": outcome.session_id, "exit_code": outcome.exit_code}})
            end_like(outcome)
        undone_by = None
        if checkpoint is not None and resumed.go_on_from(checkpoint) is not None:
            undone_by = undo_command(resumed.id)
        resumed.close(release=True)
    seconds = None if paused_for is None else paused_for.total_seconds()
    if common.json:
        document = columns(record) | {"paused_for": seconds, "lineage": lineage}
        document["notices"] = list(notices)
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
    if undone_by is not None:
        print_line("to take it back: ", (undone_by, "cyan"))


def _start_due(common: Common, limit: int, within: float, *, trusted: bool) -> None:
    if not load_config(common.project_dir).run.when_due:
        raise InvalidConfiguration(
            "run.when_due is off in .agents/holdfast.toml: nothing was started"
        )
    with common.open(owner=runner.owner()) as manager:
        outcomes = runner.start_due(manager, limit=limit, within=within, trusted=trusted)
    for one in outcomes:
        tell_problem(one)
    if common.json:
        answer(
            {
                "runs": [
                    {"session_id": one.session_id, "exit_code": one.exit_code} for one in outcomes
                ]
            }
        )
    else:
        verb = "was" if len(outcomes) == 1 else "were"
        print_line(f"{plural(len(outcomes), 'parked session')} {verb} due")
        for one in outcomes:
            print_line((one_line(one.session_id), "cyan"), f"  ended with {one.exit_code}")
    if any(one.exit_code for one in outcomes):
        raise SystemExit(1)


def _latest(session: Session, reference: str | None) -> Checkpoint | None:
    try:
        if reference is not None:
            return session.get_checkpoint(reference)
        return session.latest_checkpoint(resumable=True)
    except CheckpointNotFound:
        return None
