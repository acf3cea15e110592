"""The options that every command takes, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from holdfast.cli.output import PASCAL_CASE
from holdfast.errors import SessionNotFound
from holdfast.ids import is_uuid
from holdfast.sessions import Checkpoint, Session, SessionManager


@dataclass(frozen=True, slots=True)
class Common:
    """Which store a command works on, and who reads its answer."""

    json: bool = False
    url: str | None = None
    tenant: str | None = None
    project_dir: str | None = None

    def open(self, *, create: bool = False, owner: str | None = None) -> SessionManager:
        """Open the store; one that does not exist is created only if asked to."""
        return SessionManager.open(
            self.url,
            project_dir=self.project_dir,
            tenant=self.tenant,
            create=create,
            owner=owner,
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
    """Give a command ``--session``."""
    return click.option(
        "--session",
        "-s",
        metavar="SESSION",
        help="A session's id or its beginning; the most recently created one by default.",
    )(function)


def take_over_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that writes to a session ``--take-over``."""
    return click.option(
        "--take-over",
        is_flag=True,
        help="Take the session even from a running program, which then can write to it no more.",
    )(function)


def chosen_session(manager: SessionManager, reference: str | None) -> Session:
    """Return the session that was named, or the most recently created one."""
    if reference is None:
        newest = manager.list_sessions(limit=1)
        if not newest:
            raise SessionNotFound(
                "there is no session yet; your program creates one, or: "
                "holdfast save --agent-type NAME"
            )
        reference = newest[0].id
    return manager.get_session(reference)


def chosen_checkpoint(
    manager: SessionManager,
    session: str | None,
    reference: str | None,
    *,
    beside: Checkpoint | None = None,
) -> Checkpoint:
    """Return the checkpoint that was named, or the latest one. A whole id may be of any session.

    ``beside`` is another checkpoint of the same command, whose session is meant unless one is named.
    """
    if session is None and reference is not None and is_uuid(reference):
        return manager.get_checkpoint(reference)
    near = beside.session_id if beside is not None else None
    chosen = chosen_session(manager, session or near)
    return chosen.latest_checkpoint() if reference is None else chosen.get_checkpoint(reference)
