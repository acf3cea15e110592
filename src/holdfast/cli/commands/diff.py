"""``holdfast diff``."""

from __future__ import annotations

from typing import Any

import click
import orjson

from holdfast.cli.options import (
    Common,
    chosen_checkpoint,
    common_options,
    session_option,
)
from holdfast.cli.output import (
    answer,
    columns,
    console,
    exact,
    on_terminal,
    one_line,
    plural,
    print_line,
    shortened,
    when,
)
from holdfast.sessions import Checkpoint
from holdfast.state.diff import Change, diff_states

_LINE = 120
_VALUE = 32


@click.command("diff", short_help="Show what changed between two checkpoints.")
@click.argument("before")
@click.argument("after", required=False)
@session_option
@click.option("--full", is_flag=True, help="Print long values in full.")
@common_options
def command(
    common: Common, before: str, after: str | None, session: str | None, full: bool
) -> None:
    """Show what changed between two checkpoints.

    BEFORE and AFTER are names, ids, labels or beginnings of ids; AFTER is the latest one by default.
    Lines begin with + for what was added, - for what was removed and ~ for what has another value.

    \b
    Examples:
      holdfast diff step-03 step-04
      holdfast diff before-refactor --json
    """
    with common.open() as manager:
        old = chosen_checkpoint(manager, session, before)
        new = chosen_checkpoint(manager, session, after, beside=old)
        changes = list(diff_states(old.state, new.state))
    if common.json:
        document = {
            "before": columns(old),
            "after": columns(new),
            "changes": [_document(change) for change in changes],
        }
        answer({"diff": document})
        return
    width = console().width if on_terminal() else _LINE
    print_line((f"--- {_title(old)}", "bold"))
    print_line((f"+++ {_title(new)}", "bold"))
    for change in changes:
        _print(change, None if full else width)
    print_line((plural(len(changes), "change"), "dim"))


def _title(checkpoint: Checkpoint) -> str:
    return one_line(f"{checkpoint.name}  {when(checkpoint.created_at)}")


def _document(change: Change) -> dict[str, Any]:
    document = {"kind": change.kind, "path": change.path}
    if change.kind != "added":
        document["before"] = exact(change.before)
    if change.kind != "removed":
        document["after"] = exact(change.after)
    return document


def _print(change: Change, width: int | None) -> None:
    path = one_line(change.path)
    room = width - len(path) - len("+ : ") if width is not None else None
    if change.kind == "added":
        print_line((f"+ {path}: {_value(change.after, room)}", "green"))
    elif change.kind == "removed":
        print_line((f"- {path}: {_value(change.before, room)}", "red"))
    else:
        half = (room - len(" → ")) // 2 if room is not None else None
        before, after = _value(change.before, half), _value(change.after, half)
        print_line((f"~ {path}: ", "yellow"), (before, "red"), " → ", (after, "green"))


def _value(value: object, room: int | None) -> str:
    text = one_line(orjson.dumps(exact(value)).decode())
    return text if room is None else shortened(text, max(room, _VALUE))
