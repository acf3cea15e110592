"""What coding agents do is saved without the secrets in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast import SessionManager
from tests.redaction import corpus
from tests.redaction.test_sessions import found_on_disk
from tests.workspace.pictures import make_repository


class Agent:
    """A coding agent that calls the real command."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.transcript = project.parent / "transcript.jsonl"
        self.transcript.touch()

    def __call__(self, event: str, **fields: Any) -> None:
        given = {
            "session_id": "a1b2c3",
            "transcript_path": str(self.transcript),
            "cwd": str(self.project),
            "hook_event_name": event,
            **fields,
        }
        subprocess.run(
            [sys.executable, "-m", "holdfast", "hook"],
            input=json.dumps(given).encode(), cwd=self.project, check=True, timeout=120,
            env={**os.environ, "HOLDFAST_URL": self.url}, capture_output=True,
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"sqlite:///{self.project}/.agents/sessions.db?compress=off"

    def says(self, text: str) -> None:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        line = {"type": "assistant", "uuid": os.urandom(8).hex(), "message": message}
        with self.transcript.open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    make_repository(root)
    return root


@pytest.mark.row("B9")
def test_prompts_commands_and_transcripts_are_kept_without_their_secrets(project: Path) -> None:
    dice = Random(1)
    kinds = ("github-token", "jwt")
    secrets = {kind: corpus.TOKENS[kind][0](dice) for kind in kinds}
    secrets["named"] = corpus.some(dice, corpus.ALNUM, 32)
    commit = corpus.some(dice, corpus.HEX, 40)
    agent = Agent(project)
    agent("SessionStart", source="startup")
    for kind, secret in secrets.items():
        shown = f"--api-key {secret}" if kind == "named" else secret
        # So long that what is kept of it ends in the middle of the secret.
        for room in (0, 140, 480) if kind in ("github-token", "named") else (0,):
            command = f"deploy {'x ' * (room // 2)} {shown} {commit}"
            agent.says(f"I run {command}")
            agent("UserPromptSubmit", prompt=f"{'y ' * (room // 2)} {shown} please")
            tool = {"tool_name": "Bash", "tool_input": {"command": command}}
            agent("PreToolUse", **tool)
            (project / "a.txt").write_text(f"{kind} {room}")
            agent("PostToolUse", **tool, tool_response={"stdout": shown})
            assert beginnings_on_disk(project / ".agents", secrets) == []
        break_up = {"todos": [{"content": f"use {shown}", "status": "pending"}]}
        agent("PostToolUse", tool_name="TodoWrite", tool_input=break_up)
        if kind not in ("github-token", "named"):
            continue
        agent("PreCompact", trigger="auto")
        agent("Stop")
    agent("SessionEnd", reason="exit")
    assert found_on_disk(project / ".agents", secrets) == []
    assert beginnings_on_disk(project / ".agents", secrets) == []
    with SessionManager.open(agent.url, project_dir=project) as manager:
        [record] = manager.list_sessions()
        state = manager.get_session(record.id).present_state()
    assert commit in str(state["conversation_history"])
    assert "[redacted:github-token:" in str(state["conversation_history"])


def beginnings_on_disk(folder: Path, secrets: dict[str, str]) -> list[str]:
    """Return the kinds of which even the first half is there."""
    return found_on_disk(folder, {kind: one[: len(one) // 2] for kind, one in secrets.items()})
