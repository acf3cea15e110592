"""A bar for those who wait, or a spinner: on a terminal, from the first second on, and on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import Final, TypeAlias

from holdfast.cli.output import console, on_terminal

Report: TypeAlias = Callable[[int, int], None]

PATIENCE: Final = 1.0


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Report | None]:
    """Yield what is to be told of progress, as so many of so many; None where nobody watches."""
    if quiet or not on_terminal(err=True):
        yield None
        return
    began = time.monotonic()
    with ExitStack() as stack:
        draw: Report | None = None

        def report(done: int, total: int) -> None:
            nonlocal draw
            if draw is None and time.monotonic() - began > PATIENCE:
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=console(err=True), transient=True))
                task = bar.add_task(title)
                draw = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731
            if draw is not None:
                draw(done, total)

        yield report


@contextmanager
def spinner(title: str, *, quiet: bool = False) -> Iterator[None]:
    """Show that work goes on of which nobody can say how much there is."""
    if quiet or not on_terminal(err=True):
        yield
        return
    with ExitStack() as stack:
        # Nothing calls back meanwhile, so it is drawn beside the work.
        timer = Timer(PATIENCE, lambda: stack.enter_context(console(err=True).status(title)))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
