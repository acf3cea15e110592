"""`holdfast delete` asks, and deletes one checkpoint and nothing else."""

from __future__ import annotations

import json

import apsw
import pytest

from holdfast import SessionManager
from holdfast.errors import CheckpointBusy, LeaseLost
from tests.cli.conftest import CommandLine, run_process
from tests.cli.terminal import on_terminal


def names(cli: CommandLine, *arguments: str) -> list[str]:
    return [one["name"] for one in cli.json("log", *arguments)["checkpoints"]]


def test_one_checkpoint_goes_and_the_others_stay(cli: CommandLine) -> None:
    for number in range(3):
        cli.save(f"n{number}", {"n": number})
    assert cli.ok("delete", "n1", "--yes") == "deleted n1\n"
    assert names(cli) == ["n2", "n0"]
    assert cli.json("verify", "--deep")["verify"]["ok"]
    assert cli("delete", "n1", "--yes").code == 3
    gone = cli.json("delete", cli.json("show", "n0")["checkpoint"]["id"], "--yes")["deleted"]
    assert (gone["name"], names(cli)) == ("n0", ["n2"])


def test_it_asks_where_somebody_is_and_else_refuses(cli: CommandLine) -> None:
    cli.save("one", {})
    for arguments in (("one",), ("one", "--json")):
        refused = cli("delete", *arguments)
        assert (refused.code, "nobody to ask" in refused.err) == (2, True)
    assert "nothing was changed" in on_terminal(
        "delete", "one", cwd=cli.project, typed="n\n", code=1
    )
    assert names(cli) == ["one"]
    drawn = on_terminal("delete", "one", cwd=cli.project, typed="y\n", NO_COLOR="1")
    assert "deleted" in drawn
    assert names(cli) == []


def test_an_id_from_elsewhere_cannot_command_the_terminal(cli: CommandLine) -> None:
    cli.save("one", {})
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.pragma("ignore_check_constraints", True)
    database.execute("UPDATE session_checkpoints SET id = ?", ("\x1b]0;title\x07",))
    database.close()
    drawn = on_terminal("delete", "one", cwd=cli.project, typed="n\n", code=1)
    assert "\\x1b]0;title" in drawn
    assert "\x1b]0;title" not in drawn


def test_one_whose_row_cannot_be_read_is_named_and_can_be_given_up(cli: CommandLine) -> None:
    for number in range(3):
        cli.save(f"n{number}", {"n": number})
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET created_at = 'x' WHERE name > 'n0'")
    database.close()
    listed = cli("log", "--json")
    found = json.loads(listed.out)
    damaged = [one["id"] for one in found["unreadable"]]
    assert ([one["name"] for one in found["checkpoints"]], len(damaged)) == (["n0"], 2)
    assert all(f"unreadable checkpoint {one}" in listed.err for one in damaged)
    assert "ok  1 session" in cli.ok("status")
    assert "would remove 0 checkpoints, keeping 1" in cli.ok("prune", "--dry-run")
    gone = cli.json("delete", damaged[0], "--yes")["deleted"]
    assert gone["id"] == damaged[0]
    assert cli.ok("delete", "n2", "--yes") == "deleted n2\n"
    assert cli.json("verify", "--deep")["verify"]["ok"]


def test_what_is_protected_needs_force(cli: CommandLine, manager: SessionManager) -> None:
    session = manager.create_session("tester")
    session.save_checkpoint("kept", state={}, pinned=True)
    session.close()
    refused = cli("delete", "kept", "--yes")
    assert (refused.code, "pinned" in refused.err) == (4, True)
    cli.ok("delete", "kept", "--force", "--yes")
    assert "kept" not in names(cli, session.id)


def test_a_session_in_use_is_left_alone_unless_taken_over(
    cli: CommandLine, manager: SessionManager
) -> None:
    session = manager.create_session("tester")
    session.save_checkpoint("one", state={})
    refused = run_process("delete", "one", "--yes", cwd=cli.project)
    assert refused.returncode == CheckpointBusy.exit_code, refused.stderr
    assert names(cli) == ["one"]
    taken = run_process("delete", "one", "--yes", "--take-over", cwd=cli.project)
    assert taken.returncode == 0, taken.stderr
    assert names(cli) == []
    with pytest.raises(LeaseLost):
        session.save_checkpoint("two", state={})
