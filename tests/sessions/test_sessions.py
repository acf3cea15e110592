"""What a session can do, on every backend and through the async twin."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import SessionManager
from holdfast.errors import (
    AmbiguousReference,
    IllegalTransition,
    InputError,
    InvalidFilter,
    InvalidIdentifier,
    NothingToResume,
    SessionExists,
    SessionNotFound,
)

Reopen = Callable[[], SessionManager]


@pytest.mark.row("S1-01", "S1-44")
def test_a_new_session_is_active_and_has_an_id_of_its_own(manager: SessionManager) -> None:
    one = manager.create_session("implementer", task_description="first")
    other = manager.create_session("implementer", task_description="second")
    assert uuid.UUID(one.id) != uuid.UUID(other.id)
    assert one.status == "active"
    assert manager.get_session(one.id).record == one.record


@pytest.mark.row("S1-45")
def test_a_session_knows_when_who_and_what(manager: SessionManager) -> None:
    session = manager.create_session("analyst", task_description="Read the logs")
    assert abs(datetime.now(UTC) - session.created_at) < timedelta(minutes=1)
    assert session.created_at.tzinfo is not None
    assert (session.agent_type, session.task_description) == ("analyst", "Read the logs")


@pytest.mark.row("S1-81", "S1-61", "S1-62")
@pytest.mark.parametrize("agent_type", ["", None, 7, "a\0b"])
def test_an_agent_type_is_mandatory_text(manager: SessionManager, agent_type: str) -> None:
    with pytest.raises(InvalidIdentifier):
        manager.create_session(agent_type)
    with pytest.raises(TypeError):
        manager.create_session()  # type: ignore[call-arg]
    assert manager.list_sessions() == []
    assert manager.create_session("free text, 18 kinds of agents").task_description is None


@pytest.mark.row("S1-46")
def test_listing_shows_active_and_completed_sessions_newest_first(manager: SessionManager) -> None:
    done, running = manager.create_session("a"), manager.create_session("b")
    done.complete()
    listed = manager.list_sessions()
    assert [one.id for one in listed] == [running.id, done.id]
    assert [one.status for one in listed] == ["active", "completed"]
    assert [one.id for one in manager.list_sessions(status="completed")] == [done.id]
    assert [one.id for one in manager.list_sessions(agent_type="b")] == [running.id]
    assert [one.id for one in manager.list_sessions(limit=1)] == [running.id]
    with pytest.raises(InvalidFilter):
        manager.list_sessions(status="finished")


@pytest.mark.row("S1-65")
def test_sessions_are_found_by_their_metadata(manager: SessionManager) -> None:
    one = manager.create_session("a", metadata={"team": "red", "n": 1, "tags": ["x"]})
    manager.create_session("a", metadata={"team": "blue", "n": True})
    assert [s.id for s in manager.list_sessions(metadata={"team": "red"})] == [one.id]
    assert [s.id for s in manager.list_sessions(metadata={"n": 1})] == [one.id]
    assert manager.list_sessions(metadata={"team') OR 1=1 --": "red"}) == []
    assert manager.get_session(one.id).metadata == {"team": "red", "n": 1, "tags": ["x"]}
    same = manager.hold_session(one.id)
    one.update_metadata({"n": 2})
    same.update_metadata({"more": None})
    expected = {"team": "red", "n": 2, "tags": ["x"], "more": None}
    assert manager.get_session(one.id).metadata == expected


@pytest.mark.row("S1-47")
def test_a_session_is_found_by_the_beginning_of_its_id(manager: SessionManager) -> None:
    first, second, other = (
        "01a1dd1f-1111-7000-8000-000000000001",
        "01a1dd1f-1111-7000-8000-000000000002",
        "01b2ee2f-2222-7000-8000-000000000003",
    )
    for session_id in (first, second, other):
        manager.create_session("a", session_id=session_id)
    assert manager.get_session("01b2ee2f").id == other
    assert manager.resume_session("01b2ee2f-2222").id == other
    with pytest.raises(AmbiguousReference, match=first):
        manager.get_session("01a1dd1f-1111")
    with pytest.raises(SessionNotFound, match=rf"near matches: .*{other}"):
        manager.get_session("01b2ee2f-3333-7000-8000-000000000003")
    with pytest.raises(SessionNotFound):
        manager.get_session("01b2ee2")  # shorter than a prefix may be


def test_an_id_that_a_user_chose_means_that_session_and_no_other(manager: SessionManager) -> None:
    one = manager.create_session("a", session_id="customer-1")
    other = manager.create_session("a", session_id="customer-12")
    other.save_checkpoint("n", state={"secret": 12})
    manager.delete_session("customer-1")
    for use in (manager.get_session, manager.resume_session, manager.delete_session):
        with pytest.raises(SessionNotFound):
            use("customer-1")
    with pytest.raises(SessionNotFound):
        one.refresh()
    assert manager.get_session("customer-12").state == {"secret": 12}


@pytest.mark.parametrize(
    "session_id", ["", "a\0b", "\ud800", "x" * 1_000_000, 5, None, {"$gt": ""}]
)
def test_an_impossible_session_id_is_refused_alike_everywhere(
    manager: SessionManager, session_id: str
) -> None:
    with pytest.raises(InvalidIdentifier):
        manager.get_session(session_id)
    if session_id is not None:
        with pytest.raises(InvalidIdentifier):
            manager.create_session("a", session_id=session_id)
    assert manager.list_sessions() == []


@pytest.mark.parametrize(
    "session_id",
    ["'; DROP TABLE sessions; --", "../../etc/passwd", "-rf", "a\nb", "é", "e\u0301", "🦀"],
)
def test_an_odd_session_id_is_just_an_id(manager: SessionManager, session_id: str) -> None:
    session = manager.create_session("a", session_id=session_id)
    session.save_checkpoint(session_id, state={"n": 1})
    assert manager.get_session(session_id).load_checkpoint(session_id).state == {"n": 1}
    with pytest.raises(SessionExists):
        manager.create_session("a", session_id=session_id)
    assert [one.id for one in manager.list_sessions()] == [session_id]


@pytest.mark.row("S1-05", "S1-85")
def test_resuming_goes_on_from_the_latest_or_the_named_checkpoint(
    manager: SessionManager, reopen: Reopen
) -> None:
    session = manager.create_session("a")
    session.save_checkpoint("one", state={"step": 1})
    session.save_checkpoint("two", state={"step": 2})
    resumed = reopen().resume_session(session.id)
    assert (resumed.state, resumed.status) == ({"step": 2}, "active")
    assert resumed.record.resumed_at is not None
    earlier = reopen().resume_session(session.id, checkpoint="one")
    assert earlier.state == {"step": 1}
    again = earlier.save_checkpoint("three", state={"step": 3})
    assert again.parent_id == session.get_checkpoint("one").id


def test_resuming_without_an_id_takes_the_most_recent_unfinished_session(
    manager: SessionManager,
) -> None:
    with pytest.raises(NothingToResume):
        manager.resume_session()
    first, last = manager.create_session("a"), manager.create_session("a")
    assert manager.resume_session().id == last.id
    last.complete()
    assert manager.resume_session().id == first.id


@pytest.mark.row("S1-63")
def test_only_legal_changes_of_status_are_accepted(manager: SessionManager) -> None:
    session = manager.create_session("a")
    session.fail("the disk is full")
    assert session.status == "failed"
    with pytest.raises(IllegalTransition):
        session.complete()
    session = manager.resume_session(session.id)
    session.complete()
    with pytest.raises(IllegalTransition):
        session.fail()
    with pytest.raises(IllegalTransition, match="fork"):
        manager.resume_session(session.id)
    assert manager.get_session(session.id).status == "completed"


@pytest.mark.row("S1-64")
def test_updated_at_moves_with_every_change(manager: SessionManager) -> None:
    session = manager.create_session("a")
    seen = [session.record.updated_at]
    session.save_checkpoint("one", state={})
    seen.append(session.refresh().record.updated_at)
    session.update_metadata({"k": "v"})
    seen.append(session.record.updated_at)
    session.complete()
    seen.append(session.record.updated_at)
    assert seen == sorted(set(seen))
    assert all(moment.utcoffset() == timedelta(0) for moment in seen)


def test_a_fork_is_a_session_of_its_own(manager: SessionManager) -> None:
    session = manager.create_session("a", task_description="try it")
    origin = session.save_checkpoint("base", state={"plan": ["x"]})
    session.save_checkpoint("after", state={"plan": ["x", "y"]})
    forked = session.fork("base")
    assert forked.record.forked_from == origin.id
    assert forked.state == {"plan": ["x"]}
    forked.save_checkpoint("after", state={"plan": ["z"]})
    assert session.latest_checkpoint().state == {"plan": ["x", "y"]}
    assert [one.name for one in forked.list_checkpoints()] == ["after", "base"]


@pytest.mark.row("S1-39")
def test_deleting_a_session_leaves_nothing_of_it(manager: SessionManager) -> None:
    doomed, kept = manager.create_session("a"), manager.create_session("a")
    shared = "shared text " * 500
    doomed.save_checkpoint("one", state={"shared": shared, "own": "own text " * 500})
    kept.save_checkpoint("one", state={"shared": shared})
    doomed.log("info", "hello")
    manager.delete_session(doomed.id)
    with pytest.raises(SessionNotFound):
        manager.get_session(doomed.id)
    assert manager.gc(dry_run=True).chunks == 0
    assert kept.latest_checkpoint().state == {"shared": shared}
    assert [one.session_id for one in manager.usage()] == [kept.id]


@pytest.mark.row("S1-71")
def test_logs_come_back_in_the_order_of_the_calls(manager: SessionManager) -> None:
    session = manager.create_session("a")
    for number, level in enumerate(["debug", "info", "warning", "error", "info"]):
        session.log(level, f"line {number}", data={"n": number})
    assert [line.message for line in session.logs()] == [f"line {n}" for n in range(5)]
    assert [line.data for line in session.logs(level="info")] == [{"n": 1}, {"n": 4}]
    assert [line.message for line in session.logs(limit=2, offset=1)] == ["line 1", "line 2"]
    ids = [line.id for line in session.logs()]
    assert ids == sorted(ids)
    with pytest.raises(InvalidFilter):
        session.log("loud", "no such level")


@pytest.mark.row("S0-05")
def test_agents_form_a_tree(manager: SessionManager) -> None:
    root = manager.create_agent("lead", agent_type="planner", metadata={"model": "m"})
    child = manager.create_agent("helper", agent_type="coder", parent_id=root.id)
    assert (root.depth_level, child.depth_level) == (0, 1)
    assert [one.id for one in manager.list_agents(parent_id=root.id)] == [child.id]
    session = manager.create_session("coder", agent_id=child.id)
    assert session.agent_id == child.id
    done = manager.update_agent(child.id, status="completed")
    assert done.completed_at is not None
    assert manager.get_agent(root.id).metadata == {"model": "m"}
    with pytest.raises(InputError):
        manager.update_agent(child.id, status="asleep")
    with pytest.raises(LookupError):
        manager.create_agent("orphan", agent_type="coder", parent_id=str(uuid.uuid4()))


@pytest.mark.row("S0-19")
def test_the_latest_checkpoint_of_an_agent_spans_its_sessions(manager: SessionManager) -> None:
    agent = manager.create_agent("one", agent_type="a")
    assert manager.latest_checkpoint(agent.id) is None
    first = manager.create_session("a", agent_id=agent.id)
    second = manager.create_session("a", agent_id=agent.id)
    for number in range(20):
        (first if number % 2 else second).save_checkpoint(state={"n": number})
    latest = manager.latest_checkpoint(agent.id)
    assert latest is not None
    assert latest.state == {"n": 19}
