"""``holdfast show``."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from stat import S_IFLNK, S_IFREG, filemode
from typing import Any, Final

import click
import orjson

from holdfast.cli.options import (
    Common,
    checkpoint_argument,
    chosen_checkpoint,
    chosen_checkpoint_or_file,
    common_options,
    passed_over,
    session_option,
)
from holdfast.cli.output import (
    Column,
    answer,
    columns,
    exact,
    on_terminal,
    one_line,
    path_text,
    plural,
    print_document,
    print_line,
    print_passed_over,
    print_table,
    size,
    source_line,
    when,
)
from holdfast.sessions import Checkpoint, SessionManager

_LISTED: Final = 5
_FILES: Final = (Column("MODE", "dim"), Column("SIZE", right=True), Column("PATH"))
_SKIPPED: Final = (Column("PATH"), Column("REASON"))
_GIT_LISTS: Final = ("staged", "unstaged", "untracked", "deleted", "renamed", "unmerged")


@click.command("show", short_help="Print a checkpoint: its state, its files, or one of them.")
@checkpoint_argument("checkpoint")
@session_option
@click.option("--files", "list_files", is_flag=True, help="List the files that it holds.")
@click.option("--skipped", is_flag=True, help="List what it could not hold, and why.")
@click.option("--file", "path", metavar="PATH", help="Print this file as it was saved.")
@common_options
def command(
    common: Common,
    checkpoint: str | None,
    session: str | None,
    list_files: bool,
    skipped: bool,
    path: str | None,
) -> None:
    """Print a checkpoint: its state, its files, or one of them.

    CHECKPOINT is a name, an id, a label or the beginning of an id; the latest one by default. With
    CHECKPOINT:PATH a file is printed as it was saved; PATH counts from the top of the project, or from the
    working directory if it begins with a dot, as the one of --file does. Looking restores nothing.

    Values that JSON lacks are printed with tags: {"$t": "date", "v": "2026-01-31"}.

    \b
    Examples:
      holdfast show
      holdfast show before-refactor --files
      holdfast show before-refactor:src/app.py > app-before.py
      holdfast show --json | jq .checkpoint.state
    """
    with common.open() as manager:
        if path is not None:
            found, path = chosen_checkpoint(manager, session, checkpoint), os.path.abspath(path)
        else:
            found, path = chosen_checkpoint_or_file(manager, session, checkpoint)
        if path is not None and (list_files or skipped):
            raise click.UsageError("a file is printed by itself, without --files and --skipped")
        latest = checkpoint is None or checkpoint.startswith(":")
        newer = passed_over(manager, found, None if latest else checkpoint)
        besides = {"passed_over": [one.to_document() for one in newer]}
        if not common.json:
            print_passed_over(newer)
        if path is not None:
            _show_file(common, manager, found, path, besides)
        elif list_files or skipped:
            _show_files(common, manager, found, besides, list_files=list_files, skipped=skipped)
        else:
            _show_state(common, found, besides)


def _show_file(
    common: Common,
    manager: SessionManager,
    found: Checkpoint,
    path: str,
    besides: Mapping[str, Any],
) -> None:
    data = manager.read_file(found, path)
    if not common.json:
        click.echo(_for_a_terminal(data) if on_terminal() else data, nl=False)
        return
    document: dict[str, Any] = {
        "path": path_text(manager.workspace.relative(path)),
        "checkpoint_id": found.id,
        "size_bytes": len(data),
    }
    try:
        document |= {"encoding": "utf-8", "content": data.decode()}
    except UnicodeDecodeError:
        document |= {"encoding": "base64", "content": b64encode(data).decode()}
    answer({"file": {**document, **besides}})


def _for_a_terminal(data: bytes) -> str:
    """Return a file as text that commands no terminal; elsewhere it is printed byte for byte."""
    return "\n".join(map(source_line, data.decode("utf-8", "surrogateescape").split("\n")))


def _show_files(
    common: Common,
    manager: SessionManager,
    found: Checkpoint,
    besides: Mapping[str, Any],
    *,
    list_files: bool,
    skipped: bool,
) -> None:
    held = manager.list_files(found) if list_files else []
    left = manager.list_skipped(found)
    if common.json:
        document = columns(found)
        if list_files:
            document["files"] = [
                {"path": path_text(one.path), "mode": f"{one.mode:04o}", "size_bytes": one.bytes}
                | ({"link": True} if one.link else {})
                for one in held
            ]
        document["skipped"] = [{"path": path_text(one.path), "reason": one.reason} for one in left]
        answer({"checkpoint": {**document, "git": found.git, **besides}})
        return
    if list_files:
        rows = [
            (
                filemode(one.mode | (S_IFLNK if one.link else S_IFREG)),
                size(one.bytes),
                path_text(one.path),
            )
            for one in held
        ]
        if rows:
            print_table(_FILES, rows)
        total = size(sum(one.bytes for one in held))
        print_line((f"{plural(len(held), 'file')}, {total}", "dim"))
    if skipped and left:
        print_table(_SKIPPED, [(path_text(one.path), one.reason) for one in left])
    if skipped or left:
        hint = "" if skipped else "; --skipped says why"
        print_line((f"{plural(len(left), 'path')} skipped{hint}", "dim"))


def _show_state(common: Common, found: Checkpoint, besides: Mapping[str, Any]) -> None:
    state = exact(found.state)
    if common.json:
        content = {
            "state": state,
            "task_state": exact(found.task_state),
            "progress": exact(found.progress),
            "git": found.git,
        }
        answer({"checkpoint": {**columns(found), **content, **besides}})
        return
    for name, value in _facts(found):
        if value:
            print_line((f"{name:<12}", "bold"), one_line(value))
    print_line()
    print_document(state)


def _facts(found: Checkpoint) -> list[tuple[str, str | None]]:
    progress = found.progress
    done = f"{progress['completed']} of {progress['total']} tasks completed"
    branch = found.git_branch or ("detached" if found.git_commit else None)
    commit = (found.git_commit or "no commit yet")[:13]
    dirty = ", files uncommitted" if found.git_uncommitted else ""
    kept = ", ".join(
        word
        for word, holds in (
            (found.checkpoint_type, True),
            (f"class {found.retention_class}", True),
            ("pinned", found.pinned),
            ("not resumable", not found.resumable),
        )
        if holds
    )
    git = found.git or {}
    return [
        ("Checkpoint", found.name),
        ("Id", found.id),
        ("Session", found.session_id),
        ("About", found.description),
        ("Saved", when(found.created_at)),
        ("Kept as", kept),
        ("Expires", when(found.expires_at)),
        ("Restored", when(found.restored_at)),
        ("Git", f"{branch}, {commit}{dirty}" if branch else None),
        ("In progress", git.get("operation")),
        *((name.capitalize(), _paths(git, name)) for name in _GIT_LISTS),
        ("Files", _files(found)),
        ("Size", f"{size(found.size_bytes)}, {size(found.stored_bytes)} stored"),
        ("Progress", done if progress["total"] else None),
        ("Metadata", ", ".join(f"{k}={_text(v)}" for k, v in (found.metadata or {}).items())),
    ]


def _text(value: object) -> str:
    """Return a value of the metadata: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(exact(value)).decode()


def _paths(git: Mapping[str, Any], name: str) -> str | None:
    """Return the first paths of one of git's lists, and how many more there are."""
    paths = git.get(name, [])
    first = [one if isinstance(one, str) else " → ".join(one) for one in paths[:_LISTED]]
    more = git.get(f"{name}_count", len(paths)) - len(first)
    return ", ".join(first) + (f" … and {more:,} more" if more else "")


def _files(found: Checkpoint) -> str | None:
    facts = found.files
    if found.workspace_commit is None:
        return f"not captured: {facts['problem']}" if "problem" in facts else None
    wrote, left = facts.get("wrote_count", 0), facts.get("skipped_count", 0)
    skipped = f", {left:,} skipped" if left else ""
    return f"captured, {wrote:,} changed before it{skipped}"
