"""Long answers on a terminal go through the reader's pager, as git's do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from holdfast.cli.output import console, on_terminal


@contextmanager
def paged(*, wanted: bool = True) -> Iterator[None]:
    """Collect what is printed, and page it if it does not fit on the screen.

    click chooses the pager: the variable PAGER, else less. Away from a terminal nothing is collected.
    """
    if not wanted or not on_terminal() or not sys.stdin.isatty():
        yield
        return
    with console().capture() as drawn:
        yield
    text = drawn.get()
    if text.count("\n") < console().height:
        click.echo(text, nl=False)
    else:
        click.echo_via_pager(text)
