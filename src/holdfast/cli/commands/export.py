"""``holdfast export``."""

from __future__ import annotations

import re
from pathlib import Path

import click

from holdfast.cli.bundles import bundle_document, contents
from holdfast.cli.options import Common, checkpoint_names, common_options
from holdfast.cli.output import answer, one_line, path_text, print_line


@click.command("export", short_help="Write a session to one file that travels.")
@click.argument("session")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where to; SESSION.holdfast.tar in the working directory by default, .holdfast.sealed if sealed.",
)
@click.option(
    "--checkpoint",
    metavar="CHECKPOINT",
    help="Only this one: a name, an id or a label.",
    shell_complete=checkpoint_names,
)
@click.option("--latest", is_flag=True, help="Only the latest checkpoint.")
@click.option("--no-files", is_flag=True, help="Leave the project's files out.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@click.option("--unsealed", is_flag=True, help="Write what is sealed here as plain text.")
@common_options
def command(
    common: Common,
    session: str,
    output: str | None,
    checkpoint: str | None,
    latest: bool,
    no_files: bool,
    overwrite: bool,
    unsealed: bool,
) -> None:
    """Write a session to one file that travels.

    SESSION is an id or its beginning. The file is a plain tar archive: the states of all checkpoints, their
    files as a git pack, log, decisions, recorded effects, and BRIEF.md to read, with a digest of
    everything. `holdfast import` takes it in elsewhere, in another directory and another kind of database.
    The session may be in use meanwhile. Exported again unchanged, it has the same bytes.

    From a sealed store it is sealed with the store's key, in other bytes each time, and `holdfast import`
    needs that key. With --unsealed it is plain text.

    \b
    Examples:
      holdfast export 01a1dd1f
      holdfast export 01a1dd1f -o work.holdfast.tar --overwrite
      holdfast export nightly --latest --no-files --json
    """
    if latest and checkpoint is not None:
        raise click.UsageError("--latest and --checkpoint do not go together")
    with common.open() as manager:
        found = manager.get_session(session)
        if latest:
            checkpoint = found.latest_checkpoint().id
        ending = "tar" if unsealed or not manager.sealed else "sealed"
        name = re.sub(r"[^A-Za-z0-9._-]", "_", found.id)
        target = Path(output or f"{name}.holdfast.{ending}")
        report = manager.export_session(
            found.id,
            target,
            checkpoint=checkpoint,
            files=not no_files,
            overwrite=overwrite,
            unsealed=unsealed,
        )
    if common.json:
        answer({"bundle": bundle_document(report)})
        return
    print_line(("exported ", "bold green"), (one_line(report.session_id), "cyan"))
    print_line(f"{one_line(path_text(report.path))}: {contents(report)}")
