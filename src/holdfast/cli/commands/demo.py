"""``holdfast demo``."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from holdfast.cli.demo.agent import STEPS
from holdfast.cli.demo.run import DemoReport, Event, Worker, as_document, run_demo
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import (
    answer,
    console,
    on_terminal,
    path_text,
    plural,
    print_line,
    size,
)

_WIDTH = max(map(len, STEPS))


@click.command("demo", short_help="Watch an agent get killed and pick up where it was.")
@click.option("--keep", is_flag=True, help="Keep the directory, to look around in afterwards.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, keep: bool) -> None:
    """Watch an agent get killed and pick up where it was.

    A scripted agent works in a process of its own and saves after every step. It is killed with SIGKILL
    in the middle of a step; a new process resumes the session and finishes. All of it is real and takes
    a few seconds, in a temporary directory. With --url it runs on that store, in a session of its own.

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
        report = run_demo(
            directory,
            (lambda event: None) if common.json else _Narrator(),
            url=common.url,
            tenant=common.tenant,
            project_dir=common.project_dir,
        )
    if common.json:
        answer(
            {"demo": {**as_document(report), "directory": path_text(directory) if keep else None}}
        )
    else:
        _summarise(report)
        _what_next(common, report, directory if keep else None)
    if not report.ok:
        ctx.exit(1)


class _Narrator:
    """Tells a person what happens while it happens."""

    def __init__(self) -> None:
        self._processes = 0
        self._running: int | None = None

    def __call__(self, event: Event) -> None:
        if event.event == "began":
            self._processes += 1
            self._begin(event)
        elif event.event == "ran":
            self._running = event.step
        elif event.event == "saved":
            self._running = None
            print_line(*_step(event.step), ("saved", "green"), (f"  {event.ms:.1f} ms", "dim"))
        elif event.event == "killed":
            if self._running is not None:
                print_line(*_step(self._running), ("in the middle of it …", "yellow"))
            print_line(("  ✗ SIGKILL", "bold red"), f"  process {event.pid} is gone")

    def _begin(self, event: Event) -> None:
        if self._processes == 1:
            print_line(
                ("A research agent works in process ", "bold"),
                (str(event.pid), "bold cyan"),
                (" and saves after every step.", "bold"),
            )
            return
        print_line()
        print_line(
            ("A new process, ", "bold"),
            (str(event.pid), "bold cyan"),
            (f", resumes the session at step {event.step}", "bold"),
            (f"  {event.ms:.1f} ms", "dim"),
        )


def _step(step: int) -> tuple[tuple[str, str], str]:
    return (f"  step {step:>2}  ", "cyan"), f"{STEPS[step - 1]:<{_WIDTH}}  "


def _summarise(report: DemoReport) -> None:
    first, second = report.workers
    again = [step for step in report.in_flight if step in second.ran]
    times = report.size_bytes / max(report.stored_bytes, 1)
    saved = f"{size(report.size_bytes)} in {size(report.stored_bytes)}, {times:.1f} times less"
    rows = [
        ("First process", f"{_ran(first)}, then killed"),
        ("Second process", f"{_ran(second)}, to the end"),
        ("Finished steps repeated", _listed(report.repeated)),
        (
            "Steps cut off and run again",
            f"{_listed(again)}" + (" (not saved yet)" if again else ""),
        ),
        ("Checkpoints", f"{report.checkpoints}, each complete on its own"),
        ("State saved", saved),
        ("Save, median", f"{report.save_ms:.1f} ms, on the disk for good"),
        ("Open and resume", f"{report.resume_ms:.1f} ms"),
    ]
    if report.file_bytes is not None:
        rows.append(("Database file", size(report.file_bytes)))
    print_line()
    if not on_terminal():
        for title, value in rows:
            click.echo(f"{title + ':':<29}{value}")
        for check, holds in report.checks.items():
            click.echo(f"{'ok  ' if holds else 'FAIL'} {check}")
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
        checks.append("\n✓ " if holds else "\n✗ ", "bold green" if holds else "bold red")
        checks.append(check)
    colour = "green" if report.ok else "red"
    title = "Nothing was lost" if report.ok else "Something went wrong"
    inside = Group(grid, checks)
    console().print(Panel(inside, title=title, border_style=colour, padding=(1, 2), expand=False))


def _ran(worker: Worker) -> str:
    if not worker.ran:
        return "no steps"
    span = f"{worker.ran[0]} to {worker.ran[-1]}"
    return f"{plural(len(worker.ran), 'step')} ({span}) in pid {worker.pid}"


def _listed(steps: tuple[int, ...] | list[int]) -> str:
    return f"{len(steps)}: step {', '.join(map(str, steps))}" if steps else "0"


def _what_next(common: Common, report: DemoReport, directory: Path | None) -> None:
    if directory is None:
        print_line("Next: ", ("holdfast demo --keep", "cyan"), " leaves it for you to explore.")
        return
    if common.url is None:
        where = f"--project-dir {shlex.quote(path_text(directory))}"
    else:
        where = f"--session {report.session_id} --url URL"
    print_line(f"Kept in {path_text(directory)}. Look around:")
    for line in (f"log {where}", f"show step-08 {where}", f"diff step-07 step-08 {where}"):
        print_line((f"  holdfast {line}", "cyan"))
