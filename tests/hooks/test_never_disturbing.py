"""Whatever comes in and whatever goes wrong, the agent goes on; what went wrong is written down."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import SessionManager
from holdfast.autosave.fallback import FallbackLog
from holdfast.hooks.desk import Desk
from holdfast.sessions.status import read_status
from holdfast.workspace.git import Workspace
from tests.hooks.conftest import Agent, checkpoints, only_session, run_hook

NONSENSE = {
    "nothing": b"",
    "blanks": b" \n ",
    "no json": b"{not json",
    "cut off": b'{"hook_event_name": "SessionStart", "session_id": "a',
    "no object": b'["SessionStart"]',
    "a number": b"7",
    "no utf-8": b'{"hook_event_name": "\xff\xfe"}',
    "too deep": b"[" * 100_000,
    "an unknown event": b'{"hook_event_name": "Celebrate", "session_id": "a"}',
    "no event": b'{"session_id": "a"}',
    "no session": b'{"hook_event_name": "Stop"}',
    "an agent that is none": b'{"hook_event_name": "Stop", "session_id": "a", "agent": "../x"}',
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_written_down_and_nothing_else_happens(
    project: Path, manager: SessionManager, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.chdir(project)
    agent = Agent(project)
    assert agent.send(data) == ""
    assert manager.list_sessions() == []
    (entry,) = FallbackLog(project).entries()
    assert entry.message.startswith("hook failed: ")
    assert "The agent goes on" in agent.err


@pytest.mark.parametrize(
    "data", [b"{bad json", b'{"a": 1} more', b"nothing"], ids=["no key", "too much", "no value"]
)
def test_a_process_of_its_own_says_what_is_wrong_with_json(project: Path, data: bytes) -> None:
    """Nothing has imported `json` there, other than in the process of the tests."""
    done = run_hook("--agent", "claude-code", cwd=project, stdin=data)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"what came in is not JSON: " in done.stderr
    assert b"char" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus"], ["--agent"], ["tool.pre", "tool.post"], ["tool.pre", "--project-dir", "not-there"],
        ["tool.pre", "--url", ""], ["tool.pre", "--tenant", ""],
    ],
)  # fmt: skip
def test_arguments_that_are_none_do_not_disturb(
    project: Path, manager: SessionManager, arguments: list[str]
) -> None:
    """An agent takes the exit code 2 for a no to what it is about to do."""
    # More than a pipe holds: whoever writes it is not left alone with it.
    event = Agent(project).payload("PreToolUse", tool_name="Bash", tool_input={"a": "x" * 100_000})
    done = run_hook(*arguments, cwd=project, stdin=event)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"hook failed: " in done.stderr
    assert b"The agent goes on" in done.stderr
    assert manager.list_sessions() == []
    assert len(FallbackLog(project).entries()) == 1


def test_the_project_and_the_store_may_be_named(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = str(tmp_path / "other.db")
    event = Agent(elsewhere).payload("PreToolUse", tool_name="Bash", tool_input={"command": "make"})
    options = ("--project-dir", str(project), "--url", store, "--tenant", "acme", "--json")
    done = run_hook("tool.pre", *options, cwd=elsewhere, stdin=event)
    assert (done.returncode, done.stderr) == (0, b"")
    with SessionManager.open(store, project_dir=project, tenant="acme") as manager:
        [session] = manager.list_sessions()
        assert manager.get_session(session.id).latest_checkpoint().workspace_commit
    with SessionManager.open(project_dir=project) as manager:
        assert manager.list_sessions() == []


@pytest.mark.parametrize(
    "value", [None, 7, True, [], ["a"], {}, {"a": 1}, "", "a\x00b", "x" * 9000]
)
@pytest.mark.parametrize(
    "field",
    [
        "session_id", "cwd", "hook_event_name", "transcript_path", "tool_name", "tool_input",
        "prompt", "agent_id", "agent_type", "agent_transcript_path", "source", "reason", "model",
        "open_files", "messages", "context", "agent",
    ],
)  # fmt: skip
def test_no_field_of_another_type_disturbs(
    agent: Agent, manager: SessionManager, field: str, value: Any
) -> None:
    given = {"tool_name": "Edit", "tool_input": {"file_path": "app.py"}, field: value}
    (agent.project / "app.py").write_text("changed\n")
    for event in ("SubagentStop", "PreToolUse", "Stop"):
        given["hook_event_name"] = value if field == "hook_event_name" else event
        assert (
            agent(**{"event": event, **given} if field != "hook_event_name" else {"event": value})
            == ""
        )
    if field not in ("session_id", "cwd", "hook_event_name", "agent"):
        assert len(checkpoints(manager)) >= 2


def test_a_payload_of_many_megabytes_is_taken(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    (agent.project / "app.py").write_text("changed\n")
    huge = {"file_path": str(agent.project / "app.py"), "content": "x" * 20_000_000}
    agent("PreToolUse", tool_name="Write", tool_input=huge, prompt="y" * 5_000_000)
    saved = checkpoints(manager)[-1]
    assert saved.description == "before Write app.py"
    assert saved.size_bytes < 10_000


def test_more_than_can_be_read_is_refused_after_it_was_read(
    agent: Agent, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.hooks.events.MAX_BYTES", 1000)
    monkeypatch.setattr("holdfast.hooks.command.MAX_BYTES", 1000)
    monkeypatch.chdir(agent.project)
    assert agent("Stop", prompt="x" * 2000) == ""
    assert "more than 1,000 bytes" in FallbackLog(agent.project).entries()[0].message
    assert manager.list_sessions() == []


@pytest.mark.parametrize("cwd", ["/does/not/exist", "relative", "a\x00b"])
def test_a_working_directory_that_is_none_is_written_down_where_we_are(
    agent: Agent, manager: SessionManager, monkeypatch: pytest.MonkeyPatch, cwd: str
) -> None:
    monkeypatch.chdir(agent.project)
    assert agent("Stop", cwd=cwd) == ""
    assert "working directory" in FallbackLog(agent.project).entries()[0].message
    assert manager.list_sessions() == []


def test_outside_of_projects_nothing_is_created(tmp_path: Path) -> None:
    done = run_hook(cwd=tmp_path, stdin=Agent(tmp_path).payload("SessionStart", source="startup"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_locked_database_does_not_disturb(agent: Agent, manager: SessionManager) -> None:
    (agent.project / ".agents" / "holdfast.toml").write_text("[hooks]\nseconds = 1\n")
    agent.start()
    held = apsw.Connection(str(agent.project / ".agents" / "sessions.db"))
    held.execute("BEGIN IMMEDIATE")
    (agent.project / "app.py").write_text("changed\n")
    assert agent("Stop") == ""
    held.execute("ROLLBACK")
    held.close()
    (entry,) = FallbackLog(agent.project).entries()
    assert "hook failed" in entry.message
    (last,) = checkpoints(manager)
    assert (entry.session_id, entry.after_seq) == (last.session_id, last.seq)
    assert not is_well(agent.project)
    agent("Stop")
    assert manager.read_file(checkpoints(manager)[-1], "app.py") == b"changed\n"
    assert is_well(agent.project)


def is_well(project: Path) -> bool:
    """Tell whether every save that failed has been made up for."""
    return read_status(lambda: SessionManager.open(project_dir=project), project_dir=project).ok


@pytest.mark.parametrize("note", [{}, {"saved": None}, {"saved": {"session_id": 1}}])
def test_a_start_that_failed_is_made_up_for_by_the_next_checkpoint_of_that_agent(
    agent: Agent, manager: SessionManager, note: dict[str, Any]
) -> None:
    toml = agent.project / ".agents" / "holdfast.toml"
    toml.write_text("[hooks\n")
    desk = Desk(str(agent.project), "claude-code", agent.session_id)
    desk.prepare()
    desk.write_note(note)
    assert agent.start() == ""
    toml.unlink()
    (entry,) = FallbackLog(agent.project).entries()
    assert (entry.agent_session, entry.session_id) == ("claude-code:a1b2", None)
    assert not is_well(agent.project)
    Agent(agent.project, "another").start()
    assert not is_well(agent.project)
    agent("Stop")
    assert is_well(agent.project)


@pytest.mark.parametrize(
    "content", [b"", b"not a database" * 100, None], ids=["empty", "junk", "a directory"]
)
def test_a_broken_database_does_not_disturb(project: Path, content: bytes | None) -> None:
    database = project / ".agents" / "sessions.db"
    database.parent.mkdir()
    if content is None:
        database.mkdir()
    else:
        database.write_bytes(content)
    agent = Agent(project)
    assert agent.start() == ""
    assert agent("Stop") == ""
    if content != b"":
        assert "hook failed" in FallbackLog(project).entries()[0].message


def test_a_database_that_vanished_is_made_anew(agent: Agent) -> None:
    agent.start()
    agent.edit("app.py", "2\n")
    for path in (agent.project / ".agents").glob("sessions.db*"):
        path.unlink()
    agent.shell("echo 3 > app.py")
    with SessionManager.open(project_dir=agent.project) as manager:
        said = "before Bash echo 3 > app.py, after Edit app.py"
        assert checkpoints(manager)[-1].description == said


def test_broken_settings_do_not_disturb(agent: Agent, manager: SessionManager) -> None:
    (agent.project / ".agents" / "holdfast.toml").write_text("[hooks\n")
    assert agent.start() == ""
    assert "cannot be read" in FallbackLog(agent.project).entries()[0].message


def test_a_session_that_somebody_holds_is_left_alone_and_told_of(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    record = only_session(manager)
    held = manager.resume_session(record.id, take_over=True)
    (agent.project / "app.py").write_text("changed\n")
    before = len(checkpoints(manager))

    assert agent("Stop") == ""

    assert len(checkpoints(manager)) == before
    (line,) = list(held.logs(level="error"))
    assert line.message.startswith("autosave failed: ")
    assert line.data is not None
    assert line.data["autosave"] == "hook:stop"
    held.close()
    agent("Stop")
    assert len(checkpoints(manager)) == before + 1


def test_during_a_rollback_a_hook_neither_waits_nor_writes(
    agent: Agent, manager: SessionManager, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.start()
    agent.edit("app.py", "2\n")
    agent("Stop")
    target = checkpoints(manager)[0]
    held = manager.hold_session(only_session(manager).id)
    seen = []

    def meanwhile() -> None:
        seen.append(run_hook(cwd=project, stdin=agent.payload("Stop")))

    restore = Workspace.restore

    def watched(self: Workspace, *arguments: Any, **options: Any) -> Any:
        meanwhile()
        return restore(self, *arguments, **options)

    monkeypatch.setattr(Workspace, "restore", watched)
    report = held.rollback(target.id)
    held.close()
    assert (project / "app.py").read_text() == "first\n"
    assert report.landed is not None
    assert [(one.returncode, one.stdout) for one in seen] == [(0, b"")]
    agent("Stop")
    assert manager.read_file(checkpoints(manager)[-1], "app.py") == b"first\n"


def test_a_hook_that_waits_for_another_gives_up(
    agent: Agent, manager: SessionManager, project: Path
) -> None:
    (project / ".agents" / "holdfast.toml").write_text("[hooks]\nseconds = 1\n")
    agent.start()
    from holdfast.hooks.desk import Desk

    with Desk(str(project), "claude-code", "a1b2").holding(1):
        assert agent("Stop") == ""
    (line,) = manager.get_session(only_session(manager).id).logs(level="error")
    assert "another hook of this agent" in line.message


def test_two_agents_at_once_have_a_session_each(project: Path, manager: SessionManager) -> None:
    code = """
import json, subprocess, sys
for number in range(6):
    for event in ("UserPromptSubmit", "Stop"):
        given = {"hook_event_name": event, "session_id": sys.argv[1], "cwd": sys.argv[2],
                 "prompt": f"turn {number}", "agent": "opencode"}
        done = subprocess.run([sys.executable, "-m", "holdfast", "hook"],
                              input=json.dumps(given).encode(), capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), done
    open(f"{sys.argv[2]}/{sys.argv[1]}.txt", "a").write("more")
"""
    agents = [
        subprocess.Popen([sys.executable, "-c", code, name, str(project)])
        for name in ("one", "two")
    ]
    assert [agent.wait(120) for agent in agents] == [0, 0]
    records = manager.list_sessions()
    assert {(one.metadata or {})["agent_session"] for one in records} == {
        "opencode:one",
        "opencode:two",
    }
    for record in records:
        prompts = [
            (one.metadata or {})["hook"]["prompt"] for one in checkpoints(manager, record.id)
        ]
        assert prompts == [f"turn {number}" for number in range(6)]
    assert FallbackLog(project).entries() == []


def test_standard_output_holds_json_or_nothing(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="work")
    agent.edit("app.py", "2\n")
    out = run_hook(cwd=agent.project, stdin=agent.payload("SessionStart", source="resume")).stdout
    assert json.loads(out).keys() == {"hookSpecificOutput"}
