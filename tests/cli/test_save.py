import json
import os
import re
import stat
from pathlib import Path

import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine, run_process
from tests.workspace.pictures import commit_all, git, make_repository, picture_of_git


def test_a_saved_state_can_be_loaded_with_the_library(
    cli: CommandLine, manager: SessionManager
) -> None:
    state = {"step": 1, "text": "é\u0000", "big": 10**30, "nested": [{"a": None}]}
    saved = cli.save("first", state, "--session", "mine", "--metadata", "a=b=c", "--task", "Do it")
    session = manager.get_session("mine")
    assert session.task_description == "Do it"
    assert session.load_checkpoint("first").state == state
    assert saved["id"] == session.latest_checkpoint().id
    assert saved["metadata"] == {"a": "b=c"}
    assert saved["checkpoint_type"] == "manual"


def test_a_state_is_read_from_a_file(cli: CommandLine) -> None:
    Path("state.json").write_text('{"step": 3}')
    cli.ok("save", "x", "--state", "state.json", "--agent-type", "tester")
    assert cli.json("show")["checkpoint"]["state"] == {"step": 3}


def test_people_are_told_what_was_saved_where(cli: CommandLine) -> None:
    out = cli.ok("save", "first", "--agent-type", "tester", "--session", "mine")
    assert out.startswith("saved first  ")
    assert out.endswith("in session mine\n")


def test_without_a_state_the_latest_one_is_saved_again(cli: CommandLine) -> None:
    cli.save("first", {"step": 1})
    cli.ok("save", "second")
    assert cli.json("show", "second")["checkpoint"]["state"] == {"step": 1}


def test_what_show_prints_can_be_saved_again_exactly(
    cli: CommandLine, manager: SessionManager
) -> None:
    from datetime import date

    state = {"day": date(2026, 1, 31), "odd": {"$t": "mine"}, "set": {1, 2}, "nan": float("inf")}
    session = manager.create_session("x")
    session.save_checkpoint("first", state=state)
    printed = cli.json("show", "first")["checkpoint"]["state"]
    cli.save("second", printed, "--session", session.id)
    assert session.get_checkpoint("second").state == state


def test_saving_goes_to_the_newest_session_that_is_not_completed(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("x", session_id="open")
    manager.create_session("x", session_id="done").complete()
    assert cli.json("save", "a")["checkpoint"]["session_id"] == "open"


def test_a_database_that_saving_creates_is_private_too(cli: CommandLine) -> None:
    cli.save("first", {})
    home = cli.project / ".agents"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "sessions.db").stat().st_mode) == 0o600


def test_agent_type_starts_a_session_only_when_there_is_none(cli: CommandLine) -> None:
    first = cli.json("save", "a", "--agent-type", "one")["checkpoint"]
    again = cli.json("save", "b", "--agent-type", "one")["checkpoint"]
    other = cli.json("save", "c", "--agent-type", "two")["checkpoint"]
    assert first["session_id"] == again["session_id"] != other["session_id"]


def test_without_a_session_saving_says_how_to_start_one(cli: CommandLine) -> None:
    cli.ok("init")
    answer = cli("save", "x")
    assert answer.code == 3
    assert "holdfast save --agent-type NAME" in answer.err


def test_a_taken_name_is_refused_unless_overwritten(cli: CommandLine) -> None:
    cli.save("first", {"step": 1})
    answer = cli("save", "first", "--json")
    assert answer.code == 4
    assert answer.error["code"] == "checkpoint_exists"
    cli.save("first", {"step": 2}, "--overwrite")
    assert cli.json("show", "first")["checkpoint"]["state"] == {"step": 2}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is empty"),
        (b"{", "is not JSON"),
        (b"[1]", "must hold a JSON object, not list"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1e999}', "1e999 does not fit"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b"\xff\xfe", "is not UTF-8"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": {"$t": "pickle", "v": 1}}', "unknown tag"),
    ],
)
def test_a_bad_document_is_refused_and_nothing_is_saved(
    cli: CommandLine, text: bytes, reason: str
) -> None:
    cli.ok("init")
    answer = cli("save", "x", "--agent-type", "t", "--state", "-", "--json", stdin=text)
    assert answer.code == 2
    assert answer.error["code"] == "invalid_state"
    assert reason in answer.error["message"]
    assert cli.json("sessions")["sessions"] == []


def test_a_documented_key_of_the_wrong_shape_is_named(cli: CommandLine) -> None:
    bad = json.dumps({"conversation_history": "hello"})
    answer = cli("save", "x", "--agent-type", "t", "--state", "-", stdin=bad)
    assert answer.code == 2
    assert "$.conversation_history must be a list" in answer.err


def test_names_are_data_and_never_sql_or_paths(cli: CommandLine) -> None:
    names = ["x'); DROP TABLE sessions; --", "../../etc/passwd", "%_\"'`", "-- name", "$(reboot)"]
    for name in names:
        cli.save(name, {"name": name})
    for name in names:
        assert cli.json("show", "--", name)["checkpoint"]["state"] == {"name": name}
    assert len(cli.json("log")["checkpoints"]) == len(names)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--metadata", "novalue"), "'novalue' is not KEY=TEXT"),
        (("--metadata", "=x"), "'=x' is not KEY=TEXT"),
        (("--metadata", "a=1", "--metadata", "a=2"), "'a' is given twice"),
        (("--class", "forever"), "'forever' is not one of"),
        (("--type", "failure", "--class", "feature"), "belongs to type"),
        (("--state", "missing.json"), "missing.json"),
        (("n" * 513,), "longer than 512 bytes"),
        (("",), "must not be empty"),
    ],
)
def test_bad_input_is_refused_with_its_reason(
    cli: CommandLine, arguments: tuple[str, ...], reason: str
) -> None:
    answer = cli("save", "--agent-type", "t", *arguments)
    assert answer.code == 2
    assert reason in answer.err


@pytest.mark.row("T7")
def test_files_are_captured_and_the_repository_is_only_looked_at(cli: CommandLine) -> None:
    make_repository(cli.project)
    Path("a").write_text("committed\n")
    Path(".gitignore").write_text(".agents/\n")
    commit_all(cli.project)
    Path("a").write_text("staged\n")
    git(cli.project, "add", "a")
    Path("a").write_text("dirty\n")
    before = picture_of_git(cli.project)
    prompt = "say \"hi\"\n'there' $(reboot) `x`"
    saved = cli.save("before-edit", {"prompt": prompt}, "-m", prompt)
    assert picture_of_git(cli.project) == before
    Path("a").write_text("broken\n")
    assert cli.ok("show", "before-edit:a") == "dirty\n"
    assert (saved["git_branch"], saved["git_uncommitted"]) == ("main", True)
    assert saved["files"]["problem"] is None
    assert cli.json("show")["checkpoint"]["description"] == prompt


def test_files_can_be_left_alone_or_named(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("src").mkdir()
    Path("src/a").write_text("1")
    Path("b").write_text("1")
    cli.save("first", {})
    Path("src/a").write_text("2")
    Path("b").write_text("2")
    assert cli.save("bare", {}, "--no-files")["workspace_commit"] is None
    monkeypatch.chdir("src")
    cli.save("told", {}, "--path", "a")
    assert cli.ok("show", "told:src/a") == "2"
    assert cli.ok("show", "told:b") == "1"
    assert cli("save", "--no-files", "--path", "a").code == 2
    answer = cli("save", "--path", "/etc/passwd", "--json")
    assert (answer.code, answer.error["code"]) == (2, "invalid_identifier")
    answer = cli("save", "--path", "b", "--json")
    assert (answer.code, answer.error["code"]) == (2, "invalid_identifier")
    assert "has 'src/b'" in answer.error["message"]
    assert len(cli.json("log")["checkpoints"]) == 3
    Path("a").unlink()
    cli.save("less", {}, "--path", "a")
    assert cli("show", "less:src/a").code == 3


def test_what_is_skipped_is_said_with_the_reason(cli: CommandLine) -> None:
    for number in range(7):
        os.mkfifo(f"pipe-{number}")
    Path("kept").touch()
    answer = cli("save", "first", "--agent-type", "t")
    assert answer.code == 0
    lines = answer.err.splitlines()
    assert len(lines) == 6
    assert re.fullmatch(r"skipped pipe-0: .+", lines[0])
    assert lines[-1] == "… and 2 more; holdfast show --skipped lists them"
    found = cli.json("save", "second")["checkpoint"]["files"]
    assert (found["skipped_count"], found["skipped"][6]["path"]) == (7, "pipe-6")


def test_without_git_the_state_is_saved_and_the_reason_is_said(cli: CommandLine) -> None:
    arguments = ("save", "first", "--agent-type", "t")
    done = run_process(*arguments, cwd=cli.project, PATH="/nowhere")
    assert done.returncode == 0
    assert b"warning: without files: " in done.stderr
    assert b"git" in done.stderr
    (saved,) = cli.json("log")["checkpoints"]
    assert saved["workspace_commit"] is None
    assert "Files       not captured: " in cli.ok("show")


def test_where_other_commands_look_at_another_session_the_one_saved_to_is_named(
    cli: CommandLine, manager: SessionManager
) -> None:
    older = manager.create_session("x", session_id="older")
    older.save_checkpoint("first")
    assert "--session" not in cli.ok("save", "second")
    manager.create_session("x", session_id="newer").complete()
    said = cli.ok("save", "third").splitlines()
    assert said[1:3] == [
        "in session older",
        "show, diff and rollback look at session newer unless told: --session older",
    ]
    refused = cli("rollback", "third", "--dry-run")
    assert refused.code == 3
    assert "session newer has no checkpoint 'third'" in refused.err
    assert "session older has one: add --session older" in refused.err
    # Whoever names a session means that one, and what none has is in none.
    assert "--session older" not in cli("show", "third", "--session", "newer").err
    assert "--session" not in cli("show", "fourth").err


@pytest.mark.parametrize(("command", "which"), [("save", "unfinished"), ("diff", "created")])
def test_the_help_says_which_session_is_meant(cli: CommandLine, command: str, which: str) -> None:
    help_of_session = cli.ok(command, "--help").partition("--session")[2].partition(" --")[0]
    assert which in help_of_session
