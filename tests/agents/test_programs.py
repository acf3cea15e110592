"""The real programs call us: their work is saved, taken back, and told of to whoever goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.conftest import Desk
from tests.agents.dialects import Edit, Hold, Read, Say, Shell, Write
from tests.agents.programs import Program


def test_the_program_is_the_one_that_is_named(program: Program) -> None:
    package = json.loads((Path(__file__).parent / "package.json").read_text())
    versions = [str(one) for one in package["dependencies"].values()]

    assert any(version in program.version() for version in versions)


def test_its_work_is_saved_and_what_its_shell_wrote_can_be_taken_back(desk: Desk) -> None:
    notes, fresh = desk.project / "notes.txt", desk.project / "fresh.txt"
    shell = desk.project / "shell.txt"

    desk.work(
        [
            Shell("echo from-shell > shell.txt"),
            Read(str(notes)),
            Edit(str(notes), "two", "three"),
            Write(str(fresh), "fresh\n"),
            Say("All done."),
        ]
    )

    (session,) = desk.holdfast("sessions")["sessions"]
    assert session["agent_type"] == desk.program.agent
    assert session["task_description"] == "Do the work"
    assert session["status"] == "completed"
    assert (shell.read_text(), notes.read_text()) == ("from-shell\n", "one\nthree\n")

    start, *between, stop, end = desk.checkpoints()
    assert start["retention_class"] == "session"
    assert start["description"].startswith("session starts")
    before = [one for one in between if one["retention_class"] == "automatic"]
    assert any("notes.txt" in one["description"] for one in before)
    # What the agent said it wrote is in the checkpoint of the turn's end, with the conversation.
    assert "fresh.txt" in stop["description"]
    state = desk.holdfast("show", stop["name"])["checkpoint"]["state"]
    assert "All done." in str(state)
    assert "echo from-shell" in str(state)
    assert end["description"].startswith("session ends")
    assert all(one["workspace_commit"] for one in (start, *before, stop, end))

    desk.holdfast("rollback", start["name"], "--yes")
    assert not shell.exists()
    assert not fresh.exists()
    assert notes.read_text() == "one\ntwo\n"
    desk.holdfast("undo", "--yes")
    assert shell.read_text() == "from-shell\n"
    assert fresh.read_text() == "fresh\n"
    assert notes.read_text() == "one\nthree\n"


def test_what_was_there_before_a_tool_changed_it_is_kept(desk: Desk) -> None:
    notes = desk.project / "notes.txt"

    desk.work([Shell("echo mine >> notes.txt"), Shell("rm notes.txt"), Say("Gone.")])

    assert not notes.exists()
    (kept,) = [
        one["name"]
        for one in desk.checkpoints()
        if one["retention_class"] == "automatic" and "rm notes.txt" in one["description"]
    ]
    desk.holdfast("rollback", kept, "--path", "notes.txt", "--yes")
    assert notes.read_text() == "one\ntwo\nmine\n"


def test_after_a_kill_a_new_start_is_told_what_was_under_way(desk: Desk) -> None:
    desk.work_until_killed([Shell("echo partial > partial.txt"), Hold()])
    assert (desk.project / "partial.txt").exists()

    desk.work([Say("I see.")])

    assert "# Resume" in desk.told()
    assert "partial.txt" in desk.told()
    after, killed = desk.holdfast("sessions")["sessions"]
    assert killed["status"] == "interrupted"
    assert after["continues_id"] == killed["id"]


def test_after_a_kill_its_own_way_to_go_on_joins_the_session(desk: Desk) -> None:
    desk.work_until_killed([Shell("echo partial > partial.txt"), Hold()])

    # How many tool results it has kept over the kill is the program's own affair.
    desk.work([Say("Back again.")] * 5, go_on=True)

    assert "# Resume" in desk.told()
    assert "Do the work" in desk.told()
    (session,) = desk.holdfast("sessions")["sessions"]
    assert session["status"] == "completed"
    stop = desk.checkpoints()[-2]
    assert "Back again." in str(desk.holdfast("show", stop["name"])["checkpoint"]["state"])


def test_hooks_of_the_user_work_in_every_project_until_they_are_removed(desk: Desk) -> None:
    agent = desk.program.agent
    desk.holdfast("hooks", "uninstall", agent)
    desk.work([Say("Nobody looks.")])
    assert desk.holdfast("sessions")["sessions"] == []

    desk.holdfast("hooks", "install", agent, "--scope", "user")
    desk.program.accept_hooks()
    desk.work([Say("Somebody looks.")])

    assert len(desk.holdfast("sessions")["sessions"]) == 1
    (status,) = desk.holdfast("hooks", "status", agent, "--scope", "user")["hooks"]
    assert status["status"] == "installed"


@pytest.mark.parametrize("agent", ["codex", "gemini"], indirect=True)
def test_hooks_that_nobody_trusts_do_not_run(desk: Desk) -> None:
    """What `hooks install` warns of; should this change, the warning has to go."""
    desk.program.forget_trust()

    desk.work([Say("Nobody looks.")])

    assert desk.holdfast("sessions")["sessions"] == []
