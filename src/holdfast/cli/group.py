"""The command ``holdfast`` itself: which commands there are, and what happens when one fails.

Exit codes: 0 done, 1 something unforeseen, 2 the input cannot be accepted, 3 not found, 4 in conflict
with what is stored, 5 damaged data, 6 the database cannot do its part, 7 an optional part is not
installed, 130 interrupted. They belong to the families in `holdfast.errors`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from typing import Any, Final, NamedTuple, NoReturn, cast

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

INTERRUPTED: Final = 130

# The short helps stand here so that listing the commands imports none; a test compares them.
COMMANDS: Final[Mapping[str, str]] = {
    "init": "Prepare a project: create its database.",
    "demo": "Watch an agent get killed, resumed, approved and rolled back.",
    "run": "Run a program as a session, saved while it works.",
    "sessions": "List sessions, newest first.",
    "status": "Show when sessions were saved, failed saves, quarantine.",
    "brief": "Print what to know before going on.",
    "decide": "Record a decision for whoever comes next.",
    "handoff": "Leave the latest checkpoints in HANDOFF.md.",
    "gate": "Check what the project's protocol asks for.",
    "log": "List the checkpoints of a session, newest first.",
    "save": "Save a checkpoint.",
    "pause": "Pause a session: save it and say why.",
    "resume": "Make a session active, and start its program again.",
    "complete": "Mark a session as done.",
    "recover": "Find sessions whose worker died, and mark them.",
    "show": "Print a checkpoint: its state, its files, or one of them.",
    "diff": "Show what changed between two checkpoints, or since one.",
    "rollback": "Put files and state back to a checkpoint.",
    "fork": "Start a second line of work from a checkpoint.",
    "undo": "Take back the last rollback, or the last undo.",
    "export": "Write a session to one file that travels.",
    "import": "Take in a session that was exported.",
    "copy": "Copy sessions from one store to another.",
    "prune": "Remove old checkpoints by the rules, with a reason each.",
    "delete": "Delete a checkpoint.",
    "usage": "Show how much room states and files take.",
    "erase": "Erase a session, or all of a tenant, for good.",
    "gc": "Free the space of content that nothing refers to.",
    "verify": "Read everything back and check every digest.",
    "keys": "Make, list and change the keys of sealed stores.",
    "redact": "Find secrets that are stored already.",
    "doctor": "Explain the installation; save what a damaged file holds.",
    "drill": "Kill a worker again and again, and count what comes back.",
    "hooks": "Let a coding agent call Holdfast.",
    "hook": "Act on an event of a coding agent, for its hooks.",
    "mcp": "Serve an agent over the Model Context Protocol.",
    "skill": "Install the skill for coding agents.",
    "schema": "Print the database schema as SQL.",
    "completion": "Print the completion script for a shell.",
}


class Group(click.Group):
    """A group that imports a command when it is used, and turns errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in COMMANDS:
            return None
        return cast("click.Command", import_module(f"holdfast.cli.commands.{cmd_name}").command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may have been meant."""
        name = args[0]
        if name not in COMMANDS and name[:1].isalpha() and not ctx.resilient_parsing:
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command and exit, never with a traceback for an error that we foresee."""
        arguments = list(sys.argv[1:] if args is None else args)
        options = set(takewhile(lambda word: word != "--", arguments))
        form = Form("--json" in options, "--pascal-case" in options)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A name that the terminal cannot spell is no reason to fail.
                stream.reconfigure(errors="backslashreplace")
        try:
            code = super().main(
                arguments, prog_name or "holdfast", complete_var, standalone_mode=False, **extra
            )
        except click.ClickException as error:
            message = error.format_message()
            if isinstance(error, click.MissingParameter):
                # The choices come as a list over several lines, and a message is one.
                message = " ".join(message.split())
            if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.parent is None:
                message += (
                    f" Options stand behind the command: holdfast COMMAND {error.option_name}"
                )
            _report(form, "usage", message, error)
            code = error.exit_code
        except HoldfastError as error:
            _report(form, error.code, " ".join((str(error), *_notes(error))))
            code = error.exit_code
        except click.Abort as error:
            _report(form, "interrupted", ". ".join(("interrupted", *_notes(error.__cause__))))
            code = INTERRUPTED
        except OSError as error:
            _report(form, "system", str(error))
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


class Form(NamedTuple):
    """How an error is told, as far as the arguments say so before they are understood."""

    json: bool
    pascal_case: bool


def _notes(error: BaseException | None) -> list[str]:
    """Return what was said of an error on its way."""
    return getattr(error, "__notes__", [])


def _report(form: Form, code: str, message: str, error: click.ClickException | None = None) -> None:
    from holdfast.cli.output import one_line, pascal_case, to_json

    # An argument need not be valid text, and messages quote arguments.
    message = message.encode("utf-8", "backslashreplace").decode()
    if form.json or form.pascal_case:
        document = {"error": {"code": code, "message": message}}
        shown = pascal_case(document) if form.pascal_case else document
        click.echo(to_json(shown, indent=False), err=True)
        return
    click.echo(f"error: {one_line(message)}", err=True)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(f"Try '{context.command_path} --help' for help.", err=True)


@click.command(
    cls=Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command takes --json, --url, --tenant and --project-dir. "
    "`holdfast COMMAND --help` has examples.",
)
@click.version_option(__version__, prog_name="holdfast")
@click.pass_context
def holdfast(ctx: click.Context) -> None:
    """Durable checkpoints for AI agents: save, look back, pick up where it was.

    \b
    New here?
      holdfast demo       see an agent killed and continued, in a few seconds
      holdfast init       prepare this project
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
