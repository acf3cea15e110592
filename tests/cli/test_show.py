import json
import os
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from tests.cli.conftest import CommandLine, run_process
from tests.workspace.pictures import commit_all, git, make_repository

TASKS = [{"id": "a", "status": "completed"}, {"id": "b", "status": "pending"}]


def test_show_prints_columns_state_tasks_and_progress(cli: CommandLine) -> None:
    cli.save("first", {"task_state": {"tasks": TASKS}, "step": 1}, "-m", "half way")
    found = cli.json("show", "first")["checkpoint"]
    assert found["state"]["step"] == 1
    assert found["task_state"] == {"tasks": TASKS}
    assert found["progress"] == {"completed": 1, "total": 2, "percent": 50.0}
    assert found["description"] == "half way"
    assert found["restored_at"] is None


def test_people_see_the_facts_and_then_the_state(cli: CommandLine) -> None:
    cli.save("first", {"step": 1, "task_state": TASKS}, "-m", "half way", "--metadata", "k=v")
    facts, _, state = cli.ok("show").partition("\n\n")
    assert json.loads(state)["step"] == 1
    for line in ("Checkpoint  first", "About       half way", "Metadata    k=v"):
        assert line in facts
    assert "1 of 2 tasks completed" in facts


def test_metadata_that_is_no_text_is_shown_as_json(cli: CommandLine) -> None:
    Path("a").write_text("1")
    cli.save("first", {})
    Path("a").write_text("2")
    cli.ok("rollback", "first", "--yes")
    shown = cli.ok("show")
    assert 'Metadata    rollback={"' in shown
    assert '"paths":null' in shown


def test_a_checkpoint_is_found_by_name_id_label_and_beginning(cli: CommandLine) -> None:
    saved = cli.save("first", {"step": 1})
    for reference in ("first", saved["id"], saved["label"], saved["id"][:20]):
        assert cli.json("show", reference)["checkpoint"]["id"] == saved["id"]


def test_values_that_json_lacks_are_printed_with_tags(
    cli: CommandLine, manager: SessionManager
) -> None:
    session = manager.create_session("x", metadata={"at": datetime(2026, 1, 1, tzinfo=UTC)})
    session.save_checkpoint("a", state={"pair": (1, 2), "nan": float("nan"), "raw": b"\0"})
    assert cli.json("show")["checkpoint"]["state"] == {
        "pair": {"$t": "tuple", "v": [1, 2]},
        "nan": {"$t": "float", "v": "nan"},
        "raw": {"$t": "bytes", "v": "AA=="},
    }
    assert cli.json("sessions")["sessions"][0]["metadata"]["at"]["$t"] == "datetime"


@pytest.mark.row("S1-68")
def test_a_document_is_json_in_plain_sqlite_and_whole_in_show(cli: CommandLine) -> None:
    small = {"step": 1, "note": "é", "list": [1, 2.5, None]}
    large = {
        "conversation_history": [{"role": "user", "content": f"{n} " * 500} for n in range(99)]
    }
    cli.save("small", small)
    cli.save("large", large)
    assert cli.json("show", "large")["checkpoint"]["state"] == large
    database = sqlite3.connect(cli.project / ".agents" / "sessions.db")
    try:
        rows = dict(database.execute("SELECT name, state_snapshot FROM session_checkpoints"))
        step = database.execute(
            "SELECT state_snapshot ->> '$.state.step' FROM session_checkpoints WHERE name = 'small'"
        ).fetchone()
    finally:
        database.close()
    assert json.loads(rows["large"])
    assert json.loads(rows["small"])["state"] == small
    assert step == (1,)


def test_an_unknown_checkpoint_is_not_found_and_near_ones_are_named(cli: CommandLine) -> None:
    cli.save("before-refactor", {})
    answer = cli("show", "before-refacto", "--json")
    assert answer.code == 3
    assert answer.error["code"] == "checkpoint_not_found"
    assert "near matches: 'before-refactor'" in answer.error["message"]


def test_a_session_without_checkpoints_has_nothing_to_show(
    cli: CommandLine, manager: SessionManager
) -> None:
    manager.create_session("x")
    assert cli("show").code == 3


@pytest.fixture
def _with_files(cli: CommandLine) -> None:
    make_repository(cli.project)
    Path("src").mkdir()
    Path("src/app.py").write_text("print('old')\n")
    Path("src/moved.py").write_text("moved = 1\n" * 9)
    Path(".gitignore").write_text(".agents/\n")
    commit_all(cli.project)
    Path("run").write_bytes(b"\x7fELF\x00\xff")
    Path("run").chmod(0o755)
    Path(os.fsdecode(b"odd-\xff")).write_text("odd")
    os.symlink("run", "link")
    git(cli.project, "mv", "src/moved.py", "src/to.py")
    Path("src/app.py").write_text("print('dirty')\n")
    os.mkfifo("pipe")
    cli.save("files", {"step": 1})
    Path("src/app.py").write_text("print('new')\n")


@pytest.mark.usefixtures("_with_files")
def test_the_files_of_a_checkpoint_are_listed(cli: CommandLine) -> None:
    found = cli.json("show", "--files")["checkpoint"]
    files = {one["path"]: one for one in found["files"]}
    assert set(files) == {".gitignore", "link", "odd-\\xff", "run", "src/app.py", "src/to.py"}
    assert (files["run"]["mode"], files["run"]["size_bytes"]) == ("0755", 6)
    assert files["link"]["link"] is True
    assert found["git"]["renamed"] == [["src/moved.py", "src/to.py"]]
    assert found["git"]["unstaged"] == ["src/app.py"]
    (skipped,) = found["skipped"]
    assert skipped["path"] == "pipe"
    lines = cli.ok("show", "files", "--files").splitlines()
    assert "-rwxr-xr-x   6 B  run" in lines
    assert lines[-2:] == ["6 files, 126 B", "1 path skipped; --skipped says why"]
    assert "pipe" in cli.ok("show", "--skipped")
    assert "files" not in cli.json("show", "--skipped")["checkpoint"]


@pytest.mark.row("S1-10")
@pytest.mark.usefixtures("_with_files")
def test_people_see_where_git_stood_and_the_content_behind_it(cli: CommandLine) -> None:
    facts = cli.ok("show")
    for line in (
        "Renamed     src/moved.py → src/to.py",
        "Unstaged    src/app.py",
        "Untracked   link, odd-\\xff, run",
    ):
        assert line in facts
    assert re.search(r"Git         main, [0-9a-f]{13}, files uncommitted", facts)
    assert re.search(r"Files       captured, \d+ changed before it, 1 skipped", facts)
    git_state = cli.json("show")["checkpoint"]["git"]
    assert (git_state["branch"], git_state["detached"]) == ("main", False)
    assert git_state["commit"] == git(cli.project, "rev-parse", "HEAD")
    # Neither committed nor in the project any more.
    assert cli.ok("show", "files:src/app.py") == "print('dirty')\n"


@pytest.mark.usefixtures("_with_files")
def test_a_file_is_printed_byte_for_byte(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    content = run_process("show", "files:run", cwd=cli.project).stdout
    assert content == b"\x7fELF\x00\xff"
    odd = os.fsdecode(b"odd-\xff")
    assert run_process("show", "--file", odd, cwd=cli.project).stdout == b"odd"
    assert run_process("show", f"files:{odd}", cwd=cli.project).stdout == b"odd"
    monkeypatch.chdir("src")
    old = "print('dirty')\n"
    for arguments in (
        ("files:src/app.py",), (":src/app.py",), ("files:./app.py",), ("files", "--file", "app.py"),
        ("--file", "../src/app.py"),
    ):  # fmt: skip
        assert cli.ok("show", *arguments) == old
    found = cli.json("show", ":src/app.py")["file"]
    assert (found["path"], found["encoding"], found["content"]) == ("src/app.py", "utf-8", old)
    assert cli.json("show", ":run")["file"]["encoding"] == "base64"


@pytest.mark.usefixtures("_with_files")
def test_names_with_colons_are_names_first(cli: CommandLine) -> None:
    Path("src/app.py").write_text("print('second')\n")
    cli.save("files:src", {"step": 2})
    assert cli.json("show", "files:src")["checkpoint"]["name"] == "files:src"
    assert cli.ok("show", "files:src/app.py") == "print('dirty')\n"
    assert cli.ok("show", "files:src:src/app.py") == "print('second')\n"


@pytest.mark.usefixtures("_with_files")
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("files:src/none.py",), 3, "has no file 'src/none.py'"),
        (("files:src",), 3, "has no file 'src'"),
        (("files:../../x",), 2, "outside of the project"),
        (("none:src/app.py",), 3, "no checkpoint 'none:src/app.py'"),
        (("--file", "/etc/passwd"), 2, "outside of the project"),
        (("--file", "run", "--files"), 2, "a file is printed by itself"),
    ],
)
def test_a_file_that_is_not_there(
    cli: CommandLine, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    answer = cli("show", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert reason in answer.err


def test_a_checkpoint_without_files_has_none_to_show(cli: CommandLine) -> None:
    Path("a").write_text("a")
    cli.save("bare", {}, "--no-files")
    for arguments in (("--files",), ("--skipped",), ("bare:a",)):
        answer = cli("show", *arguments)
        assert (answer.code, answer.out) == (3, "")
        assert "checkpoint 'bare' was saved without files" in answer.err
    assert "Files " not in cli.ok("show")


def test_the_only_session_is_told_of_where_it_cannot_be_read(cli: CommandLine) -> None:
    with SessionManager.open(workspace=False) as manager:
        manager.create_session("tester", session_id="s").save_checkpoint("one", state={})
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE sessions SET created_at = 'junk'")
    database.close()
    answer = cli("show", "--json")
    assert (answer.code, answer.error["code"]) == (5, "state_corrupt")
    assert "session 's'" in answer.error["message"]
