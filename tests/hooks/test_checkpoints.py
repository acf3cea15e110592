"""What is saved at which event."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.hooks.desk import Desk
from tests.hooks.conftest import (
    Agent,
    checkpoints,
    descriptions,
    git,
    only_session,
)

EDITING: list[tuple[str, str, dict[str, Any]]] = [
    ("claude-code", "Edit", {"file_path": "app.py"}),
    ("claude-code", "Write", {"file_path": "app.py"}),
    ("claude-code", "MultiEdit", {"file_path": "app.py"}),
    ("claude-code", "NotebookEdit", {"notebook_path": "app.py"}),
    ("claude-code", "Bash", {"command": "make"}),
    ("claude-code", "mcp__files__write", {"anything": 1}),
    ("codex", "apply_patch", {"command": "*** Begin Patch\n*** Update File: app.py\n"}),
    ("codex", "Bash", {"command": "make"}),
    ("gemini", "write_file", {"file_path": "app.py"}),
    ("gemini", "replace", {"file_path": "app.py"}),
    ("gemini", "run_shell_command", {"command": "make"}),
    ("opencode", "edit", {"filePath": "app.py"}),
    ("opencode", "bash", {"command": "make"}),
]


def name_of(case: Any) -> str | None:
    return case if isinstance(case, str) else None


@pytest.mark.row("S1-27", "S4-28")
@pytest.mark.parametrize(("kind", "tool", "given"), EDITING, ids=name_of)
def test_before_a_change_the_files_are_saved_and_nobody_had_to_ask(
    project: Path, manager: SessionManager, kind: str, tool: str, given: dict[str, Any]
) -> None:
    agent = Agent(project, kind=kind)
    agent.start()
    (project / "app.py").write_text("by hand\n")
    before = "BeforeTool" if kind == "gemini" else "PreToolUse"

    agent(before, tool_name=tool, tool_input=given)

    saved = checkpoints(manager)[-1]
    assert (saved.checkpoint_type, saved.retention_class) == ("auto", "automatic")
    assert manager.read_file(saved, "app.py") == b"by hand\n"
    assert saved.metadata is not None
    assert saved.metadata["hook"]["tool"] == tool


@pytest.mark.parametrize(
    ("kind", "tool"),
    [
        ("claude-code", "Read"),
        ("claude-code", "Grep"),
        ("codex", "update_plan"),
        ("gemini", "read_file"),
        ("opencode", "glob"),
    ],
)
def test_tools_that_only_read_make_no_checkpoint(
    project: Path, manager: SessionManager, kind: str, tool: str
) -> None:
    agent = Agent(project, kind=kind)
    agent.start()
    (project / "app.py").write_text("by hand\n")
    before, after = (
        ("BeforeTool", "AfterTool") if kind == "gemini" else ("PreToolUse", "PostToolUse")
    )

    agent(before, tool_name=tool, tool_input={"file_path": "app.py"})
    agent(after, tool_name=tool, tool_input={"file_path": "app.py"})

    assert descriptions(manager) == ["session starts (startup)"]


def test_tools_that_the_settings_call_read_only_make_none(
    project: Path, agent: Agent, manager: SessionManager
) -> None:
    (project / ".agents" / "holdfast.toml").write_text('[hooks]\nread_only = ["mcp__search__*"]\n')
    agent.start()
    (project / "app.py").write_text("by hand\n")
    agent("PreToolUse", tool_name="mcp__search__find", tool_input={})
    assert len(checkpoints(manager)) == 1
    agent("PreToolUse", tool_name="mcp__files__write", tool_input={})
    assert len(checkpoints(manager)) == 2


@pytest.mark.row("S4-28")
def test_where_nothing_changed_there_is_no_second_checkpoint(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    for _ in range(3):
        agent("PreToolUse", tool_name="Bash", tool_input={"command": "make"})
    assert descriptions(manager) == ["session starts (startup)"]


@pytest.mark.row("S4-28")
def test_a_burst_of_edits_is_saved_once(agent: Agent, manager: SessionManager) -> None:
    (agent.project / ".agents" / "holdfast.toml").write_text("[hooks]\ndebounce_ms = 1000000\n")
    agent.start()
    agent.edit("new.py", "1\n")
    agent.edit("app.py", "2\n")
    first = descriptions(manager)
    agent.edit("app.py", "3\n")
    agent.edit("new.py", "4\n")
    assert descriptions(manager) == first
    assert first == ["session starts (startup)", "before Edit app.py, after Edit new.py"]
    agent.shell("echo 5 > app.py")
    last = "before Bash echo 5 > app.py, after Edit app.py, Edit app.py, Edit new.py"
    assert descriptions(manager)[-1] == last


def test_within_a_burst_what_somebody_else_wrote_is_saved_before_it_is_overwritten(
    agent: Agent, manager: SessionManager
) -> None:
    (agent.project / ".agents" / "holdfast.toml").write_text("[hooks]\ndebounce_ms = 1000000\n")
    agent.start()
    agent.edit("new.py", "1\n")
    agent.edit("app.py", "2\n")
    (agent.project / "other.py").write_text("precious\n")
    agent.before_edit("other.py")
    assert manager.read_file(checkpoints(manager)[-1], "other.py") == b"precious\n"


@pytest.mark.row("T7")
def test_the_checkpoint_before_an_edit_holds_what_is_dirty_and_git_is_not_touched(
    agent: Agent, manager: SessionManager
) -> None:
    project = agent.project
    (project / "staged.py").write_text("staged\n")
    git(project, "add", "staged.py")
    (project / "app.py").write_text("dirty\n")
    (project / "untracked.py").write_text("new\n")
    before = (project / ".git" / "index").read_bytes()
    head = git(project, "rev-parse", "HEAD")
    agent.start()
    prompt = "say \"it's\" $(rm -rf .)\n`now`\t\x1b[31m\x00 ' -- ; \ud800"
    agent("UserPromptSubmit", prompt=prompt)
    (project / "app.py").write_text("dirtier\n")

    agent.before_edit("app.py")

    saved = checkpoints(manager)[-1]
    assert manager.read_file(saved, "app.py") == b"dirtier\n"
    assert manager.read_file(saved, "untracked.py") == b"new\n"
    assert saved.metadata is not None
    assert saved.metadata["hook"]["prompt"].startswith('say "it\'s" $(rm -rf .)\n`now`\t\x1b[31m')
    assert (project / ".git" / "index").read_bytes() == before
    assert git(project, "rev-parse", "HEAD") == head
    assert git(project, "log", "--oneline").count("\n") == 1
    assert git(project, "branch", "--list").split() == ["*", "main"]
    assert git(project, "diff", "--cached", "--name-only") == "staged.py\n"


def test_a_path_that_no_file_can_have_does_not_keep_the_turn_from_being_saved(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    # Agents cut texts by their length, through the middle of a character too.
    half = {"tool_name": "Edit", "tool_input": {"file_path": "src/\ud83d"}}
    (agent.project / "app.py").write_text("2\n")
    agent("PreToolUse", **half)
    (agent.project / "app.py").write_text("3\n")
    agent("PostToolUse", **half)
    agent("Stop")
    assert agent.err == ""

    before_it, turn = checkpoints(manager)[-2:]
    assert manager.read_file(before_it, "app.py") == b"2\n"
    assert manager.read_file(turn, "app.py") == b"3\n"
    assert turn.description == "turn ended: Edit"


@pytest.mark.parametrize("odd", [True, [1], {"a": 1}], ids=str)
def test_a_note_that_somebody_else_wrote_keeps_nothing_from_being_saved(
    odd: object, agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    [note] = (agent.project / ".agents" / "hooks").glob("*.json")
    note.write_text(json.dumps(json.loads(note.read_text()) | {"read_only": odd}))
    (agent.project / "app.py").write_text("2\n")
    agent.before_edit("app.py")
    assert agent.err == ""
    assert manager.read_file(checkpoints(manager)[-1], "app.py") == b"2\n"


def test_a_tool_may_have_any_name(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    (agent.project / "app.py").write_text("2\n")
    agent("PreToolUse", tool_name="a\0b\ud83d", tool_input={})
    assert agent.err == ""
    assert checkpoints(manager)[-1].description == "before a\\x00b\\ud83d"


def test_a_journal_with_such_a_path_is_read(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    [note] = (agent.project / ".agents" / "hooks").glob("*.json")
    line = {"tool": "Edit", "paths": [f"{agent.project}/\ud83d", ""]}
    note.with_suffix(".jsonl").write_text(json.dumps(line) + "\n")
    (agent.project / "app.py").write_text("2\n")
    agent("Stop")
    assert agent.err == ""
    assert manager.read_file(checkpoints(manager)[-1], "app.py") == b"2\n"


def test_a_turn_is_saved_with_its_prompt_and_what_was_done(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="Make it work")
    agent.edit("app.py", "2\n")
    agent.shell("echo 3 > made.txt")
    agent("Stop", last_assistant_message="done")

    saved = checkpoints(manager)[-1]
    assert saved.retention_class == "step"
    assert saved.description == "“Make it work”: Edit app.py, Bash echo 3 > made.txt"
    assert saved.metadata is not None
    assert saved.metadata["hook"] == {
        "event": "stop",
        "agent": "claude-code",
        "prompt": "Make it work",
        "steps": [{"tool": "Bash", "detail": "echo 3 > made.txt"}],
        "step_count": 1,
        "files": ["made.txt"],
        "file_count": 1,
    }
    assert only_session(manager).task_description == "Make it work"


def test_the_first_request_is_the_task_before_there_is_another_checkpoint(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="Make it work")
    agent("UserPromptSubmit", prompt="Now faster")
    record = only_session(manager)
    assert record.task_description == "Make it work"
    assert "Make it work" in manager.get_session(record.id).brief().text
    agent("Stop", last_assistant_message="done")
    saved = checkpoints(manager)[-1]
    assert saved.metadata is not None
    assert saved.metadata["hook"]["prompt"] == "Now faster"


def test_turns_are_kept_when_automatic_checkpoints_are_trimmed(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    for turn in range(8):
        agent("UserPromptSubmit", prompt=f"turn {turn}")
        agent.shell(f"echo {turn} > made.txt")
        agent.shell(f"echo {turn} > more.txt")
        agent("Stop")
    kept = [one.retention_class for one in checkpoints(manager)]
    assert kept.count("step") == 8
    assert kept.count("automatic") == 5


def test_one_session_for_each_agent_session_over_many_processes(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start(transcript_path="/nowhere/t.jsonl")
    agent.edit("app.py", "2\n")
    agent("Stop")
    record = only_session(manager)
    assert record.lease_owner == "agent:claude-code:a1b2"
    assert record.metadata is not None
    assert record.metadata["agent_session"] == "claude-code:a1b2"
    assert record.metadata["transcript_path"] == "/nowhere/t.jsonl"
    assert record.agent_type == "claude-code"


def test_open_files_and_numbers_are_kept_when_they_are_given(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    opened = [{"path": "app.py", "line": 3, "column": 1, "active": True}]
    agent("Stop", open_files=opened, session_number=4, token_usage=1200)
    agent("Stop", token_usage=1500)
    state = checkpoints(manager)[-1].state
    assert state["open_files"] == opened
    assert state["context"] == {"session_number": 4, "token_usage": 1500}


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"open_files": "app.py"}, "open_files"),
        ({"open_files": [{"line": 1}]}, "open_files"),
        ({"token_usage": -1}, "context"),
        ({"token_usage": True}, "context"),
        ({"token_usage": "many", "session_number": 1.5}, "context"),
        ({"context": [1]}, "context"),
    ],
    ids=["no list", "no path", "negative", "a flag", "no number", "no object"],
)
def test_what_is_not_of_the_documented_shape_is_left_out(
    agent: Agent, manager: SessionManager, fields: dict[str, Any], key: str
) -> None:
    agent.start()
    agent("Stop", **fields)
    saved = checkpoints(manager)[-1]
    assert saved.metadata is not None
    assert saved.metadata["hook"]["event"] == "stop"
    assert key not in saved.state


def test_the_list_of_tasks_is_kept(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    todos = [
        {"content": "write it", "status": "completed", "activeForm": "writing"},
        {"content": "test it", "status": "in_progress", "activeForm": "testing"},
        {"content": "odd", "status": "strange"},
        "nonsense",
    ]
    agent("PostToolUse", tool_name="TodoWrite", tool_input={"todos": todos})
    agent("Stop")
    assert checkpoints(manager)[-1].task_state["tasks"] == [
        {"id": "write it", "title": "write it", "status": "completed"},
        {"id": "test it", "title": "test it", "status": "in_progress"},
        {"id": "odd", "title": "odd", "status": "pending"},
    ]


def test_subagents_are_agents_with_a_parent(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    agent("SubagentStart", agent_id="sub-1", agent_type="Explore")
    parent = only_session(manager).agent_id
    (child,) = manager.list_agents(parent_id=parent)
    assert (child.name, child.agent_type, child.status) == ("sub-1", "Explore", "running")
    assert child.depth_level == 1
    agent("SubagentStop", agent_id="sub-1", agent_type="Explore")
    assert manager.get_agent(child.id).status == "completed"
    saved = checkpoints(manager)[-1]
    assert saved.metadata is not None
    assert saved.metadata["hook"]["subagent"] == "sub-1"


def test_before_a_compaction_the_state_is_saved_and_not_again_at_once(
    project: Path, manager: SessionManager
) -> None:
    agent = Agent(project, kind="gemini")
    agent.start()
    for _ in range(4):
        agent("PreCompress", trigger="auto")
    assert descriptions(manager) == [
        "session starts (startup)",
        "before the conversation is compacted",
    ]


def test_each_checkpoint_says_what_was_done_since_the_one_before_and_a_turn_all_of_it(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="Now break it")
    agent.edit("app.py", "2\n")
    agent.shell("echo 3 > app.py")
    agent("PreCompact", trigger="auto")
    agent.edit("other.py", "1\n")
    agent("SubagentStop", agent_id="sub-1", agent_type="Explore")
    for number in range(3):
        target = {"file_path": str(agent.project / f"{number}.py")}
        agent("PostToolUse", tool_name="Edit", tool_input=target)
    agent("TaskCompleted", task_subject="Break it")
    agent("Stop")
    agent.edit("app.py", "4\n")
    agent("Stop")
    edits = "Edit 0.py, Edit 1.py, Edit 2.py"
    assert [one for one in descriptions(manager) if not str(one).startswith("before Edit")] == [
        "session starts (startup)",
        "before Bash echo 3 > app.py, after Edit app.py",
        "before the conversation is compacted, after Bash echo 3 > app.py",
        "the subagent Explore ended, after Edit other.py",
        f"task completed: Break it, after {edits}",
        f"“Now break it”: {edits} and 3 more",
        "“Now break it”: Edit app.py",
    ]


@pytest.mark.parametrize("odd", [7, [], [1], [-1, []], [1, [2]], [10**16, ["x"]], [1, {"a": 1}]])
def test_what_a_note_cannot_say_of_a_turn_is_not_told(
    odd: object, agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    [note] = (agent.project / ".agents" / "hooks").glob("*.json")
    note.write_text(json.dumps(json.loads(note.read_text()) | {"did": odd}))
    agent.edit("app.py", "2\n")
    agent("Stop")
    assert descriptions(manager)[-1] == "turn ended: Edit app.py"


def test_a_finished_turn_and_an_end_complete_the_session(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="work")
    agent.edit("app.py", "2\n")
    agent("Stop")
    agent("SessionEnd", reason="other")
    record = only_session(manager)
    assert (record.status, record.lease_owner) == ("completed", None)


def test_an_end_in_the_middle_of_a_turn_pauses_it(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="work")
    agent.edit("app.py", "2\n")
    agent("SessionEnd", reason="prompt_input_exit")
    record = only_session(manager)
    assert (record.status, record.lease_owner) == ("paused", None)
    assert record.pause_reason == "the agent ended (prompt_input_exit)"


def test_hooks_can_be_switched_off(project: Path, agent: Agent, manager: SessionManager) -> None:
    (project / ".agents" / "holdfast.toml").write_text("[hooks]\nenabled = false\n")
    agent.start()
    agent.edit("app.py", "2\n")
    agent("Stop")
    assert manager.list_sessions() == []


def test_where_there_was_nothing_of_ours_git_does_not_see_us(project: Path) -> None:
    agent = Agent(project)
    agent.start()
    agent.edit("app.py", "2\n")
    assert git(project, "status", "--porcelain") == " M app.py\n"
    assert os.stat(project / ".agents").st_mode & 0o777 == 0o700


def test_where_agents_is_there_already_git_does_not_see_us_either(project: Path) -> None:
    # Others keep things there, too; or the first hook was killed just after it had made the directory.
    (project / ".agents").mkdir()
    agent = Agent(project)
    agent.start()
    agent.edit("app.py", "2\n")
    agent("Stop")
    assert git(project, "status", "--porcelain", "-uall") == " M app.py\n"


def test_what_was_taken_from_the_journal_survives_a_kill(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent.edit("app.py", "2\n")
    # As if the process that saves were killed after this.
    taken = Desk(str(agent.project), "claude-code", "a1b2").take()
    assert [line.get("tool") for line in taken] == ["Edit"]
    agent("PostToolUse", tool_name="Write", tool_input={"file_path": str(agent.project / "b.py")})
    agent("Stop")
    saved = checkpoints(manager)[-1]
    assert saved.metadata is not None
    assert [one["tool"] for one in saved.metadata["hook"]["steps"]] == ["Edit", "Write"]
    assert saved.metadata["hook"]["files"] == ["app.py", "b.py"]


def test_a_lost_note_costs_time_and_nothing_else(agent: Agent, manager: SessionManager) -> None:
    agent.start()
    agent.edit("app.py", "2\n")
    folder = agent.project / ".agents" / "hooks"
    (folder / "claude-code-a1b2.json").write_text(json.dumps({"checked_ns": "x", "glance": 7}))
    agent.shell("echo 3 > app.py")
    (folder / "claude-code-a1b2.json").unlink()
    agent("Stop")
    assert descriptions(manager)[1:] == [
        "before Bash echo 3 > app.py, after Edit app.py",
        "turn ended: Bash echo 3 > app.py",
    ]
