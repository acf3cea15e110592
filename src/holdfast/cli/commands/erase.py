"""``holdfast erase``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from holdfast.cli.asking import check_can_ask, confirm, yes_option
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line, size
from holdfast.cli.progress import spinner
from holdfast.hooks.rewind import forget_agent
from holdfast.manager.folder import Folder
from holdfast.runner import forget_brief
from holdfast.sessions import Erasure, Session, SessionManager

_SHOWN: Final = 20


@click.command("erase", short_help="Erase a session, or all of a tenant, for good.")
@click.option("--session", "-s", metavar="SESSION", help="A session's id or its beginning.")
@click.option("--all", "everything", is_flag=True, help="All that the tenant has in the store.")
@yes_option
@common_options
def command(common: Common, session: str | None, everything: bool, yes: bool) -> None:
    """Erase a session, or all of a tenant, for good.

    Checkpoints, logs, effects, content that nothing else shares, snapshots of files, and what hooks and
    save points left in the project. There is no way back. What may be left somewhere is said.

    \b
    Examples:
      holdfast erase --session 0192f3a1
      holdfast erase --all --tenant acme --yes --json
    """
    if (session is None) == (not everything):
        raise click.UsageError("say what to erase: --session SESSION, or --all")
    check_can_ask(common, "erase", yes=yes)
    with common.open() as manager:
        chosen = (
            [manager.get_session(one.id) for one in manager.list_sessions()]
            if session is None
            else [manager.get_session(session)]
        )
        if not yes:
            _show(chosen)
            confirm("Erase for good?")
        with spinner("erasing", quiet=common.json):
            done = manager.erase_tenant() if everything else manager.delete_session(chosen[0].id)
        _clear_project(manager, chosen)
    if common.json:
        answer({"erasure": asdict(done)})
        return
    _say(done)


def _show(chosen: list[Session]) -> None:
    for one in chosen[:_SHOWN]:
        held = one.record.lease_owner
        by = f", held by {one_line(held)}" if held is not None else ""
        task = one_line(one.record.task_description or one.record.agent_type)
        print_line(f"{one_line(one.id)}  {one.record.status}{by}  {task}")
    if len(chosen) > _SHOWN:
        print_line(f"and {plural(len(chosen) - _SHOWN, 'more session')}")


def _clear_project(manager: SessionManager, erased: list[Session]) -> None:
    for one in erased:
        forget_agent(one, manager.project_dir)
        forget_brief(manager.project_dir, one.id)
        Folder(manager.project_dir, one.id).show({}, lambda said: print_line(said, err=True))


def _say(done: Erasure) -> None:
    files = f" and {plural(done.snapshots, 'snapshot')} of files ({size(done.file_bytes)})"
    print_line(f"erased {plural(done.sessions, 'session')}" + (files if done.snapshots else ""))
    for one in done.left:
        print_line(("left ", "bold yellow"), one_line(one), err=True)
