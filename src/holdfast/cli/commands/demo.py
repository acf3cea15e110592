"""``holdfast demo``."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from holdfast.cli.demo.report import DemoReport, as_document, report_on
from holdfast.cli.demo.run import Event, run_demo
from holdfast.cli.demo.script import GOOD, TASK
from holdfast.cli.demo.timeline import draw
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import (
    answer,
    console,
    on_terminal,
    path_text,
    print_line,
    size,
)

# For those who watch: a moment to read each line.
_PACE: Final = 0.12
_PIPE_WIDTH: Final = 120
_PLAIN: Final = str.maketrans(
    {
        "●": "*", "○": "o", "◆": "#", "│": "|", "├": "|", "─": "-",
        "✗": "x", "✓": "+", "↻": ">", "↩": "<", "…": "~", "·": "-",
    }
)  # fmt: skip


@click.command("demo", short_help="Watch an agent get killed, resumed, approved and rolled back.")
@click.option("--keep", is_flag=True, help="Keep the directory, to look around in afterwards.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, keep: bool) -> None:
    """Watch an agent get killed, resumed, approved and rolled back.

    A little agent with tools works on a little project: it writes files, runs tests, pays, publishes. It
    is killed with SIGKILL just after it has paid; a new process resumes the session and does not pay
    again. It waits for approval, another process agrees. It wrecks files: rollback, undo, redo. In the
    end the session's timeline is drawn, and every claim was checked from outside. All of it is real but
    the model's words, in a temporary directory. With --url it runs on that store, in a session of
    its own; --project-dir changes nothing, since the project is a temporary one too.

    \b
    Examples:
      holdfast demo
      holdfast demo --keep --json
    """
    with ExitStack() as stack:
        if keep:
            directory = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        else:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-"))
            )
        seen = run_demo(
            directory,
            (lambda event: None) if common.json else _Narrator(),
            url=common.url,
            tenant=common.tenant,
            pace=_PACE if on_terminal() and not common.json else 0.0,
        )
        report = report_on(seen)
    if common.json:
        answer(
            {"demo": {**as_document(report), "directory": path_text(directory) if keep else None}}
        )
    else:
        _draw_timeline(report)
        _summarise(report)
        _what_next(common, report, directory if keep else None)
    if not report.ok:
        ctx.exit(1)


class _Narrator:
    """Tells a person what happens while it happens."""

    def __init__(self) -> None:
        self._processes = 0
        self._payments = 0
        self._running: list[Event] = []

    def __call__(self, event: Event) -> None:
        if event.event == "began":
            self._processes += 1
            self._begin(event)
        elif event.event == "did":
            self._running.append(event)
        elif event.event == "saved":
            self._saved(event)
        elif event.event == "paid":
            self._paid(event)
        elif event.event == "killed":
            _say(("  ✗ SIGKILL", "bold red"), f"  process {event.pid} is gone before it could save")
        elif event.event == "suspended":
            _say(*_step(event), ("needs a person", "yellow"))
            _say("  suspended; the session is paused")
        elif event.event == "approved":
            _title(f"Another process, {event.pid}, looks at what waits and agrees")
            _say(("  ✓ approved", "bold green"), f"  {event.tool} {event.about}")
        elif event.event == "looked":
            _title(f"You run the tests: {event.note}. Back to {GOOD}, and forth, and back")
        elif event.event in ("rollback", "undo", "redo"):
            _say((f"  ↩ {event.event:<9}", "bold magenta"), event.note, (_took(event), "dim"))

    def _begin(self, event: Event) -> None:
        if self._processes == 1:
            _say((TASK, "italic"))
            _title(f"An agent with tools sets to work in process {event.pid}")
            _say(("  It saves its conversation and the project's files at every turn.", "dim"))
        else:
            _title(f"A new process, {event.pid}, resumes the session at step {event.step}", event)

    def _paid(self, event: Event) -> None:
        how = "paid" if event.count > self._payments else "paid before"
        self._payments = event.count
        _say(*_step(event), (f"{how}, receipt {event.note}; payments: {event.count}", "yellow"))

    def _saved(self, event: Event) -> None:
        for number, one in enumerate(self._running, 1):
            last = number == len(self._running)
            what = "" if one.tool in ("search", "write_file", "delete_file") else f"{one.note}  "
            saved = [("saved", "green"), (_took(event), "dim")] if last else []
            _say(*_step(one), what, *saved)
        self._running.clear()


def _title(text: str, event: Event | None = None) -> None:
    _say()
    _say((text, "bold"), (_took(event) if event is not None else "", "dim"))


def _step(event: Event) -> tuple[tuple[str, str], str]:
    call = f"{event.tool} {event.about}".strip()
    return (f"  step {event.step:>2}  ", "cyan"), f"{call:<34}  "


def _took(event: Event) -> str:
    return f"  {event.ms:.0f} ms"


def _draw_timeline(report: DemoReport) -> None:
    _title("The timeline, as the database has it")
    width = console().width if on_terminal() else _PIPE_WIDTH
    for line in draw(report.timeline, width):
        _say(*line)


def _summarise(report: DemoReport) -> None:
    killed = sum(worker.exit_status != 0 for worker in report.workers)
    times = report.size_bytes / max(report.stored_bytes, 1)
    rows = [
        ("Processes", f"{len(report.workers)} one after the other, {killed} of them killed"),
        ("Finished steps repeated", _listed(report.repeated)),
        ("Steps cut off and run again", _listed(report.in_flight)),
        ("Payments, publications", f"{len(report.charged)}, {len(report.published)}"),
        ("Checkpoints", f"{report.checkpoints}, each complete on its own, state and files"),
        (
            "State saved",
            f"{size(report.size_bytes)} in {size(report.stored_bytes)}, {times:.1f} times less",
        ),
        ("Save, median", f"{report.save_ms:.0f} ms, on the disk for good"),
        ("Open and resume", f"{report.resume_ms:.0f} ms"),
        ("Rollback", ", ".join(f"{one.kind} {one.ms:.0f} ms" for one in report.moves)),
        ("All of it", f"{report.seconds:.1f} s"),
    ]
    if report.file_bytes is not None:
        rows.append(("Database, file store", _sizes(report.file_bytes, report.snapshot_bytes)))
    _say()
    if not on_terminal():
        for title, value in rows:
            _say(f"{title + ':':<29}{value}")
        for check, holds in report.checks.items():
            _say(f"{'ok  ' if holds else 'FAIL'} {check}")
        return
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    for row in rows:
        grid.add_row(*map(Text, row))
    checks = Text()
    for check, holds in report.checks.items():
        checks.append(_shown("\n✓ " if holds else "\n✗ "), "bold green" if holds else "bold red")
        checks.append(check)
    colour = "green" if report.ok else "red"
    title = "Nothing was lost" if report.ok else "Something went wrong"
    inside = Group(grid, checks)
    console().print(Panel(inside, title=title, border_style=colour, padding=(1, 2), expand=False))


def _listed(steps: Sequence[int]) -> str:
    return f"{len(steps)}: step {', '.join(map(str, steps))}" if steps else "0"


def _sizes(*counts: int) -> str:
    return ", ".join(map(size, counts))


def _what_next(common: Common, report: DemoReport, directory: Path | None) -> None:
    if directory is None:
        _say("Next: ", ("holdfast demo --keep", "cyan"), " leaves it for you to explore.")
        return
    project = shlex.quote(path_text(directory / "project"))
    where = f"--project-dir {project}" + ("" if common.url is None else " --url URL")
    session = report.session_id
    _say(f"Kept in {path_text(directory)}. Look around:")
    for line in (
        f"log {session} {where}",
        f"show {GOOD} --session {session} {where}",
        f"diff 05-run_tests {GOOD} --session {session} {where}",
    ):
        _say((f"  holdfast {line}", "cyan"))


def _say(*parts: str | tuple[str, str]) -> None:
    """Print a line, in ASCII where the output knows no more."""
    print_line(
        *(_shown(part) if isinstance(part, str) else (_shown(part[0]), part[1]) for part in parts)
    )


def _shown(text: str) -> str:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(_PLAIN)
    return text
