"""Real processes: one suspends, another decides, a third goes on; some are killed; some race."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.agent.scripts import Traces

ROOT = Path(__file__).parent.parent.parent
Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "postgres"])
def start(request: pytest.FixtureRequest, tmp_path: Path, traces: Traces) -> Start:
    """Starts an agent in a process of its own."""
    url = str(tmp_path / "agent.db")
    if request.param == "postgres":
        url = request.getfixturevalue("agents_url")
    table = f"t_{uuid.uuid4().hex[:12]}"

    def start(command: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.agent.program", url, table, str(traces.path), command,
             json.dumps(options)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


def said(process: subprocess.Popen[str]) -> Any:
    """Wait for a process and return what it said last."""
    with process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


def kill_holding(process: subprocess.Popen[str]) -> None:
    """Kill a process in the middle of its tool."""
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "holding"
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.row("S3-23")
def test_an_approver_of_another_process_is_asked(start: Start, traces: Traces) -> None:
    assert said(start("run")) == {"suspended": ["pay approval"]}
    assert traces() == ["send_mail ann"]
    assert said(start("resume", approve=True))["text"] == "done"
    assert traces() == ["send_mail ann", "refund 7 20"]


@pytest.mark.row("S3-26", "S3-27")
@pytest.mark.parametrize(
    ("decision", "ran"),
    [
        ("approve", ["refund 7 20"]),
        ({"action": "modify", "arguments": {"order": "7", "amount": 5}}, ["refund 7 5"]),
        ({"action": "reject", "reason": "no"}, []),
        ("suspend", None),
    ],
    ids=["approve", "modify", "reject", "suspend"],
)
def test_one_process_suspends_another_decides_a_third_goes_on(
    start: Start, traces: Traces, decision: Any, ran: list[str] | None
) -> None:
    assert said(start("run")) == {"suspended": ["pay approval"]}
    assert said(start("decide", decisions={"pay": decision})) == {"asked": ["pay"]}
    if ran is None:
        assert said(start("resume")) == {"suspended": ["pay approval"]}
        assert said(start("resume", decisions={"pay": "approve"}))["text"] == "done"
        ran = ["refund 7 20"]
    else:
        assert said(start("resume")) == {"text": "done", "usage": 30}
    assert traces() == ["send_mail ann", *ran]
    assert said(start("resume", approve=True)) == {"error": "already_resumed"}
    assert traces() == ["send_mail ann", *ran]


@pytest.mark.row("S3-24")
def test_a_killed_run_goes_on_at_its_last_step(start: Start, traces: Traces) -> None:
    kill_holding(start("run", script="hold again", wait=True))
    assert traces() == ["send_mail ann", "hold x"]
    # The step before is not repeated; the tool at work is, since that does it no harm.
    assert said(start("resume", script="hold again")) == {"text": "done", "usage": 45}
    assert traces() == ["send_mail ann", "hold x", "hold x"]


@pytest.mark.row("S3-24")
@pytest.mark.parametrize(
    ("decision", "ran"),
    [("approve", 2), ({"action": "answer", "result": "held x"}, 1), ("reject", 1)],
    ids=["approve", "answer", "reject"],
)
def test_a_tool_that_was_killed_waits_for_a_decision(
    start: Start, traces: Traces, decision: Any, ran: int
) -> None:
    kill_holding(start("run", script="hold", wait=True))
    # Whoever approves everything is not asked about what may have happened.
    for _ in range(2):
        found = said(start("resume", script="hold", approve=True))
        assert found == {"suspended": ["hold unknown"]}
    assert traces() == ["send_mail ann", "hold x"]
    found = said(start("resume", script="hold", decisions={"hold": decision}))
    assert found["text"] == "done"
    assert traces() == ["send_mail ann", *["hold x"] * ran]


def test_a_run_at_work_is_left_alone_until_it_is_forked(start: Start, traces: Traces) -> None:
    worker = start("run", script="hold", wait=True)
    assert worker.stdout is not None
    assert worker.stdout.readline().strip() == "holding"
    assert said(start("resume", script="hold")) == {"error": "already_resumed"}
    # Taken for dead by somebody who should know: it waits for a decision about the tool, and the
    # worker, which lives, stops at its next save.
    assert said(start("resume", script="hold", fork=True)) == {"suspended": ["hold unknown"]}
    assert said(worker) == {"error": "already_resumed"}
    found = said(start("resume", script="hold", decisions={"hold": "reject"}))
    assert found["text"] == "done"
    assert traces() == ["send_mail ann", "hold x"]


@pytest.mark.row("S3-29")
def test_of_processes_that_resume_at_once_exactly_one_goes_on(start: Start, traces: Traces) -> None:
    assert said(start("run")) == {"suspended": ["pay approval"]}
    racers = [start("resume", approve=True, start="together") for _ in range(4)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline().strip() == "ready"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outcomes = [said(racer) for racer in racers]
    assert outcomes.count({"error": "already_resumed"}) == 3
    assert outcomes.count({"text": "done", "usage": 30}) == 1
    assert traces() == ["send_mail ann", "refund 7 20"]


@pytest.mark.row("S3-24")
@pytest.mark.parametrize("save_on", ["message", "invocation"])
def test_an_approved_tool_that_was_killed_is_not_run_again_whatever_the_strategy(
    start: Start, traces: Traces, save_on: str
) -> None:
    options = {"script": "approved hold", "save_on": save_on}
    assert said(start("run", **options)) == {"suspended": ["slow approval"]}
    kill_holding(start("resume", approve=True, wait=True, **options))
    assert said(start("resume", approve=True, **options)) == {"suspended": ["slow unknown"]}
    assert said(start("resume", decisions={"slow": False}, **options))["text"] == "done"
    assert traces() == ["hold y"]
