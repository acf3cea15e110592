"""How differences look: values of a state, files, and what a rollback does with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
import orjson

from holdfast.cli.output import (
    cells,
    columns,
    console,
    exact,
    on_terminal,
    one_line,
    padded,
    path_text,
    plural,
    print_line,
    shortened,
    source_line,
    when,
)
from holdfast.sessions import Checkpoint, Comparison, RollbackReport

_LINE: Final = 120
_VALUE: Final = 32
_BAR: Final = 40
_SIGNS: Final = {
    "added": ("+", "green"),
    "modified": ("~", "yellow"),
    "deleted": ("-", "red"),
}
_HEADERS: Final = (
    "diff --git ", "index ", "--- ", "+++ ", "new file mode ", "deleted file mode ", "old mode ", "new mode ",
)  # fmt: skip


def file_name(path: str) -> str:
    """Return a path of the project as one harmless line."""
    return one_line(path_text(path))


def title(checkpoint: Checkpoint | None) -> str:
    """Return a checkpoint, or the present, in one line."""
    if checkpoint is None:
        return "now"
    return one_line(f"{checkpoint.name}  {when(checkpoint.created_at)}")


# States ---------------------------------------------------------------------------------------


def state_documents(found: Comparison) -> list[dict[str, Any]] | None:
    """Return the changes of a state for programs."""
    if found.state is None:
        return None
    documents = []
    for change in found.state:
        document = {"kind": change.kind, "path": change.path}
        if change.kind != "added":
            document["before"] = exact(change.before)
        if change.kind != "removed":
            document["after"] = exact(change.after)
        documents.append(document)
    return documents


def print_state(found: Comparison, *, full: bool) -> None:
    """Print the changes of a state: + for what was added, - for what is gone, ~ for another value."""
    width = console().width if on_terminal() else _LINE
    for change in found.state or ():
        path = one_line(change.path)
        room = width - cells(path) - len("+ : ") if not full else None
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
    if room is None:
        return text
    room = max(room, _VALUE)
    return shortened(text, room, tail=room // 4)


# Files ----------------------------------------------------------------------------------------


def file_documents(found: Comparison, *, text: bool) -> list[dict[str, Any]] | None:
    """Return the changes of files for programs; with ``text`` their content too."""
    if found.files is None:
        return None
    documents: list[dict[str, Any]] = []
    for one in found.files:
        document: dict[str, Any] = {"kind": one.change.kind, "path": path_text(one.change.path)}
        if text:
            document |= {
                "added": one.added,
                "removed": one.removed,
                "binary": one.binary,
                "text": path_text(one.text),
            }
        documents.append(document)
    return documents


def print_names(changes: Iterable[tuple[str, str]]) -> None:
    """Print kinds and paths of changed files, one in a line."""
    for kind, path in changes:
        sign, style = _SIGNS[kind]
        print_line((f"{sign} {file_name(path)}", style))


def print_stat(found: Comparison) -> None:
    """Print how many lines of which file changed, with a bar."""
    files = found.files or ()
    names = [file_name(one.change.path) for one in files]
    width = max(map(cells, names), default=0)
    most = max((one.added + one.removed for one in files), default=0)
    scale = min(1.0, _BAR / most) if most else 1.0
    for one, name in zip(files, names, strict=True):
        if one.binary:
            print_line(f" {padded(name, width)} | ", ("binary", "dim"))
            continue
        plus, minus = (_stretch(count, scale) for count in (one.added, one.removed))
        bar = (("+" * plus, "green"), ("-" * minus, "red"))
        print_line(f" {padded(name, width)} | {one.added + one.removed:>4} ", *bar)


def _stretch(count: int, scale: float) -> int:
    return max(1, round(count * scale)) if count else 0


def print_patch(found: Comparison) -> None:
    """Print the unified text of changed files; away from a terminal every byte as it is."""
    for one in found.files or ():
        if one.binary:
            print_line((f"binary file {one.change.kind}: {file_name(one.change.path)}", "bold"))
        elif on_terminal():
            for line in one.text.removesuffix("\n").split("\n"):
                print_line((source_line(line), _style(line)))
        else:
            click.echo(one.text.encode("utf-8", "surrogateescape"), nl=False)


def _style(line: str) -> str:
    if line.startswith(_HEADERS):
        return "bold"
    return {"@": "cyan", "+": "green", "-": "red", "\\": "dim"}.get(line[:1], "")


def summary(found: Comparison) -> str:
    """Return how much differs."""
    parts = []
    if found.state is not None:
        parts.append(plural(len(found.state), "change") + " in the state")
    if found.files is not None:
        parts.append(plural(len(found.files), "file"))
    return ", ".join(parts)


# Rollbacks ------------------------------------------------------------------------------------


def counted(report: RollbackReport) -> str:
    """Return how many files a rollback brings back, changes and removes."""
    if report.files is None:
        return "no files"
    kinds = [one.kind for one in report.files.changes]
    words = {"added": "brought back", "modified": "changed", "deleted": "removed"}
    parts = [f"{kinds.count(kind):,} {word}" for kind, word in words.items() if kind in kinds]
    if report.files.folders:
        parts.append(plural(len(report.files.folders), "empty directory", "empty directories"))
    if report.files.modes:
        parts.append(f"{len(report.files.modes):,} with other permissions")
    return ", ".join(parts) or "no file differs"


def rollback_document(report: RollbackReport, found: Comparison | None) -> dict[str, Any]:
    """Return a rollback, done or only looked at, for programs."""
    files = report.files
    document: dict[str, Any] = {
        "title": report.title,
        "dry_run": report.dry_run,
        "checkpoint": columns(report.checkpoint),
        "state": report.state,
        "files": None,
        "safety": columns(report.safety) if report.safety is not None else None,
        "landed": columns(report.landed) if report.landed is not None else None,
        "notes": list(report.notes),
    }
    if files is not None:
        document["files"] = {
            "changes": [{"kind": one.kind, "path": path_text(one.path)} for one in files.changes],
            "modes": [path_text(one) for one in files.modes],
            "folders": [{"kind": one.kind, "path": path_text(one.path)} for one in files.folders],
            "kept": [_skipped(one.path, one.reason) for one in files.kept],
            "conflicts": [_skipped(one.path, one.reason) for one in files.conflicts],
            "head": files.head,
            "commits": list(files.commits),
            "backup": files.backup,
        }
    if found is not None:
        document["diff"] = {
            "changes": state_documents(found),
            "files": file_documents(found, text=True),
        }
    return document


def _skipped(path: str, reason: str) -> dict[str, str]:
    return {"path": path_text(path), "reason": reason}


def print_rollback(report: RollbackReport, found: Comparison, *, most: int | None) -> None:
    """Print what a rollback does: files by kind, what stays and why, the state, HEAD.

    ``found`` is the difference of the states; ``most`` bounds how many paths of a kind are listed.
    """
    checkpoint = report.checkpoint
    print_line((one_line(report.title), "bold cyan"), f"  saved {when(checkpoint.created_at)}")
    if checkpoint.description and report.title.startswith("rollback"):
        print_line((f"  {one_line(checkpoint.description)}", "dim"))
    files = report.files
    if files is not None:
        print_line(("Files  ", "bold"), counted(report))
        changes = [(one.kind, one.path) for one in files.changes]
        changes += [(one.kind, f"{one.path}/") for one in files.folders]
        for kind in _SIGNS:
            some = [one for one in changes if one[0] == kind]
            print_names(some[:most])
            _more(len(some), most)
        _print_list("Permissions", [file_name(one) for one in files.modes], most)
        print_left_alone(report, most=most)
        if files.head is not None:
            print_line(("HEAD   ", "bold"), one_line(files.head))
            if files.commits:
                left = plural(len(files.commits), "commit")
                print_line(
                    f"       {left} would be left behind; a reference keeps what no other branch or tag has"
                )
    if report.state:
        print_line(("State  ", "bold"), _state_text(found))
    else:
        print_line(("State  ", "bold"), "stays as it is")
    print_notes(report)


def print_notes(report: RollbackReport) -> None:
    """Print what is to be known of a rollback besides what it changes."""
    for note in report.notes:
        print_line((f"note: {one_line(path_text(note))}", "yellow"))


def print_left_alone(
    report: RollbackReport, *, told: RollbackReport | None = None, most: int | None
) -> None:
    """Print which files are not as the checkpoint has them, and why; less what was ``told`` before."""
    if report.files is None:
        return
    known = told.files.left_alone if told is not None and told.files is not None else ()
    for name, skipped in (("Kept", report.files.kept), ("Left to others", report.files.conflicts)):
        lines = [f"{file_name(one.path)}: {one.reason}" for one in skipped if one not in known]
        _print_list(name, lines, most)


def _state_text(found: Comparison) -> str:
    count = len(found.state or ())
    return f"goes back: {plural(count, 'change')}" if count else "is the same already"


def _print_list(name: str, lines: Sequence[str], most: int | None) -> None:
    if lines:
        print_line((name, "bold"), f"  {len(lines):,}")
        for line in lines[:most]:
            print_line(f"  {line}")
        _more(len(lines), most)


def _more(count: int, most: int | None) -> None:
    if most is not None and count > most:
        print_line((f"  … and {count - most:,} more; --dry-run lists them all", "dim"))
