"""``holdfast verify``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, console, on_terminal, one_line, plural, print_line
from holdfast.errors import IntegrityError
from holdfast.sessions import SessionManager

_PATIENCE = 1.0


@click.command("verify", short_help="Read everything back and check every digest.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common) -> None:
    """Read everything back and check every digest.

    Changes nothing. The exit code is 5 when a checkpoint or the result of an effect is damaged.

    \b
    Examples:
      holdfast verify
      holdfast verify --json
    """
    with common.open() as manager, _progress(manager, common) as progress:
        report = manager.verify(progress=progress)
    if common.json:
        damaged = [asdict(one) for one in report.damaged]
        counts = {"checked": report.checked, "effects": report.effects}
        answer({"verify": {"ok": report.ok, **counts, "damaged": damaged}})
    else:
        for one in report.damaged:
            what = one.checkpoint_id or f"effect {one.effect_key} of session {one.session_id}"
            print_line(("damaged ", "bold red"), f"{one_line(what)}: {one_line(one.reason)}")
        effects = f" and {plural(report.effects, 'effect')}" if report.effects else ""
        checked = f"{plural(report.checked, 'checkpoint')}{effects} read back"
        if report.ok:
            print_line(("ok", "bold green"), f"  {checked}, every digest is right")
        else:
            print_line(("damaged", "bold red"), f"  {checked}, {len(report.damaged):,} damaged")
    if not report.ok:
        ctx.exit(IntegrityError.exit_code)


@contextmanager
def _progress(manager: SessionManager, common: Common) -> Iterator[Callable[[int], None] | None]:
    """Draw a bar for a person who has waited for a second."""
    if common.json or not on_terminal(err=True):
        yield None
        return
    began = time.monotonic()
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None

        def progress(checked: int) -> None:
            nonlocal advance
            if advance is None and time.monotonic() - began > _PATIENCE:
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=console(err=True), transient=True))
                total = sum(one.checkpoints for one in manager.usage())
                task = bar.add_task("reading back", total=total)
                advance = lambda count: bar.update(task, completed=count)  # noqa: E731
            if advance is not None:
                advance(checked)

        yield progress
