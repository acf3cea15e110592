"""``holdfast fork``."""

from __future__ import annotations

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine


@pytest.fixture
def session_id(cli: CommandLine) -> str:
    saved = cli.save("one", {"n": 1}, "--task", "Port it")
    cli.save("two", {"n": 2}, "--session", saved["session_id"])
    found: str = saved["session_id"]
    return found


def test_a_second_line_begins_at_the_checkpoint_named(
    cli: CommandLine, session_id: str, manager: SessionManager
) -> None:
    made = cli.json("fork", "one", "--as", "second", "--task", "Another way")["session"]
    assert (made["id"], made["task_description"]) == ("second", "Another way")
    fork = manager.get_session("second")
    assert fork.state == {"n": 1}
    assert manager.get_session(session_id).state == {"n": 2}
    with manager.resume_session("second") as held:
        held.save_checkpoint("three", state={"n": 3})
    assert manager.get_session(session_id).state == {"n": 2}


def test_the_hint_can_be_typed_whatever_the_fork_is_called(
    cli: CommandLine, session_id: str
) -> None:
    assert "holdfast rollback --session 'a b/c'" in cli.ok("fork", "--as", "a b/c")


def test_it_takes_the_latest_checkpoint_and_the_task_by_default(
    cli: CommandLine, session_id: str, manager: SessionManager
) -> None:
    out = cli.ok("fork", "--session", session_id).splitlines()
    made = out[0].split()[1]
    assert out[0].endswith("from two")
    assert f"holdfast rollback --session {made}" in out[1]
    assert manager.get_session(made).state == {"n": 2}
    assert manager.get_session(made).task_description == "Port it"


def test_a_completed_session_can_be_forked(cli: CommandLine, session_id: str) -> None:
    cli.ok("complete", session_id)
    assert cli.json("fork", "--session", session_id)["session"]["status"] == "active"


def test_what_is_not_there_or_taken_is_refused(cli: CommandLine, session_id: str) -> None:
    assert cli("fork", "never", "--json").error["code"] == "checkpoint_not_found"
    assert cli("fork", "one", "--as", session_id, "--json").error["code"] == "session_exists"
    assert cli("fork", "one", "--as", "a\0b", "--json").code == 2
    assert len(cli.json("sessions")["sessions"]) == 1
