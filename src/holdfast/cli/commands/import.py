"""``holdfast import``."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.bundles import bundle_document, contents
from holdfast.cli.frameworks import import_langgraph
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line
from holdfast.cli.progress import progress_bar
from holdfast.cli.rolling import undo_command
from holdfast.errors import SchemaMissing, StoreUnavailable
from holdfast.sessions import SessionManager
from holdfast.sessions.portable import verify_bundle


@click.command("import", short_help="Take in a session that was exported.")
@click.argument("file", metavar="FILE_OR_URL", type=click.Path())
@click.option(
    "--from",
    "framework",
    type=click.Choice(["langgraph"]),
    help="Take in all threads of that framework's own database instead.",
)
@click.option("--to", metavar="URL", help="With --from: the store that takes them, as --url.")
@click.option("--as", "session_id", metavar="NEW_ID", help="Give the session another id.")
@click.option(
    "--restore", is_flag=True, help="Put the project's files back to its latest checkpoint."
)
@click.option("--no-files", is_flag=True, help="Take in the states only.")
@click.option("--unsealed", is_flag=True, help="Take plain text into a sealed store.")
@common_options
def command(
    common: Common,
    file: str,
    framework: str | None,
    to: str | None,
    session_id: str | None,
    restore: bool,
    no_files: bool,
    unsealed: bool,
) -> None:
    """Take in a session that was exported. With --from: a framework's threads.

    A file is what `holdfast export` wrote. All of it is verified first; what is damaged, cut off or not
    what an export would write is refused, and nothing is changed. The session is there whole or not at all,
    with its ids, names, order and times. Importing it again changes nothing, and finishes a --restore that was
    interrupted. A session of that id with other content is not touched: --as has it
    under another id.

    A sealed bundle needs the key that it was sealed with, among those of the store. Into a sealed store,
    one of plain text, which anybody may have made, is taken with --unsealed only.

    The files are stored for `holdfast rollback`. With --restore they are put back at once, behind a safety
    checkpoint: `holdfast undo` takes that back.

    With --from langgraph, the file or postgresql://… URL is the database of a SqliteSaver or PostgresSaver of
    LangGraph, which is only read. Its threads become sessions, for HoldfastSaver to go on with. An import that
    was stopped is repeated: it stores what is missing. A thread that has gone on here is left alone. One that
    is damaged, or holds a class that is not allowed, is named with the reason; the others are brought, and the
    exit code is 5.

    \b
    Examples:
      holdfast import work.holdfast.tar
      holdfast import work.holdfast.tar --restore
      holdfast import work.holdfast.tar --as second-try --url postgresql://localhost/agents
      holdfast import --from langgraph checkpoints.sqlite --to agent.db
    """
    if framework is not None:
        if session_id is not None or restore or no_files or unsealed:
            raise click.UsageError(
                "--as, --restore, --no-files and --unsealed are for exported sessions"
            )
        import_langgraph(common, file, to)
        return
    if to is not None:
        raise click.UsageError("--to goes with --from; elsewhere the store is --url")
    if restore and no_files:
        raise click.UsageError("--restore needs the files that --no-files leaves out")
    path = Path(file)
    with (
        _opened(common, path, unsealed=unsealed) as manager,
        progress_bar("importing", quiet=common.json) as bar,
    ):
        report = manager.import_bundle(
            path,
            session_id=session_id,
            files=not no_files,
            restore=restore,
            unsealed=unsealed,
            progress=bar,
        )
    if common.json:
        answer(
            {
                "import": {
                    "outcome": report.outcome,
                    "session_id": report.session_id,
                    "restored": report.restored,
                    "checkpoints": dict(report.checkpoints),
                    "bundle": bundle_document(report.bundle),
                }
            }
        )
        return
    if report.outcome == "present":
        there = "this very session is here already"
        print_line(there if report.restored else f"nothing to do: {there}")
    else:
        print_line(("imported ", "bold green"), contents(report.bundle))
    if expired := len(report.bundle.states) - len(report.checkpoints):
        print_line(f"{plural(expired, 'checkpoint')} had expired and stayed out")
    print_line(("session ", "dim"), (one_line(report.session_id), "cyan"))
    if report.restored:
        print_line("files are back; to undo that: ", (undo_command(report.session_id), "cyan"))


def _opened(common: Common, path: Path, *, unsealed: bool) -> SessionManager:
    """Open the store; make one where there is none, but only for a bundle that is a good one."""
    try:
        return common.open()
    except (StoreUnavailable, SchemaMissing):
        verify_bundle(path, unsealed=unsealed)
        return common.open(create=True)
