"""What a person sees: colours on a terminal, unless NO_COLOR is set; plain text anywhere else."""

import re
import shutil
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.cli import output
from tests.cli.conftest import CommandLine, run_process
from tests.cli.terminal import on_terminal
from tests.workspace.pictures import git


@pytest.fixture
def _two_checkpoints(cli: CommandLine) -> None:
    cli.save("one", {"step": 1, "gone": True})
    cli.save("two", {"step": 2, "text": "[red]not markup[/red] :smile:"})


@pytest.mark.usefixtures("_two_checkpoints")
@pytest.mark.parametrize(
    "arguments", [("log",), ("sessions",), ("show",), ("diff", "one", "two"), ("verify",)]
)
def test_colours_are_for_terminals_and_no_color_is_respected(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    assert "\x1b[" in on_terminal(*arguments, cwd=cli.project)
    assert "\x1b[3" not in on_terminal(*arguments, cwd=cli.project, NO_COLOR="1")
    assert "\x1b" not in on_terminal(*arguments, cwd=cli.project, TERM="dumb")
    assert "\x1b" not in on_terminal(*arguments, "--json", cwd=cli.project)
    assert b"\x1b" not in run_process(*arguments, cwd=cli.project).stdout


@pytest.mark.usefixtures("_two_checkpoints")
def test_stored_text_is_never_markup(cli: CommandLine) -> None:
    assert "[red]not markup[/red] :smile:" in on_terminal("show", cwd=cli.project, NO_COLOR="1")


@pytest.mark.usefixtures("_two_checkpoints")
def test_a_narrow_terminal_keeps_ids_whole(cli: CommandLine) -> None:
    session = cli.json("sessions")["sessions"][0]["id"]
    assert session in on_terminal("sessions", cwd=cli.project, columns=80, NO_COLOR="1")


@pytest.mark.parametrize("patience", [-1, 3600], ids=["waited", "not-yet"])
def test_a_first_snapshot_has_a_bar_for_those_who_waited(cli: CommandLine, patience: int) -> None:
    for number in range(2500):
        Path(f"file-{number}").write_text(str(number))
    program = (
        "import sys; from holdfast.cli import main, progress\n"
        f"progress.PATIENCE = {patience}; sys.argv[0] = 'holdfast'; main()"
    )
    arguments = ("save", "first", "--agent-type", "me")
    drawn = on_terminal(*arguments, cwd=cli.project, program=program)
    assert ("reading files" in drawn) is (patience < 0)
    assert "saved first" in drawn.replace("\x1b[1;36m", "")
    # Once more for a pipe: nobody watches, and nothing is drawn or imported for it.
    arguments = ("save", "again", "--agent-type", "other")
    piped = run_process(*arguments, cwd=cli.project)
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert b"\x1b" not in piped.stdout


@pytest.mark.parametrize(
    ("command", "title"),
    [("verify", "reading back"), ("redact --check", "looking"), ("keys list", "counting")],
)
def test_what_reads_everything_has_a_bar_too(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, title: str
) -> None:
    cli.ok("keys", "new", "../keys")
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(Path("../keys").resolve()))
    cli.save("one", {})
    program = (
        "import sys; from holdfast.cli import main, progress\n"
        "progress.PATIENCE = -1; sys.argv[0] = 'holdfast'; main()"
    )
    arguments = command.split()
    assert title in on_terminal(*arguments, cwd=cli.project, program=program)
    assert title not in on_terminal(*arguments, "--json", cwd=cli.project, program=program)


@pytest.mark.parametrize(
    ("command", "title"), [("gc", "freeing"), ("erase --all --yes", "erasing")]
)
def test_what_cannot_be_counted_has_a_spinner_for_those_who_waited(
    cli: CommandLine, command: str, title: str
) -> None:
    cli.save("one", {})
    arguments = command.split()
    for patience, options in ((3600, ()), (-1, ("--json",)), (-1, ())):
        program = (
            "import sys; from holdfast.cli import main, progress\n"
            f"progress.PATIENCE = {patience}; sys.argv[0] = 'holdfast'; main()"
        )
        drawn = on_terminal(*arguments, *options, cwd=cli.project, program=program)
        assert (title in drawn) is (patience < 0 and not options)


@pytest.fixture
def _drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw as on a terminal, into the answer of a command that runs in this process."""
    from holdfast.cli import changes
    from holdfast.cli.commands import demo, log

    for module in (output, changes, demo, log):
        monkeypatch.setattr(module, "on_terminal", lambda err=False: True)
    monkeypatch.setenv("COLUMNS", "80")
    output._console.cache_clear()


@pytest.mark.usefixtures("_drawn", "_two_checkpoints")
def test_tables_fit_the_terminal_and_leave_out_empty_columns(cli: CommandLine) -> None:
    cli.save("x" * 100, {}, "-m", "a description " * 10)
    log = cli.ok("log").splitlines()
    assert log[0].startswith("session ")
    assert "BRANCH" not in log[1]
    assert all(len(line) <= 80 for line in log)
    assert log[2].startswith("xxx")
    assert "…" in log[2]
    assert all(len(line) <= 80 for line in cli.ok("diff", "one", "two").splitlines())
    assert '"step": 2' in cli.ok("show", "two")


@pytest.mark.parametrize("width", [40, 80])
def test_a_row_never_takes_two_lines(cli: CommandLine, manager: SessionManager, width: int) -> None:
    git(cli.project, "init", "-q", "-b", "a-topic-with-a-long-name")
    session = manager.create_session("claude-code", task_description="Mend what is broken")
    for number in range(3):
        Path(f"file-{number}").touch()
        session.save_checkpoint(
            state={"text": "x" * 5000}, retention_class="session", description="session starts"
        )
    for command in ("log", "sessions", "status"):
        drawn = on_terminal(command, cwd=cli.project, columns=width, NO_COLOR="1", TERM="dumb")
        first = ("NAME", "ID", "session-0", session.id[:8])
        rows = [line for line in drawn.splitlines() if line.startswith(first)]
        assert len(rows) == (4 if command == "log" else 2)
        assert all(len(line) <= width for line in rows)
    assert session.id in drawn


@pytest.mark.usefixtures("_drawn")
def test_the_least_important_columns_go_first(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.save("x" * 40, {}, "-m", "what it is about", "--class", "feature")
    titles = {}
    for width in (120, 80, 70, 60, 40):
        monkeypatch.setenv("COLUMNS", str(width))
        output._console.cache_clear()
        titles[width] = cli.ok("log").splitlines()[1].split()
    assert titles == {
        120: ["NAME", "TYPE", "SAVED", "SIZE", "NOTE"],
        80: ["NAME", "TYPE", "SAVED", "NOTE"],
        70: ["NAME", "SAVED", "NOTE"],
        60: ["NAME", "NOTE"],
        40: ["NAME"],
    }


@pytest.mark.usefixtures("_drawn")
def test_a_table_without_rows_has_its_titles(cli: CommandLine) -> None:
    cli.save("one", {})
    cli.ok("erase", "--all", "--yes")
    assert cli.ok("copy", ".agents/sessions.db", "new.db").startswith("session  outcome")


@pytest.mark.parametrize(
    ("text", "width"),
    [("name", 4), ("日本語の名前", 12), ("e\u0301te\u0301", 3), ("한", 2), ("\u1112\u1161\u11ab", 2), ("🎉", 2),
     ("a\u200bb", 2), ("…", 1)],
)  # fmt: skip
def test_text_is_as_wide_as_its_cells(text: str, width: int) -> None:
    assert output.cells(text) == width
    assert output.padded(text, 14, right=True) == " " * (14 - width) + text


def test_columns_begin_at_one_cell_whatever_stands_before(cli: CommandLine) -> None:
    Path("日本語").write_text("1")
    Path("plain-name").write_text("1")
    cli.save("日本語の名前", {})
    cli.save("plain", {})
    Path("日本語").write_text("2")
    Path("plain-name").write_text("2")
    before = {line.partition("manual")[0] for line in cli.ok("log").splitlines()[1:]}
    assert before == {"日本語の名前  ", "plain         "}
    assert " 日本語     |    2 +-" in cli.ok("diff", "--stat")


def test_a_wide_text_is_cut_between_its_characters() -> None:
    assert output.shortened("日本語の名前", 12) == "日本語の名前"
    assert output.shortened("日本語の名前", 8) == "日本語…"
    assert output.shortened("日本語の名前", 9, tail=2) == "日本語…前"
    assert output.shortened("before and after", 9, tail=2) == "before…er"


@pytest.mark.usefixtures("_drawn")
def test_the_demonstration_ends_with_a_panel(cli: CommandLine) -> None:
    out = cli.ok("demo", "--keep")
    assert "Nothing was lost" in out
    assert "✓ no finished step was repeated" in out
    kept = re.search(r"Kept in (\S+)\. Look around:", out)
    assert kept is not None
    try:
        found = cli.json("log", "demo", "--project-dir", f"{kept[1]}/project")["checkpoints"]
        assert len(found) == 23
    finally:
        shutil.rmtree(kept[1])


def test_a_long_diff_is_paged_and_a_short_one_is_not(cli: CommandLine) -> None:
    Path("text").write_text("old\n")
    cli.save("one", {})
    Path("text").write_text("new\n")
    pager = "sed s/^/paged:/"
    short = on_terminal("diff", cwd=cli.project, typed="", PAGER=pager)
    assert "paged:" not in short
    assert "\x1b[32m+new" in short
    Path("text").write_text("".join(f"line {n}\n" for n in range(200)))
    paged = on_terminal("diff", cwd=cli.project, typed="", PAGER=pager)
    assert "paged:+line 199" in paged
    for options in (("--no-pager",), ("--stat",), ("--json",)):
        assert "paged:" not in on_terminal("diff", *options, cwd=cli.project, typed="", PAGER=pager)
    dry = on_terminal("rollback", "--dry-run", "--diff", cwd=cli.project, typed="", PAGER=pager)
    assert "paged:-line 199" in dry
    # Away from a terminal, or with nobody at the keyboard, nothing waits.
    assert "paged:" not in on_terminal("diff", cwd=cli.project, PAGER=pager)
    assert b"paged:" not in run_process("diff", cwd=cli.project, PAGER=pager).stdout


def test_a_file_cannot_command_the_terminal(cli: CommandLine) -> None:
    Path("text").write_text("old\n")
    Path("\x1b[31mname").write_text("old\n")
    cli.save("one", {})
    Path("text").write_bytes(b"\ttab \x1b]0;title\x07 \xff\r\n")
    Path("\x1b[31mname").unlink()
    drawn = on_terminal("diff", cwd=cli.project, NO_COLOR="1")
    assert "+       tab \\x1b]0;title\\x07 \\xff\\r" in drawn
    assert "\x1b]0" not in drawn
    assert "\x1b[31mname" not in drawn
    for arguments in (("diff", "--stat"), ("diff", "--name-only"), ("rollback", "--dry-run")):
        assert "\\x1b[31mname" in on_terminal(*arguments, cwd=cli.project)
    content = Path("text").read_bytes()
    cli.save("two", {})
    assert "\ttab \\x1b]0;title\\x07 \\xff\\r\r\n" in on_terminal(
        "show", "two:text", cwd=cli.project
    )
    assert run_process("show", "two:text", cwd=cli.project).stdout == content


# What a terminal may act upon: an escape, the same in one character, a deletion, text from right to left.
COMMANDING = "\x1b]0;title\x07\x9b31m\x7f\u202e\u2066"


def test_json_cannot_command_the_terminal_either(cli: CommandLine) -> None:
    Path(f"file{COMMANDING}").write_text("new\n")
    cli.save(f"one{COMMANDING}", {f"key{COMMANDING}": COMMANDING})
    for arguments in (("log",), ("show",), ("show", "--files"), ("sessions",)):
        drawn = on_terminal(*arguments, "--json", cwd=cli.project)
        assert not set(COMMANDING) & set(drawn) - set("]0;title31m")
    assert cli.json("log")["checkpoints"][0]["name"] == f"one{COMMANDING}"
    drawn = on_terminal("show", f"none{COMMANDING}", "--json", cwd=cli.project, code=3)
    assert "\x9b" not in drawn


def test_the_name_of_a_file_that_was_written_cannot_command_the_terminal(cli: CommandLine) -> None:
    session = cli.save("one", {})["session_id"]
    drawn = on_terminal("export", session, "-o", f"x{COMMANDING}.tar", cwd=cli.project, TERM="dumb")
    drawn += on_terminal("keys", "new", f"x{COMMANDING}.key", cwd=cli.project, TERM="dumb")
    assert drawn.count("x\\x1b]0;title\\x07\\x9b31m\\x7f\\u202e\\u2066.") == 2
    assert "\x1b" not in drawn
