"""A yes before something that cannot be taken back, or a reason why nobody can be asked for one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import click

from holdfast.cli.options import Common
from holdfast.cli.output import on_terminal, print_line

DECLINED: Final = 1


def yes_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--yes``."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def nobody_to_ask(common: Common) -> bool:
    """Whether a question would reach no person, or spoil what a program reads."""
    return common.json or not (on_terminal() and sys.stdin.isatty())


def check_can_ask(common: Common, name: str, *, yes: bool) -> None:
    """Raise a usage error where a command has to ask and cannot."""
    if not yes and nobody_to_ask(common):
        raise click.UsageError(
            f"{name} asks first, and here is nobody to ask. Nothing was changed: add --yes to do it"
        )


def confirm(question: str) -> None:
    """Ask, and end the command with nothing done unless the answer is yes."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        # The question still waits at the end of its line.
        click.echo(err=True)
        print_line("nothing was changed", err=True)
        raise
    if not agreed:
        print_line("nothing was changed", err=True)
        click.get_current_context().exit(DECLINED)
