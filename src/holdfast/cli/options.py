"""The options that every command takes, and what they say together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from holdfast.errors import SessionNotFound
from holdfast.sessions import Checkpoint, Session, SessionManager


@dataclass(frozen=True, slots=True)
class Common:
    """Which store a command works on, and who reads its answer."""

    json: bool = False
    url: str | None = None
    tenant: str | None = None
    project_dir: str | None = None

    def open(self, *, create: bool = False) -> SessionManager:
        """Open the store; one that does not exist is created only if asked to."""
        return SessionManager.open(
            self.url, project_dir=self.project_dir, tenant=self.tenant, create=create
        )


def common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all commands, handed over as one `Common`."""

    @click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
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
        url: str | None,
        tenant: str | None,
        project_dir: str | None,
        **kwargs: Any,
    ) -> None:
        function(Common(as_json, url, tenant, project_dir), *args, **kwargs)

    return command


def session_option(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--session``."""
    return click.option(
        "--session",
        "-s",
        metavar="SESSION",
        help="A session's id or its beginning; the most recently created one by default.",
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


def chosen_checkpoint(session: Session, reference: str | None) -> Checkpoint:
    """Return the checkpoint that was named, or the latest one."""
    return session.latest_checkpoint() if reference is None else session.get_checkpoint(reference)
