"""Events that need no checkpoint import nothing large, and many at once lose nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import SessionManager
from holdfast.hooks.reading import loads
from tests.hooks.conftest import Agent, checkpoints, only_session

LARGE = {
    "apsw", "asyncio", "click", "collections", "contextlib", "dataclasses", "enum", "functools",
    "inspect", "json", "orjson", "pathlib", "re", "rich", "subprocess", "tomllib", "typing",
}  # fmt: skip


def imported(agent: Agent, event: str, **fields: object) -> set[str]:
    """Return the modules that the command imports for an event beyond those of the bare interpreter."""
    program = (
        "import sys; before = set(sys.modules); sys.argv = ['holdfast', 'hook']\n"
        "from holdfast.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, *sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        # Without site-packages' own start-up files, which may import anything.
        [sys.executable, "-S", "-c", f"import sys; sys.path[1:1] = {sys.path!r}\n{program}"],
        input=agent.payload(event, **fields),
        cwd=agent.project,
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    code, *modules = done.stdout.decode().split()
    assert code == "0"
    return set(modules)


@pytest.mark.row("S4-28")
def test_where_nothing_is_to_be_saved_nothing_large_is_imported(project: Path) -> None:
    agent = Agent(project, "3f0c9a52-8a0e-4b1d-9c59-2f6f4f1d7e11", transcript_path="/t/a-b.jsonl")
    agent.start()
    shell = {"tool_name": "Bash", "tool_input": {"command": "make"}}
    agent("PreToolUse", **shell)
    for event, tool in (("PreToolUse", "Read"), ("PostToolUse", "Grep"), ("PreToolUse", "Bash")):
        found = imported(agent, event, tool_name=tool, tool_input={"command": "make"})
        assert found & LARGE == set(), (event, tool)
        assert "holdfast.hooks.events" in found
    edit = {"tool_name": "Edit", "tool_input": {"file_path": str(project / "app.py")}}
    assert imported(agent, "PostToolUse", **edit) & {"apsw", "dataclasses", "tomllib"} == set()
    (agent.project / "app.py").write_text("changed\n")
    assert "apsw" in imported(agent, "PreToolUse", **shell)


def test_many_hooks_of_one_session_at_once_lose_nothing(
    agent: Agent, manager: SessionManager
) -> None:
    agent.start()
    command = [sys.executable, "-m", "holdfast", "hook", "--agent", "claude-code"]
    running = []
    for number in range(12):
        path = agent.project / f"{number:02}.py"
        path.write_text("new")
        event = agent.payload(
            "PostToolUse" if number % 3 else "Stop",
            tool_name="Write",
            tool_input={"file_path": str(path)},
        )
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(event)
        process.stdin.close()
        process.stdin = None
        running.append(process)
    assert [(*process.communicate(timeout=120), process.returncode) for process in running] == [
        (b"", b"", 0)
    ] * 12
    agent("Stop")

    saved = checkpoints(manager)
    told = [path for one in saved for path in (one.metadata or {})["hook"].get("files", ())]
    assert sorted(told) == [f"{number:02}.py" for number in range(12) if number % 3]
    # Each builds on the one before it.
    assert [one.parent_id for one in saved] == [None, *(one.id for one in saved[:-1])]
    assert manager.get_session(only_session(manager).id).logs(level="error") == []


@pytest.mark.parametrize(
    "text",
    [
        "{}", " [1, 2.5, -3e2, null, true, false] \n", '"\\u00fc\\ud83d\\ude00\\ud800"', '{"a": {"a": []}}',
        "", "{", "[1,]", '{"a"}', "nul", "1 2", '"\x01"', '"open', "'a'", "{1: 2}", "\ufeff{}",
    ],
    ids=range(15),
)  # fmt: skip
def test_json_is_read_as_the_standard_library_reads_it(text: str) -> None:
    data = text.encode()
    try:
        expected = json.loads(data)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            loads(data)
    else:
        assert loads(data) == expected


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        loads(b'"\xff"')


def test_the_folder_of_the_hooks_is_for_its_owner_only(project: Path) -> None:
    agent = Agent(project)
    agent.start()
    agent.edit("app.py", "2\n")
    folder = project / ".agents" / "hooks"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
