"""What `rollback` and `undo` have in common: show what will be done, ask, do it, say how to go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, NoReturn

import click

from holdfast.cli.asking import confirm, nobody_to_ask, yes_option
from holdfast.cli.changes import (
    counted,
    print_left_alone,
    print_notes,
    print_patch,
    print_rollback,
    print_state,
    rollback_document,
)
from holdfast.cli.options import (
    Common,
    chosen_session,
    naming,
    no_pager_option,
    take_over_option,
)
from holdfast.cli.output import answer, one_line, print_line
from holdfast.cli.paging import paged
from holdfast.hooks.rewind import GoingOn
from holdfast.sessions import RollbackReport, Session, SessionManager
from holdfast.sessions.confirming import Confirmations

_LISTED: Final = 20
_QUESTIONS: Final = {"rollback": "Roll back?", "undo": "Undo?", "redo": "Redo?"}


@dataclass(frozen=True, slots=True)
class Asked:
    """How something is asked for that is shown, and confirmed, before it changes anything."""

    take_over: bool
    yes: bool
    dry_run: bool
    with_diff: bool
    pager: bool


def asking_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of those that ask before they act, handed over as one `Asked`."""

    @take_over_option
    @no_pager_option
    @click.option(
        "--diff", "with_diff", is_flag=True, help="With --dry-run: the text of each change too."
    )
    @click.option("--dry-run", is_flag=True, help="Only show what would be done.")
    @yes_option
    @wraps(function)
    def command(
        *args: Any,
        take_over: bool,
        yes: bool,
        dry_run: bool,
        with_diff: bool,
        no_pager: bool,
        **kwargs: Any,
    ) -> None:
        asked = Asked(take_over, yes, dry_run, with_diff, pager=not no_pager)
        function(*args, asked=asked, **kwargs)

    return command


def undo_command(session: str | None, *, redo: bool = False) -> str:
    """Return the command that takes back what was done."""
    named = naming(session) if session is not None else ""
    return f"holdfast undo{' --redo' if redo else ''}{named}"


def carry_out(
    common: Common,
    manager: SessionManager,
    session_id: str,
    act: Callable[[Session, str | None, bool], RollbackReport],
    asked: Asked,
    *,
    name: str,
    session: str | None,
    going_on: Callable[[Session, RollbackReport], GoingOn | None] = lambda *_: None,
) -> None:
    """Call ``act(session, checkpoint, dry_run)`` to look, and to do what it showed: after a yes exactly that.

    ``name`` is what the deed is called, and ``session`` is as it was typed.
    Whoever holds the session is disturbed only by the deed itself. The checkpoint is None to look at
    what was asked for, and then the name of the one that was found. ``going_on`` is asked afterwards how
    the conversation with an agent goes on.
    """
    if asked.with_diff and not asked.dry_run:
        raise click.UsageError("--diff goes with --dry-run")
    asks = not asked.yes and not asked.dry_run
    if asks and nobody_to_ask(common):
        _refuse_to_guess(name)
    seen = manager.get_session(session_id)
    look = partial(act, seen, None, True)
    confirmations = Confirmations()
    preview, token = confirmations.preview(seen, look)
    found = manager.diff_of(preview, text=asked.with_diff)
    if asked.dry_run and common.json:
        answer({name: rollback_document(preview, found if asked.with_diff else None)})
        return
    if not common.json:
        acts = preview.files is not None and preview.files.acts
        if not asked.dry_run and not acts and not found.state:
            _say_nothing_to_do(preview)
            return
        with paged(wanted=asked.dry_run and asked.pager):
            print_rollback(preview, found, most=None if asked.dry_run else _LISTED)
            if asked.with_diff:
                print_state(found, full=False)
                print_patch(found)
    if asked.dry_run:
        return
    if asks:
        confirm(_QUESTIONS[name])
        confirmations.confirmed(seen, look, token)
    target = preview.checkpoint.name
    back_to = target if name == "rollback" else None
    held = manager.hold_session(session_id, take_over=asked.take_over, back_to=back_to)
    report = act(held, target, False)
    then = going_on(held, report)
    if common.json:
        conversation = {} if then is None else {"conversation": then._asdict()}
        answer({name: {**rollback_document(report, None), **conversation}})
        return
    _say_done(report, state=bool(found.state))
    print_left_alone(report, told=preview, most=_LISTED)
    forked = held.id != session_id
    if forked:
        print_line(f"session {one_line(session_id)} is completed; this is in its fork {held.id}")
    if then is not None and then.command:
        where = "from here" if then.path is not None else "where it is"
        print_line(f"to go on with the conversation {where}: ", (one_line(then.command), "cyan"))
    named = None if forked else session
    if named is None and chosen_session(manager, None).id != held.id:
        # It was found by its checkpoint's id: a command that names no session would mean another one.
        named = held.id
    again = undo_command(named, redo=name == "undo")
    print_line("to take it back: ", (again, "cyan"))


def _say_nothing_to_do(preview: RollbackReport) -> None:
    print_left_alone(preview, most=_LISTED)
    print_notes(preview)
    whole = "all" if preview.files is not None else "the state"
    apart = "apart from these, " if preview.files else ""
    print_line(f"nothing to do: {apart}{whole} is as in {one_line(preview.checkpoint.name)}")


def _say_done(report: RollbackReport, *, state: bool) -> None:
    print_line(
        ("done", "bold green"),
        f"  {counted(report)}" + ("; the state is back" if state else ""),
    )
    if report.files is not None and report.files.backup is not None:
        print_line(f"commits that no branch has now: {report.files.backup}")


def _refuse_to_guess(name: str) -> NoReturn:
    raise click.UsageError(
        f"{name} asks before it changes anything, and here is nobody to ask. Nothing was changed: "
        "add --yes to do it, or --dry-run to see what it would do"
    )
