import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.cli.output import when
from holdfast.hooks.authorship import HOOK
from tests.cli.conftest import CommandLine
from tests.workspace.pictures import git


def test_checkpoints_are_listed_newest_first_under_their_column_names(cli: CommandLine) -> None:
    cli.save("first", {"step": 1}, "--class", "feature", "--pin")
    cli.save("second", {"step": 2})
    found = cli.json("log")["checkpoints"]
    assert [one["name"] for one in found] == ["second", "first"]
    assert found[0]["parent_id"] == found[1]["id"]
    assert found[1]["retention_class"] == "feature"
    assert found[1]["pinned"] is True
    assert "state" not in found[0]
    assert [one["name"] for one in cli.json("log", "--limit", "1")["checkpoints"]] == ["second"]


def test_the_session_is_the_most_recently_created_one_or_the_one_named(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("x", session_id="older-session").save_checkpoint("old", state={})
    manager.create_session("x", session_id="newer-session").save_checkpoint("new", state={})
    assert [one["name"] for one in cli.json("log")["checkpoints"]] == ["new"]
    assert [one["name"] for one in cli.json("log", "older-session")["checkpoints"]] == ["old"]


def test_people_see_branch_dirty_flag_and_size(cli: CommandLine) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "-q", "-b", "topic"], cwd=cli.project, check=True)
    cli.ok("init")
    cli.save("dirty", {"text": "x" * 5000}, "-m", "half way")
    subprocess.run([*git, "add", ".gitignore"], cwd=cli.project, check=True)
    subprocess.run([*git, "commit", "-qm", "x"], cwd=cli.project, check=True)
    cli.save("clean", {"text": "x" * 5000})
    header, clean, dirty = cli.ok("log").splitlines()
    assert header.split()[:4] == ["NAME", "TYPE", "SAVED", "BRANCH"]
    assert "topic*" in dirty
    assert "5.0 KB" in dirty
    assert dirty.endswith("half way")
    assert "topic " in clean


def test_an_unknown_session_is_not_found_and_near_ones_are_named(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("x", session_id="research-2026")
    answer = cli("log", "reserch-2026")
    assert answer.code == 3
    assert answer.err.startswith("error: no session 'reserch-2026'; near matches: 'research-2026'")
    assert cli("log", "reserch-2026", "--json").error["code"] == "session_not_found"


def test_an_ambiguous_beginning_lists_what_it_fits(
    cli: CommandLine, manager: SessionManager
) -> None:
    ids = [f"01a1dd1f-1111-7000-8000-00000000000{n}" for n in (1, 2)]
    for session_id in ids:
        manager.create_session("x", session_id=session_id)
    answer = cli("log", "01a1dd1f", "--json")
    assert answer.code == 3
    assert answer.error["code"] == "ambiguous_reference"
    assert ids[0] in answer.error["message"]


def test_a_session_without_checkpoints_and_a_store_without_sessions(
    cli: CommandLine, manager: SessionManager
) -> None:
    assert cli("log").code == 3
    assert "there is no session yet" in cli("log").err
    manager.create_session("x")
    assert cli.ok("log") == "no checkpoints\n"


def test_stored_text_cannot_command_the_terminal(cli: CommandLine) -> None:
    cli.save("red \x1b[31m name", {"note": "\x1b]0;title\x07"}, "-m", "two\nlines")
    out = cli.ok("log")
    assert "\x1b" not in out
    assert "red \\x1b[31m name" in out
    assert len(out.splitlines()) == 2
    assert "\x1b" not in cli.ok("show")


def test_the_number_of_changed_files_is_shown(cli: CommandLine) -> None:
    Path("a").write_text("1")
    cli.save("first", {})
    Path("a").write_text("2")
    Path("new\nline").write_text("b")
    cli.save("second", {})
    cli.save("bare", {}, "--no-files")
    cli.save("third", {})
    found = {one["name"]: one["files_changed"] for one in cli.json("log")["checkpoints"]}
    assert found == {"first": None, "second": 2, "bare": None, "third": 0}
    assert cli.json("log", "--limit", "3")["checkpoints"][2]["files_changed"] == 2
    rows = {line.split()[0]: line for line in cli.ok("log").splitlines()}
    at = rows["NAME"].index("FILES") + len("FILES") - 1
    assert [rows[name][at] for name in ("first", "second", "third")] == [" ", "2", " "]


def test_a_lost_object_of_one_snapshot_hides_no_checkpoint(cli: CommandLine) -> None:
    for number in range(5):
        Path("a").write_text(f"{number}")
        saved = cli.save(f"save-{number}", {})
        if number == 2:
            lost = saved["workspace_commit"]
    git_dir = f"--git-dir={cli.project / '.agents' / 'workspace.git'}"
    tree = git(cli.project, git_dir, "rev-parse", f"{lost}^{{tree}}").strip()
    for name in (tree, lost):
        Path(".agents/workspace.git/objects", name[:2], name[2:]).unlink()
        listed = cli.json("log")["checkpoints"]
        assert {one["name"]: one["files_changed"] for one in listed} == {
            "save-0": None, "save-1": 1, "save-2": None, "save-3": None, "save-4": 1
        }  # fmt: skip
    assert len(cli.ok("log").splitlines()) == 6


def test_without_git_the_checkpoints_are_listed_all_the_same(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(2):
        Path("a").write_text(f"{number}")
        cli.save(f"save-{number}", {})
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    listed = cli.json("log")["checkpoints"]
    assert [(one["name"], one["files_changed"]) for one in listed] == [
        ("save-1", None), ("save-0", None)
    ]  # fmt: skip
    used = cli.json("usage")["usage"]
    assert (len(used["sessions"]), used["files"]) == (1, None)
    assert "git is not installed" in used["notes"][0]
    assert "note: files were not measured: git is not" in cli.ok("usage")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_time_at_either_end_of_the_calendar_is_shown(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert when(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31")
        assert "-01-01 " in when(datetime.min.replace(tzinfo=UTC))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_hooks_note_that_json_has_no_form_for_is_listed(
    cli: CommandLine, manager: SessionManager
) -> None:
    session = manager.create_session("x")
    session.save_checkpoint("odd", state={}, metadata={HOOK: {"number": 2**70, "bytes": b"x"}})
    [found] = cli.json("log")["checkpoints"]
    assert found["did"] == found["metadata"][HOOK]
