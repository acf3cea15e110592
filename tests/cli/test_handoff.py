"""`holdfast handoff`, `holdfast gate`, and the page about recovery, command by command."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from holdfast import SessionManager
from tests.brief.conftest import git, state
from tests.cli.conftest import REPOSITORY, CommandLine, run_process

GATES = """
[gates.start]
must = ["session", "safe"]
should = ["clean"]

[gates.end]
must = ["checkpoint"]
should = ["decisions"]
"""


@pytest.fixture
def started(cli: CommandLine) -> CommandLine:
    git("init", "-q", "-b", "main")
    for name in ("a.py", "notes.md"):
        (cli.project / name).write_text("what we know\n")
    cli.save("before-refactor", state(), "--session", "oauth-migration", "--task", "Move to OAuth")
    return cli


@pytest.mark.row("S1-56")
def test_the_section_is_printed_and_written_on_request(started: CommandLine) -> None:
    path = started.project / ".agents" / "HANDOFF.md"
    text = started.ok("handoff")
    assert text.startswith("<!-- checkpoints:start -->\n")
    assert "| before-refactor | " in text
    assert not path.exists()
    assert started.ok("handoff", "--write").startswith("created ")
    assert text.strip() in path.read_text()
    assert started.ok("handoff", "--write").startswith("unchanged ")
    answer = started.json("handoff", "--write", "--rows", "1")["handoff"]
    assert (answer["action"], answer["rows"], answer["found"]) == ("unchanged", 1, 1)
    read = started.json("handoff", "--read")["handoff"]
    assert [one["title"] for one in read["sections"]] == ["Handoff", "Checkpoints"]
    assert read["checkpoints"][0]["name"] == "before-refactor"
    assert started.ok("handoff", "--read") == path.read_text()
    # What the table says is what to type.
    assert started.ok(*shlex.split(read["checkpoints"][0]["resume"])[1:]).startswith("resumed ")


@pytest.mark.row("S1-56")
def test_the_settings_can_forbid_it(started: CommandLine) -> None:
    (started.project / ".agents" / "holdfast.toml").write_text("[handoff]\nenabled = false\n")
    assert started.ok("handoff", "--write").startswith("left alone ")
    assert not (started.project / ".agents" / "HANDOFF.md").exists()


@pytest.mark.row("S1-32", "S1-56")
def test_every_command_of_the_table_works(cli: CommandLine) -> None:
    with SessionManager.open() as manager:
        done = manager.create_session("implementer", session_id="done")
        finished = done.save_checkpoint("finished", state={"n": 1})
        done.complete()
        going = manager.create_session("implementer", session_id="going")
        first = going.save_checkpoint("first", state={"n": 2})
        dead_end = going.save_checkpoint("dead end", state={}, resumable=False)
        broken = going.save_checkpoint("broken", state={"n": 3})
    # The library's own SQLite: two copies of it in one process would undo each other's locks.
    database = apsw.Connection(str(cli.project / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET label = 'x' WHERE id = ?", (broken.id,))
    database.close()
    assert cli("verify", "--deep").code == 5
    cli.ok("handoff", "--write")
    rows = cli.json("handoff", "--read")["handoff"]["checkpoints"]
    commands = {row["id"]: row["resume"] for row in rows}
    assert commands[first.id] == f"holdfast resume going --checkpoint {first.id}"
    assert commands[finished.id] == f"holdfast fork {finished.id}"
    assert commands[dead_end.id] == f"holdfast show {dead_end.id}"
    assert broken.id not in commands
    for text in commands.values():
        cli.ok(*text.split()[1:])
    cli.ok("handoff", "--issue", "7", "--session", "done")
    (written,) = (cli.project / ".agents/sessions/handoffs").iterdir()
    assert f"holdfast fork {finished.id}" in written.read_text(encoding="utf-8")


def test_other_files_are_written_instead(started: CommandLine) -> None:
    answer = started.json("handoff", "--issue", "42", "--title", "OAuth")["handoff"]
    (path,) = answer["paths"]
    assert "- **Issue**: #42 — OAuth\n" in Path(path).read_text(encoding="utf-8")
    shown = started.ok("handoff", "--session-log")
    assert re.findall(r"\d{4}-\d\d-\d\d-session-01\.(\w+)$", shown, re.MULTILINE) == ["md", "json"]
    assert not (started.project / ".agents" / "HANDOFF.md").exists()
    assert started("handoff", "--write", "--session-log").code == 2
    assert started("handoff", "--title", "x").code == 2
    assert started("handoff", "--issue", "../x").code == 2
    assert started("handoff", "--read").code == 2


@pytest.mark.row("S1-32")
def test_a_template_is_looked_for_from_where_one_is(
    started: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (started.project / "mine.md").write_text("top $issue\n")
    (started.project / "sub").mkdir()
    (started.project / "sub" / "mine.md").write_text("sub $issue\n")
    monkeypatch.chdir(started.project / "sub")

    def written(*options: str) -> str:
        (path,) = started.json("handoff", "--issue", "7", *options)["handoff"]["paths"]
        return Path(path).read_text(encoding="utf-8")

    assert written("--template", "mine.md") == "sub #7\n"
    assert written("--template", "../mine.md") == "top #7\n"
    (started.project / ".agents" / "holdfast.toml").write_text('[handoff]\ntemplate = "mine.md"\n')
    assert written() == "top #7\n"


def test_the_log_records_what_the_gates_say(started: CommandLine) -> None:
    (started.project / ".agents" / "holdfast.toml").write_text(GATES)
    before = started.json("log")["checkpoints"]
    _, path = started.json("handoff", "--session-log")["handoff"]["paths"]
    document = Path(path).read_text()
    assert '"sessionStart": {\n      "session": {\n        "complete": true' in document
    assert '"decisions": {\n        "complete": false,\n        "level": "SHOULD"' in document
    assert started.json("log")["checkpoints"] == before


@pytest.mark.row("S1-33", "S1-34", "S1-42")
def test_gates_block_on_what_must_hold(started: CommandLine) -> None:
    assert (started.ok("gate", "start"), started.ok("gate", "end")) == ("", "")
    assert started.json("gate", "end")["gate"]["configured"] is False
    (started.project / ".agents" / "holdfast.toml").write_text(GATES)
    out = started.ok("gate", "start")
    assert out.startswith("ok    MUST    session")
    assert out.endswith("open  the start gate\n")
    answer = started("gate", "end")
    assert answer.code == 1
    assert "no    MUST    checkpoint    nothing was saved since the start gate" in answer.out
    assert "warn  SHOULD  decisions" in answer.out
    assert answer.out.endswith("closed  the end gate: checkpoint\n")
    started.ok("save", "end-of-day")
    gate = started.json("gate", "end")["gate"]
    assert gate["ok"] is True
    assert {one["item"]: one["met"] for one in gate["items"]} == {
        "checkpoint": True,
        "decisions": False,
    }
    (started.project / "a.py").unlink()
    assert "file_deleted" in started("gate", "end").out
    assert started("gate", "middle").code == 2


def commands_of(page: Path) -> list[str]:
    """Every command in the blocks of a page that are for the shell."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


WORKER = """
import sys, time
from holdfast import SessionManager
manager = SessionManager.open()
session = manager.create_session("implementer", session_id="oauth-migration")
session.save_checkpoint("before-refactor", state={"step": 1})
session.save_checkpoint("latest", state={"step": 2})
print("saved", flush=True)
time.sleep(600)
"""


@pytest.mark.row("S1-43")
def test_every_command_of_the_recovery_page_works_after_a_kill(cli: CommandLine) -> None:
    commands = commands_of(REPOSITORY / "docs/how-to/recover.md")
    assert len(commands) >= 15
    text = (REPOSITORY / "docs/how-to/recover.md").read_text("utf-8")
    assert len(re.findall(r"^(?:holdfast|mv) ", text, re.MULTILINE)) == len(commands)
    (cli.project / ".agents").mkdir()
    (cli.project / ".agents" / "holdfast.toml").write_text(GATES)
    (cli.project / "a.py").write_text("one\n")
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=cli.project, stdout=subprocess.PIPE
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"saved\n"
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()
    said = {}
    for line in commands:
        program, *arguments = shlex.split(line)
        if program == "mv":
            # The page says: those that are there.
            source, target = (cli.project / one for one in arguments)
            if source.exists():
                source.rename(target)
            continue
        assert program == "holdfast"
        done = run_process(*arguments, cwd=cli.project)
        assert (done.returncode, done.stderr) == (0, b""), line
        said[line] = done.stdout.decode()
    assert "interrupted" in said["holdfast recover"]
    assert "oauth-migration" in said["holdfast sessions --status interrupted"]
    with SessionManager.open(project_dir=cli.project) as manager:
        session = manager.get_session("oauth-migration")
        assert session.status == "active"
        assert session.latest_checkpoint().name == "after-recovery"
        # The page resumes from before-refactor, and that is what is saved afterwards.
        assert session.latest_checkpoint().state == {"step": 1}


@pytest.mark.row("S1-43")
def test_the_protocol_and_its_settings_ship_and_work(started: CommandLine) -> None:
    page = REPOSITORY / "docs/templates/SESSION-PROTOCOL.md"
    text = page.read_text("utf-8")
    (settings,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (started.project / ".agents" / "holdfast.toml").write_text(settings)
    # Every command that it names, in its order.
    named = re.findall(r"`(holdfast [a-z][^`]*)`", text)
    assert len(named) >= 8
    for line in named:
        done = run_process(*shlex.split(line)[1:], cwd=started.project)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
