"""Going back in a project that an agent works in."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import SessionManager
from holdfast.cli import holdfast
from holdfast.hooks.transcripts import forms
from tests.cli.terminal import on_terminal
from tests.hooks.conftest import Agent, checkpoints, only_session


def run(project: Path, *arguments: str, code: int = 0) -> Any:
    """Run a command in the project and return its JSON."""
    done = CliRunner().invoke(holdfast, [*arguments, "--json", "--project-dir", str(project)])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout if code == 0 else done.stderr)


def test_what_a_shell_changed_deleted_and_made_goes_back(
    agent: Agent, manager: SessionManager
) -> None:
    project = agent.project
    (project / "untracked.txt").write_text("precious\n")
    agent.start()
    agent.shell("echo ruined > app.py; rm untracked.txt; mkdir made; echo x > made/new.txt")
    agent.shell("rm app.py")
    agent("Stop")
    start = checkpoints(manager)[0]

    done = run(project, "rollback", start.name, "--yes")["rollback"]

    assert (project / "app.py").read_text() == "first\n"
    assert (project / "untracked.txt").read_text() == "precious\n"
    assert not (project / "made").exists()
    assert done["conversation"] == {
        "agent": "claude-code",
        "session_id": "a1b2",
        "command": "claude --resume a1b2",
        "path": None,
    }
    run(project, "undo", "--yes")
    assert not (project / "app.py").exists()
    assert (project / "made" / "new.txt").read_text() == "x\n"


@pytest.mark.row("T17")
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved yet"])
@pytest.mark.parametrize("way", ["edit", "shell"])
def test_a_rollback_in_one_session_leaves_what_the_other_wrote(
    project: Path, manager: SessionManager, way: str, saved: bool
) -> None:
    for name in ("a.py", "b.py"):
        (project / name).write_text("before\n")
    a, b = Agent(project, "A", kind="codex"), Agent(project, "B", kind="opencode")
    for one in (a, b):
        one.start()
    tools = {"codex": ("apply_patch", "Bash"), "opencode": ("edit", "bash")}

    def work(agent: Agent, path: str, content: str) -> None:
        edit, shell = tools[str(agent.kind)]
        patch = f"*** Begin Patch\n*** Update File: {path}\n"
        given = {"filePath": str(project / path), "command": patch}
        use: dict[str, Any] = {"tool_name": edit, "tool_input": given}
        if way == "shell":
            use = {"tool_name": shell, "tool_input": {"command": f"echo {content} > {path}"}}
        agent("PreToolUse", **use)
        (project / path).write_text(f"{content}\n")
        agent("PostToolUse", **use)
        if saved:
            agent("Stop")

    work(b, "b.py", "by B")
    if not saved and way == "shell":
        # Until somebody looks, nobody can know whose it is.
        b("Stop")
    work(a, "a.py", "by A")
    a("Stop")
    work(b, "b2.py", "by B")
    (project / "hand.py").write_text("by hand\n")

    session = manager.list_sessions(metadata={"agent_session": "opencode:B"})[0].id
    start = checkpoints(manager, session)[0]
    run(project, "rollback", start.id, "--only-mine", "--yes")

    assert (project / "a.py").read_text() == "by A\n"
    assert (project / "b.py").read_text() == "before\n"
    assert not (project / "b2.py").exists()
    if way == "edit" or saved:
        assert (project / "hand.py").read_text() == "by hand\n"


def talk(kind: str, folder: Path) -> tuple[Path, list[bytes]]:
    """Return a transcript of four turns; a tool's call is not answered yet in the third."""
    if kind == "codex":
        name = "rollout-2026-01-02T03-04-05-a1b2.jsonl"
        said: list[dict[str, Any]] = [
            {"type": "session_meta", "payload": {"id": "a1b2", "session_id": "a1b2", "cwd": "/x"}},
            {"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}},
            {"type": "response_item", "payload": {"type": "function_call", "call_id": "c"}},
            {"type": "response_item",
             "payload": {"type": "function_call_output", "call_id": "c", "output": "ok"}},
        ]  # fmt: skip
    elif kind == "gemini":
        name = "session-2026-01-02T03-04-a1b2.jsonl"
        said = [
            {"sessionId": "a1b2", "projectHash": "p", "kind": "main"},
            {"id": "1", "type": "user", "content": [{"text": "Go"}]},
            {"id": "2", "type": "gemini", "content": "Yes"},
            {"$set": {"lastUpdated": "now"}},
        ]
    else:
        name = "a1b2.jsonl"
        said = [
            {"type": "user", "sessionId": "a1b2", "uuid": "1", "message": {"role": "user", "content": "Go"}},
            {"type": "system", "sessionId": "a1b2", "uuid": "2", "content": "note"},
            {"type": "assistant", "sessionId": "a1b2", "uuid": "3",
             "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}},
            {"type": "user", "sessionId": "a1b2", "uuid": "4",
             "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}},
        ]  # fmt: skip
    return folder / name, [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in said]


@pytest.mark.parametrize(
    ("kind", "kept", "command"),
    [
        ("claude-code", [1, 2, 2, 4], "claude --resume {}"),
        ("codex", [1, 2, 2, 4], "codex resume {}"),
        ("gemini", [1, 2, 3, 4], "gemini --resume {}"),
    ],
)
def test_the_conversation_is_written_down_a_second_time_as_it_was_then(
    project: Path,
    tmp_path: Path,
    manager: SessionManager,
    kind: str,
    kept: list[int],
    command: str,
) -> None:
    path, lines = talk(kind, tmp_path)
    agent = Agent(project, kind=kind, transcript_path=str(path))
    for line in lines:
        with path.open("ab") as file:
            file.write(line)
        agent("AfterAgent" if kind == "gemini" else "Stop")
    original = path.read_bytes()

    for saved, count in zip(checkpoints(manager), kept, strict=True):
        looked = run(project, "rollback", saved.name, "--with-conversation", "--dry-run")
        assert "conversation" not in looked["rollback"]
        done = run(project, "rollback", saved.name, "--with-conversation", "--yes")["rollback"]
        then = done["conversation"]
        assert then["command"] == command.format(then["session_id"])
        written = Path(then["path"])
        assert (written.parent, written.suffix) == (tmp_path, ".jsonl")
        assert written.stat().st_mode & 0o777 == 0o600
        again = written.read_bytes()
        assert again.count(b"\n") == count
        assert again.replace(then["session_id"].encode(), b"a1b2") == b"".join(lines[:count])
        assert then["session_id"].encode() in again
        # In quotes: the new id, which is drawn, may have these letters too.
        assert b'"a1b2"' not in again
    assert path.read_bytes() == original
    assert len(list(tmp_path.glob("*.jsonl"))) == 5


def codex_item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **fields}}


def claude_entry(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": role, "message": {"role": role, "content": content}, **fields}


KILLED_IN_A_CALL: dict[str, tuple[list[dict[str, Any]], int]] = {
    "claude": (
        [
            claude_entry("user", "Go"),
            claude_entry("assistant", [{"type": "tool_use", "id": "cut short"}]),
            claude_entry("user", [{"type": "text", "text": "Go on"}]),
            claude_entry("assistant", [{"type": "tool_use", "id": "two"}]),
            claude_entry("user", [{"type": "tool_result", "tool_use_id": "two"}]),
            claude_entry("assistant", [{"type": "tool_use", "id": "open"}]),
            claude_entry("assistant", [{"type": "tool_use", "id": "beside it"}]),
            claude_entry("user", [{"type": "tool_result", "tool_use_id": "beside it"}]),
            claude_entry("user", "what a subagent is told", isSidechain=True),
            claude_entry("user", "a caveat", isMeta=True),
        ],
        5,
    ),
    "codex": (
        [
            codex_item("message", role="user", content=[]),
            codex_item("function_call", call_id="cut short"),
            codex_item("message", role="user", content=[]),
            codex_item("function_call", call_id="two"),
            codex_item("function_call_output", call_id="two", output="ok"),
            codex_item("message", role="assistant", content=[]),
            codex_item("function_call", call_id="open"),
            codex_item("message", role="assistant", content=[]),
        ],
        6,
    ),
}


@pytest.mark.parametrize("form", KILLED_IN_A_CALL)
def test_a_call_that_a_kill_cut_short_long_ago_does_not_end_the_second_conversation(
    form: str,
) -> None:
    said, kept = KILLED_IN_A_CALL[form]
    lines = [json.dumps(one, separators=(",", ":")).encode() for one in said]
    _, again = forms(form).fork(lines, "a1b2", "new")
    assert again == lines[:kept]


def test_where_a_conversation_cannot_be_written_nothing_is_changed(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    def refused(agent: Agent, **fields: Any) -> str:
        agent.start()
        agent("Stop", **fields)
        session = manager.list_sessions()[0]
        before = len(checkpoints(manager, session.id))
        (project / "app.py").write_text(f"{agent.kind} {agent.session_id}\n")
        answer = run(project, "rollback", "--with-conversation", "--yes", code=3)
        assert answer["error"]["code"] == "no_conversation"
        assert (project / "app.py").read_text() == f"{agent.kind} {agent.session_id}\n"
        assert len(checkpoints(manager, session.id)) == before
        message = answer["error"]["message"]
        assert isinstance(message, str)
        return message

    messages = [{"info": {"role": "user"}, "parts": []}]
    assert "database of its own" in refused(Agent(project, "1", kind="opencode"), messages=messages)
    assert "is not known" in refused(Agent(project, "2", kind="my-script"))
    assert "holds no conversation" in refused(Agent(project, "3"))
    folder = tmp_path / "gone"
    folder.mkdir()
    path, lines = talk("claude-code", folder)
    path.write_bytes(b"".join(lines))
    agent = Agent(project, "a1b2", transcript_path=str(path))
    agent.start()
    path.unlink()
    folder.rmdir()
    assert "is not there any more" in refused(agent)
    manager.create_session("implementer").save_checkpoint(state={"a": 1})
    answer = run(project, "rollback", "--with-conversation", "--yes", code=3)
    assert "not one of a coding agent" in answer["error"]["message"]


def test_a_checkpoint_from_elsewhere_chooses_no_directory_for_a_conversation(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    (tmp_path / "autostart").mkdir()
    session = manager.create_session("coder", metadata={"agent_session": "claude-code:theirs"})
    state = {
        "transcript": {"format": "claude", "path": str(tmp_path / "autostart" / "x.jsonl")},
        "conversation_history": [{"role": "user", "content": "theirs"}],
    }
    session.save_checkpoint("one", state=state)
    session.close()
    for more in (["--dry-run"], ["--yes"]):
        answer = run(project, "rollback", "one", "--with-conversation", *more, code=3)
        assert answer["error"]["code"] == "no_conversation"
        assert "no agent of yours" in answer["error"]["message"]
    assert list((tmp_path / "autostart").iterdir()) == []


@pytest.mark.parametrize(
    ("given", "command"),
    [("x; touch here", "claude --resume 'x; touch here'"), ("--help", None)],
)
def test_a_session_from_elsewhere_puts_nothing_into_the_command_to_go_on_with(
    given: str, command: str | None, project: Path, manager: SessionManager
) -> None:
    session = manager.create_session("coder", metadata={"agent_session": f"claude-code:{given}"})
    session.save_checkpoint("one", state={})
    session.close()
    done = run(project, "rollback", "one", "--yes")["rollback"]
    assert (done.get("conversation") or {}).get("command") == command


def test_a_completed_session_is_rolled_back_in_a_fork_which_the_agent_goes_on_with(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="work")
    agent.shell("echo 2 > app.py")
    agent("Stop")
    agent("SessionEnd", reason="other")
    done = run(agent.project, "rollback", checkpoints(manager)[0].name, "--yes")
    assert done["rollback"]["conversation"]["command"] == "claude --resume a1b2"
    agent.start("resume")
    agent.shell("echo 3 > app.py")
    agent("Stop")
    fork, old = manager.list_sessions()
    assert (fork.status, old.status) == ("active", "completed")
    assert manager.read_file(checkpoints(manager, fork.id)[-1], "app.py") == b"3\n"


def test_the_log_shows_what_each_step_did_and_where_work_took_another_way(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="Make it [bold]work[/bold]")
    agent.shell("echo 2 > app.py")
    agent("Stop")
    first = checkpoints(manager)[0]
    run(agent.project, "rollback", first.name, "--yes")
    agent("UserPromptSubmit", prompt="Another way")
    agent.shell("echo 3 > app.py")
    agent("Stop")
    manager.get_session(only_session(manager).id).fork(first.id)

    found = run(agent.project, "log", manager.list_sessions()[-1].id)["checkpoints"]
    assert found[0]["did"]["steps"] == [{"tool": "Bash", "detail": "echo 3 > app.py"}]
    assert found[0]["did"]["prompt"] == "Another way"
    assert found[0]["did"]["files"] == ["app.py"]
    assert found[-1]["forks"] == [manager.list_sessions()[0].id]

    drawn = on_terminal(
        "log", manager.list_sessions()[-1].id, cwd=agent.project, TERM="dumb", columns=200
    )
    lines = [line.rstrip() for line in drawn.splitlines()]
    assert any("“Another way”: Bash echo 3 > app.py" in line for line in lines)
    assert any("“Make it [bold]work[/bold]”: Bash echo 2 > app.py" in line for line in lines)
    beside = [line.split("  ")[0].strip() for line in lines[2:]]
    assert beside == ["●", "●", "│ ●", "│ ●", "├─╯", "●"]
