"""What holds for every command: help, options, errors, exit codes, start-up."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from holdfast import SessionManager
from holdfast.cli import holdfast
from holdfast.cli.group import COMMANDS
from holdfast.processes import this_process
from tests.cli.conftest import REPOSITORY, CommandLine, run_process

READING = [
    ("sessions",), ("status",), ("log",), ("show",), ("diff", "a", "b"), ("gc",), ("prune",), ("verify",),
    ("save", "x"), ("brief",), ("decide", "x"), ("rollback", "--yes"), ("undo", "--yes"), ("usage",),
    ("handoff",),
]  # fmt: skip


def _command(name: str) -> click.Command:
    command = holdfast.get_command(click.Context(holdfast), name)
    assert command is not None
    return command


def test_every_module_of_the_package_is_a_listed_command() -> None:
    modules = (REPOSITORY / "src/holdfast/cli/commands").glob("[a-z]*.py")
    assert sorted(module.stem for module in modules) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_listed_summary_and_an_example(cli: CommandLine, name: str) -> None:
    assert _command(name).short_help == COMMANDS[name]
    text = cli.ok(name, "--help")
    assert COMMANDS[name] in " ".join(text.split())
    assert re.search(rf"Examples:\n\s+.*holdfast {name}", text)
    assert cli.ok(name, "-h") == text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_options(name: str) -> None:
    options = {option for parameter in _command(name).params for option in parameter.opts}
    assert {"--json", "--url", "--tenant", "--project-dir"} <= options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    text = (REPOSITORY / "docs/reference/cli.md").read_text(encoding="utf-8")
    section = re.search(rf"^### `holdfast {name}\b.*?(?=^###? |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    common = re.search(r"^## Options of every command.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert common is not None
    for parameter in _command(name).params:
        if isinstance(parameter, click.Option):
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert f"`{option}" in section[0] + common[0], option
        else:
            assert str(parameter.name).upper() in section[0].partition("\n")[0]


def test_the_documentation_names_no_command_that_is_not_there() -> None:
    text = (REPOSITORY / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### `holdfast (\w+)", text, re.MULTILINE)) == set(COMMANDS)


def test_without_arguments_the_help_is_shown(cli: CommandLine) -> None:
    assert cli.ok() == cli.ok("--help")
    assert all(name in cli.ok() for name in COMMANDS)
    assert cli.ok("--version").startswith("holdfast, version ")


def test_a_mistyped_command_is_an_input_error_with_a_hint(cli: CommandLine) -> None:
    answer = cli("sesions")
    assert answer.code == 2
    assert answer.err.startswith("error: No such command 'sesions'. Did you mean 'sessions'?")
    assert cli("sesions", "--json").error["code"] == "usage"
    assert cli("--nonsense").code == 2


@pytest.mark.parametrize("arguments", [("log", "--url", "typo.db"), ("copy", "typo.db", "new.db")])
def test_a_database_that_is_named_and_not_there_is_said_to_be_missing(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    answer = cli(*arguments)
    assert answer.code == 6
    assert "there is no file typo.db" in answer.err
    assert "holdfast init --url typo.db" in answer.err
    assert list(cli.project.iterdir()) == []


def test_an_option_before_the_command_is_told_where_it_stands(cli: CommandLine) -> None:
    answer = cli("--tenant", "x", "log")
    assert answer.code == 2
    assert "Options stand behind the command: holdfast COMMAND --tenant" in answer.err
    assert "stand behind" not in cli("log", "--nonsense").err


def test_refusals_name_what_to_type(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("init")
    for command in (["brief"], ["resume"], ["pause"], ["decide", "x"], ["save"], ["complete"]):
        assert "holdfast save --agent-type NAME" in cli(*command).err, command
    session_id = cli.save("one", {"n": 1}, "--class", "feature")["session_id"]
    assert "--force" in cli("delete", "one", "--yes").err
    cli.ok("export", session_id, "-o", "out.tar")
    assert "--overwrite" in cli("export", session_id, "-o", "out.tar").err
    far = this_process()._replace(host="elsewhere")
    with SessionManager.open(owner=f"worker:{far}") as manager:
        manager.create_session("x", session_id="held")
        assert "--take-over" in cli("save", "two", "--session", "held").err
    monkeypatch.setenv("HOME", str(cli.project))
    assert "--no-files" in cli("save", "three", "--session", session_id).err


@pytest.mark.parametrize("arguments", READING)
def test_without_a_database_commands_say_so_and_create_none(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    answer = cli(*arguments)
    assert answer.code == 6
    assert answer.err.startswith("error: no Holdfast database here")
    assert "run: holdfast init" in answer.err
    assert answer.err.count("\n") == 1
    assert cli(*arguments, "--json").error["code"] == "store_unavailable"
    assert list(cli.project.iterdir()) == []


@pytest.mark.parametrize("arguments", READING)
def test_a_file_that_is_not_a_database_is_refused_and_not_touched(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    Path("notes.txt").write_bytes(b"my notes, dear to me\n" * 200)
    answer = cli(*arguments, "--url", "notes.txt", "--json")
    assert answer.code == 6
    assert answer.error["code"] == "not_a_database"
    assert Path("notes.txt").read_bytes() == b"my notes, dear to me\n" * 200


def test_a_newer_schema_is_refused(cli: CommandLine) -> None:
    cli.ok("init")
    database = sqlite3.connect(".agents/sessions.db")
    try:
        database.execute("INSERT INTO schema_migrations VALUES (999, 'sha256:x', '2099-01-01')")
        database.commit()
    finally:
        database.close()
    answer = cli("log", "--json")
    assert answer.code == 6
    assert answer.error["code"] == "schema_too_new"


def test_an_empty_file_is_not_turned_into_a_database_by_looking(cli: CommandLine) -> None:
    Path("empty.db").touch()
    answer = cli("log", "--url", "empty.db", "--json")
    assert answer.code == 6
    assert answer.error["code"] == "schema_missing"
    assert "run holdfast init" in answer.error["message"]
    assert Path("empty.db").stat().st_size == 0


def test_an_unknown_kind_of_store_is_an_input_error(cli: CommandLine) -> None:
    answer = cli("log", "--url", "mysql://x/y", "--json")
    assert answer.code == 2
    assert answer.error["code"] == "invalid_url"


@pytest.mark.parametrize(
    "arguments",
    [("log", "\udcff"), ("log", "--url", "\udcff"), ("save", "\udcff"), ("\udcff",)],
)
def test_arguments_that_are_not_text_are_refused_in_text(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    cli.save("first", {})
    assert cli(*arguments).code in (2, 3, 6)
    assert "udcff" in cli(*arguments, "--json").error["message"]


def test_a_bad_configuration_file_is_an_input_error(cli: CommandLine) -> None:
    cli.ok("init")
    Path(".agents/holdfast.toml").write_text("ulr = 'typo'\n")
    answer = cli("log")
    assert answer.code == 2
    assert "unknown settings ulr" in answer.err


def test_the_environment_names_the_store(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", str(tmp_path / "other.db"))
    cli.save("there", {})
    assert not (cli.project / ".agents" / "sessions.db").exists()
    assert cli.json("log", "--url", str(tmp_path / "other.db"))["checkpoints"][0]["name"] == "there"


@pytest.mark.row("S1-86")
def test_json_is_one_object_on_stdout_and_errors_one_line_on_stderr(cli: CommandLine) -> None:
    cli.ok("init")
    cli.save("a", {"text": "ü\x00"})
    cli.save("b", {"text": "ß"})
    session_id = cli.json("sessions")["sessions"][0]["id"]
    arguments: dict[str, tuple[str, ...]] = {
        "export": (session_id, "-o", "session.tar"),
        "import": ("session.tar",),
        "copy": (".agents/sessions.db", "../other.db"),
        "diff": ("a", "b"),
        "completion": ("bash",),
        "decide": ("x",),
        "drill": ("--kills", "1"),
        "run": ("--", "true"),
        "rollback": ("a", "--yes"),
        "undo": ("--yes",),
        "delete": (cli.json("show", "b")["checkpoint"]["id"], "--yes"),
        "erase": ("--all", "--tenant", "nobody", "--yes"),
        "skill": ("install",),
        "hooks": ("status",),
        "hook": ("task.pre",),
        "gate": ("start",),
        "redact": ("--check",),
        "keys": ("new", "../holdfast.keys"),
    }
    # These start a session of their own, which would be the latest for those that follow.
    for name in sorted(COMMANDS, key=("fork", "hook", "run").__contains__):
        # An encoding that cannot spell the answer must not break it.
        done = run_process(
            name, "--json", *arguments.get(name, ()), cwd=cli.project, PYTHONIOENCODING="ascii"
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert list(json.loads(done.stdout)), name
        failed = run_process(name, "--json", "--nonsense", cwd=cli.project)
        assert failed.stdout == b""
        assert failed.stderr.count(b"\n") == 1
        if name == "hook":
            # An agent would take any other code for an answer.
            assert failed.returncode == 0
            continue
        assert failed.returncode == 2
        assert json.loads(failed.stderr)["error"]["code"] == "usage"


def test_an_interrupt_ends_with_130(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("init")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.sessions.SessionManager.gc", interrupted)
    answer = cli("gc")
    assert answer.code == 130
    assert answer.err.strip() == "error: interrupted"


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_process_that_is_interrupted_ends_quietly(cli: CommandLine) -> None:
    cli.ok("init")
    os.mkfifo("state")
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "save", "x", "--agent-type", "t", "--state", "state"],
        cwd=cli.project,
        stderr=subprocess.PIPE,
    )
    try:
        # This opens once it is read from: by then it is no longer Python itself that would answer.
        with open("state", "wb"):
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_reader_that_goes_away_is_no_failure_to_complain_about(cli: CommandLine) -> None:
    cli.save("a", {"text": "x" * 300_000})
    command = f"'{sys.executable}' -m holdfast show | head -n 1"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=cli.project,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"Checkpoint  a\n", b"")


def test_importing_the_command_line_stays_quick() -> None:
    heavy = {"rich", "psycopg", "asyncio", "apsw", "holdfast.sessions", "holdfast.cli.commands"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import holdfast.cli"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "holdfast.cli" in imported
    assert imported & heavy == set()


def test_help_and_json_never_import_rich(cli: CommandLine) -> None:
    cli.save("a", {"step": 1})
    for arguments in (["--help"], ["log", "--help"], ["log", "--json"], ["log"], ["verify"]):
        program = (
            "import sys; from holdfast.cli import main\n"
            f"sys.argv = ['holdfast', *{arguments!r}]\n"
            "try: main()\n"
            "finally: assert not {'rich', 'psycopg', 'asyncio'} & set(sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=cli.project,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "command",
    [
        "complete {}", "pause {}", "resume {}", "log {}", "brief {}", "brief --check {}",
        "save name -s {}", "decide text -s {}", "show a -s {}", "diff a -s {}", "undo --yes -s {}",
        "delete a --yes -s {}", "rollback a --yes -s {}", "fork a -s {}", "gate start -s {}",
        "handoff -s {}", "handoff --write -s {}", "handoff --session-log -s {}", "erase --yes -s {}",
        "erase --all --yes --tenant {}", "sessions --tenant {}", "sessions --url {}", "init --url {}",
        "save name --tenant {}", "drill --url {}", "copy {} x.db",
        "copy .agents/sessions.db {}",
    ],
)  # fmt: skip
def test_what_is_given_empty_does_not_mean_the_default(cli: CommandLine, command: str) -> None:
    (cli.project / "a.txt").write_text("one")
    cli.save("a", {"step": 1})
    (cli.project / ".agents" / "holdfast.toml").write_text('[gates.start]\nmust = ["session"]\n')
    (cli.project / "a.txt").write_text("two")
    before = cli.json("sessions"), cli.json("log"), sorted(cli.project.iterdir())
    answer = cli(*("" if word == "{}" else word for word in command.split()), "--json")
    assert (answer.code, answer.out) == (2, ""), answer
    assert "empty" in answer.error["message"]
    assert (cli.json("sessions"), cli.json("log"), sorted(cli.project.iterdir())) == before
    assert (cli.project / "a.txt").read_text() == "two"


@pytest.mark.skipif(os.name == "nt", reason="a shell closes streams here")
@pytest.mark.parametrize(
    ("command", "code", "saved"),
    [
        ("save x <&-", 0, 1), ("save x >&-", 0, 1), ("save x 2>&-", 0, 1), ("save x <&- >&- 2>&-", 0, 1),
        ("hook tool.pre <&-", 0, 1), ("hook tool.pre <&- >&- 2>&-", 0, 1),
        ("save --state - <&-", 2, 0), ("rollback a <&- >&-", 2, 0), ("log >&-", 0, 0),
    ],
)  # fmt: skip
def test_a_closed_stream_is_empty_and_takes_everything(
    cli: CommandLine, command: str, code: int, saved: int
) -> None:
    (cli.project / "a.txt").write_text("one")
    cli.save("a", {"step": 1})
    (cli.project / "a.txt").write_text("two")
    done = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m holdfast {command}"],
        cwd=cli.project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    sessions = cli.json("sessions")["sessions"]
    listed = [len(cli.json("log", one["id"])["checkpoints"]) for one in sessions]
    assert sum(listed) == 1 + saved
    assert cli.json("verify")["verify"]["ok"]


NO_TEXT = os.fsdecode(b"no-\xff-text")


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="all names are text there")
def test_names_that_are_no_text_are_spelled_out_in_json(cli: CommandLine) -> None:
    session_id = cli.save("a", {"step": 1})["session_id"]
    exported = cli.json("export", session_id, "-o", f"{NO_TEXT}.tar")["bundle"]
    assert exported["path"] == "no-\\xff-text.tar"
    imported = cli.json("import", f"{NO_TEXT}.tar", "--url", "other.db")["import"]
    assert imported["bundle"]["path"] == "no-\\xff-text.tar"
    hook = cli("hook", "tool.pre", "--agent", NO_TEXT, "--json")
    assert hook.code == 0
    assert hook.json["hook"] == {"event": "tool.pre", "agent": "no-\\xff-text"}


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="all names are text there")
def test_a_database_whose_path_is_no_text_is_refused(cli: CommandLine) -> None:
    (cli.project / NO_TEXT).mkdir()
    (cli.project / ".git").mkdir()
    (cli.project / NO_TEXT / ".git").mkdir()
    inside = ("--project-dir", NO_TEXT)
    for arguments in (
        ("init", "--url", f"{NO_TEXT}.db"), ("init", *inside), ("save", "x", "--agent-type", "t", *inside),
        ("run", *inside, "--", sys.executable, "--version"),
    ):  # fmt: skip
        name, *rest = arguments
        answer = cli(name, "--json", *rest)
        assert (answer.code, answer.error["code"]) == (2, "invalid_url"), answer
        assert "no-\\udcff-text" in answer.error["message"]
    assert json.loads(cli("doctor", "--json", *inside).out)["doctor"]
    # The project itself may have any name.
    saved = cli.json("save", "x", "--agent-type", "t", *inside, "--url", "ok.db")["checkpoint"]
    assert saved["workspace_commit"]
    assert cli.json("status", *inside, "--url", "ok.db")["status"]["ok"]


@pytest.mark.row("S1-35")
def test_the_command_line_reaches_for_sessions_and_never_for_a_store() -> None:
    """Commands parse, call and render: no SQL, no driver, no store behind the manager's back."""
    below = re.compile(
        r"holdfast\.(stores|sql\.|state\.(?!tags|diff)|recording|verification|workspace)|apsw|psycopg"
    )
    for module in (REPOSITORY / "src/holdfast/cli").rglob("*.py"):
        text = module.read_text(encoding="utf-8")
        for line in re.findall(r"^\s*(?:from|import) (\S+)", text, re.MULTILINE):
            assert not below.match(line), f"{module.name} imports {line}"
        assert not re.search(r"\.store\b|\._\w+\(.*manager|os\.environ", text), module.name
        assert not re.search(r"\b(SELECT|INSERT|UPDATE|DELETE) ", text), module.name


@pytest.mark.row("S1-35")
def test_a_coverage_gate_runs_in_ci() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["coverage"]["report"]["fail_under"] >= 80
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test:.*\n\t\$\(PYTEST\).*--cov", makefile, re.MULTILINE)
    ci = (REPOSITORY / ".ci/run").read_text(encoding="utf-8")
    assert re.search(r"^set -e", ci, re.MULTILINE)
    assert re.search(r"^make test$", ci, re.MULTILINE)
