"""Pausing, going on, and chains of sessions."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.errors import (
    IllegalTransition,
    InvalidIdentifier,
    NothingToResume,
    SessionNotFound,
    SessionPaused,
)

Reopen = Callable[[], SessionManager]


@pytest.mark.row("S1-06")
def test_a_paused_session_takes_no_work_until_it_is_resumed(
    manager: SessionManager, reopen: Reopen
) -> None:
    session = manager.create_session("a")
    session.save_checkpoint("one", state={"n": 1})
    until = datetime.now(UTC) + timedelta(days=1)
    saved = session.pause("approval", until=until, state={"n": 2})
    assert (saved.state, saved.retention_class) == ({"n": 2}, "session")
    record = manager.get_session(session.id).record
    assert (record.status, record.pause_reason, record.paused_until) == (
        "paused",
        "approval",
        until,
    )
    assert record.paused_at is not None
    assert record.lease_owner is None
    for work in (
        lambda: session.save_checkpoint("more"),
        lambda: session.step("step", lambda: 1),
        lambda: session.record_failure(ValueError("no")),
        lambda: session.pause(),
    ):
        with pytest.raises(SessionPaused, match="resume"):
            work()
    assert len(session.list_checkpoints()) == 2
    assert session.logs()[-1].message == "paused: approval"
    resumed = reopen().resume_session(session.id)
    assert (resumed.status, resumed.state) == ("active", {"n": 2})
    assert resumed.paused_for is not None
    assert timedelta(0) <= resumed.paused_for < timedelta(minutes=5)
    assert resumed.record.resumed_at is not None
    assert (resumed.record.paused_at, resumed.record.pause_reason) == (None, None)
    resumed.save_checkpoint("three")
    resumed.close()
    assert manager.resume_session(session.id).paused_for is None


def test_pausing_saves_what_was_last_saved_or_loaded(manager: SessionManager) -> None:
    session = manager.create_session("a")
    assert session.pause().state == {}
    session = manager.resume_session(session.id)
    session.save_checkpoint("one", state={"n": 1})
    assert session.pause("lunch").state == {"n": 1}


def test_only_an_active_session_is_paused_for_a_reason_and_until_a_moment_that_can_be_stored(
    manager: SessionManager,
) -> None:
    session = manager.create_session("a")
    with pytest.raises(InvalidIdentifier):
        session.pause(until=datetime(2030, 1, 1))  # noqa: DTZ001
    for until in (
        "tomorrow",
        datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
    ):
        with pytest.raises(InvalidIdentifier, match="until"):
            session.pause(until=until)  # type: ignore[arg-type]
    for reason in ("a\0b", "\ud800", 5):
        with pytest.raises(InvalidIdentifier, match="pause reason"):
            session.pause(reason)  # type: ignore[arg-type]
    assert session.list_checkpoints() == []
    session.complete()
    with pytest.raises(IllegalTransition):
        session.pause()
    assert session.list_checkpoints() == []


def test_pausing_again_changes_reason_and_time(manager: SessionManager) -> None:
    session = manager.create_session("a")
    session.pause("approval")
    until = datetime.now(UTC) + timedelta(days=1)
    manager.hold_session(session.id).pause("holidays", until=until)
    record = manager.get_session(session.id).record
    assert (record.status, record.pause_reason, record.paused_until) == (
        "paused",
        "holidays",
        until,
    )
    assert record.lease_owner is None


def test_a_save_for_a_session_that_somebody_paused_leaves_it_paused(
    manager: SessionManager,
) -> None:
    session = manager.create_session("a")
    session.pause("approval")
    held = manager.hold_session(session.id)
    held.save_checkpoint("by hand", state={"n": 1})
    assert manager.get_session(session.id).status == "paused"


def test_a_pause_that_is_refused_stores_nothing(manager: SessionManager) -> None:
    session = manager.create_session("a")
    session.fail("no way")
    with pytest.raises(IllegalTransition, match="is failed, not active or paused"):
        session.pause()
    assert session.list_checkpoints() == []


def test_a_session_that_is_paused_until_later_is_resumed_by_name_only(
    manager: SessionManager,
) -> None:
    older, newer = manager.create_session("older"), manager.create_session("newer")
    newer.pause(until=datetime.now(UTC) + timedelta(hours=1))
    assert manager.latest_unfinished_session().id == older.id
    older.complete()
    with pytest.raises(NothingToResume, match=f"{newer.id} is paused until"):
        manager.resume_session()
    assert manager.latest_unfinished_session(parked=True).id == newer.id
    assert manager.resume_session(newer.id).status == "active"


@pytest.mark.row("S1-21")
def test_a_session_goes_on_with_the_work_of_another(
    manager: SessionManager, reopen: Reopen
) -> None:
    tasks = [{"id": "1", "status": "completed"}, {"id": "2", "status": "pending"}]
    first = manager.create_session("a")
    first.save_checkpoint("end of day one", state={"task_state": {"tasks": tasks}, "n": 1})
    first.complete()
    second = manager.create_session("a", continues=first.id)
    assert second.record.continues_id == first.id
    assert second.state["n"] == 1
    second.save_checkpoint("day two", state={"task_state": {"tasks": tasks[1:]}, "n": 2})
    third = manager.create_session("b", continues=second.id)
    third.save_checkpoint("day three", state={"n": 3})
    found = reopen().get_session(third.id)
    assert [record.id for record in found.lineage()] == [third.id, second.id, first.id]
    for name, session in (("day two", second), ("day three", third)):
        done = session.get_checkpoint(name).task_state["tasks"]
        assert [one["id"] for one in done if one["status"] == "completed"] == ["1"]
    assert [one.name for one in first.list_checkpoints()] == ["end of day one"]
    with pytest.raises(SessionNotFound):
        manager.create_session("a", continues="no such session")


def test_a_chain_whose_beginning_was_erased_begins_later(manager: SessionManager) -> None:
    first = manager.create_session("a")
    second = manager.create_session("a", continues=first.id)
    manager.delete_session(first.id)
    assert [record.id for record in second.lineage()] == [second.id]
    second.save_checkpoint("one", state={"n": 1})


def _git(project: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(project), *arguments], check=True, capture_output=True)


@pytest.mark.row("S1-19")
def test_without_an_id_the_session_of_this_directory_and_branch_is_meant(tmp_path: Path) -> None:
    url = str(tmp_path / "shared.db")
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        _git(folder, "init", "-b", "main")
    with SessionManager.open(url, project_dir=project) as manager:
        main = manager.create_session("a")
        main.save_checkpoint("on main", state={"branch": "main"})
        _git(project, "checkout", "-b", "feature")
        feature = manager.create_session("a")
        feature.save_checkpoint("on feature", state={"branch": "feature"})
    with SessionManager.open(url, project_dir=other) as manager:
        elsewhere = manager.create_session("a")
        elsewhere.save_checkpoint("elsewhere", state={"branch": "none"})
        assert manager.resume_session().id == elsewhere.id
    with SessionManager.open(url, project_dir=project) as manager:
        assert manager.resume_session().state == {"branch": "feature"}
        _git(project, "checkout", "-b", "main")
        assert manager.resume_session().state == {"branch": "main"}
        _git(project, "checkout", "-b", "third")
        assert manager.resume_session().id == feature.id
