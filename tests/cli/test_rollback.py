"""`rollback` and `undo`: shown before it happens, done in the right place, and taken back."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.cli import rolling
from holdfast.workspace.apply import Applier
from holdfast.workspace.base import Skipped
from tests.cli.conftest import CommandLine, run_process
from tests.cli.terminal import on_terminal
from tests.workspace.pictures import commit_all, git, make_repository, picture

ODD = os.fsdecode(b"odd-\xff-name")


@pytest.fixture
def repository(cli: CommandLine) -> Path:
    """A git repository with a checkpoint ``good``, ruined since."""
    root = cli.project
    make_repository(root)
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "app.py").write_text("good\n")
    (root / "src" / "deep" / "x.py").write_text("good\n")
    (root / "README.md").write_text("read me\n")
    (root / ".gitignore").write_text("*.log\n.agents/\n")
    commit_all(root)
    (root / "notes").write_text("not committed\n")
    cli.save("good", {"step": 1}, "-m", "tests are green")
    cli.save("later", {"step": 2}, "--class", "failure")
    ruin(root)
    return root


def ruin(root: Path) -> None:
    (root / "src" / "app.py").write_text("broken\n")
    (root / "src" / "deep" / "x.py").write_text("broken\n")
    (root / "README.md").unlink()
    (root / "notes").write_text("scribbled over\n")
    (root / ODD).write_text("junk\n")
    (root / "kept.log").write_text("ignored\n")


def test_what_takes_a_rollback_back_names_the_session_where_another_one_is_more_recent(
    cli: CommandLine,
) -> None:
    file = cli.project / "a.txt"
    file.write_text("old\n")
    old = cli.save("old", {"step": 1})
    file.write_text("new\n")
    newer = cli.save("new", {"step": 2}, "--session", "newer")
    file.write_text("now\n")
    cli.ok("rollback", newer["id"], "--yes")
    said = cli.ok("rollback", old["id"], "--yes").splitlines()[-1]
    assert said == f"to take it back: holdfast undo --session {old['session_id']}"
    assert file.read_text() == "old\n"
    again = cli.ok("undo", "--yes", "--session", old["session_id"]).splitlines()[-1]
    assert file.read_text() == "new\n"
    assert again == f"to take it back: holdfast undo --redo --session {old['session_id']}"
    cli.ok("complete", old["session_id"])
    # Of a completed one the fork is the most recent.
    assert cli.ok("rollback", old["id"], "--yes").endswith("to take it back: holdfast undo\n")
    cli.ok("undo", "--yes")
    assert file.read_text() == "new\n"


@pytest.mark.row("B5")
def test_a_rollback_is_previewed_whole_or_partial_and_undone(
    cli: CommandLine, repository: Path
) -> None:
    ruined = picture(repository)
    preview = cli.json("rollback", "good", "--dry-run", "--diff")["rollback"]
    assert preview["dry_run"] is True
    assert preview["checkpoint"]["name"] == "good"
    assert [(one["kind"], one["path"]) for one in preview["files"]["changes"]] == [
        ("added", "README.md"),
        ("modified", "notes"),
        ("deleted", "odd-\\xff-name"),
        ("modified", "src/app.py"),
        ("modified", "src/deep/x.py"),
    ]
    assert "-broken\n+good\n" in preview["diff"]["files"][3]["text"]
    assert preview["diff"]["changes"] == [
        {"kind": "changed", "path": "$.step", "before": 2, "after": 1}
    ]
    assert (preview["safety"], preview["landed"]) == (None, None)
    assert picture(repository) == ruined
    assert len(cli.json("log")["checkpoints"]) == 2

    # Each way to restore a part, and after each of them the tree as it was.
    for options, paths, step in (
        ((), {"README.md", "notes", ODD, "src/app.py", "src/deep/x.py"}, 1),
        (("--path", "src"), {"src/app.py", "src/deep/x.py"}, 2),
        (("--path", "src/app.py", "--path", "README.md"), {"src/app.py", "README.md"}, 2),
        (("--path", ODD), {ODD}, 2),
        (("--files-only",), {"README.md", "notes", ODD, "src/app.py", "src/deep/x.py"}, 2),
        (("--state-only",), set(), 1),
    ):
        cli.json("rollback", "good", "--yes", *options)
        restored = picture(repository)
        assert {
            one for one in ruined.keys() | restored.keys() if ruined.get(one) != restored.get(one)
        } == paths
        assert cli.json("show")["checkpoint"]["state"] == {"step": step}

        undone = cli.json("undo", "--yes")["undo"]
        assert undone["title"] == "undo of the rollback to good"
        assert picture(repository) == ruined
        assert cli.json("show")["checkpoint"]["state"] == {"step": 2}
        assert cli.json("undo", "--redo", "--yes")["redo"]["landed"] is not None
        assert picture(repository) == restored
        cli.ok("undo", "--yes")
        assert picture(repository) == ruined
    assert cli.json("verify")["verify"]["ok"] is True


@pytest.mark.row("T15")
@pytest.mark.parametrize("via", ["process", "project-dir"])
def test_from_a_subdirectory_files_land_where_they_belong(
    cli: CommandLine, repository: Path, via: str, tmp_path: Path
) -> None:
    ruined = picture(repository)
    deep = repository / "src" / "deep"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(repository, tmp_path / "link")
    options: list[tuple[str, ...]]
    if via == "process":
        where, options = deep, [("--path", "x.py"), ("--path", "../app.py")]
    else:
        where = elsewhere
        options = [
            ("--project-dir", str(deep), "--path", str(deep / "x.py")),
            ("--project-dir", str(tmp_path / "link" / "src"), "--path", "../project/src/app.py"),
        ]
    for option, path in zip(options, ("src/deep/x.py", "src/app.py"), strict=True):
        done = run_process("rollback", "good", "--yes", *option, cwd=where)
        assert done.returncode == 0, done.stderr
        assert (repository / path).read_text() == "good\n"
        ruined[path] = (ruined[path][0], b"good\n")
        assert picture(repository) == ruined
    # And the whole of it: nothing appears below the directory where the command was typed.
    run_process("rollback", "good", "--yes", *options[0][:-2], cwd=where)
    assert (repository / "README.md").read_text() == "read me\n"
    assert not (repository / ODD).exists()
    assert sorted(os.listdir(deep)) == ["x.py"]
    assert os.listdir(elsewhere) == []


def test_people_see_what_will_happen_and_how_to_take_it_back(
    cli: CommandLine, repository: Path
) -> None:
    lines = cli.ok("rollback", "good", "--dry-run").splitlines()
    assert lines[0].startswith("rollback to good  saved 20")
    assert lines[1:] == [
        "  tests are green",
        "Files  1 brought back, 3 changed, 1 removed",
        "+ README.md",
        "~ notes",
        "~ src/app.py",
        "~ src/deep/x.py",
        "- odd-\\xff-name",
        "State  goes back: 1 change",
    ]
    done = cli.ok("rollback", "good", "--yes").splitlines()
    assert done[:-2] == lines
    assert done[-2:] == [
        "done  1 brought back, 3 changed, 1 removed; the state is back",
        "to take it back: holdfast undo",
    ]
    assert (repository / "kept.log").exists()
    assert cli.ok("rollback", "good", "--yes") == "nothing to do: all is as in good\n"
    assert cli.ok("undo", "--yes").splitlines()[-1] == "to take it back: holdfast undo --redo"
    session = cli.json("sessions")["sessions"][0]["id"]
    redone = cli.ok("undo", "--redo", "--yes", "--session", session[:20])
    assert redone.splitlines()[-1] == f"to take it back: holdfast undo --session {session[:20]}"


def test_what_cannot_be_put_back_is_told(cli: CommandLine, repository: Path) -> None:
    (repository / "a-pipe").write_text("a file")
    cli.save("whole", {"step": 3})
    (repository / "a-pipe").unlink()
    os.mkfifo(repository / "a-pipe")
    assert cli.ok("rollback", "whole", "--yes").splitlines() == [
        "Kept  1",
        "  a-pipe: one of the two snapshots could not hold it: a named pipe",
        "nothing to do: apart from these, all is as in whole",
    ]
    (repository / "notes").write_text("other")
    lines = cli.ok("rollback", "whole", "--yes").splitlines()
    assert "  a-pipe: one of the two snapshots could not hold it: a named pipe" in lines
    assert lines[-2].startswith("done  1 changed")


def test_what_somebody_changes_during_the_rollback_is_told_afterwards(
    cli: CommandLine, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = Applier.carry_out

    def let_write_first(self: Applier, *arguments: Any) -> list[Skipped]:
        (repository / "notes").write_text("written meanwhile")
        return carry_out(self, *arguments)

    monkeypatch.setattr(Applier, "carry_out", let_write_first)
    lines = cli.ok("rollback", "good", "--yes").splitlines()
    done = next(number for number, line in enumerate(lines) if line.startswith("done"))
    assert lines[done + 1 : done + 3] == [
        "Left to others  1",
        "  notes: it was changed while the restore was at work",
    ]
    assert (repository / "notes").read_text() == "written meanwhile"


def test_without_a_name_it_is_the_latest_good_one(cli: CommandLine, repository: Path) -> None:
    def target() -> str:
        return str(cli.json("rollback", "--dry-run")["rollback"]["checkpoint"]["name"])

    assert target() == "good"  # the later one was saved because of a failure
    cli.json("rollback", "--yes")
    assert target() == "good"  # and not the ones that the rollback has stored
    cli.json("undo", "--yes")
    assert target() == "good"
    cli.save("better", {"step": 3})
    assert target() == "better"
    assert (repository / "src" / "app.py").read_text() == "broken\n"


@pytest.mark.parametrize("command", [("rollback",), ("rollback", "good"), ("undo",)])
def test_with_nobody_to_ask_it_refuses(
    cli: CommandLine, repository: Path, command: tuple[str, ...]
) -> None:
    cli.json("rollback", "good", "--yes")
    ruin(repository)
    before = picture(repository), len(cli.json("log")["checkpoints"])
    answer = cli(*command)
    assert (answer.code, answer.out) == (2, "")
    assert "nobody to ask" in answer.err
    assert "--yes" in answer.err
    assert cli(*command, "--json").error["code"] == "usage"
    # A terminal to write to, but none to type on.
    assert "nobody to ask" in on_terminal(*command, cwd=cli.project, code=2)
    assert (picture(repository), len(cli.json("log")["checkpoints"])) == before


def test_a_person_is_asked(cli: CommandLine, repository: Path) -> None:
    ruined = picture(repository)
    for typed in ("n\n", "\n"):
        drawn = on_terminal("rollback", "good", cwd=repository, typed=typed, code=1)
        assert "- odd-\\xff-name" in drawn
        assert "Roll back? [y/N]" in drawn
        assert "nothing was changed" in drawn
        assert picture(repository) == ruined
    assert len(cli.json("log")["checkpoints"]) == 2
    drawn = on_terminal("rollback", "good", cwd=repository, typed="y\n")
    assert "holdfast undo" in drawn
    assert not (repository / ODD).exists()
    assert "Undo? [y/N]" in on_terminal("undo", cwd=repository, typed="y\n")
    assert picture(repository) == ruined
    assert "Redo? [y/N]" in on_terminal("undo", "--redo", cwd=repository, typed="n\n", code=1)
    # The end of the input is neither.
    drawn = on_terminal("undo", "--redo", cwd=repository, typed="\x04", code=130)
    assert drawn.splitlines()[-2:] == ["nothing was changed", "error: interrupted"]
    assert picture(repository) == ruined


@pytest.mark.parametrize("meanwhile", ["saved", "written", "committed"])
@pytest.mark.parametrize("command", ["rollback", "undo"])
def test_a_yes_is_for_what_was_shown_and_nothing_else(
    cli: CommandLine,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    meanwhile: str,
) -> None:
    cli.ok("rollback", "good", "--yes", "--move-head")
    if command == "rollback":
        ruin(repository)
        git(repository, "checkout", "-q", "-b", "topic")

    def go_on_before_the_answer(_question: str) -> None:
        if meanwhile == "written":
            (repository / "new").write_text("from another terminal\n")
        elif meanwhile == "committed":
            git(repository, "commit", "-q", "--allow-empty", "-m", "more")
        else:
            run_process("save", "between", "--take-over", cwd=repository).check_returncode()

    monkeypatch.setattr(rolling, "nobody_to_ask", lambda _: False)
    monkeypatch.setattr(rolling, "confirm", go_on_before_the_answer)
    options = ("good", "--move-head") if command == "rollback" else ()
    before = picture(repository)
    answer = cli(command, *options)
    assert (answer.code, "Nothing was changed: look again" in answer.err) == (4, True)
    after = picture(repository)
    after.pop("new", None)
    assert after == before
    # Who asks for no question was shown nothing.
    cli.ok(command, *options, "--yes")


def test_a_long_list_is_cut_before_the_question_and_whole_when_looked_at(
    cli: CommandLine, repository: Path
) -> None:
    for number in range(60):
        (repository / f"new-{number:02}").touch()
    drawn = on_terminal("rollback", "good", cwd=repository, typed="n\n", code=1)
    assert "… and 41 more; --dry-run lists them all" in drawn
    assert "new-59" not in drawn
    drawn = on_terminal("rollback", "good", "--dry-run", cwd=repository)
    assert "new-59" in drawn


def test_head_and_branch_stay_unless_asked(cli: CommandLine, repository: Path) -> None:
    stood = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-q", "-b", "topic")
    moved = commit_all(repository, "in the wrong direction")
    out = cli.ok("rollback", "good", "--dry-run")
    assert f"note: HEAD stays on topic at {moved[:12]}; when the checkpoint was saved" in out
    assert "HEAD   HEAD moves from topic" in cli.ok("rollback", "good", "--dry-run", "--move-head")
    cli.ok("rollback", "good", "--yes")
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "topic"
    assert git(repository, "rev-parse", "HEAD") == moved
    report = cli.json("rollback", "good", "--yes", "--move-head")["rollback"]
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert git(repository, "rev-parse", "HEAD") == stood
    assert "from topic" in report["files"]["head"]
    cli.json("undo", "--yes")
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "topic"


def test_what_others_wrote_is_left_to_them(cli: CommandLine, manager: SessionManager) -> None:
    Path("mine").write_text("1\n")
    Path("yours").write_text("1\n")
    session = manager.create_session("x")
    session.save_checkpoint("good", state={})
    Path("mine").write_text("2\n")
    session.wrote("mine")
    session.save_checkpoint("later", state={})
    session.close()
    Path("yours").write_text("2\n")
    out = cli.ok("rollback", "good", "--only-mine", "--dry-run")
    assert "~ mine" in out
    assert "Left to others  1\n  yours: this session did not write it" in out
    report = cli.json("rollback", "good", "--only-mine", "--yes")["rollback"]
    assert [one["path"] for one in report["files"]["conflicts"]] == ["yours"]
    assert (Path("mine").read_text(), Path("yours").read_text()) == ("1\n", "2\n")


def test_empty_directories_and_permissions_are_part_of_it(cli: CommandLine) -> None:
    Path("run").write_text("#!/bin/sh\n")
    Path("secret").write_text("x")
    Path("secret").chmod(0o600)
    Path("empty").mkdir()
    cli.save("good", {})
    Path("secret").chmod(0o644)
    Path("empty").rmdir()
    Path("other").mkdir()
    preview = cli.json("rollback", "--dry-run")["rollback"]["files"]
    assert preview["modes"] == ["secret"]
    assert preview["folders"] == [
        {"kind": "added", "path": "empty"},
        {"kind": "deleted", "path": "other"},
    ]
    out = cli.ok("rollback", "--yes")
    assert "+ empty/" in out
    assert "- other/" in out
    assert "Permissions  1\n  secret" in out
    assert Path("empty").is_dir()
    assert not Path("other").exists()
    assert Path("secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("bad",), 3, "no checkpoint 'bad'"),
        (("good", "--path", "nowhere"), 2, "neither the checkpoint nor the project has 'nowhere'"),
        (("good", "--path", "/etc/passwd"), 2, "is outside of the project"),
        (("good", "--path", "../x"), 2, "is outside of the project"),
        (("good", "--state-only", "--path", "src"), 2, "--state-only leaves files alone"),
        (("good", "--state-only", "--files-only"), 2, "--state-only leaves files alone"),
        (("good", "--state-only", "--move-head"), 2, "--state-only leaves files alone"),
        (("good", "--diff"), 2, "--diff goes with --dry-run"),
        (("good", "--session", "nobody"), 3, "no session 'nobody'"),
        (("later", "good"), 2, "unexpected extra argument"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_touched(
    cli: CommandLine, repository: Path, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    before = picture(repository), len(cli.json("log")["checkpoints"])
    answer = cli("rollback", "--yes", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert reason in answer.err
    assert (picture(repository), len(cli.json("log")["checkpoints"])) == before


def test_nothing_to_undo_is_not_found(cli: CommandLine, repository: Path) -> None:
    for options in ((), ("--redo",)):
        answer = cli("undo", "--yes", "--json", *options)
        assert answer.code == 3
        assert answer.error["code"] == "nothing_to_undo"
    assert (repository / ODD).exists()


def test_a_checkpoint_without_files_gives_back_its_state(cli: CommandLine) -> None:
    cli.save("bare", {"step": 1}, "--no-files")
    cli.save("next", {"step": 2})
    Path("new").touch()
    out = cli.ok("rollback", "bare", "--yes")
    assert "note: checkpoint 'bare' was saved without files: only the state changes" in out
    assert cli.json("show")["checkpoint"]["state"] == {"step": 1}
    assert Path("new").exists()
    answer = cli("rollback", "bare", "--files-only", "--yes")
    assert answer.code == 3
    assert "saved without files" in answer.err


def test_nothing_is_promised_of_files_that_nobody_looked_at(cli: CommandLine) -> None:
    Path("a").write_text("1")
    cli.save("bare", {"step": 1}, "--no-files")
    Path("a").write_text("2")
    assert cli.ok("rollback", "--yes").splitlines() == [
        "note: checkpoint 'bare' was saved without files: only the state changes",
        "nothing to do: the state is as in bare",
    ]
    cli.save("whole", {"step": 1})
    Path("a").write_text("3")
    assert "nothing to do: the state is as in whole" in cli.ok("rollback", "--state-only", "--yes")
    Path(".agents/holdfast.toml").write_text("[workspace]\ncapture = false\n")
    note = "note: file snapshots are off here: only the state changes"
    assert cli.ok("rollback", "--dry-run").splitlines()[-1] == note
    said = [note, "nothing to do: the state is as in whole"]
    assert cli.ok("rollback", "--yes").splitlines() == said
    answer = cli("rollback", "--files-only", "--yes")
    assert (answer.code, "file snapshots are off here" in answer.err) == (3, True)
    assert Path("a").read_text() == "3"


def test_files_that_no_snapshot_could_hold_are_not_called_as_they_were(cli: CommandLine) -> None:
    (cli.project / ".agents").mkdir()
    Path(".agents/holdfast.toml").write_text("[workspace]\nmax_file_mb = 1\n")
    for name in ("gone", "changed", "src/other"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
        os.truncate(name, 2 << 20)
    cli.save("good", {})
    Path("gone").unlink()
    os.truncate("changed", 3 << 20)
    Path("came").touch()
    os.truncate("came", 2 << 20)
    why = "one of the two snapshots could not hold it: larger than 1,048,576 bytes"
    left = [f"  {name}: {why}" for name in ("came", "changed", "gone", "src/other")]
    lines = cli.ok("rollback", "--yes").splitlines()
    assert (lines[0], sorted(lines[1:-1])) == ("Kept  4", left)
    assert lines[-1] == "nothing to do: apart from these, all is as in good"
    assert cli.ok("rollback", "--path", "src", "--yes").splitlines()[:-1] == ["Kept  1", left[-1]]
    Path("a").touch()
    assert set(left) < set(cli.ok("rollback", "--yes").splitlines())
    assert not Path("a").exists()


@pytest.mark.parametrize("command", ["rollback", "diff"])
def test_a_path_behind_a_link_is_told_by_the_name_that_checkpoints_know(
    cli: CommandLine, command: str
) -> None:
    options = ("--yes",) if command == "rollback" else ()
    for folder in ("real", "src"):
        Path(folder).mkdir()
        Path(folder, "f").write_text("1\n")
    os.symlink("real", "link")
    cli.save("good", {})
    Path("real/f").write_text("2\n")
    Path("real/new").touch()
    for name in ("f", "new", "gone"):
        answer = cli(command, "good", "--path", f"link/{name}", *options)
        assert (answer.code, answer.out) == (2, "")
        assert f"'link/{name}' leads through a link" in answer.err
        assert f"this is 'real/{name}'" in answer.err
    os.symlink("..", "out")
    assert "outside of the project" in cli(command, "--path", "out/x", *options).err
    # The link itself is a file like any other, and what the checkpoint has by that name can be asked for.
    assert cli(command, "good", "--path", "link", *options).code == 0
    Path("src").rename("elsewhere")
    os.symlink("elsewhere", "src")
    assert "src/f" in cli(command, "good", "--path", "src/f", *options).out
    assert Path("elsewhere/f").read_text() == "1\n"


def test_a_checkpoint_of_another_session_is_named_by_its_whole_id(
    cli: CommandLine, manager: SessionManager
) -> None:
    Path("a").write_text("1")
    older = manager.create_session("x", session_id="older")
    saved = older.save_checkpoint("good", state={})
    older.close()
    manager.create_session("x", session_id="newer").close()
    Path("a").write_text("2")
    report = cli.json("rollback", saved.id, "--yes")["rollback"]
    assert report["landed"]["session_id"] == "older"
    assert Path("a").read_text() == "1"


def test_a_session_that_a_program_works_on_is_left_to_it_unless_taken_over(
    cli: CommandLine, repository: Path
) -> None:
    session = cli.json("sessions")["sessions"][0]["id"]
    program = (
        "import sys\nfrom holdfast import SessionManager\n"
        f"held = SessionManager.open().resume_session({session!r})\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"held\n"
        ruined = picture(repository)
        assert cli("rollback", "good", "--dry-run").code == 0
        answer = cli("rollback", "good", "--yes", "--json")
        assert answer.code == 4
        assert picture(repository) == ruined
        cli.ok("rollback", "good", "--yes", "--take-over")
        assert not (repository / ODD).exists()
        answer = cli("undo", "--yes", "--take-over")
        assert (answer.code, picture(repository)) == (0, ruined)
        worker.communicate(timeout=60)


def test_what_a_finished_program_did_is_rolled_back_in_a_fork(cli: CommandLine) -> None:
    Path("a").write_text("good\n")
    cli.save("before", {"step": 1})
    Path("a").write_text("ruined\n")
    cli.save("after", {"step": 2})
    cli.ok("complete")
    (done,) = cli.json("sessions")["sessions"]
    assert "~ a" in cli.ok("rollback", "before", "--dry-run")
    out = cli.ok("rollback", "before", "--yes", "--session", done["id"])
    fork = cli.json("sessions")["sessions"][0]
    assert f"session {done['id']} is completed; this is in its fork {fork['id']}\n" in out
    assert out.endswith("to take it back: holdfast undo\n")
    assert Path("a").read_text() == "good\n"
    assert cli.json("show")["checkpoint"]["state"] == {"step": 1}
    assert len(cli.json("log", done["id"])["checkpoints"]) == 2
    cli.ok("undo", "--yes")
    assert Path("a").read_text() == "ruined\n"
    assert cli.json("show")["checkpoint"]["state"] == {"step": 2}
