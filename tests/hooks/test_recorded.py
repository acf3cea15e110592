"""What real programs sent and left behind, recorded: events are understood, transcripts read whole or torn.

``recorded/<agent>/`` holds the events of one session in which the agent ran a command, read, edited and
wrote a file; the transcript of that session (``finished``); and that of one which was killed while it
waited for the model (``killed``). Paths are neutral, and the agents' own long texts are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, SessionManager
from holdfast.hooks import events
from holdfast.hooks.events import read_event
from holdfast.hooks.transcripts import add_conversation
from holdfast.hooks.transcripts.items import line_of

RECORDED = Path(__file__).parent / "recorded"
AGENTS = ["claude-code", "codex", "gemini", "opencode"]
TRANSCRIPTS = sorted(RECORDED.glob("*/*ed.jsonl"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.fixture
def session() -> Iterator[Session]:
    with SessionManager.open("memory:", workspace=False) as manager:
        yield manager.create_session("reader")


def read(state: dict[str, Any], agent: str, session: Session, **given: Any) -> dict[str, Any]:
    """Bring a state up to date, as the end of a turn does unless another event is given."""
    stop = "AfterAgent" if agent == "gemini" else "Stop"
    event = {"hook_event_name": stop, "session_id": "s", "cwd": "/project", **given}
    add_conversation(state, read_event(json.dumps(event).encode(), agent=agent), session, None)
    return state


def said(state: dict[str, Any]) -> str:
    return json.dumps([one["content"] for one in state["conversation_history"] if one["content"]])


@pytest.mark.parametrize("agent", AGENTS)
def test_every_event_that_a_program_sends_is_understood(agent: str) -> None:
    lines = (RECORDED / agent / "events.jsonl").read_bytes().splitlines()

    understood = [read_event(line, agent=agent) for line in lines]

    kinds = [one.kind for one in understood]
    assert kinds[0] == events.SESSION_START
    assert kinds[-2:] == [events.STOP, events.SESSION_END]
    assert kinds.count(events.BEFORE_TOOL) == kinds.count(events.AFTER_TOOL) == 4
    assert events.IGNORED not in kinds
    assert len({one.session_id for one in understood}) == 1
    assert {one.cwd for one in understood} == {"/project"}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=name_of)
def test_a_transcript_gives_the_conversation_and_every_line_back(
    path: Path, session: Session
) -> None:
    state = read({}, path.parent.name, session, transcript_path=str(path))

    lines = path.read_bytes().splitlines()
    assert [line_of(item) for item in state["conversation_history"]] == lines
    roles = {item["role"] for item in state["conversation_history"]}
    assert {"user", "assistant"} <= roles
    asked, answered = ("Do the work", "All done.")
    if path.stem == "killed":
        asked, answered = ("Start anew", "Back again.")
    assert asked in said(state)
    assert answered in said(state)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=name_of)
def test_a_transcript_cut_in_the_middle_of_any_line_ends_up_the_same(
    path: Path, session: Session, tmp_path: Path
) -> None:
    whole = path.read_bytes()
    copy = tmp_path / path.name
    copy.write_bytes(whole)
    wanted = read({}, path.parent.name, session, transcript_path=str(copy))

    start = 0
    for number, line in enumerate(whole.splitlines(keepends=True)):
        copy.write_bytes(whole[: start + len(line) // 2])
        torn = read({}, path.parent.name, session, transcript_path=str(copy))
        assert torn["conversation_history"] == wanted["conversation_history"][:number]
        copy.write_bytes(whole)
        assert read(torn, path.parent.name, session, transcript_path=str(copy)) == wanted
        start += len(line)


def test_a_session_that_starts_again_with_another_file_keeps_its_conversation(
    session: Session, tmp_path: Path
) -> None:
    """Gemini CLI resumed: the first event names a new file, the following ones the old."""
    old, new = RECORDED / "gemini" / "killed.jsonl", tmp_path / "new.jsonl"
    new.write_bytes(old.read_bytes().splitlines(keepends=True)[0])
    state = read({}, "gemini", session, transcript_path=str(old))
    before = dict(state)

    start = {"hook_event_name": "SessionStart", "source": "resume"}
    assert read(state, "gemini", session, transcript_path=str(new), **start) == before
    assert read(state, "gemini", session, transcript_path=str(old)) == before


def test_the_messages_of_opencode_come_with_the_event(session: Session) -> None:
    messages = json.loads((RECORDED / "opencode" / "finished.json").read_bytes())

    torn = read({}, "opencode", session, messages=messages[:2])
    whole = read(torn, "opencode", session, messages=messages)

    assert whole == read({}, "opencode", session, messages=messages)
    assert len(whole["conversation_history"]) == len(messages)
    assert [one["role"] for one in whole["conversation_history"]] == [
        "user",
        *["assistant"] * (len(messages) - 1),
    ]
    assert "Do the work" in said(whole)
    assert "All done." in said(whole)


def test_a_message_with_half_a_character_in_it_is_kept_with_the_others(session: Session) -> None:
    messages = json.loads((RECORDED / "opencode" / "finished.json").read_bytes())
    messages[1]["parts"].append({"type": "text", "text": "cut \ud83d", "of": 2**70})

    kept = read({}, "opencode", session, messages=messages)["conversation_history"]

    assert [json.loads(line_of(item)) for item in kept] == messages
