"""``holdfast copy``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import Column, answer, one_line, plural, print_line, print_table
from holdfast.cli.progress import progress_bar
from holdfast.errors import ConflictError, IntegrityError

_ADVICE: Final = (
    "Nothing of these arrived, and nothing is lost here. To take along what is whole of them: of a "
    "SQLite file holdfast doctor --salvage NEW makes a new one of all that verifies; holdfast export --checkpoint NAME, or "
    "--latest, takes one checkpoint; where only files are damaged, --no-files copies the states"
)


@click.command("copy", short_help="Copy sessions from one store to another.")
@click.argument("source")
@click.argument("target")
@click.argument("sessions", nargs=-1)
@click.option("--no-files", is_flag=True, help="Copy the states only.")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@click.option(
    "--unsealed", is_flag=True, help="Make the target plain text although there is a key."
)
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    common: Common,
    source: str,
    target: str,
    sessions: tuple[str, ...],
    no_files: bool,
    dry_run: bool,
    unsealed: bool,
) -> None:
    """Copy sessions from one store to another.

    SOURCE and TARGET are paths or URLs; SESSIONS are ids or their beginnings, all sessions by default. What
    is copied keeps its ids, names, order and times, files included, and is read back and compared. The source is not changed.
    A database in the .agents of a project has its files in that project, another one in the project that this is.

    Each session arrives whole or not at all. After an interruption repeat the command: it goes on where it
    was. A session that the target has with other content stays as it is there, and the exit code is 4.
    Nothing of a session that is damaged arrives: it is named with the reasons, the others are copied, and
    the exit code is 5.

    With a key in the environment a new target is sealed. This is how a store of plain text becomes a sealed
    one, and with --unsealed the other way round.

    \b
    Examples:
      holdfast copy .agents/sessions.db postgresql://localhost/agents
      holdfast copy postgresql://localhost/agents sessions.db nightly --dry-run
      holdfast copy old.db new.db --no-files --json
    """
    if common.url is not None:
        raise click.UsageError("copy takes its stores as arguments, not as --url")
    with (
        replace(common, url=source).open(as_it_is=True) as manager,
        progress_bar("copying", quiet=common.json) as bar,
    ):
        copied = manager.copy_to(
            target,
            sessions or None,
            tenant=common.tenant,
            files=not no_files,
            dry_run=dry_run,
            progress=bar,
            unsealed=unsealed,
        )
    outcomes = {one.outcome for one in copied}
    if common.json:
        answer({"copy": {"sessions": [asdict(one) for one in reversed(copied)]}})
    else:
        layout = [
            Column("session"), Column("outcome", leave=1), Column("checkpoints", right=True, leave=2),
            Column("snapshots", right=True, leave=3),
        ]  # fmt: skip
        print_table(
            layout,
            [
                (one_line(one.session_id), _said(one.outcome, dry_run), str(one.checkpoints),
                 str(one.snapshots))
                for one in reversed(copied)
            ],
        )  # fmt: skip
        for one in copied:
            for found in one.damaged:
                why = (
                    f"{one_line(one.session_id)}  {one_line(found.what)}: {one_line(found.reason)}"
                )
                print_line(("left out ", "bold red"), why)
        if "damaged" in outcomes:
            print_line((_ADVICE, "dim"))
        done = sum(one.outcome == "copied" for one in copied)
        print_line(f"{plural(done, 'session')} {'to copy' if dry_run else 'copied'}")
    if "damaged" in outcomes:
        ctx.exit(IntegrityError.exit_code)
    if "different" in outcomes:
        ctx.exit(ConflictError.exit_code)


def _said(outcome: str, dry_run: bool) -> str:
    known = {
        "present": "is there already",
        "different": "differs there: left alone",
        "damaged": "damaged: left out",
    }
    return known.get(outcome, "would be copied" if dry_run else "copied and compared")
