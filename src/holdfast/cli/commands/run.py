"""``holdfast run``."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import click

from holdfast import runner
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, print_line


@click.command(
    "run",
    short_help="Run a program as a session, saved while it works.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("program", nargs=-1, required=True, metavar="-- PROGRAM...")
@click.option("--task", metavar="TEXT", help="What the program is to do; the command by default.")
@click.option("--agent-type", metavar="TYPE", help="What kind of agent it is; its name by default.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds between saves of changed files; 0 turns them off.",
)
@common_options
def command(
    common: Common,
    program: tuple[str, ...],
    task: str | None,
    agent_type: str | None,
    interval: float,
) -> None:
    """Run a program as a session, saved while it works.

    The project's files are saved before it starts, while it works as far as they change, and when it
    ends. One that ends well completes the session; one that fails leaves a failure checkpoint; Ctrl-C
    leaves it paused. `holdfast resume` starts it again, with HOLDFAST_BRIEF naming a file that tells
    where it was. Terminal, signals and exit code are the program's own.

    \b
    Examples:
      holdfast run -- claude -p "move auth to OAuth"
      holdfast run --task "nightly cleanup" --interval 10 -- ./agent.py --fast
    """
    with common.open(create=True, owner=runner.owner()) as manager:
        outcome = runner.start(
            manager, program, agent_type=agent_type, task=task, interval=interval or None
        )
    if common.json:
        answer({"run": {"session_id": outcome.session_id, "exit_code": outcome.exit_code}})
    end_like(outcome)


def end_like(outcome: runner.Outcome) -> None:
    """End as the program ended, by the same signal if it was one."""
    tell_problem(outcome)
    if outcome.exit_code < 0:
        # For SIGKILL no handler can be set, not even the default.
        with suppress(OSError):
            signal.signal(-outcome.exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -outcome.exit_code)
    raise SystemExit(outcome.shell_code)


def tell_problem(outcome: runner.Outcome) -> None:
    """Say on stderr why the end of a program is not in its session."""
    if outcome.problem is not None:
        print_line(
            ("warning: ", "yellow"),
            f"the end of the program could not be recorded in session {outcome.session_id}: ",
            one_line(str(outcome.problem)),
            err=True,
        )
