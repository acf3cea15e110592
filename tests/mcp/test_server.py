"""An MCP client drives the tools, in this process and over the pipes of a real one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest
from mcp import Client, StdioServerParameters

from holdfast import SessionManager
from holdfast.errors import InvalidIdentifier
from holdfast.integrations.mcp.answers import CheckpointList
from holdfast.integrations.mcp.place import Place
from holdfast.integrations.mcp.server import build_server
from holdfast.integrations.mcp.tools import NAMES, Tools
from holdfast.leases import AGENT_PROCESS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "mcp.md"


class Calls:
    """``await calls.ok("save_checkpoint", name="x")`` returns what a tool answers, typed."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def ok(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        answer = result.structured_content
        assert isinstance(answer, dict)
        return answer

    async def refused(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        [content] = result.content
        return str(getattr(content, "text", ""))


Drive = Callable[[Callable[[Calls], Awaitable[None]]], None]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "code.py").write_text("print(1)\n")
    return folder


@pytest.fixture
def manager(project: Path) -> Iterator[SessionManager]:
    with SessionManager.open(project_dir=project) as opened:
        yield opened


def in_process(project: Path, **options: Any) -> Any:
    return build_server(Place(project_dir=project, **options))


def over_pipes(project: Path, **options: Any) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return StdioServerParameters(
        command=sys.executable, args=["-m", "holdfast", "mcp", *arguments], env=environment,
        cwd=project,
    )  # fmt: skip


def drive(server: Any, scenario: Callable[[Calls], Awaitable[None]]) -> None:
    async def driven() -> None:
        async with AsyncExitStack() as stack:
            await scenario(Calls(await stack.enter_async_context(Client(server))))
        # The server has ended; whoever waits for that has to be told before the loop is closed.
        for waiting in [one for one in threading.enumerate() if "waitpid" in one.name]:
            await asyncio.to_thread(waiting.join)
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(driven(), 300))


@pytest.fixture(params=[in_process, over_pipes], ids=["in process", "over pipes"])
def server(request: pytest.FixtureRequest, project: Path) -> Any:
    return request.param(project)


def test_files_that_were_not_compared_are_not_called_the_same(
    project: Path, manager: SessionManager
) -> None:
    with manager.create_session("tester") as session:
        session.save_checkpoint("bare", state={"n": 1}, workspace=False)
        (project / "empty").mkdir()
        session.save_checkpoint("whole", state={"n": 2})
        (project / "empty").rmdir()

    async def scenario(calls: Calls) -> None:
        told = await calls.ok("diff_checkpoints", before="bare", after="whole")
        assert (told["files"], len(told["state"])) == (None, 1)
        assert "files were not compared" in told["notes"][0]
        told = await calls.ok("diff_checkpoints", before="whole")
        assert (told["files"], told["notes"]) == ([], [])
        # What a rollback does with empty directories is shown too.
        preview = await calls.ok("rollback", checkpoint="whole")
        assert [(one["kind"], one["path"]) for one in preview["changes"]] == [("added", "empty/")]

    drive(in_process(project), scenario)


def test_a_listing_marks_what_is_in_quarantine(
    server: Any, project: Path, manager: SessionManager
) -> None:
    session = manager.create_session("tester")
    for name in ("good", "bad"):
        session.save_checkpoint(name, state={"name": name})
    session.close()
    database = apsw.Connection(str(project / ".agents" / "sessions.db"))
    database.execute("UPDATE session_checkpoints SET label = 'altered' WHERE name = 'bad'")
    database.close()

    async def scenario(calls: Calls) -> None:
        listed = (await calls.ok("list_checkpoints"))["checkpoints"]
        assert [one["quarantined"] for one in listed] == [False, False]
        assert len(manager.verify(deep=True).quarantined) == 1
        listed = (await calls.ok("list_checkpoints"))["checkpoints"]
        found = {one["name"]: one["quarantined"] for one in listed}
        assert found == {"bad": True, "good": False}
        # It is of no use, as it says; what is asked for without a name is the good one.
        assert "checkpoint_quarantined" in await calls.refused("show_checkpoint", checkpoint="bad")
        assert (await calls.ok("show_checkpoint"))["checkpoint"]["name"] == "good"

    drive(server, scenario)


def test_an_agent_saves_looks_goes_back_and_forth(server: Any, project: Path) -> None:
    code = project / "code.py"

    async def scenario(calls: Calls) -> None:
        saved = await calls.ok("save_checkpoint", name="good", state={"step": 1})
        assert saved["checkpoint"]["name"] == "good"
        assert saved["checkpoint"]["has_files"] is True
        code.write_text("print(2)\n")
        (project / "new.py").write_text("")
        await calls.ok("save_checkpoint", name="worse", state={"step": 2}, description="broken")
        listed = await calls.ok("list_checkpoints")
        assert [one["name"] for one in listed["checkpoints"]] == ["worse", "good"]
        shown = await calls.ok("show_checkpoint", checkpoint="good")
        assert shown["state"] == {"step": 1}
        assert [one["path"] for one in shown["files"]] == ["code.py"]
        difference = await calls.ok("diff_checkpoints", before="good", after="worse")
        assert {one["path"]: one["kind"] for one in difference["files"]} == {
            "code.py": "modified", "new.py": "added"
        }  # fmt: skip
        assert difference["state"] == [{"kind": "changed", "path": "$.step", "text": "- 1\n+ 2"}]
        code.write_text("print(3)\n")
        now = await calls.ok("diff_checkpoints", paths=["code.py"])
        assert "+print(3)" in now["files"][0]["text"]

        preview = await calls.ok("rollback", checkpoint="good")
        assert preview["done"] is False
        assert {one["path"] for one in preview["changes"]} == {"code.py", "new.py"}
        assert code.read_text() == "print(3)\n"
        refused = await calls.refused("rollback", checkpoint="good", confirmation="made up")
        assert "confirmation_stale" in refused
        assert code.read_text() == "print(3)\n"
        token = preview["confirmation"]
        done = await calls.ok("rollback", checkpoint="good", confirmation=token)
        assert done["done"] is True
        assert done["safety"]
        assert code.read_text() == "print(1)\n"
        assert not (project / "new.py").exists()
        assert "confirmation_stale" in await calls.refused(
            "rollback", checkpoint="good", confirmation=token
        )
        undone = await calls.ok("undo")
        assert undone["done"] is True
        assert code.read_text() == "print(3)\n"
        assert (project / "new.py").exists()

    drive(server, scenario)


def test_calls_that_are_made_at_once_come_one_after_the_other(server: Any, project: Path) -> None:
    async def scenario(calls: Calls) -> None:
        saved = await asyncio.gather(
            *(calls.ok("save_checkpoint", name=f"n{number}") for number in range(4))
        )
        assert len({one["checkpoint"]["session_id"] for one in saved}) == 1
        listed = (await calls.ok("list_checkpoints"))["checkpoints"]
        assert sorted(one["name"] for one in listed) == ["n0", "n1", "n2", "n3"]
        (project / "code.py").write_text("print(2)\n")
        preview = await calls.ok("rollback", checkpoint="n0")
        arguments = {"checkpoint": "n0", "confirmation": preview["confirmation"]}
        answers = await asyncio.gather(
            *(calls.client.call_tool("rollback", arguments) for _ in range(3))
        )
        assert sorted(one.is_error for one in answers) == [False, True, True]
        assert (project / "code.py").read_text() == "print(1)\n"
        await calls.ok("undo")
        assert (project / "code.py").read_text() == "print(2)\n"

    drive(server, scenario)


def test_a_call_that_is_cancelled_before_its_turn_does_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()
    listing = Tools.list_checkpoints

    def slow(self: Tools, limit: int = 20, session: str | None = None) -> CheckpointList:
        """Take long."""
        begun.set()
        over.wait(60)
        return listing(self, limit, session)

    monkeypatch.setattr(Tools, "list_checkpoints", slow)

    async def scenario(calls: Calls) -> None:
        await calls.ok("save_checkpoint", name="good")
        (project / "code.py").write_text("print(2)\n")
        preview = await calls.ok("rollback", checkpoint="good")
        working = asyncio.create_task(calls.ok("list_checkpoints"))
        await asyncio.to_thread(begun.wait, 60)
        arguments = {"checkpoint": "good", "confirmation": preview["confirmation"]}
        waiting = asyncio.create_task(calls.ok("rollback", **arguments))
        # Nothing tells from outside that it waits for its turn.
        await asyncio.sleep(0.5)
        waiting.cancel()
        await calls.client.list_tools()
        over.set()
        await working
        assert (await calls.ok("save_checkpoint", name="later"))["checkpoint"]["name"] == "later"
        assert (project / "code.py").read_text() == "print(2)\n"

    drive(in_process(project), scenario)


def test_an_agent_learns_decides_and_pauses(server: Any, project: Path) -> None:
    async def scenario(calls: Calls) -> None:
        state = {"task_state": [{"id": "a", "title": "Write it", "status": "in_progress"}]}
        await calls.ok("save_checkpoint", name="one", state=state)
        decided = await calls.ok(
            "record_decision", text="Use OAuth", rationale="asked for", alternatives=["LDAP"]
        )
        assert decided["text"] == "Use OAuth"
        brief = await calls.ok("resume_brief")
        assert "Use OAuth" in brief["text"]
        assert "Write it" in brief["text"]
        paused = await calls.ok("pause_session", reason="lunch")
        assert (paused["status"], paused["reason"]) == ("paused", "lunch")

    drive(server, scenario)
    with SessionManager.open(project_dir=project) as manager:
        [record] = manager.list_sessions()
        assert (record.status, record.pause_reason) == ("paused", "lunch")
        assert manager.resume_session(record.id).state["task_state"][0]["title"] == "Write it"


def test_a_token_stands_for_what_was_shown_and_nothing_else(
    project: Path, manager: SessionManager
) -> None:
    (project / "other.py").write_text("1")

    async def scenario(calls: Calls) -> None:
        await calls.ok("save_checkpoint", name="one", state={})
        await calls.ok("save_checkpoint", name="two", state={"n": 2})
        (project / "code.py").write_text("changed")
        (project / "other.py").write_text("changed")
        shown = await calls.ok("rollback", checkpoint="one", paths=["code.py"])
        assert [one["path"] for one in shown["changes"]] == ["code.py"]
        token = shown["confirmation"]
        for other in (
            {"checkpoint": "one"},
            {"checkpoint": "two", "paths": ["code.py"]},
            {"checkpoint": "one", "paths": ["other.py"]},
            {"checkpoint": "one", "paths": ["code.py", "other.py"]},
        ):
            assert "confirmation_stale" in await calls.refused(
                "rollback", confirmation=token, **other
            )
        (project / "third.py").write_text("came in between")
        same = {"checkpoint": "one", "paths": ["code.py"]}
        assert "confirmation_stale" in await calls.refused("rollback", confirmation=token, **same)
        (project / "third.py").unlink()
        await calls.ok("save_checkpoint", name="three", state={"n": 3})
        assert "confirmation_stale" in await calls.refused("rollback", confirmation=token, **same)
        assert (project / "code.py").read_text() == "changed"
        token = (await calls.ok("rollback", **same))["confirmation"]
        done = await calls.ok("rollback", confirmation=token, **same)
        assert done["done"] is True
        assert (project / "code.py").read_text() == "print(1)\n"
        assert (project / "other.py").read_text() == "changed"

    drive(in_process(project), scenario)
    # A token of another server is worth nothing here.
    tokens: list[str] = []

    async def look(calls: Calls) -> None:
        tokens.append((await calls.ok("rollback", checkpoint="two"))["confirmation"])

    drive(in_process(project), look)
    drive(in_process(project), look)
    assert tokens[0] != tokens[1]


def test_paths_outside_of_the_project_are_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")

    async def scenario(calls: Calls) -> None:
        await calls.ok("save_checkpoint", name="one", state={})
        for path in ("../secret", "/etc/passwd", "a/../../secret", "nul\0"):
            for tool in ("rollback", "diff_checkpoints"):
                refused = await calls.refused(tool, paths=[path])
                assert "invalid_identifier" in refused

    drive(in_process(project), scenario)
    assert (tmp_path / "secret").read_text() == "mine"


def test_what_is_not_there_is_said_in_words_that_a_model_can_use(project: Path) -> None:
    async def scenario(calls: Calls) -> None:
        assert "store_unavailable" in await calls.refused("list_checkpoints")
        await calls.ok("save_checkpoint", name="one", state={})
        assert "checkpoint_not_found" in await calls.refused("show_checkpoint", checkpoint="two")
        assert "session_not_found" in await calls.refused("undo", session="nobody")
        assert "nothing_to_undo" in await calls.refused("undo")
        assert "checkpoint_exists" in await calls.refused("save_checkpoint", name="one", state={})
        assert "invalid_state" in await calls.refused(
            "save_checkpoint", state={"task_state": "wrong"}
        )

    drive(in_process(project), scenario)


@pytest.mark.parametrize("path", ["\ud83d", "a\udcff", "nowhere"], ids=ascii)
def test_a_path_that_nothing_has_is_refused_however_it_is_spelt(path: str, project: Path) -> None:
    tools = Tools(Place(project_dir=project))
    tools.save_checkpoint("one", state={})
    with pytest.raises(
        InvalidIdentifier, match=r"neither the checkpoint nor the project|surrogate"
    ):
        tools.rollback("one", paths=[path])


def test_a_large_state_is_shown_part_by_part(project: Path) -> None:
    async def scenario(calls: Calls) -> None:
        await calls.ok("save_checkpoint", name="one", state={"page": "x" * 200_000, "n": 1})
        whole = await calls.ok("show_checkpoint")
        assert (whole["state"], whole["keys"]) == (None, ["page", "n"])
        part = await calls.ok("show_checkpoint", keys=["n", "nothing"])
        assert part["state"] == {"n": 1}

    drive(in_process(project), scenario)


def test_what_is_too_long_for_an_answer_is_cut_and_says_so(
    project: Path, manager: SessionManager
) -> None:
    (project / "long.txt").write_text("a\n" * 20_000)
    with manager.create_session("tester", session_id="long") as session:
        for name in ("before", "after"):
            session.save_checkpoint(name, state={f"{n}": name * 5000 for n in range(300)})
        for number in range(210):
            session.save_checkpoint(f"{number}", state={f"{n}": number for n in range(1000)})
    (project / "long.txt").write_text("b\n" * 20_000)

    async def scenario(calls: Calls) -> None:
        told = await calls.ok("diff_checkpoints", before="before", after="after")
        assert 0 < len(told["state"]) < 200
        assert told["left_out"] == 300 - len(told["state"])
        assert len(json.dumps(told)) < 250_000
        told = await calls.ok("diff_checkpoints")
        [change] = told["files"]
        assert change["text"].endswith("more characters")
        shown = await calls.ok("show_checkpoint")
        assert (len(shown["keys"]), shown["key_count"]) == (200, 1000)
        listed = await calls.ok("list_checkpoints", limit=10**6)
        assert len(listed["checkpoints"]) == 200

    drive(in_process(project), scenario)


def test_the_session_that_the_agents_hooks_hold_is_joined(project: Path) -> None:
    owner = "agent:claude-code:abc"
    with SessionManager.open(project_dir=project, owner=owner) as hooks:
        held = hooks.create_session("claude-code", metadata={AGENT_PROCESS: "the agent"})
        held.save_checkpoint("by a hook", state={"n": 1})
        other = hooks.create_session("claude-code", metadata={AGENT_PROCESS: "another agent"})

        async def scenario(calls: Calls) -> None:
            saved = await calls.ok("save_checkpoint", name="by a tool")
            assert saved["checkpoint"]["session_id"] == held.id
            refused = await calls.refused("save_checkpoint", name="x", session=other.id)
            assert "checkpoint_busy" in refused

        drive(in_process(project, caller="the agent", agent="claude-code"), scenario)
        # The hook's token is good still, and its lease as long as it was.
        held.save_checkpoint("by a hook again", state={"n": 2})
        [lease] = hooks.store.list_leases(session_id=held.id)
        assert lease.owner == owner


def test_a_session_that_a_program_holds_is_left_to_it(
    project: Path, manager: SessionManager
) -> None:
    session = manager.create_session("worker")
    session.save_checkpoint("one", state={"n": 1})

    async def scenario(calls: Calls) -> None:
        assert (await calls.ok("list_checkpoints"))["session_id"] == session.id
        for tool in ("save_checkpoint", "undo", "pause_session"):
            assert "checkpoint_busy" in await calls.refused(tool)
        token = (await calls.ok("rollback", checkpoint="one"))["confirmation"]
        assert "checkpoint_busy" in await calls.refused(
            "rollback", checkpoint="one", confirmation=token
        )

    drive(in_process(project), scenario)
    session.save_checkpoint("two", state={"n": 2})


def test_a_finished_session_goes_back_in_a_fork(project: Path, manager: SessionManager) -> None:
    session = manager.create_session("worker")
    session.save_checkpoint("one", state={"n": 1})
    session.complete()
    (project / "code.py").write_text("later")

    async def scenario(calls: Calls) -> None:
        arguments = {"checkpoint": "one", "session": session.id}
        token = (await calls.ok("rollback", **arguments))["confirmation"]
        done = await calls.ok("rollback", confirmation=token, **arguments)
        assert done["session_id"] != session.id

    drive(in_process(project), scenario)
    assert (project / "code.py").read_text() == "print(1)\n"


def test_a_server_for_one_session_works_on_no_other(project: Path, manager: SessionManager) -> None:
    for name in ("mine", "other"):
        with manager.create_session("tester", session_id=name) as session:
            session.save_checkpoint("first", state={"of": name})
            session.complete()

    async def scenario(calls: Calls) -> None:
        for tool in NAMES:
            text = {"text": "x"} if tool == "record_decision" else {}
            told = await calls.refused(tool, session="other", **text)
            assert "session_not_found: this server was started for session mine" in told
        assert (await calls.ok("show_checkpoint", session="mine"))["state"] == {"of": "mine"}
        shown = await calls.ok("rollback", checkpoint="first")
        done = await calls.ok("rollback", checkpoint="first", confirmation=shown["confirmation"])
        # It is completed, so that was a fork of it, which can be gone on with.
        assert done["session_id"] != "mine"
        assert (await calls.ok("undo", session=done["session_id"]))["done"]

    drive(in_process(project, session="mine"), scenario)
    assert [one.name for one in manager.get_session("other").list_checkpoints()] == ["first"]
    assert manager.get_session("other").logs() == []


def test_every_tool_says_what_it_takes_and_gives(project: Path) -> None:
    async def scenario(calls: Calls) -> None:
        tools = {one.name: one for one in (await calls.client.list_tools()).tools}
        assert set(tools) == set(NAMES) == {
            "save_checkpoint", "list_checkpoints", "show_checkpoint", "diff_checkpoints", "rollback",
            "undo", "resume_brief", "record_decision", "pause_session",
        }  # fmt: skip
        for tool in tools.values():
            assert tool.description
            assert "self" not in tool.input_schema["properties"]
            assert tool.output_schema is not None
            assert tool.output_schema["properties"]

    drive(in_process(project), scenario)


# Registration ---------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def registered() -> dict[str, list[str]]:
    """Return the command of each registration that the page shows."""
    found: dict[str, list[str]] = {}
    for block in blocks("json"):
        document = json.loads(block)
        if "mcpServers" in document:
            entry = document["mcpServers"]["holdfast"]
            found[f"json {len(found)}"] = [entry["command"], *entry["args"]]
        else:
            found["opencode"] = document["mcp"]["holdfast"]["command"]
    for block in blocks("toml"):
        entry = tomllib.loads(block)["mcp_servers"]["holdfast"]
        found["codex"] = [entry["command"], *entry["args"]]
    for line in re.findall(r"^claude mcp add holdfast -- (.*)$", PAGE.read_text(), re.MULTILINE):
        found["claude"] = line.split()
    return found


def test_every_registration_on_the_page_starts_a_server_that_answers(project: Path) -> None:
    commands = registered()
    assert len(commands) == 5
    message = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for command in {tuple(one) for one in commands.values()}:
        assert command[0] == "holdfast"
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=project, env=environment, timeout=60, check=False,
            input=json.dumps(message) + "\n", capture_output=True, text=True,
        )  # fmt: skip
        answer = json.loads(done.stdout.splitlines()[0])
        assert answer["result"]["serverInfo"]["name"] == "holdfast"
        assert "tools" in answer["result"]["capabilities"]


def test_the_command_says_how_to_register_it(project: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "mcp", "--json", "--agent", "codex"],
        cwd=project, env=environment, timeout=60, check=True, capture_output=True, text=True,
    )  # fmt: skip
    document = json.loads(done.stdout)["mcp"]
    assert document["args"] == ["mcp", "--agent", "codex"]
    assert document["tools"] == list(NAMES)
    assert not (project / ".agents").exists()


def test_what_was_given_is_in_what_to_register_but_for_a_password(project: Path) -> None:
    place = Place(url="x.db", tenant="zz", project_dir=project, agent="codex", session="one")
    assert place.to_document(NAMES) == {
        "command": "holdfast",
        "args": [
            "mcp", "--url", os.path.abspath("x.db"), "--tenant", "zz", "--project-dir", str(project),
            "--agent", "codex", "--session", "one",
        ],
        "tools": list(NAMES),
        "notes": [],
    }  # fmt: skip
    plain = Place(url="postgresql://me@db/agents?schema=x").to_document(NAMES)
    assert plain["args"] == ["mcp", "--url", "postgresql://me@db/agents?schema=x"]
    secret = Place(url="postgresql://me:hunter2@db/agents").to_document(NAMES)
    assert secret["args"] == ["mcp"]
    assert "HOLDFAST_URL" in secret["notes"][0]
    assert "hunter2" not in str(secret)


def test_without_the_extra_the_command_says_so(project: Path, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "mcp"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('no module named mcp')\n")
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(hidden.parent), str(ROOT / "src")])
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "mcp"],
        cwd=project, env=environment, timeout=60, check=False, capture_output=True, text=True,
    )  # fmt: skip
    shutil.rmtree(hidden)
    assert done.returncode == 7
    assert "holdfast[mcp]" in done.stderr
