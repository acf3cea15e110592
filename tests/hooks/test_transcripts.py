"""Conversations as state: exact, and at the cost of what was added."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import SessionManager
from holdfast.hooks.transcripts import read_addition
from holdfast.hooks.transcripts.claude import place as claude
from holdfast.hooks.transcripts.items import item_of, line_of
from tests.hooks.conftest import Agent, checkpoints, only_session

SAID: dict[str, list[dict[str, Any]]] = {
    "claude-code": [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "a1b2", "content": "Go"},
        {"parentUuid": None, "isSidechain": False, "type": "user", "uuid": "u1", "sessionId": "a1b2",
         "message": {"role": "user", "content": "Go"}},
        {"parentUuid": "u1", "type": "assistant", "uuid": "u2", "sessionId": "a1b2",
         "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Yes"}],
                     "usage": {"input_tokens": 3}}},
        {"type": "system", "subtype": "info", "content": "compacted", "uuid": "u3"},
        {"type": "summary", "summary": "It went well", "leafUuid": "u3"},
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
    ],
    "codex": [
        {"timestamp": "t", "ordinal": 0, "type": "session_meta", "payload": {"id": "a1b2"}},
        {"timestamp": "t", "type": "response_item", "payload": {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]}},
        {"timestamp": "t", "type": "response_item", "payload": {
            "type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}},
        {"timestamp": "t", "type": "response_item", "payload": {
            "type": "function_call_output", "call_id": "c", "output": "ok"}},
        {"timestamp": "t", "type": "event_msg", "payload": {"type": "task_started"}},
        {"timestamp": "t", "type": "response_item", "payload": {
            "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}},
    ],
    "gemini": [
        {"sessionId": "a1b2", "projectHash": "x", "startTime": "t", "kind": "main"},
        {"$set": {"messages": [], "lastUpdated": "t"}},
        {"id": "1", "timestamp": "t", "type": "user", "content": [{"text": "Go"}]},
        {"id": "2", "timestamp": "t", "type": "gemini", "content": "Yes", "thoughts": []},
    ],
}  # fmt: skip
ROLES = {
    "claude-code": ["other", "user", "assistant", "system", "system", "other"],
    "codex": ["other", "user", "assistant", "tool", "other", "assistant"],
    "gemini": ["other", "other", "user", "assistant"],
}


def lines(kind: str) -> Iterator[bytes]:
    for one in SAID[kind]:
        yield json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def history(manager: SessionManager) -> list[dict[str, Any]]:
    found = checkpoints(manager)[-1].state["conversation_history"]
    assert isinstance(found, list)
    return found


def stop(agent: Agent) -> None:
    agent("AfterAgent" if agent.kind == "gemini" else "Stop")


@pytest.mark.parametrize("kind", SAID)
def test_a_conversation_grows_with_its_transcript_and_can_be_written_again(
    project: Path, tmp_path: Path, manager: SessionManager, kind: str
) -> None:
    path = tmp_path / "said.jsonl"
    agent = Agent(project, kind=kind, transcript_path=str(path))
    agent.start()
    assert "conversation_history" not in checkpoints(manager)[-1].state
    for count, line in enumerate(lines(kind), start=1):
        with path.open("ab") as file:
            file.write(line)
        stop(agent)
        assert len(history(manager)) == count
    items = history(manager)
    assert [one["role"] for one in items] == ROLES[kind]
    assert b"".join(line_of(one) + b"\n" for one in items) == path.read_bytes()
    assert not any("line" in one for one in items)
    assert next(one["content"] for one in items if one["role"] == "user") in (
        "Go",
        [{"type": "input_text", "text": "Go"}],
        [{"text": "Go"}],
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","message":{"role":"user","content":"a"}}',
        b'{ "type": "user", "message": {"role": "user", "content": "spaced"}}',
        b'{"type":"user","message":{"role":"user","content":"\\ud800"}}',
        b'{"type":"user","message":{"role":"user","content":"\xff"}}',
        b'{"a":1.0,"b":1e3,"c":100000000000000000000000,"a":2}',
        b'{"type":"user","message":{"content":null}}',
        b'{"type":"user","message":"text"}',
        b'["no object"]',
        b"no json",
        b"",
        b'{"$t":"ref","v":1}',
        '{"type":"system","content":"\u2028 \u00fc"}'.encode(),
    ],
    ids=range(12),
)  # fmt: skip
def test_every_line_comes_out_as_it_was(line: bytes, manager: SessionManager) -> None:
    session = manager.create_session("worker")
    items = [item_of(line, claude) for _ in range(200)]
    stored = session.save_checkpoint(state={"conversation_history": items}).state
    assert [line_of(one) for one in stored["conversation_history"]] == [line] * 200


def test_a_line_that_is_still_being_written_is_left_for_the_next_time(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    path = tmp_path / "said.jsonl"
    agent = Agent(project, transcript_path=str(path))
    first, second = list(lines("claude-code"))[:2]
    path.write_bytes(first + second[:20])
    agent("Stop")
    assert len(history(manager)) == 1
    path.write_bytes(first + second)
    agent("Stop")
    assert len(history(manager)) == 2
    assert history(manager)[1]["content"] == "Go"


def test_a_transcript_that_was_rewritten_is_read_anew(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    path = tmp_path / "said.jsonl"
    agent = Agent(project, transcript_path=str(path))
    all_lines = list(lines("claude-code"))
    path.write_bytes(b"".join(all_lines))
    agent("Stop")
    path.write_bytes(all_lines[1])
    agent("Stop")
    assert [one["role"] for one in history(manager)] == ["user"]
    path.write_bytes(b"".join(all_lines[1:]))
    agent("Stop")
    path.write_bytes(b"".join(all_lines[1:]).replace(b"Yes", b"Nay") + all_lines[0])
    agent("Stop")
    assert history(manager)[1]["content"] == [{"type": "text", "text": "Nay"}]
    assert len(history(manager)) == 6


def test_only_what_was_added_is_read(tmp_path: Path) -> None:
    path = tmp_path / "said.jsonl"
    line = b'{"type":"user","message":{"role":"user","content":"%s"}}\n' % (b"x" * 1000)
    path.write_bytes(line * 5000)
    known = read_addition(str(path), None).position
    with path.open("ab") as file:
        file.write(line * 2)
    again = read_addition(str(path), known)
    assert (again.anew, len(again.lines)) == (False, 2)
    assert read_addition(str(path), again.position).lines == []


def test_a_long_conversation_costs_what_was_added(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    path = tmp_path / "said.jsonl"
    agent = Agent(project, transcript_path=str(path))
    with path.open("w") as file:
        for number in range(5000):
            entry = {
                "type": "user",
                "uuid": str(number),
                "message": {"role": "user", "content": "x" * 500},
            }
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
    agent("Stop")
    before = manager.usage()[0].stored_bytes
    for number in range(5):
        with path.open("a") as file:
            file.write(
                json.dumps({"type": "user", "message": {"role": "user", "content": f"{number}"}})
                + "\n"
            )
        agent("Stop")
    assert len(history(manager)) == 5005
    assert manager.usage()[0].stored_bytes - before < 50_000


def test_after_a_rollback_the_conversation_goes_on_where_the_agent_is(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    path = tmp_path / "said.jsonl"
    agent = Agent(project, transcript_path=str(path))
    all_lines = list(lines("claude-code"))
    for line in all_lines[:4]:
        with path.open("ab") as file:
            file.write(line)
        agent("Stop")
    held = manager.hold_session(only_session(manager).id)
    held.rollback(checkpoints(manager)[0].id)
    assert len(held.state["conversation_history"]) == 1
    held.close()
    agent("Stop")
    assert len(history(manager)) == 4


def test_subagents_have_conversations_of_their_own(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    path, below = tmp_path / "said.jsonl", tmp_path / "agent-s1.jsonl"
    agent = Agent(project, transcript_path=str(path))
    all_lines = list(lines("claude-code"))
    path.write_bytes(all_lines[1])
    below.write_bytes(all_lines[1] + all_lines[2])
    stops = {"agent_id": "s1", "agent_type": "Explore", "agent_transcript_path": str(below)}
    agent("SubagentStop", **stops)
    with below.open("ab") as file:
        file.write(all_lines[3])
    agent("SubagentStop", **stops)
    agent("Stop")
    state = checkpoints(manager)[-1].state
    assert len(state["conversation_history"]) == 1
    assert [one["role"] for one in state["subagents"]["s1"]["conversation_history"]] == [
        "user",
        "assistant",
        "system",
    ]


def test_messages_that_come_with_the_event_are_the_conversation(
    project: Path, manager: SessionManager
) -> None:
    agent = Agent(project, kind="opencode")
    messages: list[dict[str, Any]] = [
        {"info": {"id": "1", "role": "user"}, "parts": [{"type": "text", "text": "Go"}]},
        {"info": {"id": "2", "role": "assistant"}, "parts": []},
    ]
    agent("Stop", messages=messages)
    messages[1]["parts"] = [{"type": "text", "text": "Yes"}]
    agent("Stop", messages=messages)
    agent("SubagentStop", agent_id="below", messages=messages[:1])
    agent("Stop")
    state = checkpoints(manager)[-1].state
    assert [json.loads(line_of(one)) for one in state["conversation_history"]] == messages
    assert len(state["subagents"]["below"]["conversation_history"]) == 1


def odd_paths(folder: Path) -> Iterator[tuple[str, Path | str]]:
    (folder / "directory.jsonl").mkdir()
    yield "a directory", folder / "directory.jsonl"
    os.mkfifo(folder / "pipe.jsonl")
    yield "a pipe", folder / "pipe.jsonl"
    yield "a device", "/dev/zero"
    yield "another file", "/etc/passwd"
    (folder / "text.jsonl").write_text("secret: 1\n")
    yield "no json", folder / "text.jsonl"
    yield "relative", "said.jsonl"
    yield "a NUL", "/said\x00.jsonl"
    (folder / "secret.jsonl").write_text("{}\n")
    (folder / "secret.jsonl").chmod(0)
    yield "missing", folder / "missing.jsonl"


def test_a_path_that_is_no_transcript_is_not_read(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    agent = Agent(project)
    for number, (name, path) in enumerate(odd_paths(tmp_path), start=1):
        assert agent("Stop", transcript_path=str(path)) == "", name
        assert len(checkpoints(manager)) == number
        assert "conversation_history" not in checkpoints(manager)[-1].state, name
    said = [
        one.message for one in manager.get_session(only_session(manager).id).logs(level="warning")
    ]
    # That a transcript is not there yet is no news.
    assert len(said) == 7
    assert all("is not kept" in one for one in said)


def test_an_unreadable_transcript_is_told_of(
    project: Path, tmp_path: Path, manager: SessionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "said.jsonl"
    path.write_bytes(b"".join(lines("claude-code")))
    agent = Agent(project, transcript_path=str(path))
    agent("Stop")
    real = os.open

    def refuse(name: Any, *arguments: Any, **options: Any) -> int:
        if name == str(path):
            raise PermissionError(13, "Permission denied")
        return real(name, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    agent("Stop")
    # What is known stays.
    assert len(history(manager)) == 6
    (line,) = manager.get_session(only_session(manager).id).logs(level="warning")
    assert "Permission denied" in line.message


def test_the_conversation_can_be_left_out(
    project: Path, tmp_path: Path, manager: SessionManager
) -> None:
    (project / ".agents" / "holdfast.toml").write_text("[hooks]\ntranscripts = false\n")
    path = tmp_path / "said.jsonl"
    path.write_bytes(b"".join(lines("claude-code")))
    Agent(project, transcript_path=str(path))("Stop")
    assert "conversation_history" not in checkpoints(manager)[-1].state
