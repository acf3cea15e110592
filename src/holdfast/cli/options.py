"""The options that every command takes, and what they say together."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.output import PASCAL_CASE, one_line
from holdfast.errors import (
    CheckpointNotFound,
    HoldfastError,
    InvalidIdentifier,
    SessionNotFound,
)
from holdfast.ids import is_label, is_uuid
from holdfast.sessions import Checkpoint, Session, SessionManager

if TYPE_CHECKING:
    from holdfast.sessions.passed_over import PassedOver

_COMPLETED: Final = 1000


@dataclass(frozen=True, slots=True)
class Common:
    """Which store a command works on, and who reads its answer."""

    json: bool = False
    url: str | None = None
    tenant: str | None = None
    project_dir: str | None = None

    def open(
        self,
        *,
        create: bool = False,
        owner: str | None = None,
        as_it_is: bool = False,
        busy_timeout: float | None = None,
    ) -> SessionManager:
        """Open the store; one that does not exist is created only if asked to.

        With ``as_it_is`` one of plain text is opened although there is a key.

        What a command saves goes without its secrets unless the settings say otherwise, and what it
        shows has placeholders.
        """
        return SessionManager.open(
            self.url,
            project_dir=self.project_dir,
            tenant=self.tenant,
            create=create,
            owner=owner,
            busy_timeout=busy_timeout,
            redact="unless off",
            rehydrate=False,
            as_it_is=as_it_is,
        )


def common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all commands, handed over as one `Common`."""

    @click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
    @click.option(
        "--pascal-case",
        is_flag=True,
        help="The same with keys like CreatedAt, as PowerShell writes them.",
    )
    @click.option(
        "--url",
        metavar="URL",
        help="The store: a path, sqlite:///…, postgresql://…. Default: HOLDFAST_URL, then "
        ".agents/holdfast.toml, then .agents/sessions.db of the project.",
    )
    @click.option("--tenant", metavar="NAME", help="Whose data to work on.")
    @click.option(
        "--project-dir",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="A directory in the project; the working directory by default.",
    )
    @wraps(function)
    def command(
        *args: Any,
        as_json: bool,
        pascal_case: bool,
        url: str | None,
        tenant: str | None,
        project_dir: str | None,
        **kwargs: Any,
    ) -> None:
        if pascal_case:
            click.get_current_context().meta[PASCAL_CASE] = True
        function(Common(as_json or pascal_case, url, tenant, project_dir), *args, **kwargs)

    return command


def session_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that looks back ``--session``; see `chosen_session`."""
    return _session_option("the most recently created one by default")(function)


def unfinished_session_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that goes on with work ``--session``; see `unfinished_session`."""
    return _session_option("the most recent unfinished one by default")(function)


def _session_option(otherwise: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--session",
        "-s",
        metavar="SESSION",
        help=f"A session's id or its beginning; {otherwise}.",
    )


def naming(session_id: str) -> str:
    """Return the option that names a session, with a space before it."""
    return f" --session {shlex.quote(one_line(session_id))}"


def take_over_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that writes to a session ``--take-over``."""
    return click.option(
        "--take-over",
        is_flag=True,
        help="Take the session even from a running program, which then can write to it no more.",
    )(function)


def checkpoint_argument(
    name: str, *, required: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an argument that names a checkpoint, which shells can complete."""
    return click.argument(name, required=required, shell_complete=checkpoint_names)


def checkpoint_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that begin so; whatever goes wrong, there are none to offer.

    Bash puts a name on the command line as it is, so only those are offered that are one word to
    every shell: a stranger's checkpoint could be named after a command, or after an option.
    """
    url, tenant, where = (ctx.params.get(key) for key in ("url", "tenant", "project_dir"))
    # Where an option still lacks its value, arguments before it are not given names.
    named = ctx.params.get("session") or next(iter(ctx.args), None)
    try:
        with Common(url=url, tenant=tenant, project_dir=where).open() as manager:
            session = chosen_session(manager, named)
            found = session.list_checkpoints(limit=_COMPLETED)
    except (HoldfastError, OSError):
        return []
    names = (one.name for one in found if one.name.startswith(incomplete))
    return [name for name in names if shlex.quote(name) == name and not name.startswith("-")]


def path_option(help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command ``--path``, repeatable; what it hands over counts from the working directory."""
    return click.option(
        "--path",
        "paths",
        multiple=True,
        metavar="PATH",
        callback=lambda ctx, param, value: [os.path.abspath(one) for one in value],
        help=help_text,
    )


def no_pager_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--no-pager``."""
    return click.option("--no-pager", is_flag=True, help="Do not page a long answer.")(function)


def chosen_session(manager: SessionManager, reference: str | None) -> Session:
    """Return the session that was named, or the most recently created one."""
    if reference is None:
        newest = manager.list_sessions(limit=1)
        if not newest:
            unreadable = manager.unreadable_sessions()
            if unreadable:
                raise next(iter(unreadable.values()))
            raise SessionNotFound(
                "there is no session yet; your program creates one, or: "
                "holdfast save --agent-type NAME"
            )
        reference = newest[0].id
    return manager.get_session(reference)


def unfinished_session(
    manager: SessionManager,
    reference: str | None,
    *,
    agent_type: str | None = None,
    parked: bool = False,
) -> str:
    """Return the session that was named, or the id of the most recent unfinished one.

    One that is paused until later is meant, where there is no other, with ``parked`` only: for what
    does not go on with it.
    """
    if reference is not None:
        return reference
    return manager.latest_unfinished_session(agent_type=agent_type, parked=parked).id


def chosen_checkpoint(
    manager: SessionManager,
    session: str | None,
    reference: str | None,
    *,
    beside: Checkpoint | None = None,
) -> Checkpoint:
    """Return the checkpoint that was named, or the latest one. An id may be of any session.

    ``beside`` is another checkpoint of the same command, whose session is meant unless one is named.
    """
    if session is None and reference is not None and is_uuid(reference):
        return manager.get_checkpoint(reference)
    near = beside.session_id if beside is not None else None
    chosen = chosen_session(manager, near if session is None else session)
    if reference is None:
        return chosen.latest_checkpoint()
    try:
        return chosen.get_checkpoint(reference)
    except CheckpointNotFound as error:
        if session is not None:
            raise
        if is_label(reference):
            return manager.get_checkpoint(reference)
        others = manager.sessions_with_checkpoint(reference)
        if not others:
            raise
        ways = " or ".join(f"session {one} has one: add{naming(one)}" for one in others)
        raise CheckpointNotFound(f"{error} But {ways}") from error


def passed_over(
    manager: SessionManager, found: Checkpoint, reference: str | None
) -> list[PassedOver]:
    """Return what was passed over for a checkpoint that is just the latest one: none where it was named."""
    return manager.get_session(found.session_id).passed_over() if reference is None else []


def chosen_checkpoint_or_file(
    manager: SessionManager, session: str | None, reference: str | None
) -> tuple[Checkpoint, str | None]:
    """Return the checkpoint that was named, and the file if it is CHECKPOINT:PATH.

    Names may contain colons: the longest one that there is counts.
    """
    try:
        return chosen_checkpoint(manager, session, reference), None
    except (CheckpointNotFound, InvalidIdentifier):
        if reference is None or ":" not in reference:
            raise
        for at in (at for at in reversed(range(len(reference))) if reference[at] == ":"):
            name, path = reference[:at], reference[at + 1 :]
            with suppress(CheckpointNotFound, InvalidIdentifier):
                found = chosen_checkpoint(manager, session, name or None)
                return found, os.path.abspath(path) if path.startswith(".") else path
        raise
