"""What an agent waits for when it reports an event: whole processes of `holdfast hook`, cold each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Row, Run, median, show_bytes, show_time, take_turns
from benchmarks.workspace import Project, settle
from holdfast import SessionManager

STATUS_RATIO = 3.0
START_RATIO = 5.0
MOST_SECONDS = 0.150
GROWTH_RATIO = 1.5
# What the installed script does.
_SCRIPT = "import sys; from holdfast.cli import main; sys.exit(main())"


class Agent:
    """An agent that reports events of one session."""

    def __init__(self, project: Path, session_id: str, **always: Any) -> None:
        self.project = project
        self.always = {"session_id": session_id, "cwd": str(project), **always}
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        self.env = os.environ | {"PYTHONPATH": path}

    def __call__(self, event: str, **fields: Any) -> None:
        given = {**self.always, "hook_event_name": event, **fields}
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, "hook", "--agent", "claude-code"],
            input=json.dumps(given).encode(),
            env=self.env,
            cwd=self.project,
            capture_output=True,
            check=True,
        )
        if done.stdout or done.stderr:
            raise RuntimeError(f"{event}: {done.stdout!r} {done.stderr!r}")

    def tool(self, name: str, *, before: bool = True) -> None:
        self(
            "PreToolUse" if before else "PostToolUse",
            tool_name=name,
            tool_input={"command": "make", "file_path": str(self.project / "new.py")},
        )


def measure(run: Run) -> list[Row]:
    project = Project(run.directory / "hooked", run.size(5000, 500))
    agent = Agent(project.root, "3f0c9a52-8a0e-4b1d-9c59-2f6f4f1d7e11")
    agent("SessionStart", source="startup")
    settle()
    agent.tool("Bash")
    agent("Stop")
    agent.tool("Bash")
    return [
        _unchanged(run, project, agent),
        _nothing(run, agent),
        _transcript(run, project.root),
    ]


def _unchanged(run: Run, project: Project, agent: Agent) -> Row:
    sides = (lambda: project.git("status"), lambda: agent.tool("Bash"))
    theirs, ours = map(median, take_turns(run.size(25, 5), *sides))
    return Row(
        figure=f"hook: before a tool, {len(project.files):,} files, none changed",
        peer=f"`git status` {show_time(theirs)}",
        ours=show_time(ours),
        ratio=f"{ours / theirs:.2f} × its time",
        target=f"≤ {STATUS_RATIO:g} × its time and {show_time(MOST_SECONDS)}",
        met=ours <= STATUS_RATIO * theirs and ours < MOST_SECONDS,
        note="whole processes in turn, the interpreter's start included; every file is looked at",
        values={"peer_seconds": theirs, "our_seconds": ours},
    )


def _nothing(run: Run, agent: Agent) -> Row:
    def bare() -> None:
        subprocess.run([sys.executable, "-c", "pass"], env=agent.env, check=True)

    sides = (
        bare,
        lambda: agent.tool("Read"),
        lambda: agent.tool("Write", before=False),
    )
    theirs, ours, noted = map(median, take_turns(run.size(25, 5), *sides))
    return Row(
        figure="hook: an event that needs no checkpoint",
        peer=f"`python -c pass` {show_time(theirs)}",
        ours=show_time(ours),
        ratio=f"{ours / theirs:.2f} × its time",
        target=f"≤ {START_RATIO:g} × its time",
        met=max(ours, noted) <= START_RATIO * theirs,
        note=f"before a tool that reads; after one that writes, which is noted, {show_time(noted)}",
        values={"peer_seconds": theirs, "our_seconds": ours, "noted_seconds": noted},
    )


def _transcript(run: Run, root: Path) -> Row:
    few, many = 50, run.size(5000, 1000)
    agents = {}
    for count in (few, many):
        path = run.directory / f"said-{count}.jsonl"
        with path.open("w") as file:
            for number in range(count):
                file.write(_line(number))
        agents[count] = path, Agent(root, f"said-{count}", transcript_path=str(path))

    def turn(count: int) -> None:
        path, agent = agents[count]
        with path.open("a") as file:
            file.write(_line(0))
        agent("Stop")

    for count in agents:
        turn(count)
    before = _stored(root, f"said-{many}")
    rounds = run.size(11, 3)
    short, long = map(median, take_turns(rounds, lambda: turn(few), lambda: turn(many)))
    grown = (_stored(root, f"said-{many}") - before) / rounds
    return Row(
        figure=f"hook: end of a turn, one line added to a transcript of {many:,}",
        peer=f"to one of {few} {show_time(short)}",
        ours=show_time(long),
        ratio=f"{long / short:.2f} × its time",
        target=f"≤ {GROWTH_RATIO:g} × its time",
        met=long <= GROWTH_RATIO * short,
        note=f"the line has {show_bytes(len(_line(0)))}; a checkpoint stores {show_bytes(grown)} anew",
        values={"peer_seconds": short, "our_seconds": long, "stored": grown},
    )


def _line(number: int) -> str:
    entry = {
        "type": "user",
        "uuid": f"{number:08}",
        "message": {"role": "user", "content": f"{number} said " * 60},
    }
    return json.dumps(entry, separators=(",", ":")) + "\n"


def _stored(root: Path, agent_session: str) -> int:
    with SessionManager.open(project_dir=root) as manager:
        key = {"agent_session": f"claude-code:{agent_session}"}
        (record,) = manager.list_sessions(metadata=key)
        return next(one.stored_bytes for one in manager.usage() if one.session_id == record.id)
