"""Sessions begin, end, are killed and go on; the next agent is told."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.hooks import starting
from holdfast.processes import started_at, this_process
from tests.hooks.conftest import Agent, checkpoints, git, only_session, run_hook


def state_of(manager: SessionManager, session_id: str) -> str:
    """Return the status of an agent's session."""
    found = manager.list_sessions(metadata={"agent_session": f"claude-code:{session_id}"})
    return found[0].status


def kill_an_agent(project: Path, session_id: str = "killed") -> None:
    """Run an agent that reports what it does, and kill it in the middle of a turn."""
    program = textwrap.dedent(
        """
        import json, subprocess, sys, time
        def report(event, **fields):
            given = {"hook_event_name": event, "session_id": sys.argv[2], "cwd": sys.argv[1], **fields}
            subprocess.run([sys.executable, "-m", "holdfast", "hook"],
                           input=json.dumps(given).encode(), check=True)
        report("SessionStart", source="startup")
        report("UserPromptSubmit", prompt="Move auth to OAuth")
        tool = {"tool_name": "Bash", "tool_input": {"command": "echo 1 > half.py"}}
        report("PreToolUse", **tool)
        open(sys.argv[1] + "/half.py", "w").write("1")
        report("PostToolUse", **tool)
        print("now", flush=True)
        time.sleep(600)
        """
    )
    agent = subprocess.Popen(
        [sys.executable, "-c", program, str(project), session_id], stdout=subprocess.PIPE
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"now\n"
    agent.kill()
    agent.wait()
    agent.stdout.close()


@pytest.mark.row("S1-25")
def test_with_nothing_to_resume_the_hook_says_nothing(project: Path) -> None:
    done = run_hook(cwd=project, stdin=Agent(project).payload("SessionStart", source="startup"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.row("S1-25")
def test_a_killed_agent_is_seen_and_the_next_one_is_told_what_was_under_way(
    project: Path, manager: SessionManager
) -> None:
    kill_an_agent(project)
    assert state_of(manager, "killed") == "active"
    toml = project / ".agents" / "holdfast.toml"
    toml.write_text("[hooks]\nbrief_tokens = 900\n")

    done = run_hook(
        cwd=project, stdin=Agent(project, "next").payload("SessionStart", source="startup")
    )

    assert done.returncode == 0
    text = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert "interrupted" in text
    assert "“Move auth to OAuth”" in text
    assert "Bash echo 1 > half.py" in text
    assert len(text) < 4 * 900
    assert state_of(manager, "killed") == "interrupted"
    new, old = manager.list_sessions()
    assert new.continues_id == old.id
    # Whoever comes after that is told of the latest only.
    assert "next" not in Agent(project, "third", kind="codex").start()


def test_in_a_project_that_was_moved_the_next_agent_is_told_as_well(
    project: Path, tmp_path: Path
) -> None:
    kill_an_agent(project)
    moved = project.rename(tmp_path / "moved")

    assert "“Move auth to OAuth”" in Agent(moved, "next").start()
    with SessionManager.open(project_dir=moved) as manager:
        new, old = manager.list_sessions()
        assert (new.continues_id, old.status) == (old.id, "interrupted")


def test_the_same_agent_session_goes_on_after_a_kill(
    project: Path, manager: SessionManager
) -> None:
    kill_an_agent(project)
    text = Agent(project, "killed").start("resume")
    assert "“Move auth to OAuth”" in text
    record = only_session(manager)
    assert record.status == "active"
    saved = checkpoints(manager)[-1]
    assert saved.metadata is not None
    assert saved.metadata["hook"]["files"] == ["half.py"]
    assert manager.read_file(saved, "half.py") == b"1"


def test_recover_sees_agents_that_died(project: Path, manager: SessionManager) -> None:
    kill_an_agent(project)
    (found,) = manager.recover()
    assert found.status == "interrupted"


@pytest.mark.row("S1-25")
def test_a_paused_session_of_this_branch_is_told_of_and_others_are_not(
    project: Path, manager: SessionManager
) -> None:
    first = Agent(project, "first")
    first.start()
    first("UserPromptSubmit", prompt="Fix the parser")
    first.edit("app.py", "2\n")
    first("SessionEnd", reason="logout")
    assert state_of(manager, "first") == "paused"
    git(project, "checkout", "-q", "-b", "elsewhere")
    assert Agent(project, "second", kind="codex").start() == ""
    git(project, "checkout", "-q", "main")
    assert "Fix the parser" in Agent(project, "third", kind="gemini").start()


def test_an_unfinished_session_is_told_of_however_many_came_after_it(
    project: Path, manager: SessionManager
) -> None:
    first = Agent(project, "first")
    first.start()
    first("UserPromptSubmit", prompt="Fix the parser")
    first.edit("app.py", "2\n")
    first("SessionEnd", reason="logout")
    for _ in range(60):
        manager.create_session("other").complete()
    assert "Fix the parser" in Agent(project, "second").start()
    # It has been taken up, and whoever comes later is told of that one, or of nothing.
    for _ in range(60):
        manager.create_session("other").complete()
    assert Agent(project, "third").start() == ""


def test_a_completed_session_is_not_told_of(project: Path) -> None:
    first = Agent(project, "first")
    first.start()
    first("UserPromptSubmit", prompt="Fix the parser")
    first("Stop")
    first("SessionEnd", reason="other")
    assert Agent(project, "second").start() == ""


def test_a_completed_agent_session_that_is_resumed_goes_on_in_a_new_one(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    agent("UserPromptSubmit", prompt="Fix the parser")
    agent("Stop")
    agent("SessionEnd", reason="other")
    agent.start("resume")
    agent("UserPromptSubmit", prompt="And the printer")
    agent("Stop")
    new, old = manager.list_sessions()
    assert (new.continues_id, new.status, old.status) == (old.id, "active", "completed")
    assert len(checkpoints(manager, new.id)) == 2


@pytest.mark.parametrize("event", ["SessionEnd", "SubagentStop"])
def test_after_the_end_another_end_begins_no_session(
    agent: Agent, manager: SessionManager, event: str
) -> None:
    agent("SessionEnd", reason="other")
    assert manager.list_sessions() == []
    agent.start()
    agent("Stop")
    agent("SessionEnd", reason="other")
    before = checkpoints(manager)
    agent(event, agent_id="x", agent_type="Explore")
    assert agent.err == ""
    assert only_session(manager).status == "completed"
    assert checkpoints(manager) == before


def plan(agent: Agent, **statuses: str) -> None:
    """Let an agent write down its tasks."""
    tasks = [{"content": name, "status": status} for name, status in statuses.items()]
    agent("PostToolUse", tool_name="TodoWrite", tool_input={"todos": tasks})


def test_an_agent_that_resumes_a_completed_session_is_told_what_is_still_to_do(
    agent: Agent, manager: SessionManager, tmp_path: Path
) -> None:
    transcript = tmp_path / "a1b2.jsonl"
    transcript.write_text('{"type":"user","message":{"role":"user","content":"parse"}}\n')
    agent.always["transcript_path"] = str(transcript)
    agent.start()
    plan(agent, lexer="completed", grammar="pending")
    agent("Stop")
    agent("SessionEnd", reason="other")

    text = agent.start("resume")

    assert "1 of 2 tasks" in text
    assert "grammar" in text
    new, old = manager.list_sessions()
    before, after = (checkpoints(manager, one.id) for one in (old, new))
    assert after[0].state == before[-1].state
    assert after[0].parent_id is None


def test_an_agent_that_goes_on_with_anothers_work_has_its_tasks_and_not_its_conversation(
    project: Path, manager: SessionManager, tmp_path: Path
) -> None:
    transcript = tmp_path / "first.jsonl"
    transcript.write_text('{"type":"user","message":{"role":"user","content":"parse"}}\n')
    first = Agent(project, "first", transcript_path=str(transcript), model="large")
    first.start()
    plan(first, lexer="completed", grammar="pending")
    first("Stop")
    first("SessionEnd", reason="resume")

    second = Agent(project, "second", transcript_path=str(tmp_path / "second.jsonl"))
    assert "grammar" in second.start()

    new, old = manager.list_sessions()
    before, after = (checkpoints(manager, one.id)[-1].state for one in (old, new))
    assert "conversation_history" in before
    assert after == {
        "task_state": before["task_state"],
        "agent": {"kind": "claude-code", "session_id": "second"},
    }


def test_a_session_paused_by_a_program_is_told_of_but_stays_its_own(
    project: Path, manager: SessionManager
) -> None:
    theirs = manager.create_session("implementer", task_description="Ask for approval")
    theirs.pause("approval")
    assert "Ask for approval" in Agent(project, "first").start()
    assert manager.list_sessions()[0].continues_id is None


@pytest.mark.parametrize("source", ["clear", "resume"])
def test_an_agent_that_replaces_its_conversation_has_left_the_one_before(
    project: Path, manager: SessionManager, source: str
) -> None:
    first = Agent(project, "first")
    first.start()
    first("UserPromptSubmit", prompt="Fix the parser")
    first.edit("app.py", "2\n")
    assert "Fix the parser" in Agent(project, "second").start(source)
    assert state_of(manager, "first") == "interrupted"
    first.edit("app.py", "3\n")
    first("Stop")
    assert state_of(manager, "first") == "active"


@pytest.mark.parametrize(
    ("kind", "source"), [("claude-code", "startup"), ("codex", "startup"), ("codex", "resume")]
)
def test_two_conversations_of_one_process_leave_each_other_alone(
    project: Path, manager: SessionManager, kind: str, source: str
) -> None:
    first = Agent(project, "first", kind=kind)
    first.start()
    first("UserPromptSubmit", prompt="Migrate the database")
    first.edit("app.py", "2\n")
    assert Agent(project, "second", kind=kind).start(source) == ""
    assert [one.status for one in manager.list_sessions()] == ["active", "active"]


def test_a_fork_whose_start_carries_the_old_id_gets_a_session_of_its_own(
    project: Path, manager: SessionManager
) -> None:
    old = Agent(project, "old")
    old.start()
    old("UserPromptSubmit", prompt="Fix the parser")
    old("SessionEnd", reason="other")
    old.start("resume")

    fork = Agent(project, "fork")
    fork("UserPromptSubmit", prompt="Another way")
    fork.shell("echo 3 > app.py")
    fork("Stop")

    new, before = manager.list_sessions()
    assert (new.metadata or {})["agent_session"] == "claude-code:fork"
    assert new.continues_id == before.id
    assert before.status == "interrupted"
    assert new.task_description == "Another way"


@pytest.fixture
def from_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the events that follow come from the process with this id."""

    def switch(pid: int) -> None:
        process = this_process()._replace(pid=pid, started=started_at(pid) or "1")
        monkeypatch.setattr(starting, "ancestor", lambda skip: process)

    return switch


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which lives until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_a_fork_leaves_the_original_to_the_process_that_has_it_open(
    project: Path,
    manager: SessionManager,
    from_process: Callable[[int], None],
    other_process: subprocess.Popen[bytes],
) -> None:
    from_process(os.getpid())
    old = Agent(project, "old")
    old.start()
    old("Stop")

    from_process(other_process.pid)
    old.start("resume")
    fork = Agent(project, "fork")
    fork("Stop")

    new, before = manager.list_sessions()
    assert new.continues_id == before.id
    assert [new.status, before.status] == ["active", "active"]
    other_process.kill()
    other_process.wait()
    assert [one.id for one in manager.recover()] == [new.id]
    assert state_of(manager, "old") == "active"


def test_a_session_that_two_processes_have_open_is_that_of_the_one_that_is_left(
    project: Path,
    manager: SessionManager,
    from_process: Callable[[int], None],
    other_process: subprocess.Popen[bytes],
) -> None:
    from_process(other_process.pid)
    agent = Agent(project, "one")
    agent.start()
    from_process(os.getpid())
    agent.start("resume")
    other_process.kill()
    other_process.wait()
    agent("Stop")
    assert manager.recover() == []
    assert state_of(manager, "one") == "active"


def test_a_session_without_a_start_is_begun_by_its_first_event(
    agent: Agent, manager: SessionManager
) -> None:
    agent.shell("echo 3 > app.py")
    agent("Stop")
    assert manager.read_file(checkpoints(manager)[-1], "app.py") == b"3\n"


def test_a_subagent_with_a_session_of_its_own_has_a_parent(
    project: Path, manager: SessionManager
) -> None:
    Agent(project, "above", kind="opencode").start()
    below = Agent(project, "below", kind="opencode", parent_session_id="above")
    assert below.start() == ""
    child, parent = manager.list_sessions()
    assert manager.get_agent(child.agent_id).parent_id == parent.agent_id


@pytest.mark.row("S1-103")
def test_the_lifecycle_can_be_reported_from_any_script(
    project: Path, manager: SessionManager
) -> None:
    events = ("session.start", "task.pre", "agent.spawn", "task.post", "pre-compact", "session.end")
    for number, event in enumerate(events):
        (project / "app.py").write_text(f"{number}\n")
        done = run_hook(event, "--agent", "my-script", cwd=project)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr
    record = only_session(manager)
    assert (record.agent_type, record.lease_owner) == ("my-script", None)
    saved = [
        ((one.metadata or {})["hook"]["event"], manager.read_file(one, "app.py"))
        for one in checkpoints(manager)
        if "hook" in (one.metadata or {})
    ]
    assert saved == [
        ("session_start", b"0\n"),
        ("before_tool", b"1\n"),
        ("subagent_start", b"2\n"),
        ("task_completed", b"3\n"),
        ("before_compaction", b"4\n"),
        ("session_end", b"5\n"),
    ]
    assert len(manager.list_agents(parent_id=record.agent_id)) == 1


def test_a_shell_in_a_repository_below_works_in_the_agents_project(
    project: Path, agent: Agent, manager: SessionManager
) -> None:
    below = project / "vendor" / "lib"
    below.mkdir(parents=True)
    git(below, "init", "-q")
    agent.start()
    (project / "app.py").write_text("by hand\n")
    tool = {"tool_name": "Bash", "tool_input": {"command": "rm ../../app.py"}}
    agent("PreToolUse", cwd=str(below), **tool)
    (project / "app.py").unlink()
    agent("PostToolUse", cwd=str(below), **tool)
    agent("Stop", cwd=str(below))

    _, before, after = checkpoints(manager)
    assert manager.read_file(before, "app.py") == b"by hand\n"
    assert (after.metadata or {})["hook"]["files"] == ["app.py"]
    assert not (below / ".agents").exists()


def test_another_agent_in_a_repository_below_works_in_that_one(
    project: Path, agent: Agent, manager: SessionManager
) -> None:
    below = project / "lib"
    below.mkdir()
    git(below, "init", "-q")
    agent.start()
    Agent(below, "another").start()
    with SessionManager.open(project_dir=below) as inside:
        assert only_session(inside).id != only_session(manager).id


def test_a_worktree_below_is_a_project_of_its_own(project: Path, agent: Agent) -> None:
    below = project / "trees" / "one"
    git(project, "worktree", "add", "-q", str(below))
    agent.start()
    agent.start("resume", cwd=str(below))
    assert (below / ".agents" / "sessions.db").exists()


def test_an_agent_without_an_id_is_another_one_in_another_project(project: Path) -> None:
    below = project / "lib"
    below.mkdir()
    git(below, "init", "-q")
    for place in (project, below):
        Agent(place, "", kind="my-script")("session.start")
        assert (place / ".agents" / "sessions.db").exists()


@pytest.mark.parametrize(
    "odd", [{"steps": True, "prompt": 7}, {"steps": [1, {}, {"tool": "Bash"}], "prompt": []}, 5]
)
def test_what_others_wrote_where_hooks_do_keeps_nobody_from_starting(
    odd: object, project: Path, manager: SessionManager
) -> None:
    with manager.create_session("implementer") as session:
        session.save_checkpoint("one", state={}, metadata={"hook": odd})
        manager.store.update_session(session.id, status="interrupted")

    agent = Agent(project)
    told = agent.start()

    assert session.id in told
    assert agent.err == ""
