"""``holdfast brief``."""

from __future__ import annotations

from typing import Final

import click

from holdfast.brief import LEAST_TOKENS
from holdfast.cli.options import Common, common_options, unfinished_session
from holdfast.cli.output import answer, one_line, print_line, print_text
from holdfast.errors import NothingToResume, StoreError
from holdfast.model import BRIEF_TOKENS
from holdfast.preflight import Preflight
from holdfast.sessions import SessionManager
from holdfast.sessions.briefing import preflight_of_project

DIFFERS: Final = 1


@click.command("brief", short_help="Print what to know before going on.")
@click.argument("session", required=False)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=LEAST_TOKENS),
    default=BRIEF_TOKENS,
    show_default=True,
    help="About how long the text may be; the least important is left out.",
)
@click.option(
    "--files", is_flag=True, help="Compare the project's files with the checkpoint's too."
)
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="A tool there is; repeatable.")
@click.option("--check", is_flag=True, help="Only compare, files too; the exit code is the answer.")
@click.option("--if-any", is_flag=True, help="Print nothing where there is nothing to resume.")
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    common: Common,
    session: str | None,
    max_tokens: int,
    files: bool,
    tools: tuple[str, ...],
    check: bool,
    if_any: bool,
) -> None:
    """Print what to know before going on.

    SESSION is an id or its beginning; by default the most recent unfinished session of this project, on
    the present git branch if there is one. The text is for an agent or a person: the task, what is done
    and what is next, decisions, open files, and what is no longer as the last checkpoint says. Nothing is
    changed and no session is taken.

    With --check only that comparison is printed, and the exit code is 1 unless the verdict is clean.

    \b
    Examples:
      holdfast brief
      holdfast brief 01a1dd1f --files --max-tokens 500
      holdfast brief --check --tool bash --tool edit --json
      holdfast brief --if-any        (as the session-start hook of an agent)
    """

    def opened() -> SessionManager:
        try:
            return common.open()
        except StoreError as error:
            if not (if_any and error.absent):
                raise
            raise NothingToResume(str(error)) from error

    try:
        if check:
            found = preflight_of_project(
                opened, session_id=session, tools=tools or None, parked=not if_any
            )
            _show_preflight(found, common)
            ctx.exit(0 if found.verdict == "clean" else DIFFERS)
        with opened() as manager:
            chosen = unfinished_session(manager, session, parked=not if_any)
            brief = manager.get_session(chosen).brief(
                max_tokens=max_tokens, tools=tools or None, files=files
            )
    except NothingToResume:
        if not if_any:
            raise
        if common.json:
            answer({"preflight" if check else "brief": None})
        return
    if common.json:
        answer({"brief": brief.to_document()})
        return
    print_text(brief.text)


def _show_preflight(found: Preflight, common: Common) -> None:
    if common.json:
        answer({"preflight": found.to_document()})
        return
    style = {"clean": "green", "drifted": "yellow", "unsafe": "red"}[found.verdict]
    compared = f"  compared with {one_line(found.checkpoint)}" if found.checkpoint else ""
    print_line((found.verdict, f"bold {style}"), (compared, "dim"))
    for reason in found.reasons:
        print_line((f"{reason.code:<22}", style), one_line(reason.message))
    for what, why in found.unchecked.items():
        print_line((f"{'not compared':<22}{one_line(what)}: {one_line(why)}", "dim"))
