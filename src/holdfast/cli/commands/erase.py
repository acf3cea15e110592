"""``holdfast erase``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, TypeAlias

import click

from holdfast.cli.asking import check_can_ask, confirm, yes_option
from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, plural, print_line, size
from holdfast.cli.progress import spinner
from holdfast.config import load_config, without_password
from holdfast.errors import IntegrityError, SessionNotFound
from holdfast.hooks.erasing import erase
from holdfast.sessions import Erasure, Session, SessionManager

_SHOWN: Final = 20

# Sessions by their ids, None for one whose row cannot be read.
_Chosen: TypeAlias = dict[str, Session | None]


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
        chosen = _all_of(manager) if session is None else _one_of(manager, session)
        if not yes:
            _show(chosen)
            confirm("Erase for good?")
        with spinner("erasing", quiet=common.json):
            done = erase(manager, chosen, everything=everything)
    if common.json:
        answer({"erasure": asdict(done)})
        return
    _say(done)
    if not done.sessions:
        config = load_config(common.project_dir, url=common.url, tenant=common.tenant)
        where = f"tenant {config.tenant} of {without_password(config.url)}"
        print_line(("note: ", "yellow"), f"there was none in {one_line(where)}", err=True)


def _all_of(manager: SessionManager) -> _Chosen:
    readable = {one.id: manager.get_session(one.id) for one in manager.list_sessions()}
    return {**readable, **dict.fromkeys(manager.unreadable_sessions())}


def _one_of(manager: SessionManager, reference: str) -> _Chosen:
    try:
        found = manager.get_session(reference)
    except SessionNotFound:
        # Erasing it may have been interrupted, or done in another project: what that has left goes all the
        # same, and the error says what does not.
        erase(manager, {reference: None})
        raise
    except IntegrityError:
        # What is damaged can be erased like anything else, by its whole id.
        if reference not in manager.unreadable_sessions():
            raise
        return {reference: None}
    return {found.id: found}


def _show(chosen: _Chosen) -> None:
    for id_, one in list(chosen.items())[:_SHOWN]:
        if one is None:
            print_line(f"{one_line(id_)}  cannot be read")
            continue
        held = one.record.lease_owner
        by = f", held by {one_line(held)}" if held is not None else ""
        task = one_line(one.record.task_description or one.record.agent_type)
        print_line(f"{one_line(one.id)}  {one.record.status}{by}  {task}")
    if len(chosen) > _SHOWN:
        print_line(f"and {plural(len(chosen) - _SHOWN, 'more session')}")


def _say(done: Erasure) -> None:
    files = f" and {plural(done.snapshots, 'snapshot')} of files ({size(done.file_bytes)})"
    print_line(f"erased {plural(done.sessions, 'session')}" + (files if done.snapshots else ""))
    for one in done.left:
        print_line(("left ", "bold yellow"), one_line(one), err=True)
