"""Saving, loading and listing checkpoints, on every backend and through the async twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from time import sleep
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import (
    CheckpointExists,
    CheckpointNotFound,
    CheckpointProtected,
    IllegalTransition,
    InputError,
    InvalidFilter,
    InvalidIdentifier,
    InvalidState,
    NotResumable,
    SessionNotFound,
    StateNotSerializable,
)
from holdfast.ids import new_id
from holdfast.preflight import hash_file
from holdfast.sessions import Session
from tests.meanwhile import meanwhile

Reopen = Callable[[], SessionManager]

STATE: dict[str, Any] = {
    "conversation_history": [{"role": "user", "content": "Schöne Grüße 🦀 " * 60}] * 30,
    "variable_state": {
        "big": 2**63 + 5,
        "pi": 3.141592653589793,
        "nested": {"deep": [1, [2, [3]]]},
    },
    "execution_context": {"step": 7, "when": datetime(2026, 1, 2, 3, 4, 5, 6, UTC)},
}


@pytest.fixture
def session(manager: SessionManager) -> Session:
    return manager.create_session("implementer")


@pytest.mark.row("S1-02", "S1-03", "S1-52", "S1-82", "S1-83", "S0-06")
def test_a_saved_state_comes_back_exactly(session: Session, reopen: Reopen) -> None:
    saved = session.save_checkpoint("before-refactor", state=STATE, description="all green")
    assert saved.restored_at is None
    loaded = reopen().get_session(session.id).load_checkpoint("before-refactor")
    assert loaded.state == STATE
    assert list(loaded.state) == list(STATE)
    assert (loaded.id, loaded.description) == (saved.id, "all green")
    assert loaded.restored_at is not None


@pytest.mark.row("S1-82")
def test_a_state_is_optional(session: Session) -> None:
    assert session.save_checkpoint("bare").state == {}


@pytest.mark.row("S1-03")
def test_an_unknown_name_is_refused_with_near_matches(session: Session) -> None:
    session.save_checkpoint("before-refactor", state={})
    with pytest.raises(CheckpointNotFound, match="near matches: 'before-refactor'"):
        session.load_checkpoint("before-refactr")


@pytest.mark.row("S1-67", "T5")
def test_a_name_is_unique_in_its_session_unless_overwritten(
    manager: SessionManager, session: Session
) -> None:
    first = session.save_checkpoint("here", state={"n": 1})
    with pytest.raises(CheckpointExists):
        session.save_checkpoint("here", state={"n": 2})
    assert session.get_checkpoint("here").id == first.id
    second = session.save_checkpoint("here", state={"n": 3}, overwrite=True)
    assert session.get_checkpoint("here").state == {"n": 3}
    assert [one.id for one in session.list_checkpoints()] == [second.id]
    manager.create_session("other").save_checkpoint("here", state={"n": 4})


@pytest.mark.row("S1-02", "T5")
def test_a_refused_save_leaves_neither_row_nor_content(
    manager: SessionManager, session: Session
) -> None:
    kept = session.save_checkpoint("here", state={"text": "old " * 1000})
    with pytest.raises(CheckpointExists):
        session.save_checkpoint("here", state={"text": "new " * 1000})
    assert [one.id for one in session.list_checkpoints()] == [kept.id]
    assert manager.gc(dry_run=True).chunks == 0
    assert session.load_checkpoint("here").state == {"text": "old " * 1000}


@pytest.mark.row("S1-48", "T5")
@pytest.mark.parametrize("name", ["a/b", "..", '"', "'; --", "../../x", "new\nline", "名前", " "])
def test_any_text_is_a_name_and_never_a_path(session: Session, name: str) -> None:
    session.save_checkpoint(name, state={"name": name})
    assert session.load_checkpoint(name).state == {"name": name}


@pytest.mark.row("S1-04", "S1-51", "S1-84")
def test_listing_is_newest_first_and_reads_no_payload(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        session.save_checkpoint(f"n{number}", state={"text": "x" * 2000, "n": number})
    other = manager.create_session("other")
    other.save_checkpoint("elsewhere", state={})

    def refuse(*_: object) -> None:
        raise AssertionError("payload was read")

    monkeypatch.setattr(manager.store, "read_payload", refuse)
    monkeypatch.setattr(manager.store, "read_chunks", refuse)
    listed = session.list_checkpoints()
    assert [one.name for one in listed] == ["n4", "n3", "n2", "n1", "n0"]
    assert [one.name for one in session.list_checkpoints(limit=2)] == ["n4", "n3"]
    assert session.list_checkpoints(limit=0) == []
    assert all(one.size_bytes > 2000 and one.checkpoint_type == "manual" for one in listed)
    assert all(not one.git_uncommitted and one.git_branch is None for one in listed)
    assert manager.create_session("empty").list_checkpoints() == []
    with pytest.raises(SessionNotFound):
        manager.get_session("there is no such session").list_checkpoints()


@pytest.mark.row("S0-11")
def test_checkpoints_are_found_by_metadata(session: Session) -> None:
    session.save_checkpoint("a", state={}, metadata={"k": "v", "deep": {"x": [1, 2.5, None]}})
    session.save_checkpoint("b", state={}, metadata={"k": "w"})
    assert session.save_checkpoint("c", state={}).metadata is None
    assert [one.name for one in session.list_checkpoints(metadata={"k": "v"})] == ["a"]
    assert session.get_checkpoint("a").metadata == {"k": "v", "deep": {"x": [1, 2.5, None]}}
    with pytest.raises(InputError):
        session.list_checkpoints(metadata={"k": {"$gt": ""}})


@pytest.mark.row("S0-08")
@pytest.mark.parametrize("kind", ["x", "", "Manual"])
def test_an_unknown_type_is_refused_before_any_write(session: Session, kind: str) -> None:
    with pytest.raises(ValueError, match="checkpoint_type"):
        session.save_checkpoint("n", state={}, checkpoint_type=kind)
    with pytest.raises(ValueError, match="retention_class"):
        session.save_checkpoint("n", state={}, retention_class=kind)
    assert session.list_checkpoints() == []


@pytest.mark.row("S0-07", "S0-08")
def test_the_three_types_and_their_classes(session: Session) -> None:
    kinds = {
        one.checkpoint_type: one.retention_class
        for one in (
            session.save_checkpoint("default", state={}),
            session.save_checkpoint("auto", state={}, checkpoint_type="auto"),
            session.save_checkpoint("failure", state={}, checkpoint_type="failure"),
        )
    }
    assert kinds == {"manual": "manual", "auto": "automatic", "failure": "failure"}
    with pytest.raises(InputError):
        session.save_checkpoint("n", state={}, checkpoint_type="manual", retention_class="feature")


@pytest.mark.row("S0-10")
def test_restored_at_is_set_by_loading_and_not_by_looking(session: Session) -> None:
    session.save_checkpoint("one", state={"n": 1})
    assert session.get_checkpoint("one").state == {"n": 1}
    assert session.latest_checkpoint().restored_at is None
    assert session.list_checkpoints()[0].restored_at is None
    first = session.load_checkpoint("one").restored_at
    second = session.load_checkpoint("one").restored_at
    assert first is not None
    assert second is not None
    assert second > first
    assert session.list_checkpoints()[0].restored_at == second
    restores = [line for line in session.logs() if "restored checkpoint one" in line.message]
    assert len(restores) == 2


@pytest.mark.row("S0-14")
def test_a_checkpoint_may_be_saved_as_not_resumable(
    manager: SessionManager, session: Session
) -> None:
    session.save_checkpoint("good", state={"n": 1})
    session.save_checkpoint("mid-call", state={"n": 2}, resumable=False)
    assert session.latest_checkpoint(resumable=True).name == "good"
    assert manager.resume_session(session.id).state == {"n": 1}
    with pytest.raises(NotResumable, match="mid-call"):
        manager.resume_session(session.id, checkpoint="mid-call")
    forced = manager.resume_session(session.id, checkpoint="mid-call", force=True)
    assert forced.state == {"n": 2}


@pytest.mark.row("S0-16")
def test_a_failing_block_leaves_a_failure_checkpoint_to_resume_from(
    manager: SessionManager, session: Session
) -> None:
    plan = {"plan": ["a"]}

    def risky() -> None:
        with session.guard("risky", state=plan) as before:
            assert before.retention_class == "automatic"
            plan["plan"].append("half done")
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        risky()
    [failure] = session.list_checkpoints(checkpoint_type="failure")
    assert failure.metadata is not None
    error = failure.metadata["error"]
    assert error["type"] == "ZeroDivisionError"
    assert "division" in error["message"]
    assert "test_checkpoints.py" in error["traceback"]
    assert manager.resume_session(session.id).state == {"plan": ["a"]}
    assert [line.level for line in session.logs()].count("error") == 1


def test_a_guarded_block_that_succeeds_keeps_its_checkpoint(session: Session) -> None:
    with session.guard("risky", state=lambda: {"n": 1}):
        pass
    assert [one.checkpoint_type for one in session.list_checkpoints()] == ["auto"]


def test_saving_again_with_the_same_id_stores_nothing_twice(session: Session) -> None:
    identity = new_id()
    one = session.save_checkpoint("n", state={"n": 1}, checkpoint_id=identity)
    two = session.save_checkpoint("n", state={"n": 1}, checkpoint_id=identity)
    assert one == two
    assert len(session.list_checkpoints()) == 1


def test_saving_an_outline_again_with_the_same_id_stores_nothing_twice(session: Session) -> None:
    lines = [f"line {number} {'x' * 50}" for number in range(500)]
    session.save_checkpoint(state={"log": lines})
    outline = session.outline()
    state = {"log": outline["log"].plus(["more"])}
    identity = new_id()
    one = session.save_checkpoint("n", state=state, checkpoint_id=identity)
    assert session.save_checkpoint("n", state=state, checkpoint_id=identity) == one
    assert one.state == {"log": [*lines, "more"]}
    with pytest.raises(CheckpointExists, match="another name or state"):
        session.save_checkpoint("n", state=outline, checkpoint_id=identity)


@pytest.mark.row("S1-07", "S1-49")
def test_completed_tasks_are_never_lost(session: Session, reopen: Reopen) -> None:
    def tasks(*pairs: tuple[str, str]) -> dict[str, Any]:
        listed = [
            {"id": name, "title": name.upper(), "status": status, "progress": 0.5, "result": None}
            for name, status in pairs
        ]
        return {"task_state": {"tasks": listed}}

    session.save_checkpoint("1", state=tasks(("a", "completed"), ("b", "in_progress")))
    assert session.get_checkpoint("1").progress == {"completed": 1, "total": 2, "percent": 50.0}
    session.save_checkpoint("2", state=tasks(("b", "completed"), ("c", "pending")))
    later = reopen().hold_session(session.id)
    later.save_checkpoint("3", state=tasks(("c", "in_progress"), ("d", "pending")))
    checkpoint = later.get_checkpoint("3")
    assert checkpoint.state == tasks(("c", "in_progress"), ("d", "pending"))
    assert [task["id"] for task in checkpoint.task_state["tasks"]] == ["a", "b", "c", "d"]
    assert checkpoint.progress == {"completed": 2, "total": 4, "percent": 50.0}
    empty = later.save_checkpoint("4")
    assert [task["id"] for task in empty.task_state["tasks"]] == ["a", "b"]
    assert empty.progress["percent"] == 100.0


@pytest.mark.row("S1-08")
def test_the_agents_history_keeps_its_order(session: Session, reopen: Reopen) -> None:
    history = [
        {"agent": f"agent-{n % 3}", "role": "tool", "output": {"n": n}, "at": datetime.now(UTC)}
        for n in range(200)
    ]
    session.save_checkpoint("h", state={"agent_history": history})
    loaded = reopen().resume_session(session.id).state
    assert loaded["agent_history"] == history


@pytest.mark.row("S1-09")
def test_memory_references_are_checked_on_resume(
    manager: SessionManager, session: Session, tmp_path: Path
) -> None:
    for name in ("same", "edited", "gone"):
        (tmp_path / name).write_text(name)
    refs = [
        {"key": name, "path": str(tmp_path / name), "hash": hash_file(tmp_path / name)}
        for name in ("same", "edited", "gone")
    ]
    refs += [{"key": "far", "uri": "https://example.org/doc"}]
    refs += [{"key": "by uri", "uri": (tmp_path / "same").as_uri()}]
    session.save_checkpoint("one", state={"memory_refs": refs})
    (tmp_path / "edited").write_text("other")
    (tmp_path / "gone").unlink()
    resumed = manager.resume_session(session.id)
    assert resumed.state["memory_refs"] == refs
    assert {report.key: report.status for report in resumed.check_memory_refs()} == {
        "same": "present", "edited": "changed", "gone": "missing", "far": "unverified",
        "by uri": "present",
    }  # fmt: skip


@pytest.mark.row("S0-13")
@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"conversation_history": [{}, "hello"]}, r"\$\.conversation_history\[1\]"),
        ({"variable_state": []}, r"\$\.variable_state"),
        ({"execution_context": 5}, r"\$\.execution_context"),
        ({"task_state": {"tasks": [{"id": "a", "status": "lost"}]}}, r"\$\.task_state\.tasks\[0\]"),
        ({"memory_refs": [{"key": "k"}]}, r"\$\.memory_refs\[0\]"),
        ({"open_files": [{"path": "a", "line": "3"}]}, r"\$\.open_files\[0\]\.line"),
        ({"context": {"token_usage": -1}}, r"\$\.context\.token_usage"),
    ],
)
def test_a_documented_key_of_the_wrong_shape_is_named(
    session: Session, state: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidState, match=path):
        session.save_checkpoint("n", state=state)
    assert session.list_checkpoints() == []


@pytest.mark.row("S1-23")
def test_what_cannot_be_stored_is_named_and_nothing_is_written(session: Session) -> None:
    good = session.save_checkpoint("good", state={"n": 1})
    with pytest.raises(StateNotSerializable, match=r"\$\.tools\[3\]\.client") as caught:
        session.save_checkpoint("bad", state={"tools": [1, 2, 3, {"client": object()}]})
    assert caught.value.path == "$.tools[3].client"
    assert [one.id for one in session.list_checkpoints()] == [good.id]
    assert session.save_checkpoint("next", state={"f": math.inf}).state == {"f": math.inf}


def test_caller_mutation_after_a_save_changes_nothing(session: Session) -> None:
    state = {"items": [{"n": n, "text": "x" * 100} for n in range(50)]}
    session.save_checkpoint("one", state=state)
    state["items"][7]["n"] = "changed"
    state["items"].append({"n": 50, "text": "new"})
    two = session.save_checkpoint("two", state=state)
    assert session.get_checkpoint("one").state["items"][7]["n"] == 7
    assert two.state == state


def test_protected_checkpoints_need_force(session: Session) -> None:
    session.save_checkpoint("pin", state={}, pinned=True)
    session.save_checkpoint("feature", state={}, retention_class="feature")
    session.save_checkpoint("plain", state={})
    for name in ("pin", "feature"):
        with pytest.raises(CheckpointProtected):
            session.delete_checkpoint(name)
        session.delete_checkpoint(name, force=True)
    session.delete_checkpoint("plain")
    assert session.list_checkpoints() == []


@pytest.mark.row("S3-37")
def test_an_expired_checkpoint_is_not_returned(session: Session) -> None:
    session.save_checkpoint("gone", state={}, expires_in=timedelta(microseconds=1))
    session.save_checkpoint("stays", state={}, expires_in=timedelta(hours=1))
    assert [one.name for one in session.list_checkpoints()] == ["stays"]
    with pytest.raises(CheckpointNotFound):
        session.get_checkpoint("gone")


@pytest.mark.row("S1-100")
def test_automatic_checkpoints_keep_five_and_session_ones_three(session: Session) -> None:
    session.save_checkpoint("mine", state={})
    for number in range(9):
        session.save_checkpoint(f"auto {number}", state={"n": number}, retention_class="automatic")
        session.save_checkpoint(f"start {number}", state={"n": number}, retention_class="session")
    kept = [one.name for one in session.list_checkpoints()]
    assert [name for name in kept if name.startswith("auto")] == [
        f"auto {n}" for n in (8, 7, 6, 5, 4)
    ]
    assert [name for name in kept if name.startswith("start")] == [f"start {n}" for n in (8, 7, 6)]
    assert "mine" in kept


@pytest.mark.row("S1-100")
def test_a_dry_run_of_prune_explains_itself(manager: SessionManager, session: Session) -> None:
    for number in range(6):
        session.save_checkpoint(f"s{number}", state={}, retention_class="step")
    session.save_checkpoint("mine", state={})
    planned = manager.prune(dry_run=True, keep=2)
    reasons = {one.record.name: (one.keep, one.reason) for one in planned}
    assert reasons["mine"][0]
    assert reasons["s0"] == (False, "number 6 of class step, which keeps 2")
    assert len(session.list_checkpoints()) == 7
    manager.prune(keep=2)
    assert [one.name for one in session.list_checkpoints()] == ["mine", "s5", "s4"]


def test_prune_names_what_has_expired_pinned_or_not(
    manager: SessionManager, session: Session
) -> None:
    session.save_checkpoint("kept", state={})
    for name, pinned in (("brief", False), ("pinned", True)):
        session.save_checkpoint(name, state={}, pinned=pinned, expires_in=timedelta(seconds=0.2))
    while len(manager.store.list_expired()) < 2:
        sleep(0.05)
    for dry_run in (True, False):
        decisions = manager.prune(dry_run=dry_run)
        told = [(one.record.name, one.keep) for one in decisions]
        assert told == [("pinned", False), ("brief", False), ("kept", True)]
        assert decisions[0].reason.startswith("expired at")
    assert manager.store.list_expired() == []
    assert [one.record.name for one in manager.prune()] == ["kept"]


def test_prune_says_what_it_left_because_it_is_being_restored(
    manager: SessionManager, session: Session
) -> None:
    for number in range(4):
        session.save_checkpoint(f"n{number}", state={}, retention_class="step")
    oldest = session.get_checkpoint("n0").id
    manager.store.mark_restoring(oldest, seconds=60)
    decisions = manager.prune(keep=2)
    assert [(one.record.name, one.keep) for one in decisions] == [
        ("n3", True), ("n2", True), ("n1", False), ("n0", True),
    ]  # fmt: skip
    assert decisions[-1].reason.startswith("being restored")
    assert [one.name for one in session.list_checkpoints()] == ["n3", "n2", "n0"]


@pytest.mark.parametrize("how", ["deleted", "quarantined"])
def test_prune_plans_again_when_the_newest_goes_meanwhile(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    saved = [
        session.save_checkpoint(f"n{number}", state={}, retention_class="step")
        for number in range(4)
    ]

    def happens() -> None:
        if how == "deleted":
            session.delete_checkpoint("n3")
        else:
            manager.store.quarantine([saved[3].id])

    meanwhile(manager.store, happens, monkeypatch)
    told = [(one.record.name, one.keep) for one in manager.prune(keep=1)]
    assert session.latest_checkpoint(resumable=True).name == "n2"
    assert told[-3:] == [("n2", True), ("n1", False), ("n0", False)]
    assert [one.name for one in session.list_checkpoints() if one.name != "n3"] == ["n2"]


def test_prune_tells_all_that_it_removed_in_several_plans(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = manager.create_session("implementer")
    for number in range(3):
        for one in (session, other):
            one.save_checkpoint(f"n{number}", state={}, retention_class="step")
    meanwhile(manager.store, lambda: session.delete_checkpoint("n2"), monkeypatch)
    told = [(one.record.session_id, one.record.name, one.keep) for one in manager.prune(keep=1)]
    assert told == [
        (other.id, "n2", True), (other.id, "n1", False), (session.id, "n1", True),
        (other.id, "n0", False), (session.id, "n0", False),
    ]  # fmt: skip
    assert [one.name for one in other.list_checkpoints()] == ["n2"]


@pytest.mark.parametrize(
    "bounds",
    [{"keep": 1}, {"max_age": timedelta(0)}, {"max_bytes": 0}],
    ids=["keep", "max_age", "max_bytes"],
)
def test_prune_keeps_the_newest_good_checkpoint_below_damaged_ones(
    manager: SessionManager, session: Session, bounds: dict[str, Any]
) -> None:
    names = ["old", "good", "bad", "worse"]
    saved = [session.save_checkpoint(one, state={}, retention_class="step") for one in names]
    manager.store.quarantine([one.id for one in saved[2:]])
    session.close()
    kept = [one.record.name for one in manager.prune(**bounds) if one.keep]
    assert "good" in kept
    assert "old" not in kept
    assert manager.resume_session(session.id).latest_checkpoint(resumable=True).name == "good"


def test_verify_reads_everything_back(manager: SessionManager, session: Session) -> None:
    for number in range(3):
        session.save_checkpoint(f"n{number}", state={"text": f"{number} " * 5000})
    counted: list[int] = []
    report = manager.verify(progress=counted.append)
    assert (report.ok, report.checked, counted) == (True, 3, [1, 2, 3])


def test_what_is_no_text_names_no_checkpoint(manager: SessionManager, session: Session) -> None:
    for look in (manager.get_checkpoint, session.get_checkpoint):
        with pytest.raises(InvalidIdentifier, match="checkpoint"):
            look(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bounds",
    [
        {"keep": "3"},
        {"keep": 0},
        {"keep": -1},
        {"max_age": 7},
        {"max_age": timedelta(days=-7)},
        {"max_bytes": "1 GB"},
        {"max_bytes": -1},
    ],
    ids=repr,
)
def test_bounds_that_mean_nothing_prune_nothing(
    manager: SessionManager, session: Session, bounds: dict[str, Any]
) -> None:
    for number in range(2):
        session.save_checkpoint(f"n{number}", state={"n": number}, retention_class="automatic")
    with pytest.raises(InvalidFilter, match=next(iter(bounds))):
        manager.prune(**bounds)
    assert [one.name for one in session.list_checkpoints()] == ["n1", "n0"]


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("broken"), "broken"),
        (ValueError(), "ValueError"),
        ("broken", "broken"),
        (ValueError("half \udcff"), "half \\udcff"),
        (ValueError("a\0b"), "a\\0b"),
        ("a\0b", "a\\0b"),
        (Unreadable(), "(its message cannot be read)"),
    ],
    ids=ascii,
)
def test_a_session_fails_with_whatever_error(
    session: Session, error: BaseException | str, said: str
) -> None:
    session.fail(error)
    assert session.status == "failed"
    assert [line.message for line in session.logs(level="error")] == [said]


def test_a_failure_is_an_exception(session: Session) -> None:
    with pytest.raises(InvalidFilter, match="exception"):
        session.record_failure("boom")  # type: ignore[arg-type]
    assert session.list_checkpoints() == []


def test_another_state_under_a_taken_id_is_refused(session: Session) -> None:
    identity = new_id()
    first = session.save_checkpoint("n1", state={"n": 1}, checkpoint_id=identity)
    for name, state in (("n2", {"n": 1}), ("n1", {"n": 1.0}), ("n1", {"n": 2})):
        with pytest.raises(CheckpointExists, match="another name or state"):
            session.save_checkpoint(name, state=state, checkpoint_id=identity)
    assert session.list_checkpoints() == [first]


def test_a_completed_session_takes_no_more_checkpoints(session: Session) -> None:
    session.save_checkpoint("last", state={"n": 1})
    session.complete()
    with pytest.raises(IllegalTransition, match="fork"):
        session.save_checkpoint("more", state={"n": 2})
    assert session.fork().save_checkpoint("more", state={"n": 2}).state == {"n": 2}


def test_a_guard_survives_inner_guards_and_changes_of_its_state(session: Session) -> None:
    def risky() -> None:
        with session.guard("outer", state={"n": [1]}) as outer:
            outer.state["n"].append("changed")
            for number in range(7):
                with session.guard(f"inner {number}", state={"inner": number}):
                    pass
            raise ValueError("bad \ud800 text \0 here")

    with pytest.raises(ValueError, match="bad"):
        risky()
    [failure] = session.list_checkpoints(checkpoint_type="failure")
    assert failure.state == {"n": [1]}
    assert session.state == session.latest_checkpoint().state == {"n": [1]}
    assert failure.metadata is not None
    assert failure.metadata["error"]["message"] == "bad \\ud800 text \\0 here"


def test_the_state_to_go_on_from_survives_the_loss_of_its_checkpoint(session: Session) -> None:
    session.save_checkpoint("one", state={"n": 1})
    session.save_checkpoint("two", state={"n": 2})
    session.delete_checkpoint("two")
    assert session.state == {"n": 1}
    session.delete_checkpoint("one")
    session.save_checkpoint("mid-call", state={}, resumable=False)
    session.delete_checkpoint("mid-call")
    with pytest.raises(CheckpointNotFound, match="no resumable checkpoint"):
        _ = session.state


@pytest.mark.parametrize("state", [[1], "abc", [("a", 1)], 5, b"x"])
def test_a_state_that_is_no_dict_is_refused(session: Session, state: Any) -> None:
    with pytest.raises(StateNotSerializable, match="must be a dict"):
        session.save_checkpoint("n", state=state)


def test_a_dataclass_is_a_state_too(session: Session) -> None:
    @dataclass
    class Plan:
        steps: list[str]

    plan: Any = Plan(["a"])
    assert session.save_checkpoint("n", state=plan).state == {"steps": ["a"]}


@pytest.mark.parametrize("span", [timedelta.max, 5, timedelta(0), timedelta(seconds=-5)])
def test_an_impossible_expiry_is_refused(session: Session, span: Any) -> None:
    with pytest.raises(InputError, match="expires_in"):
        session.save_checkpoint("n", state={}, expires_in=span)
    assert session.list_checkpoints() == []


def test_a_task_completed_by_an_enum_is_carried_too(session: Session) -> None:
    class Status(Enum):
        DONE = "completed"

    session.save_checkpoint("1", state={"task_state": [{"id": "a", "status": Status.DONE}]})
    later = session.save_checkpoint("2", state={"task_state": [{"id": "b"}]})
    assert later.progress == {"completed": 1, "total": 2, "percent": 50.0}


def test_a_damaged_checkpoint_does_not_keep_the_next_from_being_saved(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.create_session("a")
        session.save_checkpoint("good", state={"n": 1})
        damaged = session.save_checkpoint("damaged", state={"text": "content " * 1000})
    with apsw.Connection(str(path)) as database:
        database.execute("UPDATE chunks SET codec = 0, data = zeroblob(9)")
    database.close()
    with SessionManager.open(path, workspace=False) as manager:
        session = manager.hold_session(session.id)
        saved = session.save_checkpoint("next", state={"text": "content " * 1000})
        assert saved.parent_id == damaged.id
        assert [line.level for line in session.logs()] == ["warning"]
