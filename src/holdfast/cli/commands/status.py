"""``holdfast status``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import (
    Column,
    answer,
    columns,
    one_line,
    path_text,
    plural,
    print_line,
    print_table,
    print_unreadable,
    standing,
    unreadable_document,
    when,
)
from holdfast.errors import IntegrityError
from holdfast.model import CheckpointRecord
from holdfast.sessions.status import (
    FailedSave,
    Quarantine,
    SessionHealth,
    StatusReport,
    WithoutFiles,
    read_status,
)

UNRESOLVED: Final = 1

_LAYOUT = (
    Column("ID", "cyan"),
    Column("AGENT", give=1, leave=4),
    Column("STATUS", leave=2),
    Column("SAVED", "dim", leave=1),
    Column("TASK", give=2, leave=3),
)


@click.command("status", short_help="Show when sessions were saved, failed saves, quarantine.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most so many sessions; failed saves are shown of all.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, limit: int) -> None:
    """Show when sessions were saved, failed saves, quarantine.

    What is in quarantine failed verification and is not used: resuming a session goes on from the last
    good checkpoint. A thread of a saver or framework does not go back by itself: it is refused while its
    latest one is in quarantine. `holdfast verify --deep` looks again, and releases what is whole.

    The exit code is 1 as long as a session has not been saved, nor completed, since a save of it
    failed, or since one could not have the project's files. It is 5 when the row of a session cannot be read.

    \b
    Examples:
      holdfast status
      holdfast status --json
    """
    report = read_status(common.open, project_dir=common.project_dir, limit=limit)
    if report.problem is None or report.failures:
        _show(report, common)
    print_unreadable(report.unreadable)
    if report.problem is not None:
        raise report.problem
    if not report.ok:
        ctx.exit(IntegrityError.exit_code if report.unreadable else UNRESOLVED)


def _show(report: StatusReport, common: Common) -> None:
    if common.json:
        answer({"status": _document(report)})
        return
    if report.sessions:
        print_table(_LAYOUT, [_row(one) for one in report.sessions])
    for one in report.failures:
        _print_failure(one)
    _print_quarantines(report.quarantines)
    for without in report.without_files:
        _print_without_files(without)
    if report.ok:
        print_line(("ok", "bold green"), f"  {_saved(report)}")
    else:
        print_line(("failing", "bold red"), f"  {', '.join(_wrong(report))}")
    if any(one.source == "file" for one in report.failures):
        print_line((f"from {one_line(path_text(report.fallback_log))}; remove it when done", "dim"))


def _row(one: SessionHealth) -> tuple[str, ...]:
    saved = when(one.latest.created_at) if one.latest is not None else "never"
    record = one.record
    status = standing(record, one.quarantined)
    return (record.id, record.agent_type, status, saved, record.task_description or "")


def _print_failure(one: FailedSave) -> None:
    mark = ("resolved  ", "dim") if one.resolved else ("failed    ", "bold red")
    whose = f"session {one.session_id}, {one.at}: " if one.session_id is not None else ""
    print_line(mark, one_line(f"{whose}{one.message}"))


def _print_without_files(one: WithoutFiles) -> None:
    said = f"session {one.session_id}, {one.checkpoint.name}: files not captured: {one.problem}"
    print_line(("no files  ", "bold red"), one_line(said))


def _saved(report: StatusReport) -> str:
    """Say how many of the sessions shown have a checkpoint."""
    sessions = plural(len(report.sessions), "session")
    saved = sum(one.latest is not None for one in report.sessions)
    if saved == len(report.sessions):
        return f"{sessions}, all saved"
    return f"{sessions}, {saved} saved, {len(report.sessions) - saved} never"


def _wrong(report: StatusReport) -> Iterator[str]:
    """Say in a few words what is not as it should be."""
    if failing := sum(not one.resolved for one in report.failures):
        yield f"{plural(failing, 'failed save')} not made up for"
    if report.without_files:
        yield f"{plural(len(report.without_files), 'session')} saved without files"
    if report.unreadable:
        yield f"{plural(len(report.unreadable), 'session')} unreadable"


def _print_quarantines(quarantines: Sequence[Quarantine]) -> None:
    for one in quarantines:
        newest, *others = one.checkpoints
        more = f" and {plural(len(others), 'other checkpoint')}" if others else ""
        whose = f"{'thread' if one.thread else 'session'} {one.session_id}"
        where = f", namespace {one.namespace}" if one.namespace else ""
        print_line(
            ("quarantine  ", "bold yellow"),
            one_line(f"{whose}{where}: {newest.name}{more} failed verification; {_then(one)}"),
        )
    if quarantines:
        hint = (
            "nothing was removed; `holdfast verify --deep` looks again and releases what is whole"
        )
        print_line((hint, "dim"))


def _then(one: Quarantine) -> str:
    """Say what whoever goes on with the work will find."""
    if one.good is None:
        return "there is no good checkpoint to resume from"
    if one.resumes_from is None:
        return (
            f"going on is refused until a good one is named, the last of which is {one.good.name}"
        )
    if one.thread:
        return f"the latest, {one.good.name}, is good and goes on"
    return f"resuming goes on from {one.good.name}"


def _document(report: StatusReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "project_dir": path_text(report.project_dir),
        "url": report.url,
        "sessions": [_session(one) for one in report.sessions],
        "errors": [asdict(one) for one in report.failures],
        "quarantine": [_quarantine(one) for one in report.quarantines],
        "unreadable": unreadable_document(report.unreadable),
        "without_files": [
            {
                "session_id": one.session_id,
                "checkpoint": _named(one.checkpoint),
                "problem": one.problem,
            }
            for one in report.without_files
        ],
        "fallback_log": path_text(report.fallback_log),
    }


def _session(one: SessionHealth) -> dict[str, Any]:
    latest, error = one.latest, one.last_error
    return {
        **columns(one.record),
        "saved_at": latest.created_at if latest is not None else None,
        "checkpoint_id": latest.id if latest is not None else None,
        "last_error": error.message if error is not None else None,
        "last_error_at": error.created_at if error is not None else None,
        "quarantined": one.quarantined,
    }


def _quarantine(one: Quarantine) -> dict[str, Any]:
    return {
        "session_id": one.session_id,
        "namespace": one.namespace,
        "checkpoints": [_named(bad) for bad in one.checkpoints],
        "last_good": None if one.good is None else _named(one.good),
        "resumes_from": None if one.resumes_from is None else _named(one.resumes_from),
    }


def _named(record: CheckpointRecord) -> dict[str, str]:
    return {"id": record.id, "name": record.name}
