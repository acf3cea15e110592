"""``holdfast keys``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import Column, answer, one_line, path_text, plural, print_line, print_table
from holdfast.cli.progress import progress_bar
from holdfast.config import key_in_environment
from holdfast.crypto.files import add_key, new_key_file
from holdfast.errors import IntegrityError

if TYPE_CHECKING:
    from holdfast.model import KeyReport


@click.command("keys", short_help="Make, list and change the keys of sealed stores.")
@click.argument("action", type=click.Choice(["new", "add", "list", "rotate"]))
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, action: str, file: str | None) -> None:
    """Make, list and change the keys of sealed stores.

    `new` writes a ring with one key to FILE, for its owner only; keep a copy where the database is not:
    without it nothing can be read. HOLDFAST_KEY_FILE=FILE seals new stores with it.

    `add` puts a new key in front of FILE, by default that of HOLDFAST_KEY_FILE. It seals from then on, and
    the others still open. `rotate` seals everything again that an older key has sealed, beside
    running work; interrupted, repeat it. `list` shows how many values each key has: one that has none, when
    all processes have been started anew, can be taken out of the file. Both look at one tenant, that of
    --tenant: where a database has several, repeat them for each. A row that is damaged stays as it is and
    is named; the exit code is 5 then, and also when a key is missing.

    \b
    Examples:
      holdfast keys new ~/.config/holdfast.keys
      holdfast keys add
      holdfast keys rotate
      holdfast keys list --json
    """
    if action in ("new", "add"):
        _written(common, action, file)
        return
    if file is not None:
        raise click.UsageError(f"{action} takes its keys from the environment, not from FILE")
    with common.open() as manager:
        title, walk = (
            ("counting", manager.count_keys)
            if action == "list"
            else ("sealing", manager.rotate_keys)
        )
        with progress_bar(title, quiet=common.json) as bar:
            report = walk(progress=None if bar is None else lambda done: bar(done, done))
    if common.json:
        answer({"keys": _document(report)})
    else:
        if action == "list":
            _print(report)
        else:
            rows, tenant = plural(report.changed, "row"), one_line(report.tenant)
            print_line(
                ("sealed ", "bold green"), f"{rows} of tenant {tenant} with {report.current}"
            )
        _print_left(report)
    if not report.ok:
        ctx.exit(IntegrityError.exit_code)


def _written(common: Common, action: str, file: str | None) -> None:
    if file is None and action == "add":
        found = key_in_environment()
        file = str(found) if isinstance(found, Path) else None
    if file is None:
        # A new file is made where somebody said so, never where keys are read from already.
        advice = ", or set HOLDFAST_KEY_FILE" if action == "add" else ": a new one is made there"
        raise click.UsageError(f"which FILE? Name it{advice}")
    path = Path(file).expanduser()
    current = new_key_file(path) if action == "new" else add_key(path)
    if common.json:
        answer({"key_file": {"path": path_text(path), "current": current}})
        return
    print_line(("wrote ", "bold green"), one_line(path_text(path)), f": {current} seals")
    if action == "new":
        print_line("Keep a copy where the database is not: without it nothing can be read.")
    else:
        print_line("Seal what is stored with it: holdfast keys rotate")


def _document(report: KeyReport) -> dict[str, Any]:
    return {
        **asdict(report),
        "ok": report.ok,
        "old_values": report.old_values,
        "missing": report.missing,
    }


def _print(report: KeyReport) -> None:
    layout = [Column("key"), Column("values", right=True), Column("")]
    rows = []
    for key in dict.fromkeys([*report.known, *report.values]):
        said = "seals" if key == report.current else "opens" if key in report.known else "missing"
        rows.append((one_line(key), f"{report.values.get(key, 0):,}", said))
    print_table(layout, rows)
    print_line(f"These are the values of tenant {one_line(report.tenant)}; --tenant names another.")


def _print_left(report: KeyReport) -> None:
    """Say which rows stay as they are, and what to do about them."""
    for key, count in report.missing.items():
        print_line(
            ("missing ", "bold red"),
            f"{one_line(key)}: it has sealed {plural(count, 'value')}. Add it to the keys and repeat this",
        )
    for one in report.damaged:
        print_line(("damaged ", "bold red"), f"{one_line(one.what)}: {one_line(one.reason)}")
    if report.damaged:
        rows = plural(len(report.damaged), "row")
        print_line(
            f"{rows} damaged and not changed: put back what a back-up has, or delete what is damaged, "
            f"and repeat this. A key for which `holdfast keys list` counts no values opens none of it."
        )
