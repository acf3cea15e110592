"""A worker dies without a word; another process goes on from its last checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import SessionManager

WORKER = """
import sys
from holdfast import SessionManager

url, session_id, steps_file, stop_after = sys.argv[1:]
manager = SessionManager.open(url, workspace=False)
if session_id == "new":
    agent = manager.create_agent("worker", agent_type="worker", status="running")
    session = manager.create_session("worker", agent_id=agent.id)
    state = {"step": 0, "results": []}
else:
    session = manager.resume_session(session_id)
    manager.update_agent(session.agent_id, status="running")
    state = session.state
print(session.id, flush=True)
while state["step"] < 10:
    state["step"] += 1
    state["results"].append(f"result {state['step']}")
    session.save_checkpoint(state=state, retention_class="step")
    with open(steps_file, "a") as file:
        print(state["step"], file=file)
    if state["step"] == int(stop_after):
        print("stopped", flush=True)
        sys.stdin.read()
session.complete()
"""


def start(url: str, session_id: str, steps: Path, stop_after: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, url, session_id, str(steps), str(stop_after)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.row("S0-01", "S0-18", "S1-05")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_work_goes_on_after_sigkill(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "s.db") if backend == "sqlite" else request.getfixturevalue("postgres_url")
    steps = tmp_path / "steps"
    with start(url, "new", steps, stop_after=6) as worker:
        assert worker.stdout is not None
        session_id = worker.stdout.readline().strip()
        assert worker.stdout.readline().strip() == "stopped"
        os.kill(worker.pid, signal.SIGKILL)
    with start(url, session_id, steps, stop_after=0) as worker:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    assert steps.read_text().split() == [str(n) for n in range(1, 11)]
    with SessionManager.open(url, workspace=False) as manager:
        session = manager.get_session(session_id)
        assert session.status == "completed"
        assert session.latest_checkpoint().state["results"] == [f"result {n}" for n in range(1, 11)]
        assert manager.verify().ok


@pytest.mark.row("S0-01")
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_paused_agent_continues_in_a_new_process(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "s.db") if backend == "sqlite" else request.getfixturevalue("postgres_url")
    steps = tmp_path / "steps"
    with SessionManager.open(url, workspace=False) as manager:
        agent = manager.create_agent("worker", agent_type="worker", status="running")
        session = manager.create_session("worker", agent_id=agent.id)
        session.save_checkpoint("pausing", state={"step": 4, "results": ["result 4"]})
        assert manager.update_agent(agent.id, status="paused").status == "paused"
    with start(url, session.id, steps, stop_after=0) as worker:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    assert steps.read_text().split() == ["5", "6", "7", "8", "9", "10"]
    with SessionManager.open(url, workspace=False) as manager:
        assert manager.get_agent(agent.id).status == "running"
