"""The commands of the skill's scripts: for agents, so every answer is one JSON object.

    scripts/checkpoint_manager.py   create, list, show, delete, start, feature, end
    scripts/rollback_handler.py     to, latest, undo, run
    scripts/git_snapshot.py         what git says now
    scripts/state_snapshot.py       what feature list and progress file say now

Exit codes are those of the command line. A failure is told on stderr, as JSON too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from holdfast.cli import fill_streams
from holdfast.cli.group import INTERRUPTED
from holdfast.cli.output import to_json
from holdfast.errors import Escalated, HoldfastError
from holdfast.manager import SavePoint, SyncCheckpointManager, capture_git_state, capture_state
from holdfast.manager.documents import KINDS
from holdfast.manager.guards import STRATEGIES, Strategy


def _manager(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--project-dir`` and what it stands for."""

    def command(*args: Any, project_dir: str | None, **kwargs: Any) -> None:
        with SyncCheckpointManager(project_dir) as manager:
            function(manager, *args, **kwargs)

    command.__doc__ = function.__doc__
    params: list[Any] = getattr(function, "__click_params__", [])
    command.__click_params__ = params  # type: ignore[attr-defined]
    return _project_dir(command)


def _project_dir(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--project-dir",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="A directory in the project; the working directory by default.",
    )(function)


def _context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what an agent may know of its own session."""
    for name in ("--token-usage", "--session-number"):
        function = click.option(name, type=click.IntRange(min=0), metavar="N")(function)
    return function


def _answer(document: Any) -> None:
    click.echo(to_json(document))


def _saved(point: SavePoint, **more: Any) -> None:
    _answer({**more, "checkpoint": {**point.to_document(), "type": point.type}})


@click.group()
def checkpoints() -> None:
    """Create, list and delete checkpoints of a project."""


@checkpoints.command("create")
@click.argument("name", required=False)
@click.option("--description", "-m", metavar="TEXT")
@click.option("--type", "kind", type=click.Choice(KINDS), default="manual", show_default=True)
@_context
@_manager
def create(
    manager: SyncCheckpointManager,
    name: str | None,
    description: str | None,
    kind: Any,
    session_number: int | None,
    token_usage: int | None,
) -> None:
    """Save the project as it is."""
    _saved(
        manager.create_checkpoint(
            name,
            description=description,
            type=kind,
            session_number=session_number,
            token_usage=token_usage,
        )
    )


@checkpoints.command("list")
@click.option("--type", "kind", type=click.Choice(KINDS))
@_manager
def listed(manager: SyncCheckpointManager, kind: Any) -> None:
    """List checkpoints, newest first."""
    points = manager.list_checkpoints(type=kind)
    _answer({"checkpoints": [{**one.to_document(), "type": one.type} for one in points]})


@checkpoints.command("show")
@click.argument("reference")
@_manager
def show(manager: SyncCheckpointManager, reference: str) -> None:
    """Print one checkpoint."""
    _saved(manager.get_checkpoint(reference))


@checkpoints.command("delete")
@click.argument("reference")
@click.option("--force", is_flag=True, help="Delete one of type feature too.")
@_manager
def delete(manager: SyncCheckpointManager, reference: str, force: bool) -> None:
    """Delete one checkpoint."""
    point = manager.get_checkpoint(reference)
    manager.delete(point.checkpoint_id, force=force)
    _answer({"deleted": point.id})


@checkpoints.command("start")
@_context
@_manager
def start(
    manager: SyncCheckpointManager, session_number: int | None, token_usage: int | None
) -> None:
    """Begin an agent's session: INIT, or CONTINUE where there is a feature list."""
    begun = manager.start_session(session_number=session_number, token_usage=token_usage)
    _saved(begun.checkpoint, mode=begun.mode)


@checkpoints.command("feature")
@click.argument("feature", required=False)
@_context
@_manager
def feature(
    manager: SyncCheckpointManager,
    feature: str | None,
    session_number: int | None,
    token_usage: int | None,
) -> None:
    """Save a permanent checkpoint: a feature is complete."""
    _saved(
        manager.feature_complete(feature, session_number=session_number, token_usage=token_usage)
    )


@checkpoints.command("end")
@_context
@_manager
def end(
    manager: SyncCheckpointManager, session_number: int | None, token_usage: int | None
) -> None:
    """End an agent's session."""
    _saved(manager.end_session(session_number=session_number, token_usage=token_usage))


@click.group()
def rollbacks() -> None:
    """Go back to a checkpoint, and forward again."""


@rollbacks.command("to")
@click.argument("reference")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@_manager
def back_to(manager: SyncCheckpointManager, reference: str, dry_run: bool) -> None:
    """Roll back to one checkpoint."""
    _answer({"rollback": manager.rollback(reference, dry_run=dry_run).to_document()})


@rollbacks.command("latest")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@_manager
def back_to_latest(manager: SyncCheckpointManager, dry_run: bool) -> None:
    """Roll back to the newest checkpoint."""
    _answer({"rollback": manager.rollback_to_latest(dry_run=dry_run).to_document()})


@rollbacks.command("undo")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@_manager
def undo(manager: SyncCheckpointManager, dry_run: bool) -> None:
    """Take the last rollback back."""
    _answer({"rollback": manager.undo(dry_run=dry_run).to_document()})


@rollbacks.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--on-failure", type=click.Choice(STRATEGIES), default="rollback", show_default=True)
@click.option("--attempts", type=click.IntRange(min=1), default=3, show_default=True)
@_manager
def run(
    manager: SyncCheckpointManager,
    name: str,
    command: tuple[str, ...],
    on_failure: Strategy,
    attempts: int,
) -> None:
    """Run a command; if it fails, roll back what it did."""

    @manager.guard(name, on_failure=lambda error: on_failure, attempts=attempts)
    def guarded() -> None:
        subprocess.run(command, check=True)

    guarded()


@click.command()
@_project_dir
def git_state(project_dir: str | None) -> None:
    """Print commit, branch and dirty files."""
    _answer({"git_state": capture_git_state(project_dir)})


@click.command()
@_project_dir
def agent_state(project_dir: str | None) -> None:
    """Print features, progress files and context."""
    _answer(capture_state(project_dir))


def script(command: click.Command) -> NoReturn:
    """Run one of these commands as a program: a foreseen failure is an answer, no traceback."""
    fill_streams()
    try:
        command.main(standalone_mode=False)
    except Escalated as error:
        _fail(error.code, str(error), error.exit_code, report=error.report)
    except HoldfastError as error:
        _fail(error.code, str(error), error.exit_code)
    except subprocess.CalledProcessError as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        _fail("command_failed", f"{error} {notes}".strip(), max(error.returncode, 1))
    except click.ClickException as error:
        _fail("usage", error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", "interrupted", INTERRUPTED)
    except OSError as error:
        _fail("system", str(error), 1)
    sys.exit(0)


def _fail(code: str, message: str, status: int, **more: Any) -> NoReturn:
    document = {"error": {"code": code, "message": message, **more}}
    click.echo(to_json(document), err=True)
    sys.exit(status)
