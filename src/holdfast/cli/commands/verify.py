"""``holdfast verify``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line
from holdfast.cli.progress import progress_bar
from holdfast.errors import IntegrityError, StoreError, WorkspaceError


@click.command("verify", short_help="Read everything back and check every digest.")
@click.option("--deep", is_flag=True, help="Every hash chain, chunk and structure too; quarantine.")
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, *, deep: bool) -> None:
    """Read everything back and check every digest.

    States, files and results of effects. Without --deep it changes nothing. The exit code is 5 when anything is damaged,
    6 when the database cannot be opened or read, and 9 when nothing else is wrong and the files could not be
    looked at, as without git.

    --deep also re-derives every link of every session's hash chain, so that whatever was altered, taken
    out or put in shows, hashes every chunk, reads pending writes, and lets the database look at its own
    structures. A checkpoint that fails is in quarantine until it verifies again: it is neither loaded
    nor resumed from. Nothing good is removed; damaged content and files make room for the next save of them.
    With PostgreSQL, files that are damaged or gone at the server and whole here are sent again.

    \b
    Examples:
      holdfast verify
      holdfast verify --deep --json
    """
    with common.open() as manager, progress_bar("reading back", quiet=common.json) as bar:
        total = 0
        if bar is not None:
            # What is wrong with the store is for the report to say.
            with suppress(StoreError):
                total = sum(one.checkpoints for one in manager.usage())
        report = manager.verify(
            deep=deep, progress=None if bar is None else lambda checked: bar(checked, total)
        )
    if common.json:
        damaged = [asdict(one) for one in report.damaged]
        found: dict[str, Any] = {
            "ok": report.ok,
            "checked": report.checked,
            "effects": report.effects,
            "damaged_checkpoints": report.damaged_checkpoints,
            "damaged_besides": report.damaged_besides,
        }
        if deep:
            found |= {
                "sessions": report.sessions,
                "chunks": report.chunks,
                "quarantined": list(report.quarantined),
                "released": list(report.released),
            }
        answer({"verify": {**found, "damaged": damaged, "notes": list(report.notes)}})
    else:
        for one in report.damaged:
            print_line(("damaged ", "bold red"), f"{one_line(one.what)}: {one_line(one.reason)}")
        for word, ids in (("quarantined", report.quarantined), ("released", report.released)):
            for id_ in ids:
                print_line((f"{word} ", "bold"), one_line(id_))
        effects = f" and {plural(report.effects, 'effect')}" if report.effects else ""
        checked = f"{plural(report.checked, 'checkpoint')}{effects} read back"
        for note in report.notes:
            print_line((f"note: {one_line(note)}", "yellow"))
        if not report.damaged:
            mark = ("ok", "bold green") if report.ok else ("incomplete", "bold yellow")
            chains = f", {plural(report.sessions, 'chain')} whole" if deep else ""
            print_line(mark, f"  {checked}, every digest is right{chains}")
        else:
            print_line(
                ("damaged", "bold red"),
                f"  {checked}; {_counted(report.damaged_checkpoints, report.damaged_besides)}",
            )
    if not report.ok:
        ctx.exit((IntegrityError if report.damaged else WorkspaceError).exit_code)


def _counted(checkpoints: int, besides: Mapping[str, int]) -> str:
    """Say how many checkpoints are damaged, and apart from that how much of what else."""
    others = [
        "the database" if kind == "database" else plural(count, kind)
        for kind, count in besides.items()
    ]
    also = f". Damaged besides: {', '.join(others)}" if others else ""
    return f"{plural(checkpoints, 'checkpoint')} damaged{also}"
